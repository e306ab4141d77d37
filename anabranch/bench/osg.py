"""`anabranch bench osg`: rows whose time depends on their value, given to slots in three ways.

The ways are by cost, in turn, and by hash. The operator is the sensitive one of DABS-Storm: values
follow zipf 1.5, and each has a time of its own. The operator waits for that time, so any number of
slots run side by side on any number of cores.

The three groupings are three runs of the same stream in one Spark session, and take their steps in
turns. Halfway all values get other times. Every result is compared with the expected one.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyspark.sql import SparkSession
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

import anabranch as ab
from anabranch.bench.command import Seed, bench_command
from anabranch.errors import AnabranchError, TopologyError, unknown
from anabranch.spark.session import spark_session
from anabranch.topology.apply import HASH, OSG, ROUND_ROBIN, Osg

GROUPINGS = (OSG, ROUND_ROBIN, HASH)
SPREADS = ("log", "linear")
_SCHEMA = "id bigint, value bigint, phase int, at timestamp"
# A step has adapted when its imbalance (busiest slot over mean) is at most this much above the
# imbalance before the change.
_ADAPTED = 0.05
_IN_A_ROW = 3
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OsgOptions:
    """The options of `anabranch bench osg`."""

    slots: Annotated[int, typer.Option(metavar="N", help="Parallel tasks of the operator.")] = 8
    steps: Annotated[
        int, typer.Option(metavar="N", help="Steps of each grouping; halfway all times change.")
    ] = 24
    rows: Annotated[int, typer.Option(metavar="N", help="Rows per step.")] = 320
    values: Annotated[int, typer.Option(metavar="N", help="Distinct values.")] = 1024
    skew: Annotated[
        float, typer.Option(metavar="S", help="Zipf exponent of the values; 0 is uniform.")
    ] = 1.5
    least_ms: Annotated[
        float, typer.Option(metavar="MS", help="The time of the cheapest value.")
    ] = 4.0
    most_ms: Annotated[
        float, typer.Option(metavar="MS", help="The time of the most expensive value.")
    ] = 256.0
    spread: Annotated[
        str,
        typer.Option(
            metavar="log|linear",
            help="How times are spread between the two: in equal ratios, or evenly.",
        ),
    ] = "log"
    partitions: Annotated[
        int,
        typer.Option(
            metavar="N", help="Partitions of the source: each has a scheduler of its own."
        ),
    ] = 2
    window: Annotated[
        int, typer.Option(metavar="N", help="Rows of a slot between two checks of its sketches.")
    ] = 32
    mu: Annotated[
        float, typer.Option(metavar="MU", help="Change below which sketches are stable.")
    ] = 0.2
    epsilon: Annotated[float, typer.Option(metavar="E", help="Error of the sketches.")] = 0.05
    delta: Annotated[float, typer.Option(metavar="D", help="Probability of a larger error.")] = 0.05
    warm: Annotated[
        int,
        typer.Option(
            metavar="N", help="Steps at the beginning, and after the change, that do not count."
        ),
    ] = 5
    seed: Seed = 1

    def __post_init__(self) -> None:
        for name in ("slots", "rows", "values", "partitions"):
            if getattr(self, name) < 1:
                raise TopologyError(f"--{name} {getattr(self, name)}; valid: 1 or more")
        if not 1 <= self.warm < self.change:
            raise TopologyError(
                f"--warm {self.warm}; valid: 1 to {self.change - 1}, below half of --steps "
                f"{self.steps}"
            )
        if not 0 < self.least_ms <= self.most_ms:
            raise TopologyError(
                f"--least-ms {self.least_ms} and --most-ms {self.most_ms}; valid: above 0, the "
                "least first"
            )
        if self.spread not in SPREADS:
            raise TopologyError(unknown("--spread", self.spread, SPREADS))
        if self.skew < 0:
            raise TopologyError(f"--skew {self.skew}; valid: 0 or more")
        self.osg  # noqa: B018 - refuses what makes no sense

    @property
    def change(self) -> int:
        """The first step with other times."""
        return self.steps // 2

    @property
    def osg(self) -> Osg:
        return Osg(
            epsilon=self.epsilon, delta=self.delta, window=self.window, mu=self.mu, seed=self.seed
        )


@dataclass(frozen=True, slots=True)
class Sensitive:
    """An operator that waits for the time of a row's value; times change with the phase."""

    seconds: tuple[tuple[float, ...], ...]  # by phase and value

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(self.seconds[row["phase"]][row["value"]])
        return {
            "id": row["id"],
            "made": result_of(row["id"], row["value"], row["phase"]),
            "done": time.time(),
        }


