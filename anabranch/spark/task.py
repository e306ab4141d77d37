"""A task of `runtime/` as Spark calls it. A worker loads this and `runtime/`, but no compiler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from anabranch.runtime.worker import TaskId, WorkerTask


@dataclass(frozen=True, slots=True)
class SparkTask:
    """The function for `mapInArrow`: finds out which task of the stage it is, and runs it."""

    task: WorkerTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        return self.task.run(batches, TaskId(context.partitionId(), context.attemptNumber()))
