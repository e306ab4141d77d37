"""Windows that come and go at a restart: what the panes still have is complete, what they lack is named incomplete."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.errors import CheckpointError
from anabranch.testing import (
    EventPlan,
    WindowQuery,
    differences,
    event_batches,
    expected_results,
    read_results,
    write_batches,
)
from anabranch.testing.events import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FIVE, TEN, HALF = (
    ("5 minutes", 5 * MINUTE_US, 5 * MINUTE_US, 0),
    ("10 minutes every 5 minutes", 10 * MINUTE_US, 5 * MINUTE_US, 0),
    ("30 minutes every 10 minutes", 30 * MINUTE_US, 10 * MINUTE_US, 0),
)
IDENTITY = ["k", "window_start", "window_end", "window_name"]
DELAY_US = 10 * SECOND_US


def windows(*shapes: tuple[str, int, int, int]) -> list[ab.Window]:
    return [
        ab.hopping(timedelta(microseconds=length), every=timedelta(microseconds=every))
        for _, length, every, _ in shapes
    ]


def test_windows_come_and_go_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    plan = EventPlan(
        seed=8, batches=12, rows=200, keys=15, span_us=6 * MINUTE_US, disorder_us=8 * SECOND_US
    )
    steps = list(event_batches(plan))

    def run(batches: slice, chosen: list[ab.Window], **given: ab.Aggregate) -> ab.Run:
        write_batches(steps[batches], tmp_path / "in", first=batches.start)
        schema = spark.read.parquet(str(tmp_path / "in")).schema
        rows = (
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / "in"))
        )
        app = ab.Topology("evolving")
        stream = app.source(rows, event_time="at", delay=timedelta(microseconds=DELAY_US))
        results = stream.aggregate(
            by="k", windows=chosen, name="w", **{"n": ab.count(), "s": ab.sum("v"), **given}
        )
        results.to(ab.parquet(tmp_path / "out"))
        started = app.start(
            checkpoint=tmp_path / "chk",
            availableNow=True,
            idle=None,
            shards=8,
            state_root=tmp_path / "st",
        )
        started.awaitTermination(120)
        return started

    run(slice(0, 4), windows(FIVE, TEN))
    last = run(slice(4, 8), windows(FIVE, HALF))
    assert [event.kind for event in last.events][:1] == ["changed"]
    watermark = last.recentProgress[0].watermark_us
    run(slice(8, 12), windows(FIVE, HALF))
    found = read_results(tmp_path / "out")
    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[FIVE, TEN, HALF],
        aggregates=[("n", "count", "*"), ("s", "sum", "v")],
        delay_us=DELAY_US,
    )
    wanted = expected_results(steps, query)
    assert watermark is not None
    name = pc.field("window_name")
    complete = wanted.filter(name == FIVE[0])
    assert differences(found.filter(name == FIVE[0]), complete, IDENTITY) == []
    # Ten minutes went after the first run, half hours came: those that began in panes that were kept are whole.
    went = wanted.filter((name == TEN[0]) & (pc.field("window_end") <= watermark))
    assert differences(found.filter(name == TEN[0]), went, IDENTITY) == []
    came = found.filter(name == HALF[0])
    since = min(came["window_start"].to_pylist())
    assert came.num_rows > 0
    assert (
        differences(
            came, wanted.filter((name == HALF[0]) & (pc.field("window_start") >= since)), IDENTITY
        )
        == []
    )
    marked = found.filter(name == f"{HALF[0]} (incomplete)")
    assert marked.num_rows > 0
    assert max(marked["window_start"].to_pylist()) < since <= watermark + 10 * MINUTE_US

    with pytest.raises(CheckpointError, match="aggregates: the checkpoint has"):
        run(slice(12, 12), windows(FIVE), more=ab.max("v"))
    with pytest.raises(
        CheckpointError, match="'7 minutes' is not made of the checkpoint's panes of 5 minutes"
    ):
        run(slice(12, 12), [ab.tumbling("7 minutes")])