def result_of(number: int, value: int, phase: int) -> int:
    """The result of the operator for a row."""
    return (31 * number + 7 * value + phase) % 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedStep:
    """One step of one grouping."""

    grouping: str  # the grouping that this step used
    makespan_s: float
    ideal_s: float  # the time of all rows divided by the slots
    mean_s: float  # from the start of the first slot to the completion of a row
    p95_s: float
    busiest_s: float  # time of the rows of the busiest slot; Spark needs the rest of the makespan
    imbalance: float  # busiest_s over the mean of all slots
    estimate_error: float | None


def times_of(options: OsgOptions) -> Sensitive:
    """The time of each value before and after the change.

    It is one of 64 times between least and most, spread evenly or in equal ratios.
    """
    rng = np.random.default_rng(options.seed)
    spaced = np.linspace if options.spread == "linear" else np.geomspace
    before = (
        spaced(options.least_ms, options.most_ms, 64)[rng.integers(0, 64, options.values)] / 1e3
    )
    return Sensitive((tuple(before.tolist()), tuple(rng.permutation(before).tolist())))


def batches_of(options: OsgOptions) -> list[pa.Table]:
    """The rows of each step."""
    rng = np.random.default_rng(options.seed + 1)
    weights = 1 / np.arange(1, options.values + 1) ** options.skew
    found = []
    for step in range(options.steps):
        first = step * options.rows
        phase = int(step >= options.change)
        found.append(
            pa.table(
                {
                    "id": pa.array(np.arange(first, first + options.rows)),
                    "value": pa.array(
                        rng.choice(options.values, options.rows, p=weights / weights.sum())
                    ),
                    "phase": pa.array(np.full(options.rows, phase, dtype=np.int32)),
                    "at": pa.array(
                        [datetime.fromtimestamp(step, UTC)] * options.rows,
                        pa.timestamp("us", tz="UTC"),
                    ),
                }
            )
        )
    return found


