"""What both streaming sides share (the session and the directories), and Anabranch's own side."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TextIO, TypeAlias, TypeVar

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.bench.cases import WindowCase
from anabranch.bench.data import InputFiles
from anabranch.bench.measure import SideRun
from anabranch.bench.memory import peak_mb
from anabranch.bench.options import SidesOptions
from anabranch.bench.rivals import batch_seconds, read_stream
from anabranch.spark.session import spark_session
from anabranch.state.store.host import default_root

_SETTINGS = {
    # By default, opening a file counts as 4 MB. Then one of two cores would get 4.5 MB of a batch's
    # file of 5 MB, and the other 0.5 MB.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.metricsEnabled": "false",
}


Options = TypeVar("Options", bound=SidesOptions)
OnEnd: TypeAlias = Callable[[list[ab.Progress]], None]  # gets all steps of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench(Generic[Options]):
    """Everything that the parts of one benchmark share."""

    options: Options
    spark: SparkSession
    root: Path
    state_root: Path
    cores: int
    slots: int
    store: str
    ends_at: float
    say: Callable[[str], None]


def clocked(out: TextIO) -> Callable[[str], None]:
    """Returns a function that prints a line with the seconds since now."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", file=out, flush=True)

    return say


@contextmanager
def open_bench(
    options: Options, ends_at: float, say: Callable[[str], None]
) -> Iterator[Bench[Options]]:
    """A session, and directories that are removed at the end, except for that of `--keep`."""
    work = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    state_root = default_root().parent / work.name
    root = work if options.keep is None else options.keep
    root.mkdir(parents=True, exist_ok=True)
    running = SparkSession.getActiveSession()
    cores = (
        len(os.sched_getaffinity(0)) if running is None else running.sparkContext.defaultParallelism
    )
    settings = {
        **_SETTINGS,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.memory": f"{heap_gb()}g",
    }
    spark = spark_session(
        "anabranch bench", cores=cores, directory=work / "spark", settings=settings
    )
    try:
        yield Bench(
            options=options,
            spark=spark,
            root=root,
            state_root=state_root,
            cores=cores,
            slots=options.slots or cores,
            store="memory",
            ends_at=ends_at,
            say=say,
        )
    finally:
        if running is None:
            spark.stop()
        for place in (work, state_root):
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def scratch(bench: Bench[Options], name: str) -> Iterator[Path]:
    """A directory that is removed at the end, even with `--keep`."""
    place = bench.root / name
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def emptied(place: Path) -> Path:
    """The same directory, without the files of an earlier run."""
    shutil.rmtree(place, ignore_errors=True)
    return place


def clear(bench: Bench[Options], place: Path) -> None:
    """Removes the files of the runs below a directory; with `--keep`, only their checkpoints."""
    removed = [place] if bench.options.keep is None else list(place.rglob("checkpoint"))
    for each in removed:
        shutil.rmtree(each, ignore_errors=True)


def heap_gb() -> int:
    """Half of the machine's memory, at most 8 GB: native Spark keeps its state in the heap."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(8, (total >> 30) // 2))


def run_anabranch(
    bench: Bench[Options], source: InputFiles, case: WindowCase, place: Path
) -> SideRun:
    """One run of Anabranch over the input, from an empty checkpoint, in durable mode."""
    app = ab.Topology(f"bench_{case.name}")
    rows = app.source(
        read_stream(bench.spark, source), event_time="at", delay=f"{source.delay_s} seconds"
    )
    results = rows.aggregate(
        by=["key"],
        windows=case.windows,
        n=ab.count(),
        total=ab.sum("v"),
        mean=ab.avg("v"),
        top=ab.max("v"),
        name="results",
    )
    results.to(ab.parquet(str(place / "results")))
    return run_topology(bench, app, source, place)


def run_topology(
    bench: Bench[Options],
    app: ab.Topology,
    source: InputFiles,
    place: Path,
    planner: str = "auto",
    on_end: OnEnd = lambda _: None,
) -> SideRun:
    """One run of a topology that writes below `place`/results, in durable mode.

    It starts from an empty checkpoint.
    """
    run = app.start(
        checkpoint=str(place / "checkpoint"),
        slots=bench.slots,
        availableNow=True,
        state_root=str(bench.state_root),
        planner=planner,
    )
    run.awaitTermination()
    steps = run.recentProgress
    on_end(steps)
    return SideRun(
        side="anabranch",
        batch_s=batch_seconds(run.query),
        watermark_us=source.watermark_us(),
        files=tuple(sorted((place / "results").rglob("*.parquet"))),
        queries=(str(run.query.runId),),
        left_out=sum(count for step in steps for count in step.left_out.values()),
        inner_s=tuple(step.duration_s for step in steps if step.batch_id is not None),
        slot_s=tuple(
            sum(
                seconds
                for phase, seconds in step.slot_phases_s.items()
                if phase not in {"read", "load", "results"}
            )
            for step in steps
            if step.batch_id is not None
        ),
        state_bytes=max(step.state_bytes for step in steps),
        peak_mb=peak_mb(),
    )


def settings_of(bench: Bench[Options], seconds: float) -> dict[str, Any]:
    """What one must know of any benchmark to judge or repeat its figures."""
    options = bench.options
    data = options.data_of(1)
    return {
        "rows": options.rows,
        "skew": options.skew,
        "disorder_s": options.disorder_s,
        "watermark_delay_s": data.delay_s,
        "batch_rows": data.batch_rows,
        "batches": data.batches,
        "rows_per_event_minute": options.rows_per_minute,
        "seed": options.seed,
        "rounds": options.rounds,
        "cores": bench.cores,
        "anabranch": {
            "slots": bench.slots,
            "shards": 64,
            "state": "durable",
            "version": ab.__version__,
        },
        "native": {
            "shuffle_partitions": int(bench.spark.conf.get("spark.sql.shuffle.partitions") or 0),
            "state_store": bench.store if options.native else None,
            "output_mode": "append",
        },
        "both": {
            "source": "parquet, one file per batch",
            "sink": "parquet",
            "trigger": "availableNow",
            "measured": "triggerExecution",
        },
        "heap_gb": heap_gb(),
        "spark": bench.spark.version,
        "seconds": round(seconds, 1),
    }
