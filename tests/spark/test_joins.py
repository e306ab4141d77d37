"""Joins on Spark against DuckDB: of two sources and of windowed results, fused and not."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.testing import JoinQuery, differences, expected_join, read_results, write_batches
from anabranch.testing.compare import bag_differences
from anabranch.testing.events import MINUTE_US, SECOND_US
from anabranch.testing.reference.chains import (
    HAPPENED,
    ChainOperator,
    as_rows,
    closed_until,
    expected_of,
)
from anabranch.testing.reference.windows import WindowQuery, expected_results

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

How = Literal["inner", "left", "right", "full"]
DELAY_US = 20 * SECOND_US
WINDOWS = [("2m", 2 * MINUTE_US, 2 * MINUTE_US, 0), ("3m", 3 * MINUTE_US, MINUTE_US, 0)]


def rows(seed: int, first_s: int, time: str, value: str, count: int = 60) -> pa.Table:
    """Rows of a few keys, some of them null, some twice, some late."""
    rng = np.random.default_rng(seed)
    at = (first_s + rng.uniform(-150, 120, count)) * SECOND_US
    keys = [None if n == 0 else f"k{n}" for n in rng.integers(0, 12, count).tolist()]
    table = pa.table(
        {
            "k": pa.array(keys, pa.string()),
            "g": pa.array(rng.integers(0, 3, count), pa.int32()),
            time: pa.array(at.astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
            value: pa.array(rng.normal(size=count)),
        }
    )
    return pa.concat_tables([table, table.slice(0, 5)])


def stream(spark: SparkSession, path: Path) -> DataFrame:
    return (
        spark.readStream.schema(spark.read.parquet(str(path)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
    )


def watermarks(left: list[pa.Table], right: list[pa.Table]) -> list[int | None]:
    """For each step: how far the slower source was before it."""
    found: list[int | None] = [None]
    seen: list[int] = []
    for mine, theirs in zip(left, right, strict=True):
        newest = [
            max(table[name].cast(pa.int64()).to_pylist())
            for table, name in ((mine, "at"), (theirs, "seen"))
        ]
        seen = [max(pair) for pair in zip(seen or newest, newest, strict=True)]
        found.append(min(seen) - DELAY_US)
    return found


def late_rows(
    steps: list[pa.Table], side: str, time: str, known: list[int | None]
) -> list[dict[str, object]]:
    """The rows of a side whose last window, of three minutes, had ended before their step."""
    found = []
    for table, closed in zip(steps, [None, *known], strict=False):
        for row, at in zip(
            table.to_pylist(), table[time].cast(pa.int64()).to_pylist(), strict=True
        ):
            if closed is not None and at - at % MINUTE_US + 3 * MINUTE_US <= closed:
                found.append({**row, "side": side, "reason": "late"})
    return found


def test_two_sources_are_joined_in_every_way_and_what_comes_out_is_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = [rows(i, 120 * i, "at", "v") for i in range(4)]
    right = [rows(10 + i, 120 * i, "seen", "w") for i in range(4)]
    left[3] = pa.concat_tables([left[3], rows(4, 0, "at", "v", count=20)])
    right[3] = pa.concat_tables([right[3], rows(14, 0, "seen", "w", count=20)])
    write_batches(left, tmp_path / "left")
    write_batches(right, tmp_path / "right")
    app = ab.Topology("joins")
    delay = timedelta(microseconds=DELAY_US)
    mine = app.source(stream(spark, tmp_path / "left"), event_time="at", delay=delay, name="mine")
    theirs = app.source(
        stream(spark, tmp_path / "right").drop("g"), event_time="seen", delay=delay, name="theirs"
    )
    windows = [
        ab.hopping(timedelta(microseconds=length), every=timedelta(microseconds=every), name=name)
        for name, length, every, _ in WINDOWS
    ]
    for how in get_args(How):
        joined = ab.join(mine, theirs, by="k", window=windows, how=how, name=how)
        joined.to(ab.parquet(tmp_path / "out" / how))
        if how == "inner":
            joined.late.to(ab.parquet(tmp_path / "late"))
            counted = joined.aggregate(
                by=["k"],
                windows=ab.tumbling("4 minutes"),
                name="counted",
                n=ab.count(),
                s=ab.sum("w"),
            )
            counted.to(ab.parquet(tmp_path / "out" / "counted"))
    assert "join, right" not in app.explain()
    run = app.start(
        checkpoint=tmp_path / "chk",
        availableNow=True,
        idle=None,
        state_root=tmp_path / "state",
        shards=8,
    )
    assert run.awaitTermination(180)
    known = watermarks(left, right)
    assert run.recentProgress[-1].watermark_us == known[-1]
    nothing = (left[0].slice(0, 0), right[0].slice(0, 0))
    given = ([*left, nothing[0]], [each.drop_columns(["g"]) for each in (*right, nothing[1])])
    wanted: dict[str, pa.Table] = {}
    for how in get_args(How):
        query = JoinQuery(keys=["k"], left_time="at", right_time="seen", windows=WINDOWS, how=how)
        wanted[how] = expected_join(*given, query, known)
        assert wanted[how].num_rows > 100
        assert bag_differences(read_results(tmp_path / "out" / how), wanted[how]) == [], how
    late = late_rows(left, "left", "at", known) + late_rows(
        [each.drop_columns(["g"]) for each in right], "right", "seen", known
    )
    assert len({row["side"] for row in late}) == 2
    schema = read_results(tmp_path / "late").schema
    assert schema.names == ["k", "g", "at", "v", "seen", "w", "side", "reason"]
    assert (
        bag_differences(read_results(tmp_path / "late"), pa.Table.from_pylist(late, schema)) == []
    )
    query = WindowQuery(
        keys=["k"],
        event_time=HAPPENED,
        windows=[("4 minutes", 4 * MINUTE_US, 4 * MINUTE_US, 0)],
        aggregates=[("n", "count", "*"), ("s", "sum", "w")],
    )
    counted_rows = expected_results(
        [as_rows(wanted["inner"])], query, final_watermark=known[-1] or 0
    )
    identity = ["k", "window_start", "window_end", "window_name"]
    assert differences(read_results(tmp_path / "out" / "counted"), counted_rows, identity) == []


@pytest.mark.parametrize(("planner", "levels"), [("auto", 1), ("unfused", 2)])
def test_windowed_results_are_joined_where_they_are_or_on_the_next_level(
    spark: SparkSession, tmp_path: Path, planner: str, levels: int
) -> None:
    steps = [rows(i, 120 * i, "at", "v", count=200) for i in range(3)]
    write_batches(steps, tmp_path / "in")
    app = ab.Topology("tolls")
    delay = timedelta(microseconds=DELAY_US)
    source = app.source(stream(spark, tmp_path / "in"), event_time="at", delay=delay)
    speed = source.aggregate(
        by=["k", "g"], windows=ab.tumbling("1 minute"), name="speed", top=ab.max("v")
    )
    volume = source.map(lambda df: df.filter("v > 0")).aggregate(
        by=["k"], windows=ab.tumbling("1 minute"), name="volume", n=ab.count()
    )
    tolls = ab.join(
        speed, volume, by="k", window=ab.tumbling("2 minutes"), how="left", name="tolls"
    )
    tolls.map(lambda df: df.withColumn("toll", F.expr("coalesce(n, 0) * top"))).to(
        ab.parquet(tmp_path / "out")
    )
    assert len(json.loads(app.explain("json", planner=planner))["exchanges"]) == levels
    assert app.explain("mermaid", planner=planner).count("== route ==>") == (
        2 if levels == 1 else 4
    )
    run = app.start(
        checkpoint=tmp_path / "chk",
        availableNow=True,
        idle=None,
        state_root=tmp_path / "state",
        planner=planner,
    )
    assert run.awaitTermination(180)
    minute = [("1 minute", MINUTE_US, MINUTE_US, 0)]
    stages = [
        ChainOperator(
            name="speed", keys=["k", "g"], windows=minute, aggregates=[("top", "max", "v")]
        ),
        ChainOperator(
            name="volume",
            where="v > 0",
            keys=["k"],
            windows=minute,
            aggregates=[("n", "count", "*")],
        ),
    ]
    found = expected_of(steps, stages, "at", DELAY_US)
    left, right = (
        as_rows(found[stage.name]).rename_columns({HAPPENED: f"{stage.name}_us"})
        for stage in stages
    )
    until = closed_until(steps, "at", DELAY_US, "closing")
    query = JoinQuery(
        keys=["k"],
        left_time="speed_us",
        right_time="volume_us",
        windows=[("2 minutes", *[2 * MINUTE_US] * 2, 0)],
        how="left",
    )
    wanted = expected_join(
        [left.select(["k", "g", "top", "speed_us"])],
        [right.select(["k", "n", "volume_us"])],
        query,
        [until],
    ).drop_columns(["speed_us", "volume_us"])
    results = read_results(tmp_path / "out")
    assert wanted.num_rows > 50
    assert bag_differences(results.drop_columns(["toll"]), wanted) == []
    assert results["toll"].to_pylist() == [
        (row["n"] or 0) * row["top"] for row in results.to_pylist()
    ]