class GroupingRun:
    """One grouping: a run with a directory of its own."""

    def __init__(
        self, spark: SparkSession, grouping: str, place: Path, work: Sensitive, options: OsgOptions
    ) -> None:
        self.grouping, self.options, self._input = grouping, options, place / grouping / "input"
        self._input.mkdir(parents=True)
        app = ab.Topology(f"osg {grouping}")
        rows = spark.readStream.schema(_SCHEMA).parquet(str(self._input))
        self.results = ab.memory()
        self.steps: list[GroupedStep] = []
        applied = app.source(rows, event_time="at", delay="0 seconds").apply(
            work,
            schema="id bigint, made bigint, done double",
            form="rows",
            cost_by="value",
            grouping=grouping,
            osg=options.osg,
            name="sensitive",
        )
        applied.to(self.results)
        place = place / grouping
        self.run = app.start(
            checkpoint=place / "checkpoint",
            state_root=place / "state",
            slots=options.slots,
            processingTime="50 ms",
        )

    def step(self, number: int, batch: pa.Table, seconds: float) -> GroupedStep:
        """Publishes a batch and waits for its step."""
        draft = self._input.parent / "draft"
        pq.write_table(batch, draft, row_group_size=-(-len(batch) // self.options.partitions))
        draft.rename(self._input / f"{number:06d}.parquet")
        ends = time.monotonic() + _PATIENCE_S
        while len(self.run.recentProgress) <= number:
            if (error := self.run.exception()) is not None:
                raise error
            if time.monotonic() > ends:
                raise AnabranchError(
                    f"step {number} by {self.grouping} has not ended within {_PATIENCE_S:.0f} s"
                )
            time.sleep(0.01)
        seen = self.run.recentProgress[number].applies["sensitive"]
        done = np.array(
            [row["done"] for row in self.results.steps[number + 1].select(["done"]).to_pylist()]
        )
        took = done - seen.started_at
        self.steps.append(
            GroupedStep(
                grouping=seen.grouping,
                makespan_s=seen.makespan_s,
                ideal_s=seconds / self.options.slots,
                mean_s=float(took.mean()),
                p95_s=float(np.quantile(took, 0.95)),
                busiest_s=max(seen.slot_s),
                imbalance=max(seen.slot_s) / fmean(seen.slot_s),
                estimate_error=seen.estimate_error,
            )
        )
        return self.steps[-1]

    def differences(self, batches: Sequence[pa.Table]) -> list[str]:
        """What is wrong with the results: rows too many, too few, or other than the operator's."""
        expected = {
            row["id"]: result_of(row["id"], row["value"], row["phase"])
            for batch in batches
            for row in batch.to_pylist()
        }
        rows = self.results.rows()
        found = (
            [f"{len(rows)} results of {len(expected)} rows"] if len(rows) != len(expected) else []
        )
        wrong = [row["id"] for row in rows if expected.pop(row["id"], None) != row["made"]]
        return [*found, *(f"row {number} is wrong or duplicate" for number in wrong[:5])]


def osg(options: OsgOptions, out: TextIO) -> dict[str, Any]:
    """Runs the three groupings in turns; returns the figures as in `--json`."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=out, flush=True)

    place = Path(tempfile.mkdtemp(prefix="anabranch-osg-"))
    running = SparkSession.getActiveSession()
    session = spark_session("anabranch osg", cores=options.slots, directory=place / "spark")
    spark = session.newSession()
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    spark.conf.set("spark.sql.files.minPartitionNum", str(options.partitions))
    sides: list[GroupingRun] = []
    try:
        work, batches = times_of(options), batches_of(options)
        for grouping in GROUPINGS:
            sides += [GroupingRun(spark, grouping, place, work, options)]
        for number, batch in enumerate(batches):
            rows = batch.select(["phase", "value"]).to_pylist()
            seconds = sum(work.seconds[row["phase"]][row["value"]] for row in rows)
            for side in sides if number % 2 == 0 else sides[::-1]:
                side.step(number, batch, seconds)
            say(_line(number, sides))
        for side in sides:
            side.run.stop()
        cases = [_case(side, batches, options) for side in sides]
    finally:
        for side in sides:
            if side.run.isActive:
                side.run.stop()
        if running is None:
            session.stop()
        shutil.rmtree(place, ignore_errors=True)
    return {"bench": "osg", "text": _TEXT, "cases": _compared(cases), "settings": asdict(options)}


_TEXT = (
    "an operator that waits by value; makespan of a step, mean and 95th percentile of the "
    "completion of its rows from the beginning of its first slot; medians over the steps that count"
)


def _line(number: int, sides: Sequence[GroupingRun]) -> str:
    each = ", ".join(
        f"{side.grouping} {side.steps[-1].makespan_s:.2f} s ({side.steps[-1].imbalance:.2f})"
        for side in sides
    )
    return f"step {number}: {each}; ideal {sides[0].steps[-1].ideal_s:.2f} s"


def _case(side: GroupingRun, batches: Sequence[pa.Table], options: OsgOptions) -> dict[str, Any]:
    """The figures of a grouping, before the change and some steps after it."""
    wrong = side.differences(batches)
    before = side.steps[options.warm : options.change]
    case: dict[str, Any] = {
        "case": side.grouping,
        "verified": not wrong,
        "differences": wrong,
        "rows_compared": sum(map(len, batches)),
        "before": _medians(before),
        "after": _medians(
            side.steps[options.change + options.warm :] or side.steps[options.change :]
        ),
        "steps": [asdict(each) for each in side.steps],
    }
    if side.grouping == OSG:
        case["steps_before_first_estimate"] = next(
            (i for i, each in enumerate(side.steps) if each.grouping == OSG), None
        )
        case["steps_to_adapt"] = steps_to_adapt(
            [each.imbalance for each in side.steps], options.warm, options.change
        )
    return case


def steps_to_adapt(imbalances: Sequence[float], warm: int, change: int) -> int | None:
    """Steps after a change until slots are balanced as before it, for some steps in a row.

    None if they never are.
    """
    level = fmean(imbalances[warm:change]) + _ADAPTED
    for at in range(change, len(imbalances) - _IN_A_ROW + 1):
        if fmean(imbalances[at : at + _IN_A_ROW]) <= level:
            return at - change
    return None


def _medians(steps: Sequence[GroupedStep]) -> dict[str, float]:
    return {
        "makespan_s": round(median(each.makespan_s for each in steps), 4),
        "makespan_over_ideal": round(median(each.makespan_s / each.ideal_s for each in steps), 4),
        "mean_completion_s": round(median(each.mean_s for each in steps), 4),
        "p95_completion_s": round(median(each.p95_s for each in steps), 4),
        "busiest_s": round(median(each.busiest_s for each in steps), 4),
        "imbalance": round(median(each.imbalance for each in steps), 4),
    }


def _compared(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds the ratio of each grouping's figures to those of grouping by cost."""
    ours: Mapping[str, float] = cases[0]["before"]
    for case in cases:
        case["over_osg"] = {
            name: round(value / ours[name], 3) for name, value in case["before"].items()
        }
    return list(cases)


def show_osg(figures: dict[str, Any], console: Console) -> None:
    """Prints the table of the groupings, how fast cost-aware grouping adapted, and the settings."""
    table = Table(
        title="medians over the steps that count, before the change of all times",
        title_justify="left",
    )
    table.add_column("grouping")
    for heading in (
        "makespan",
        "/ ideal",
        "mean completion",
        "p95 completion",
        "busiest slot / mean",
        "verified",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in figures["cases"]:
        found = case["before"]
        table.add_row(
            case["case"],
            f"{found['makespan_s']:.3f} s",
            f"{found['makespan_over_ideal']:.2f}x",
            f"{found['mean_completion_s']:.3f} s",
            f"{found['p95_completion_s']:.3f} s",
            f"{found['imbalance']:.2f}",
            "yes" if case["verified"] else "NO",
        )
    ours, settings = figures["cases"][0], figures["settings"]
    adapted = ours["steps_to_adapt"]
    notes = [
        figures["text"],
        (
            f"osg could estimate times after {ours['steps_before_first_estimate']} steps; when "
            "all times changed, it adapted after "
            f"{'more steps than the run has' if adapted is None else f'{adapted} steps'}"
        ),
        (
            f"{settings['steps']} steps of {settings['rows']} rows, {settings['slots']} slots, "
            f"{settings['partitions']} partitions; {settings['values']} values (zipf "
            f"{settings['skew']}) of {settings['least_ms']:g} to {settings['most_ms']:g} ms"
        ),
        ", ".join(
            f"{name} {settings[name]}"
            for name in ("spread", "window", "mu", "epsilon", "delta", "warm", "seed")
        ),
    ]
    console.print(Group(table, *map(Text, notes)))


osg_command = bench_command(
    OsgOptions,
    osg,
    show_osg,
    """Rows whose time depends on their value, given to slots by cost (OSG), in turn, and by hash.

    Measures makespan, completion and adaptation. The three groupings take their steps in turns,
    over the same rows. Progress goes to standard error.

    Example: anabranch bench osg --steps 60 --rows 800 --most-ms 64
    """,
)
