"""What Spark's progress says about sources, by texts that Spark has written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.spark.source_progress import backlog, batch_progress


def source(start: Any, end: Any, latest: Any, rows: int) -> dict[str, Any]:
    return {"startOffset": start, "endOffset": end, "latestOffset": latest, "numInputRows": rows}


@pytest.mark.parametrize(
    ("told", "waits"),
    [
        (source({"t": {"0": 10, "1": 5}}, {"t": {"0": 30, "1": 15}}, {"t": {"0": 130, "1": 65}}, 30), 150.0),  # Kafka
        (source('{"t":{"0":10}}', '{"t":{"0":30}}', '{"t":{"0":30}}', 20), 0.0),
        (source({"t": {"0": 10}}, {"t": {"0": 30}}, {"t": {"0": 30, "1": 40}}, 20), 40.0),  # a partition is new
        (source(4, 5, 9, 1000), 4000.0),  # the rate source counts seconds
        (source({"logOffset": 1}, {"logOffset": 2}, None, 200), None),  # files do not tell
        (source(None, 0, 7, 0), None),  # the first batch: how many rows an offset is, is not known
        (source(5, 5, 9, 0), None),
        (source(5, 9, 3, 10), None),  # the topic was made anew
        (source("a", "b", "c", 10), None),
        (source(True, True, False, 10), None),
    ],
)
def test_rows_that_wait(told: dict[str, Any], waits: float | None) -> None:
    assert backlog(told) == waits


def test_a_batch() -> None:
    text = json.dumps(
        {
            "batchId": 3,
            "durationMs": {"addBatch": 387, "triggerExecution": 675},
            "sources": [source(5, 6, 6, 1000), source({"logOffset": 1}, {"logOffset": 1}, None, 0)],
        }
    )
    found = batch_progress(text)
    assert (found.batch_id, found.seconds, found.rows, found.backlog) == (3, 0.675, (1000.0, 0.0), (0.0, None))
    assert batch_progress({"batchId": 0}).seconds is None
