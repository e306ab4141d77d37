"""`anabranch bench elastic`: a changing load on Spark, with fixed slots and with adaptive slots.

A small machine has no cores to add. So the operator waits, as for a service that answers after a
while, and Spark has more task slots than cores: one more slot can wait for one more row. Rows are
due by a clock; the latency of a row is the time from then to the commit of its step.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
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
from anabranch.bench.command import Keys, Seed, Skew, Verify, bench_command
from anabranch.bench.elastic.latencies import Latencies, TimedStep, latencies
from anabranch.bench.report import VERIFIED
from anabranch.bench.side import clocked, emptied
from anabranch.elastic.forecast import StepForecast, forecast_steps, median_error
from anabranch.elastic.settings import POLICIES
from anabranch.errors import TopologyError, unknown
from anabranch.spark.session import spark_session
from anabranch.state.checkpoint.history import read_history
from anabranch.state.store.host import default_root
from anabranch.testing.compare import differences
from anabranch.testing.reference.database import connect
from anabranch.workloads import Workload, constant, erratic, progressive, sine, zipf

SMALL, LARGE, DEFAULT = "static-small", "static-large", "default"
PROFILES = ("progressive", "erratic", "omega", "sine")
_WARM_S = 12
_DELAY = "1 second"
_WINDOW_US = 5_000_000
_WITHIN = 0.25
_SETTINGS = {
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.memory": "2g",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticOptions:
    """The options of `anabranch bench elastic`."""

    profiles: Annotated[
        str, typer.Option(metavar="NAME,...", help=f"Any of: {', '.join(PROFILES)}.")
    ] = "progressive,erratic,omega"
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help=f"Any of: {SMALL}, {LARGE}, {DEFAULT}, {', '.join(POLICIES)}."
        ),
    ] = f"{SMALL},{LARGE},{DEFAULT}"
    seconds: Annotated[int, typer.Option(metavar="N", help="Length of a run.")] = 90
    low: Annotated[float, typer.Option(metavar="N", help="Least rows per second.")] = 60.0
    high: Annotated[float, typer.Option(metavar="N", help="Most rows per second.")] = 480.0
    cost_ms: Annotated[float, typer.Option(metavar="N", help="Time of a row in its slot.")] = 2.5
    keys: Keys = 1000
    skew: Skew = 0.5
    omega: Annotated[
        float,
        typer.Option(metavar="N", help="Shuffles of all keys per minute, in the profile omega."),
    ] = 4.0
    latency_s: Annotated[
        float, typer.Option("--latency", metavar="SECONDS", help="The target.")
    ] = 2.0
    small: Annotated[
        int, typer.Option(metavar="N", help=f"Slots of {SMALL}; other policies begin with them.")
    ] = 1
    large: Annotated[
        int, typer.Option(metavar="N", help=f"Slots of {LARGE}; other policies use at most these.")
    ] = 8
    seed: Seed = 1
    verify: Verify = True

    def __post_init__(self) -> None:
        for name in ("seconds", "low", "high", "cost_ms", "keys", "latency_s", "small", "large"):
            if getattr(self, name) <= 0:
                raise TopologyError(
                    f"--{name.replace('_', '-')} {getattr(self, name)} must be above 0"
                )
        if self.small > self.large or self.low > self.high:
            raise TopologyError(
                f"--small {self.small} and --low {self.low:g} must not be above --large "
                f"{self.large}, --high {self.high:g}"
            )
        for given, valid, option in (
            (self.profile_names, PROFILES, "--profiles"),
            (self.policy_names, (SMALL, LARGE, DEFAULT, *POLICIES), "--policies"),
        ):
            for name in given or [""]:
                if name not in valid:
                    raise TopologyError(unknown(option, name, valid))

    @property
    def profile_names(self) -> list[str]:
        return [each.strip() for each in self.profiles.split(",") if each.strip()]

    @property
    def policy_names(self) -> list[str]:
        return [each.strip() for each in self.policies.split(",") if each.strip()]

    def load(self, profile: str, seconds: int | None = None) -> Workload:
        """The rows of a profile."""
        lasting, over = f"{seconds or self.seconds} seconds", f"{self.seconds} seconds"
        middle = (self.low + self.high) / 2
        rate = {
            "progressive": progressive(self.low, self.high, over),
            "erratic": erratic(self.low, self.high, over),
            "omega": constant(middle),
            "sine": sine(
                middle, (self.high - self.low) / 2, f"{max(1, self.seconds // 2)} seconds"
            ),
        }[profile]
        keys = zipf(self.keys, self.skew, omega=self.omega if profile == "omega" else 0.0)
        return Workload(rate=rate, keys=keys, lasting=lasting, seed=self.seed)

    def how(self, policy: str) -> tuple[int, ab.Elastic | None]:
        """The slots that a run begins with, and how it adapts."""
        if policy in {SMALL, LARGE}:
            return (self.small if policy == SMALL else self.large), None
        name = "auto" if policy == DEFAULT else policy
        target = f"{round(self.latency_s * 1000)} milliseconds"
        return self.small, ab.Elastic(latency=target, max_slots=self.large, policy=name)


class Waits:
    """Counts rows, and waits for each as for a service that answers after a while."""

    state_types = ("bigint",)
    identities = (0,)
    result_type = "bigint"

    def __init__(self, cost_s: float) -> None:
        self.cost_s = cost_s

    def lift(self, group: np.ndarray, size: int, values: np.ndarray) -> list[np.ndarray]:
        time.sleep(self.cost_s * len(values))
        return [np.bincount(group, minlength=size)]

    def merge(self, into: Sequence[np.ndarray], at: Any, arrays: Sequence[np.ndarray]) -> None:
        into[0][at] += arrays[0]

    def finish(self, count: np.ndarray) -> np.ndarray:
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """One run of one policy over one profile."""

    figures: Latencies
    events: tuple[str, ...]
    files: tuple[Path, ...]
    foretold: dict[str, Any]


def forecast_figures(steps: Sequence[StepForecast]) -> dict[str, Any]:
    """Step times that the step model predicted from earlier steps, and the measured ones."""
    if not steps:
        return {"steps_foretold": 0}
    within = sum(each.error <= _WITHIN for each in steps) / len(steps)
    return {
        "steps_foretold": len(steps),
        "step_s": round(median(each.took_s for each in steps), 3),
        "step_s_foretold": round(median(each.expected_s for each in steps), 3),
        "foretold_error": round(median_error(steps), 3),
        "foretold_within_25_percent": round(within, 3),
    }


def elastic(options: ElasticOptions, out: TextIO) -> dict[str, Any]:
    """Runs the benchmark, and prints its progress on `out`.

    Returns the figures as in `--json`.
    """
    began = time.monotonic()
    say = clocked(out)
    work = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    state_root = default_root().parent / work.name
    running = SparkSession.getActiveSession()
    settings = {**_SETTINGS, "spark.sql.shuffle.partitions": "2"}
    spark = spark_session(
        "anabranch bench", cores=options.large, directory=work / "spark", settings=settings
    )
    try:
        say(f"{options.large} task slots of Spark; warming up")
        _run(
            spark,
            options,
            options.load("omega", min(_WARM_S, options.seconds)),
            SMALL,
            work / "warm",
            state_root,
        )
        cases = [
            _case(spark, options, profile, work, state_root, say)
            for profile in options.profile_names
        ]
    finally:
        if running is None:
            spark.stop()
        for place in (work, state_root):
            shutil.rmtree(place, ignore_errors=True)
    return {
        "bench": "elastic",
        "cases": cases,
        "settings": _settings(options, time.monotonic() - began),
    }


def _case(
    spark: SparkSession,
    options: ElasticOptions,
    profile: str,
    work: Path,
    state_root: Path,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """All policies over one profile, one after another; each takes minutes."""
    load = options.load(profile)
    say(f"{profile}: {load}, {options.cost_ms:g} ms per row")
    case: dict[str, Any] = {"case": profile, "policies": {}}
    wrong: list[str] = []
    compared = 0
    for policy in options.policy_names:
        result = _run(spark, options, load, policy, emptied(work / "run"), state_root)
        case["policies"][policy] = (
            result.figures.facts() | result.foretold | {"events": list(result.events)}
        )
        error = result.foretold.get("foretold_error")
        known = "" if error is None else f"; step times predicted within {error:.0%} (median)"
        say(f"{profile}, {policy}: {describe(result.figures)}{known}")
        if options.verify:
            rows, found = verify(load, result.files)
            compared += rows
            wrong += [f"{policy}: {line}" for line in found]
    if options.verify:
        say(f"{profile}: {compared:,} result rows compared, {len(wrong) or 'no'} differences")
        case |= {"verified": not wrong, "rows_compared": compared, "differences": wrong[:10]}
    return case | against(case["policies"])


def _run(
    spark: SparkSession,
    options: ElasticOptions,
    load: Workload,
    policy: str,
    place: Path,
    state_root: Path,
) -> PolicyRun:
    slots, how = options.how(policy)
    rows = ab.workloads.stream(spark, load, speed=1.0, partitions=2)
    app = ab.Topology("bench_elastic")
    waits = ab.udaf(Waits(options.cost_ms / 1000))
    counted = app.source(rows, event_time="at", delay=_DELAY).aggregate(
        by=["key"],
        windows=ab.tumbling(timedelta(microseconds=_WINDOW_US)),
        n=waits("value"),
        name="results",
    )
    counted.to(ab.parquet(str(place / "results")))
    run = app.start(
        checkpoint=str(place / "checkpoint"),
        slots=slots,
        availableNow=True,
        state_root=str(state_root),
        lift="lift first",
        elastic=how,
    )
    run.awaitTermination()
    began_s = json.loads(run.query.recentProgress[-1].sources[0].endOffset)["began_ms"] / 1000
    steps = [
        TimedStep(rows=each.rows_in, ended_s=each.finished_at - began_s, slots=each.slots)
        for each in run.recentProgress
        if each.batch_id is not None
    ]
    run.finish()
    events = tuple(f"step {each.step}: {each.kind}: {each.text}" for each in run.events)
    files = tuple(sorted((place / "results").rglob("*.parquet")))
    seen = [each for each in read_history(str(place / "checkpoint")) if not each.closing]
    figures = latencies(load, steps, options.latency_s)
    return PolicyRun(
        figures=figures, events=events, files=files, foretold=forecast_figures(forecast_steps(seen))
    )


def verify(load: Workload, files: Sequence[Path]) -> tuple[int, list[str]]:
    """Compares every result row with DuckDB's."""
    tables = [pq.ParquetFile(file).read(columns=["key", "window", "n"]) for file in files]
    with connect() as db:
        db.register("rows", load.table())
        db.register("results", pa.concat_tables(tables))
        start = f"// {_WINDOW_US} * {_WINDOW_US} AS window_start"
        expected = db.sql(
            f'SELECT key, epoch_us("at") {start}, count(*) AS n FROM rows GROUP BY ALL'
        ).to_arrow_table()
        actual = db.sql(
            'SELECT key, epoch_us("window"."start") AS window_start, n FROM results'
        ).to_arrow_table()
    return expected.num_rows, differences(actual, expected, ["key", "window_start"])


