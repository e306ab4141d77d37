"""`anabranch bench rebalance`: the cost of moving shards and of changing slots, with a large state.

The state has a million keys. Each question has its own run, on the same input:

- After the popularity of keys is shuffled, for how many steps is a slot above theta times the mean?
- How much longer does a step take in which shards move to another slot?
- How long does a change of slots interrupt the run? How long does Spark's way take: stop,
repartition the state offline, start again?
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console

import anabranch as ab
from anabranch.bench.command import BatchRows, bench_command
from anabranch.bench.data import InputFiles
from anabranch.bench.elastic.command import Waits
from anabranch.bench.elastic.repartition import Repartitioned, repartitioned
from anabranch.bench.keyed.input import FILL_ROWS, KeyedSpec, write_keyed_input
from anabranch.bench.options import SidesOptions
from anabranch.bench.rivals import read_stream
from anabranch.bench.side import Bench, clear, clocked, emptied, open_bench
from anabranch.elastic.observation import Observation, by_slot
from anabranch.errors import AnabranchError
from anabranch.plan.lifting import LIFT_FIRST
from anabranch.plan.route import Route
from anabranch.state.checkpoint.history import read_history
from anabranch.testing.reference.database import connect
from anabranch.testing.restless import act_after

_QUIET = 4  # usual steps between two changes
_FLOOR_S = 0.01  # an interruption that cannot be measured counts as this
_ROW_S = 1e-5  # time of a row in its slot while balancing is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceOptions(SidesOptions):
    """The options of `anabranch bench rebalance`; at first each of the `rows` keys comes once."""

    rows: Annotated[int, typer.Option("--keys", metavar="N", help="Keys in the state.")] = 1_000_000
    batch_rows: BatchRows = 100_000
    slots: Annotated[
        int | None, typer.Option(metavar="N", help="Slots, and partitions of native Spark.")
    ] = 8
    shuffles: Annotated[
        int, typer.Option(metavar="N", help="How often keys change their popularity.")
    ] = 3
    every: Annotated[
        int, typer.Option(metavar="N", help="Batches from one shuffle to the next.")
    ] = 25
    changes: Annotated[
        int, typer.Option(metavar="N", help="Reroutes, and resizes, that are measured.")
    ] = 12
    theta: Annotated[
        float,
        typer.Option(metavar="X", help="Most loaded slot over the mean: shards move above this."),
    ] = 1.2
    # Not options of the command.
    rows_per_minute: int = 1_000_000
    disorder_s: float = 10.0
    rounds: int = 3
    minutes: float = 12.0
    keep: Path | None = None

    def __post_init__(self) -> None:
        SidesOptions.__post_init__(self)
        self.check_positive("shuffles", "every", "changes")

    def spec(self, every: int, shuffles: int) -> KeyedSpec:
        return KeyedSpec(
            keys=self.rows,
            batch_rows=self.batch_rows,
            every=every,
            shuffles=shuffles,
            skew=self.skew,
            seed=self.seed,
        )


def _moved(route: Route, moves: int, rng: random.Random) -> list[int]:
    """The route with `moves` random shards moved to the next slot."""
    table = list(route.slot_of)
    for shard in rng.sample(range(len(table)), moves):
        table[shard] = (table[shard] + 1) % route.slots
    return table


def rebalance(options: RebalanceOptions, out: TextIO) -> dict[str, Any]:
    """Runs the benchmark, and prints its progress on `out`.

    Returns the figures as in `--json`.
    """
    began = time.monotonic()
    with open_bench(options, began + options.minutes * 60, clocked(out)) as bench:
        figures: dict[str, Any] = {"bench": "rebalance"}
        shuffled = write_keyed_input(
            options.spec(options.every, options.shuffles), bench.root / "shuffled"
        )
        bench.say(
            f"{options.rows:,} keys, then {options.shuffles} shuffles of them, {options.every} "
            "batches each"
        )
        figures["rebalance"] = _rebalanced(bench, shuffled)
        bench.say(
            "steps until all slots are below theta after a shuffle: "
            f"{figures['rebalance']['steps_to_balance']}"
        )
        source = write_keyed_input(
            options.spec((_QUIET + 1) * (2 * options.changes + 1), 0), bench.root / "changed"
        )
        moved = figures["rebalance"]["shards_moved"]
        figures |= _changed(bench, source, round(median(moved)) if moved else bench.slots // 2)
        bench.say(
            f"a reroute adds {figures['reroute']['adds']:.1%}, a resize "
            f"{figures['resize']['interruption_s']:.3f} s"
        )
        if options.native:
            figures["resize"] |= _native(bench, source, figures["resize"]["interruption_s"])
            bench.say(f"native: {figures['resize']['native_interruption_s']:.1f} s")
        figures["verified"] = not any(
            figures[name].get("differences") for name in ("rebalance", "resize")
        )
        figures["settings"] = _settings(bench, time.monotonic() - began)
    return figures


def _start(
    bench: Bench[RebalanceOptions],
    source: InputFiles,
    place: Path,
    elastic: ab.Elastic | None,
    counted: ab.Aggregate,
) -> ab.Run:
    app = ab.Topology("rebalance")
    rows = app.source(
        read_stream(bench.spark, source), event_time="at", delay=f"{source.delay_s} seconds"
    )
    held = rows.aggregate(
        by=["key"], windows=ab.tumbling("1 hour"), n=counted, total=ab.sum("v"), name="held"
    )
    held.to(ab.parquet(str(emptied(place) / "results")))
    return app.start(
        checkpoint=str(place / "checkpoint"),
        slots=bench.slots,
        availableNow=True,
        idle=None,
        state_root=str(bench.state_root),
        elastic=elastic,
        lift=LIFT_FIRST,
    )


def _finish(
    bench: Bench[RebalanceOptions], run: ab.Run, source: InputFiles, place: Path
) -> dict[str, Any]:
    """Closes the window of all keys, and compares every row with DuckDB."""
    run.awaitTermination()
    if not bench.options.verify:
        return {}
    run.finish()
    found = f"SELECT key, n, total FROM read_parquet('{place}/results/*.parquet')"
    rows = f"read_parquet('{source.directory}/*.parquet')"
    wanted = f"SELECT key, count(*), sum(v)::BIGINT FROM {rows} GROUP BY key"
    db = connect()
    counts = [
        _number(db.execute(f"SELECT count(*) FROM ({query})").fetchone())
        for query in (found, f"{found} EXCEPT ALL {wanted}", f"{wanted} EXCEPT ALL {found}")
    ]
    db.close()
    return {"rows_compared": counts[0], "differences": counts[1] + counts[2]}


def _number(row: tuple[Any, ...] | None) -> int:
    return int(row[0]) if row else 0


def _rebalanced(bench: Bench[RebalanceOptions], source: InputFiles) -> dict[str, Any]:
    """A run that balances itself, while the popularity of its keys is shuffled now and then.

    An aggregate in Python takes some time for each row: rows that are combined before they are sent
    leave little to balance.
    """
    options, place = bench.options, bench.root / "balanced"
    elastic = ab.Elastic(policy="static", theta=options.theta, replan=False, max_slots=bench.slots)
    run = _start(bench, source, place, elastic, ab.udaf(Waits(_ROW_S))("v"))
    compared = _finish(bench, run, source, place)
    steps = [each for each in read_history(str(place / "checkpoint")) if not each.closing]
    first = -(-options.rows // FILL_ROWS)
    periods = [
        steps[first + i * options.every : first + (i + 1) * options.every]
        for i in range(1, options.shuffles + 1)
    ]
    clear(bench, place)
    return {
        "theta": options.theta,
        "every": options.every,
        "imbalance_after_shuffle": [round(_imbalance(period[0]), 3) for period in periods],
        "steps_to_balance": [_until(period, options.theta) for period in periods],
        "steps_above_theta": [_above(period, options.theta) for period in periods],
        "imbalance_after_two_steps": [
            round(max(map(_imbalance, period[2:])), 3) for period in periods
        ],
        "rows_after_shuffle": [round(_imbalance_of_rows(period[0]), 3) for period in periods],
        "rows_after_two_steps": [
            round(max(map(_imbalance_of_rows, period[2:])), 3) for period in periods
        ],
        "reroutes": sum(event.kind == "reroute" for event in run.events),
        "shards_moved": [
            int(event.figures["held: shards moved"])
            for event in run.events
            if "held: shards moved" in event.figures
        ],
        "step_s": round(median(each.duration_s for each in steps[first:]), 4),
        **compared,
    }


def _above(period: Sequence[Observation], theta: float) -> int:
    """Steps with a slot above theta, even if by chance.

    Steps in which a single shard is above theta do not count.
    """
    return sum(_imbalance(each) > theta for each in period if not _alone(each, theta))


def _until(period: Sequence[Observation], theta: float) -> int:
    """Steps from the shuffle until all slots are below theta.

    A step in which a single shard is above theta ends it too.
    """
    return next(
        (i for i, each in enumerate(period) if _alone(each, theta) or _imbalance(each) <= theta),
        len(period),
    )


def _alone(seen: Observation, theta: float) -> bool:
    component = seen.components[0]
    return float(component.work_s.max()) * component.route.slots > theta * float(
        component.work_s.sum()
    )


def _imbalance(seen: Observation) -> float:
    """Elasticutor's delta: the measured work of the most loaded slot over the mean."""
    component = seen.components[0]
    work_s = by_slot(component.work_s, component.route)
    return float(work_s.max() * component.route.slots / max(work_s.sum(), 1e-9))


