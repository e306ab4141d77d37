"""Event time and delay of a source: given, or taken from the watermark of its rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.spark.jvm import watermarks_of, without_watermark

SCHEMA = "at timestamp, page string, ms bigint"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of four files, one per batch; each has a row of five minutes before."""
    (tmp_path / "in").mkdir()
    for batch in range(4):
        rows = [
            {
                "at": START + timedelta(minutes=10 * batch + minute),
                "page": f"p{minute % 3}",
                "ms": 100 * batch + minute,
            }
            for minute in (9, 3, -5, 7)
        ]
        table = pa.Table.from_pylist(rows)
        pq.write_table(table, tmp_path / "in" / f"{batch}.parquet")
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(tmp_path / "in"))


def node_of(app: ab.Topology) -> Any:
    return app.graph.operators[0]


def test_event_time_and_delay_come_from_the_watermark(clicks: DataFrame) -> None:
    app = ab.Topology("t")
    app.source(clicks.withWatermark("AT", "1 hour 90 seconds").filter("ms > 1"))
    assert (node_of(app).event_time, node_of(app).delay_us) == ("at", 3_690_000_000)


def test_the_watermark_follows_a_column_that_gets_another_name(clicks: DataFrame) -> None:
    app = ab.Topology("t")
    watermarked = clicks.withWatermark("at", "2 days")
    app.source(watermarked.select(F.col("at").alias("seen_at"), "ms"))
    assert (node_of(app).event_time, node_of(app).delay_us) == ("seen_at", 2 * 86_400_000_000)


def test_arguments_may_repeat_the_watermark(clicks: DataFrame) -> None:
    app = ab.Topology("t")
    app.source(clicks.withWatermark("at", "10 minutes"), event_time="At", delay="600s")
    assert (node_of(app).event_time, node_of(app).delay_us) == ("at", 600_000_000)


def test_spark_follows_no_watermark_of_its_own(clicks: DataFrame) -> None:
    watermarked = clicks.withWatermark("at", "10 minutes").filter("ms > 1").select("at", "ms")
    plain = without_watermark(watermarked)
    assert [each.column for each in watermarks_of(watermarked)] == ["at"]
    assert watermarks_of(plain) == []
    assert plain.isStreaming
    assert plain.columns == ["at", "ms"]


def test_rows_with_a_watermark_give_the_same_results_as_with_a_delay(
    clicks: DataFrame, tmp_path: Path
) -> None:
    found = {}
    for name, arguments in {
        "given": {"rows": clicks, "event_time": "at", "delay": "6 minutes"},
        "watermark": {"rows": clicks.withWatermark("at", "6 minutes")},
    }.items():
        app = ab.Topology(name)
        windows = app.source(**arguments).aggregate(  # type: ignore[arg-type]
            by="PAGE", windows=ab.tumbling("2 minutes"), n=ab.count(), total=ab.sum("MS")
        )
        windows.to(ab.parquet(tmp_path / name))
        run = app.start(
            checkpoint=tmp_path / f"{name}-c",
            availableNow=True,
            state_root=tmp_path / f"{name}-s",
        )
        run.awaitTermination()
        run.finish()
        progress = run.query.lastProgress
        assert progress is not None
        assert not progress.eventTime, "Spark has a watermark of its own"
        found[name] = sorted(
            duckdb.sql(
                f"select page, n, total, \"window\".start from '{tmp_path}/{name}/**/*.parquet'"
            ).fetchall()
        )
    assert found["given"] == found["watermark"]
    # No row is more than six minutes older than a row of an earlier batch; some are by four.
    expected = duckdb.sql(
        'select page, count(*), sum(ms)::bigint, time_bucket(interval 2 minutes, "at") '
        f"from '{tmp_path}/in/*.parquet' group by all"
    )
    assert found["given"] == sorted(expected.fetchall())


