"""What Spark's progress says about sources, from texts that Spark has written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.elastic.observation import Observation, SourceObservation
from anabranch.spark.driver.observe import completed
from anabranch.spark.driver.source_progress import (
    BatchProgress,
    backlog,
    batch_progress,
    logged_clock_ms,
)


def test_the_clock_of_a_batch_is_in_the_entry_of_its_offset_log() -> None:
    entry = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1769889600123,"conf":{}}\n{"row":7}'
    assert logged_clock_ms(entry) == 1769889600123


def source(start: Any, end: Any, latest: Any, rows: int) -> dict[str, Any]:
    return {"startOffset": start, "endOffset": end, "latestOffset": latest, "numInputRows": rows}


@pytest.mark.parametrize(
    ("reported", "waits"),
    [
        (
            source(
                {"t": {"0": 10, "1": 5}}, {"t": {"0": 30, "1": 15}}, {"t": {"0": 130, "1": 65}}, 30
            ),
            150.0,
        ),  # Kafka
        (source('{"t":{"0":10}}', '{"t":{"0":30}}', '{"t":{"0":30}}', 20), 0.0),
        (
            source({"t": {"0": 10}}, {"t": {"0": 30}}, {"t": {"0": 30, "1": 40}}, 20),
            40.0,
        ),  # a partition is new
        (source(4, 5, 9, 1000), 4000.0),  # the rate source counts seconds
        (source({"logOffset": 1}, {"logOffset": 2}, None, 200), None),  # files do not report it
        (source(None, 0, 7, 0), None),  # the first batch: the rows per offset are unknown
        (source(5, 5, 9, 0), None),
        (source(5, 9, 3, 10), None),  # the topic was created again
        (source("a", "b", "c", 10), None),
        (source(True, True, False, 10), None),
    ],
)
def test_the_backlog_is_what_the_sources_report(
    reported: dict[str, Any], waits: float | None
) -> None:
    assert backlog(reported) == waits


def test_a_batch_of_spark_has_its_id_duration_rows_and_backlog() -> None:
    text = json.dumps(
        {
            "batchId": 3,
            "durationMs": {"addBatch": 387, "triggerExecution": 675},
            "sources": [source(5, 6, 6, 1000), source({"logOffset": 1}, {"logOffset": 1}, None, 0)],
        }
    )
    found = batch_progress(text)
    assert (found.batch_id, found.seconds, found.rows, found.backlog) == (
        3,
        0.675,
        (1000.0, 0.0),
        (0.0, None),
    )
    assert batch_progress({"batchId": 0}).seconds is None


def seen(
    at: float, rows: float, *, closing: bool = False, **sources: SourceObservation
) -> Observation:
    given = sources or {"loans": SourceObservation(rows=rows)}
    return Observation(
        step=1, at=at, duration_s=0.4, cores=2, sources=given, components=(), closing=closing
    )


def spark(rows: float, waits: float | None, seconds: float = 0.9) -> BatchProgress:
    return BatchProgress(batch_id=1, seconds=seconds, rows=(rows,), backlog=(waits,))


def test_arrivals_are_the_rows_taken_and_the_growth_of_the_backlog() -> None:
    first = completed(seen(10.0, 90), spark(100, 5000), None)
    assert (first.sources["loans"].rows, first.sources["loans"].backlog, first.duration_s) == (
        100,
        5000,
        0.9,
    )
    assert first.sources["loans"].rows_per_s is None
    catching_up = completed(seen(12.0, 0), spark(4000, 2000), first)
    assert catching_up.sources["loans"].rows_per_s == 500
    unknown = completed(seen(14.0, 70), None, catching_up)
    assert (unknown.sources["loans"].rows, unknown.duration_s) == (70, 0.4)
    closing = completed(seen(13.0, 0, closing=True), None, catching_up)
    assert (closing.sources["loans"].backlog, closing.sources["loans"].rows_per_s) == (2000, None)


def test_sources_that_spark_counts_differently_keep_their_reports() -> None:
    both = seen(1.0, 0, loans=SourceObservation(rows=7), rates=SourceObservation(rows=8))
    assert completed(both, spark(100, None), None).sources == both.sources