def _imbalance_of_rows(seen: Observation) -> float:
    component = seen.components[0]
    return _imbalance(replace(seen, components=(replace(component, busy_s=component.rows),)))


def _changed(bench: Bench[RebalanceOptions], source: InputFiles, moves: int) -> dict[str, Any]:
    """A run in which `moves` shards get another slot, or slots change, every few steps."""
    options, place = bench.options, bench.root / "changing"
    first = -(-options.rows // FILL_ROWS) + 2 * _QUIET
    acts: dict[int, int | str] = {}
    for number in range(2 * options.changes):
        back = bench.slots if number % 4 == 3 else max(1, bench.slots // 2)
        acts[first + number * (_QUIET + 1)] = "reroute" if number % 2 == 0 else back
    run = _start(bench, source, place, None, ab.count())
    rng = random.Random(options.seed)

    def changed(act: int | str) -> None:
        run.resize(act) if isinstance(act, int) else run.reroute(
            _moved(next(iter(run._stepper.state.routes.values())), moves, rng)  # noqa: SLF001
        )

    act_after(run, {step - 1: [partial(changed, act)] for step, act in acts.items()})
    compared = _finish(bench, run, source, place)
    steps = {each.step: each for each in run.recentProgress if each.batch_id is not None}
    kinds: dict[str, list[int]] = {"reroute": [], "resize": []}
    for step, act in acts.items():
        kinds["reroute" if act == "reroute" else "resize"].append(step)
    events = {event.step: event.kind for event in run.events if event.kind in kinds}
    if any(events.get(step) != kind for kind, mine in kinds.items() for step in mine):
        raise AnabranchError(f"requested changes did not happen: {acts}, {events}")
    found: dict[str, Any] = {}
    for kind, mine in kinds.items():
        usual = [
            median(steps[near].duration_s for near in range(step - _QUIET, step)) for step in mine
        ]
        taken = [steps[step].duration_s for step in mine]
        more = [a - b for a, b in zip(taken, usual, strict=True)]
        found[kind] = {
            "changes": len(mine),
            **({"shards_moved": moves} if kind == "reroute" else {}),
            "usual_step_s": round(median(usual), 4),
            "step_s": round(median(taken), 4),
            "adds": round(median(more) / median(usual), 4),
            "interruption_s": round(max(_FLOOR_S, median(more)), 4),
            "each_s": [round(each, 4) for each in more],
        }
    found["resize"] |= compared
    clear(bench, place)
    return found


def _native(bench: Bench[RebalanceOptions], source: InputFiles, ours_s: float) -> dict[str, Any]:
    place = bench.root / "native"
    batches = -(-bench.options.rows // FILL_ROWS) + 3 * _QUIET
    theirs: Repartitioned = repartitioned(
        bench.spark, source, place, bench.slots, max(1, bench.slots // 2), batches
    )
    clear(bench, place)
    return {
        "native_interruption_s": round(theirs.seconds, 3),
        "native": {name: round(value, 3) for name, value in asdict(theirs).items()},
        "ratio": round(theirs.seconds / ours_s, 1),
    }


def _settings(bench: Bench[RebalanceOptions], seconds: float) -> dict[str, Any]:
    options = bench.options
    return {
        "keys": options.rows,
        "batch_rows": options.batch_rows,
        "skew": options.skew,
        "shards": 64,
        "slots": bench.slots,
        "cores": bench.cores,
        "shuffles": options.shuffles,
        "every": options.every,
        "seed": options.seed,
        "native": "RocksDB state store with changelog; StreamingCheckpointManager.repartition",
        "spark": bench.spark.version,
        "seconds": round(seconds, 1),
    }


def show_rebalance(figures: dict[str, Any], console: Console) -> None:
    """Prints the figures in a few lines."""
    balance, reroute, resize = (figures[name] for name in ("rebalance", "reroute", "resize"))
    lines = [
        (
            f"after a shuffle, steps until all slots are below theta {balance['theta']}: "
            f"{balance['steps_to_balance']}"
        ),
        f"steps above it, of {balance['every']}, chance included: {balance['steps_above_theta']}",
        (
            f"most loaded slot over mean: {balance['imbalance_after_shuffle']} at first, "
            f"{balance['imbalance_after_two_steps']} later"
        ),
        f"a reroute adds {reroute['adds']:.1%} to its step of {reroute['usual_step_s']:.3f} s",
        f"a resize interrupts for {resize['interruption_s']:.3f} s",
    ]
    if "ratio" in resize:
        lines.append(
            f"Spark's way takes {resize['native_interruption_s']:.1f} s: {resize['ratio']:.0f} "
            "times as long"
        )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


rebalance_command = bench_command(
    RebalanceOptions,
    rebalance,
    show_rebalance,
    """The cost of moving shards and of changing slots, on a state of a million keys.

    Also measures Spark's own way to change the number of partitions.

    Example: anabranch bench rebalance --keys 200000 --batch-rows 50000
    """,
)
