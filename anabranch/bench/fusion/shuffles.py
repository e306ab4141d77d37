"""What Spark itself counts of a query: the exchanges of each batch, and the bytes through them.

Both come from Spark's status stores, which exist with or without its web page. The jobs of a
streaming query have the id of its run as their group and the batch in their description. An
execution of Spark SQL names its jobs and has the graph of its plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

_BATCH = re.compile(r"batch = (\d+)")
_WAIT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Shuffles:
    """One batch: the exchanges of its plan, the bytes written to them, and its task time."""

    exchanges: int
    written_bytes: int
    task_s: float


def shuffles_of(spark: SparkSession, query: str) -> dict[int, Shuffles]:
    """What each batch of a query's run cost, by the batch's number.

    Only the last batches, which Spark still remembers.
    """
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - Python has no way to the status stores
    context.listenerBus().waitUntilEmpty(_WAIT_MS)
    store = context.statusStore()
    batch_of: dict[int, int] = {}
    written: dict[int, int] = {}
    lasted: dict[int, float] = {}
    for job in spark.sparkContext.statusTracker().getJobIdsForGroup(query):
        data = store.job(job)
        found = _BATCH.search(data.description().getOrElse(None) or "")
        if found is None:
            continue
        batch = batch_of[job] = int(found[1])
        for stage_id in _each(data.stageIds()):
            stage = store.lastStageAttempt(stage_id)
            written[batch] = written.get(batch, 0) + stage.shuffleWriteBytes()
            lasted[batch] = lasted.get(batch, 0.0) + stage.executorRunTime() / 1000
    exchanges = _exchanges(spark, batch_of)
    return {
        batch: Shuffles(exchanges.get(batch, 0), written[batch], lasted[batch])
        for batch in sorted(written)
    }


def _exchanges(spark: SparkSession, batch_of: dict[int, int]) -> dict[int, int]:
    """The exchanges in the physical plan of each batch.

    A batch that had to run again has the same plan twice.
    """
    store = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - as above
    found: dict[int, int] = {}
    for execution in _each(store.executionsList()):
        batches = {batch_of[job] for job in _each(execution.jobs().keys()) if job in batch_of}
        for batch in batches:
            nodes = _each(store.planGraph(execution.executionId()).allNodes())
            found[batch] = max(
                found.get(batch, 0), sum(node.name() == "Exchange" for node in nodes)
            )
    return found


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala collection."""
    elements = sequence.iterator()
    while elements.hasNext():
        yield elements.next()
