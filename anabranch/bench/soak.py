"""`anabranch bench soak`: many steps with keys that come and go.

Memory, disk and key numbers must stay flat.

Each batch replaces a share of its keys with new ones, so that after some steps none of the first
keys is left. Four things are measured after each step: memory of the Python workers, files of the
checkpoint, node-local state, and key numbers in use. The last quarter of the steps is compared with
the second quarter. All results are compared with DuckDB.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TextIO

import pyarrow as pa
import typer
from pyspark.sql import SparkSession
from rich.console import Console

import anabranch as ab
from anabranch.bench.command import BatchRows, Seed, bench_command
from anabranch.bench.memory import resident_mb
from anabranch.errors import TopologyError
from anabranch.spark.session import spark_session
from anabranch.state.store.host import default_root
from anabranch.testing.compare import differences, read_results
from anabranch.testing.events import SECOND_US, EventPlan, event_batches, write_batches
from anabranch.testing.reference.windows import WindowQuery, expected_results
from anabranch.topology.windows import Window, parse_windows

SETS = "1m;10m/1m;5m/1m,10m/1m,15m/1m,30m/1m"
_FLAT = 1.3
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """The options of `anabranch bench soak`."""

    steps: Annotated[int, typer.Option(metavar="N", help="Batches.")] = 400
    rows: BatchRows = 4_000
    keys: Annotated[int, typer.Option(metavar="N", help="Keys per batch.")] = 2_000
    churn: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the keys that each batch replaces.")
    ] = 0.1
    span_s: Annotated[
        int, typer.Option("--span", metavar="SECONDS", help="Event time per batch.")
    ] = 30
    sets: Annotated[
        str,
        typer.Option("--windows", metavar="SET;SET", help="Sets of windows, each LENGTH/SLIDE,..."),
    ] = SETS
    seed: Seed = 1
    slots: Annotated[int, typer.Option(metavar="N", help="Parallel tasks.")] = 2

    def __post_init__(self) -> None:
        if self.steps < 8 or self.rows < 1 or self.keys < 1 or self.span_s < 1 or self.slots < 1:
            raise TopologyError(
                "--steps must be 8 or more, --rows, --keys, --span and --slots 1 or more"
            )
        if not 0 <= self.churn <= 1:
            raise TopologyError(f"--churn {self.churn}; valid: 0 to 1")

    @property
    def plan(self) -> EventPlan:
        return EventPlan(
            seed=self.seed,
            batches=self.steps,
            rows=self.rows,
            keys=self.keys,
            churn=self.churn,
            span_us=self.span_s * SECOND_US,
            disorder_us=5 * SECOND_US,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """What a run uses after a step."""

    workers_mb: float
    checkpoint_mb: float  # without Spark's own part: its log of files grows with their number
    state_mb: float
    key_numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakContext:
    """What the runs of all sets of windows share."""

    spark: SparkSession
    place: Path
    state_root: Path
    batches: Sequence[pa.Table]
    options: SoakOptions
    say: Callable[[str], None]


def soak(options: SoakOptions, out: TextIO) -> dict[str, Any]:
    """Runs each set of windows; returns the figures as in `--json`."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=out, flush=True)

    place = Path(tempfile.mkdtemp(prefix="anabranch-soak-"))
    state_root = default_root().parent / place.name
    running = SparkSession.getActiveSession()
    spark = spark_session(
        "anabranch soak",
        cores=2,
        directory=place / "spark",
        settings={"spark.driver.memory": "2g"},
    )
    try:
        batches = list(event_batches(options.plan))
        write_batches(batches, place / "input")
        say(
            f"{options.steps} batches of {options.rows:,} rows; of {options.keys:,} keys "
            f"{options.churn:.0%} change each batch"
        )
        sets = [parse_windows(text) for text in options.sets.split(";")]
        bench = SoakContext(
            spark=spark,
            place=place,
            state_root=state_root,
            batches=batches,
            options=options,
            say=say,
        )
        found = [_run_set(bench, windows) for windows in sets]
    finally:
        if running is None:
            spark.stop()
        for each in (place, state_root):
            shutil.rmtree(each, ignore_errors=True)
    flat = all(case["flat"] for case in found)
    return {"bench": "soak", "cases": found, "flat": flat, "settings": asdict(options)}


