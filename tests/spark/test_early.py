"""Early results: the open windows after each step, complete and marked."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import TopologyError
from anabranch.testing import (
    EventPlan,
    WindowQuery,
    differences,
    event_batches,
    expected_results,
    write_batches,
)
from anabranch.testing.events import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

WINDOWS = [
    ("1 minute", MINUTE_US, MINUTE_US, 0),
    ("5 minutes every 1 minute", 5 * MINUTE_US, MINUTE_US, 0),
]
IDENTITY = ["k", "window_start", "window_end", "window_name"]
QUERY = WindowQuery(
    keys=["k"],
    event_time="at",
    windows=WINDOWS,
    aggregates=[("n", "count", "*"), ("top", "max", "v")],
    delay_us=10 * SECOND_US,
)


def flat(results: pa.Table) -> pa.Table:
    """The window's edges as whole numbers, as the reference has them."""
    window = results["window"].combine_chunks()
    edges = {name: window.field(name).cast(pa.int64()) for name in ("start", "end")}
    kept = results.drop_columns(["window", "early"])
    return kept.append_column("window_start", edges["start"]).append_column(
        "window_end", edges["end"]
    )


@pytest.mark.parametrize("early", [1, 2])
def test_early_results_are_what_the_rows_so_far_give(
    spark: SparkSession, tmp_path: Path, early: int
) -> None:
    plan = EventPlan(
        seed=5,
        batches=6,
        rows=300,
        keys=20,
        key_kind="int",
        span_us=90 * SECOND_US,
        disorder_us=8 * SECOND_US,
    )
    steps = list(event_batches(plan))
    write_batches(steps, tmp_path / "in")
    frame = spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema).option(
        "maxFilesPerTrigger", 1
    )
    found: dict[int, pa.Table] = {}

    def keep(results: DataFrame, step: int) -> None:
        found[step] = results.toArrow()

    app = ab.Topology("early")
    rows = app.source(
        frame.parquet(str(tmp_path / "in")),
        event_time="at",
        delay=timedelta(microseconds=QUERY.delay_us),
    )
    rows.aggregate(
        by="k",
        windows=[ab.tumbling("1 minute"), ab.sliding("5 minutes", every="1 minute")],
        early=early,
        n=ab.count(),
        top=ab.max("v"),
    ).to(keep)
    run = app.start(
        checkpoint=tmp_path / "chk",
        availableNow=True,
        idle=None,
        shards=8,
        state_root=tmp_path / "state",
    )
    run.awaitTermination(120)
    assert f"every {early} steps" in app.explain()
    final = []
    for step in run.recentProgress:
        results = found.get(step.step)
        if results is None:
            assert step.rows_out == 0
            continue
        final.append(flat(results.filter(pa.compute.invert(results["early"]))))
        if step.batch_id is None:
            continue
        given = flat(results.filter(results["early"]))
        if step.step % early:
            assert given.num_rows == 0
            continue
        so_far = expected_results(steps[: step.step], QUERY, final_watermark="finish")
        still_open = so_far.filter(
            pa.compute.greater(so_far["window_end"], step.watermark_us or -(1 << 62))
        )
        assert still_open.num_rows > 0
        assert differences(given, still_open, IDENTITY) == []
    assert differences(pa.concat_tables(final), expected_results(steps, QUERY), IDENTITY) == []


def test_a_wrong_interval_is_refused(spark: SparkSession) -> None:
    rows = ab.Topology("t").source(
        spark.createDataFrame([], "k int, at timestamp"), event_time="at"
    )
    for bad in (0, True, 1.5):
        with pytest.raises(TopologyError, match="early="):
            rows.aggregate(by="k", windows=ab.tumbling("1 minute"), early=bad, n=ab.count())  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="'early' is a column"):
        rows.compute("k", early=ab.count()).consolidate(ab.tumbling("1 minute"), early=1)
