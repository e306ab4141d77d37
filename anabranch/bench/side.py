"""What both streaming sides share, the session and the directories, and Anabranch's own side."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.bench.cases import Case
from anabranch.bench.data import Input
from anabranch.bench.measure import SideRun
from anabranch.bench.memory import peak_mb
from anabranch.bench.options import WindowsOptions
from anabranch.bench.rivals import batch_seconds, read_stream
from anabranch.spark.session import local_session
from anabranch.state.host import default_root

_SETTINGS = {
    # Opening a file counts as 4 MB by default, so that two cores would get 4.5 and 0.5 MB of a batch's one file of 5 MB.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.metricsEnabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that the parts of one benchmark share."""

    options: WindowsOptions
    spark: SparkSession
    root: Path
    state_root: Path
    cores: int
    slots: int
    store: str
    ends_at: float
    say: Callable[[str], None]


@contextmanager
def open_bench(options: WindowsOptions, ends_at: float, say: Callable[[str], None]) -> Iterator[Bench]:
    """A session, and directories that are removed in the end (what `--keep` names stays)."""
    work = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    state_root = default_root().parent / work.name
    root = work if options.keep is None else options.keep
    root.mkdir(parents=True, exist_ok=True)
    running = SparkSession.getActiveSession()
    cores = len(os.sched_getaffinity(0)) if running is None else running.sparkContext.defaultParallelism
    settings = {**_SETTINGS, "spark.sql.shuffle.partitions": str(cores), "spark.driver.memory": f"{heap_gb()}g"}
    spark = local_session("anabranch bench", work / "spark", cores=cores, options=settings)
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


def heap_gb() -> int:
    """Half of the machine's memory, at most 8 GB: native Spark keeps its state in the heap."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(8, (total >> 30) // 2))


def run_anabranch(bench: Bench, source: Input, case: Case, place: Path) -> SideRun:
    """One run of Anabranch over the input, from an empty checkpoint, in durable mode."""
    app = ab.Topology(f"bench_{case.name}")
    rows = app.source(read_stream(bench.spark, source), event_time="at", delay=f"{source.delay_s} seconds")
    results = rows.aggregate(
        by=["key"], windows=case.windows, n=ab.count(), total=ab.sum("v"), mean=ab.avg("v"), top=ab.max("v"), name="results"
    )
    results.to(ab.parquet(str(place / "results")))
    run = app.start(
        checkpoint=str(place / "checkpoint"),
        slots=bench.slots,
        trigger={"availableNow": True},
        state_root=str(bench.state_root),
    )
    run.wait()
    steps = run.progress
    return SideRun(
        side="anabranch",
        batch_s=batch_seconds(run.query),
        watermark_us=source.watermark_us(),
        files=tuple(sorted((place / "results").glob("*.parquet"))),
        left_out=sum(count for step in steps for count in step.left_out.values()),
        inner_s=tuple(step.duration_s for step in steps if step.batch_id is not None),
        slot_s=tuple(
            sum(seconds for phase, seconds in step.slot_phases_s.items() if phase not in {"read", "load", "results"})
            for step in steps
            if step.batch_id is not None
        ),
        state_bytes=max(step.state_bytes for step in steps),
        peak_mb=peak_mb(),
    )