def _run_set(bench: SoakContext, windows: tuple[Window, ...]) -> dict[str, Any]:
    spark, place, state_root, batches = bench.spark, bench.place, bench.state_root, bench.batches
    home = place / "run"
    source = spark.readStream.schema(spark.read.parquet(str(place / "input")).schema).option(
        "maxFilesPerTrigger", 1
    )
    app = ab.Topology("soak")
    delay = timedelta(seconds=5)
    rows = app.source(source.parquet(str(place / "input")), event_time="at", delay=delay)
    results = rows.aggregate(
        by="k", windows=windows, n=ab.count(), total=ab.sum("v"), mean=ab.avg("x"), top=ab.max("x")
    )
    results.to(ab.parquet(str(home / "results")))
    run = app.start(
        checkpoint=str(home / "checkpoint"),
        slots=bench.options.slots,
        availableNow=True,
        idle=None,
        state_root=str(state_root),
    )
    samples: list[Sample] = []
    while not run.awaitTermination(_POLL_S):
        if len(run.recentProgress) > len(samples):
            samples += [_sample(home, state_root, run)] * (len(run.recentProgress) - len(samples))
    last = run.recentProgress[-1]
    wrong = _differences(home, windows, batches, delay)
    quarters = _quarters(samples)
    held = max(1, median(sample.key_numbers for sample in samples[len(samples) // 2 :]))
    figures: dict[str, Any] = {
        "windows": [window.name for window in windows],
        "steps": len(run.recentProgress),
        "keys_seen": len({key for batch in batches for key in batch["k"].to_pylist()}),
        "second_quarter": asdict(quarters[0]),
        "last_quarter": asdict(quarters[1]),
        "bytes_per_key": round(last.state_bytes / held),
        "flat": all(
            b <= _FLAT * max(a, 1)
            for a, b in zip(_values(quarters[0]), _values(quarters[1]), strict=True)
        ),
        "verified": not wrong,
        "differences": wrong[:5],
    }
    text = ", ".join(
        f"{name} {a:g} -> {b:g}"
        for (name, a), b in zip(asdict(quarters[0]).items(), _values(quarters[1]), strict=True)
    )
    bench.say(
        f"{', '.join(figures['windows'])}: {text}; {figures['bytes_per_key']:,} bytes of state "
        f"per key; verified: {not wrong}"
    )
    shutil.rmtree(home, ignore_errors=True)
    return figures


def _sample(home: Path, state_root: Path, run: ab.Run) -> Sample:
    own = sum(_size_mb(each) for each in (home / "checkpoint").glob("*") if each.name != "spark")
    return Sample(
        resident_mb()["python_workers"],
        own,
        _size_mb(state_root),
        run.recentProgress[-1].key_numbers,
    )


def _size_mb(path: Path) -> float:
    """The size of the files below a directory; some may be removed meanwhile."""
    total = 0
    for each in path.rglob("*") if path.is_dir() else [path]:
        try:
            total += each.stat().st_blocks * 512 if each.is_file() else 0
        except OSError:
            continue
    return total / 2**20


def _quarters(samples: Sequence[Sample]) -> tuple[Sample, Sample]:
    """Medians of the second and of the last quarter of all steps."""
    quarter = len(samples) // 4
    parts = samples[quarter : 2 * quarter], samples[-quarter:]
    first, last = (
        Sample(*(round(median(column), 2) for column in zip(*map(_values, part), strict=True)))
        for part in parts
    )
    return first, last


def _values(sample: Sample) -> list[float]:
    return list(asdict(sample).values())


def _differences(
    home: Path, windows: tuple[Window, ...], batches: Sequence[pa.Table], delay: timedelta
) -> list[str]:
    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[(w.name, w.length_us, w.every_us, w.offset_us) for w in windows],
        aggregates=[
            ("n", "count", "*"),
            ("total", "sum", "v"),
            ("mean", "avg", "x"),
            ("top", "max", "x"),
        ],
        delay_us=int(delay.total_seconds() * SECOND_US),
    )
    identity = ["k", "window_start", "window_end", "window_name"]
    return differences(read_results(home / "results"), expected_results(batches, query), identity)


def _show(figures: dict[str, Any], console: Console) -> None:
    """Prints whether all sets stayed flat; the progress lines have the figures."""
    console.print(f"flat: {'yes' if figures['flat'] else 'NO'}")


soak_command = bench_command(
    SoakOptions,
    soak,
    _show,
    """Many steps with keys that come and go: memory, disk and key numbers must stay flat.

    The exit status is 1 if they do not.

    Example: anabranch bench soak --steps 1000 --churn 0.2 --windows "10m/1m"
    """,
)