@pytest.mark.parametrize(
    ("rows", "arguments", "why"),
    [
        (
            lambda df: df.withWatermark("at", "1 hour"),
            {"event_time": "ms", "unit": "seconds"},
            "event_time='ms', but the rows have a watermark on 'at'",
        ),
        (
            lambda df: df.withWatermark("at", "1 hour"),
            {"delay": "2 hours"},
            r"delay is 2 hours, but withWatermark\(\) says 1 hour",
        ),
        (
            lambda df: df.withWatermark("at", "1 hour").drop("at"),
            {},
            "the rows have a watermark on 'at', and that column is gone",
        ),
        (
            lambda df: df.withWatermark("at", "1 hour").withColumn("then", F.col("at")),
            {},
            "on several columns: at, then; choose one with event_time=",
        ),
        (
            lambda df: df.withWatermark("at", "1 hour").union(df.withWatermark("at", "2 hours")),
            {},
            r"2 watermarks \('at' with 1 hour, 'at' with 2 hours\); valid: one",
        ),
        (lambda df: df, {}, 'a source needs an event time: give event_time="at"'),
        (
            lambda df: df.select("ms"),
            {},
            r'give event_time="at", .*; no column has a time',
        ),
        (
            lambda df: df.select("at", F.col("at").alias("At")),
            {"event_time": "at"},
            "column 'at' is ambiguous: the rows have at, At",
        ),
        *[
            (
                lambda df: df,
                {"event_time": "ms", "unit": unit},
                f"unknown unit {unit!r}; valid: seconds, milliseconds, microseconds, nanoseconds",
            )
            for unit in ("minutes", "fortnights", 60)
        ],
    ],
)
def test_contradictions_are_refused(
    clicks: DataFrame,
    rows: Callable[[DataFrame], DataFrame],
    arguments: dict[str, Any],
    why: str,
) -> None:
    with pytest.raises(ab.TopologyError, match=why):
        ab.Topology("t").source(rows(clicks), **arguments)


def test_a_static_frame_has_no_watermark_and_the_message_says_so(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], SCHEMA).withWatermark("at", "1 hour")
    with pytest.raises(ab.TopologyError, match="Spark ignores withWatermark"):
        ab.Topology("t").source(rows)


def test_a_watermark_in_a_map_is_refused(clicks: DataFrame) -> None:
    stream = ab.Topology("t").source(clicks, event_time="at", delay="1 hour")
    with pytest.raises(ab.TopologyError, match=r"map must not call withWatermark\(\)"):
        stream.map(lambda df: df.withWatermark("at", "1 hour"))


@pytest.mark.parametrize(
    ("unit", "us"), [("seconds", 1_000_000), ("MS", 1000), ("microsecond", 1), ("ns", 0)]
)
def test_a_numeric_event_time_counts_one_of_four_units(
    clicks: DataFrame, unit: str, us: int
) -> None:
    app = ab.Topology("t")
    app.source(clicks, event_time="ms", unit=unit)
    assert node_of(app).unit_us == us


def test_a_source_without_a_delay_says_once_what_that_means(
    clicks: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "anabranch")
    app = ab.Topology("t")
    app.source(clicks, event_time="at", delay="0 seconds", name="exact")
    app.source(clicks.withWatermark("at", "0 seconds"), name="watermarked")
    assert caplog.messages == []
    app.source(clicks, event_time="at", name="one")
    app.source(clicks, event_time="at", name="two")
    assert len(caplog.messages) == 1
    assert "source 'one' has no delay: a row that arrives one batch after newer" in caplog.text


def test_columns_are_named_in_any_case(clicks: DataFrame) -> None:
    class Longest:
        state = int
        output = "longest bigint"
        columns = ("Ms", "AT")

        def process(self, key: Any, rows: Any, state: int, ctx: Any) -> list[Any]:
            return [(max(row.ms for row in rows),)]

    app = ab.Topology("t")
    stream = app.source(clicks, event_time="AT", delay="1 hour")
    stream.process(by=["PAGE"], cls=Longest, name="longest")
    then = clicks.selectExpr("at as then", "page")
    other = app.source(then, event_time="then", delay="1 hour", name="other")
    joined = ab.join(stream, other, by="Page", name="j",
                     window=ab.tumbling("1 minute"))  # fmt: skip
    assert joined.name == "j"
    named = {each.name: each for each in app.graph.operators}
    assert [each.name for each in named["longest"].by] == ["page"]
    assert named["longest"].logic.columns == ("ms", "at")
    assert [each.name for each in named["j"].by] == ["page"]


def test_case_counts_where_the_session_says_so(clicks: DataFrame) -> None:
    conf = clicks.sparkSession.conf
    conf.set("spark.sql.caseSensitive", "true")
    try:
        stream = ab.Topology("t").source(clicks, event_time="at", delay="1 hour")
        with pytest.raises(ab.TopologyError, match="unknown key column 'Page'; valid: at, page"):
            stream.compute(by="Page", n=ab.count())
    finally:
        conf.unset("spark.sql.caseSensitive")
