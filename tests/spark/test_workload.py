"""A workload as a streaming source: offsets, restarts, back-pressure, an end."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.spark.versions import SOURCES_KNOW_THEIR_START, ReadAllAvailable, ReadMaxRows
from anabranch.spark.workload import StreamReader, WorkloadSource, _encoded
from anabranch.testing import differences

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOAD = ab.workloads.Workload(
    rate=ab.workloads.erratic(2_000, 20_000, "12 seconds")
    + ab.workloads.sine(500, 500, "7 seconds"),
    keys=ab.workloads.hot_spot(1_000, 0.2, width=3, every="5 seconds", skew=0.5, omega=4),
    lasting="12 seconds",
    seed=7,
    payload=9,
)


paced = pytest.mark.skipif(
    not SOURCES_KNOW_THEIR_START, reason="Spark 4.1 cannot pace a source; it is refused there"
)


def started(rows: DataFrame, place: Path, **trigger: Any) -> StreamingQuery:
    writer = rows.writeStream.format("parquet").option(
        "checkpointLocation", str(place / "checkpoint")
    )
    return writer.trigger(**trigger).start(str(place / "out"))


def written(place: Path) -> pa.Table:
    return pa.concat_tables(
        pq.ParquetFile(file).read() for file in (place / "out").glob("*.parquet")
    )


def batches(query: StreamingQuery, least: int) -> list[Any]:
    """Progress of the batches with rows, as soon as there are this many."""
    while len(found := [each for each in query.recentProgress if each["numInputRows"]]) < least:
        assert query.isActive, query.exception()
        query.awaitTermination(0.1)  # type: ignore[arg-type]
    return found


def doubled(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.drop_columns(["payload"]).append_column(
        "twice", pa.array(rows["key"].to_numpy() * 2)
    )


@paced
def test_a_query_that_is_stopped_and_started_again_reads_every_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = LOAD.table()
    first = started(
        ab.workloads.stream(spark, LOAD, speed=4, each_batch=3_000),
        tmp_path,
        processingTime="0 seconds",
    )
    batches(first, 2)
    first.stop()
    before = written(tmp_path).num_rows
    assert 0 < before < LOAD.total, "it was stopped on the way"
    second = started(
        ab.workloads.stream(spark, LOAD, speed=4, partitions=3), tmp_path, availableNow=True
    )
    assert second.awaitTermination(120), "a run over what is available ends with the last row"
    assert differences(written(tmp_path), expected, ["value"]) == []
    assert (
        differences(
            ab.workloads.static(spark, LOAD, columns=doubled).toArrow(),
            doubled(LOAD.batch(0, LOAD.total)),
            ["value"],
        )
        == []
    )


@paced
def test_rows_that_are_due_and_not_read_are_a_backlog_that_grows(
    spark: SparkSession, tmp_path: Path
) -> None:
    surge = ab.workloads.Workload(
        rate=ab.workloads.stepped(400_000, ("1 second", 0), ("10 minutes", 1)),
        keys=ab.workloads.uniform(10),
        lasting="11 minutes",
    )
    query = started(
        ab.workloads.stream(spark, surge, speed=1, each_batch=50_000), tmp_path, availableNow=True
    )
    while not read_until(seen := batches(query, 3), 400_000):
        query.awaitTermination(0.1)  # type: ignore[arg-type]
    waiting = [ab.workloads.backlog(each) for each in seen]
    assert all(each["numInputRows"] <= 50_000 for each in seen)
    assert max(waiting) > waiting[0] >= 0, "more rows come than are read"
    assert waiting[-1] == 0
    stopped_at = time.monotonic()
    query.stop()
    assert time.monotonic() - stopped_at < 60, (
        "a run that waits for rows can be stopped: the next one comes after ten minutes"
    )


def read_until(seen: list[Any], row: int) -> bool:
    return any(f'"row": {row},' in each["sources"][0]["endOffset"] for each in seen)


def reader(load: ab.workloads.Workload, **pace: float | None) -> StreamReader:
    """The source as it is in its process beside the driver."""
    options = {name: json.dumps(value) for name, value in pace.items()}
    source = WorkloadSource({"load": _encoded(load), "columns": "", "partitions": "4", **options})
    return source.streamReader(source.schema())


@paced
def test_offsets_follow_the_clock_also_while_no_query_runs() -> None:
    source = reader(LOAD, speed=2)
    first = source.initialOffset()
    assert first["row"] == 0
    for ago_s in (0.5, 3.0, 5.9):
        began = {**first, "began_ms": int((time.time() - ago_s) * 1000)}
        found = source.latestOffset(began, ReadAllAvailable())
        assert LOAD.due(2 * ago_s) <= found["row"] <= LOAD.due(2 * ago_s + 5)
        assert found["began_ms"] == began["began_ms"], (
            "a query that starts again goes on with the same clock"
        )
        assert source.reportLatestOffset()["row"] >= found["row"]
        assert source.latestOffset(began, ReadMaxRows(7))["row"] == 7
    assert (
        source.latestOffset({**began, "row": LOAD.total}, ReadAllAvailable())["row"] == LOAD.total
    )
    assert (
        reader(LOAD).latestOffset(reader(LOAD).initialOffset(), ReadAllAvailable())["row"]
        == LOAD.total
    )
    cut = source.partitions({**first, "row": 5}, {**first, "row": LOAD.total})
    assert [each.start for each in cut] == [5, *(each.end for each in cut[:-1])]
    assert cut[-1].end == LOAD.total
    assert list(source.partitions(first, first)) == []


def test_a_query_over_all_rows_reads_them_once_however_often_it_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    for _ in range(2):
        query = started(ab.workloads.stream(spark, LOAD, partitions=3), tmp_path, availableNow=True)
        assert query.awaitTermination(120)
    assert query.recentProgress == [] or not query.recentProgress[-1]["numInputRows"]
    assert differences(written(tmp_path), LOAD.table(), ["value"]) == []


def test_another_workload_on_the_same_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert started(ab.workloads.stream(spark, LOAD), tmp_path, availableNow=True).awaitTermination(
        120
    )
    other = ab.workloads.Workload(
        rate=LOAD.rate, keys=LOAD.keys, lasting="12 seconds", seed=8, payload=9
    )
    query = started(ab.workloads.stream(spark, other), tmp_path, availableNow=True)
    with pytest.raises(Exception, match="the offsets belong to another workload than this one"):
        query.awaitTermination(120)
    assert differences(written(tmp_path), LOAD.table(), ["value"]) == []


@pytest.mark.skipif(SOURCES_KNOW_THEIR_START, reason="from Spark 4.2 on a source can be paced")
@pytest.mark.parametrize("option", ["speed", "each_batch"])
def test_a_pace_that_this_spark_cannot_keep_is_refused(option: str) -> None:
    with pytest.raises(ab.TopologyError, match=rf"{option}=5 needs Spark 4\.2 or newer"):
        ab.workloads.stream(None, LOAD, **{option: 5})  # type: ignore[arg-type]


def test_offsets_of_another_workload_are_refused() -> None:
    other = ab.workloads.Workload(
        rate=LOAD.rate, keys=LOAD.keys, lasting="12 seconds", seed=8, payload=9
    )
    with pytest.raises(
        ab.CheckpointError, match=r"the offsets belong to another workload than this one: .* seed 8"
    ):
        reader(other).latestOffset(reader(LOAD).initialOffset(), ReadAllAvailable())
    with pytest.raises(ab.CheckpointError, match="the offsets belong to another workload"):
        reader(other).partitions(reader(LOAD).initialOffset(), reader(other).initialOffset())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speed": 0}, "speed is 0; valid: a number above 0"),
        ({"each_batch": -5}, "each_batch is -5; valid: a whole number above 0"),
        ({"partitions": 1.5}, "partitions is 1.5"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ab.TopologyError, match=words):
        ab.workloads.stream(None, LOAD, **options)  # type: ignore[arg-type]