def against(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The default policy against fixed slots: late rows, and slot-seconds used."""
    found: dict[str, Any] = {}
    mine = policies.get(DEFAULT)
    if mine is not None and SMALL in policies:
        found["late_small_over_default"] = round(
            policies[SMALL]["rows_late"] / max(1, mine["rows_late"]), 2
        )
    if mine is not None and LARGE in policies:
        found["slot_seconds_of_large"] = round(
            mine["slot_seconds"] / policies[LARGE]["slot_seconds"], 3
        )
    if mine is not None:
        found["needless_reversals"] = mine["needless_reversals"]
    return found


def describe(figures: Latencies) -> str:
    """A run in one line."""
    return (
        f"{figures.rows_per_s:,.0f} rows/s, latency {figures.mean_s:.2f} s, 95th percentile "
        f"{figures.p95_s:.2f} s, {figures.late:,} of {figures.rows:,} rows late, "
        f"{figures.slot_seconds:,.0f} slot-seconds, {figures.resizes} resizes"
    )


def _settings(options: ElasticOptions, seconds: float) -> dict[str, Any]:
    names = (
        "seconds",
        "low",
        "high",
        "cost_ms",
        "keys",
        "skew",
        "omega",
        "latency_s",
        "small",
        "large",
        "seed",
    )
    return {
        **{name: getattr(options, name) for name in names},
        "default": f"ab.Elastic(latency={options.latency_s:g} s, max_slots={options.large})",
        "source": "a paced workload, rows due by the clock",
        "operator": "waits for each row, keyed windows of 5 seconds",
        "version": ab.__version__,
        "took_s": round(seconds, 1),
    }


def show_elastic(figures: dict[str, Any], console: Console) -> None:
    """Prints the table of all runs, and what the default policy did."""
    table = Table(title="fixed slots, and slots that adapt", title_justify="left")
    table.add_column("profile")
    table.add_column("policy")
    for heading in (
        "rows/s",
        "mean s",
        "95 % s",
        "late",
        "slot-s",
        "resizes",
        "foretold",
        "verified",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    notes = []
    for case in figures["cases"]:
        for policy, each in case["policies"].items():
            seconds = f"{each['latency_mean_s']:.2f}", f"{each['latency_p95_s']:.2f}"
            used = f"{each['rows_late']:,}", f"{each['slot_seconds']:,.0f}", str(each["resizes"])
            error = f"{each['foretold_error']:.0%} off" if "foretold_error" in each else ""
            verified = VERIFIED[case.get("verified")]
            table.add_row(
                case["case"], policy, f"{each['rows_per_s']:,}", *seconds, *used, error, verified
            )
        compared = ", ".join(
            f"{name.replace('_', ' ')} {case[name]}" for name in _AGAINST if name in case
        )
        notes.append(Text(f"{case['case']}: {compared}"))
    settings = figures["settings"]
    notes.append(Text(", ".join(f"{name} {value}" for name, value in settings.items())))
    console.print(Group(table, *notes))


_AGAINST = ("late_small_over_default", "slot_seconds_of_large", "needless_reversals")


elastic_command = bench_command(
    ElasticOptions,
    elastic,
    show_elastic,
    """A load that changes: with few slots, with many, and with slots that adapt.

    Measures latency, late rows and slot-seconds. Each policy runs over each profile in real time,
    so the defaults take a quarter of an hour. Progress goes to standard error.

    Example: anabranch bench elastic --profiles erratic --policies static-small,default,incremental
    """,
)
