"""A workload as a streaming source of Spark.

Offsets are row numbers, so a query that is restarted reads the very same rows.

A paced workload has a clock: rows become due at their rate, whether they are read or not. Rows
that are due and not read are the backlog. Offsets contain the start of that clock, so it continues
while a query is down.

This is a data source in Python (pyspark.sql.datasource): a process beside the driver returns
offsets, and tasks make rows as Arrow data.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from anabranch.errors import CheckpointError, TopologyError
from anabranch.spark.versions import (
    SOURCES_KNOW_THEIR_START,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    refuse_pace,
)
from anabranch.workloads import Keys, Rate, Workload

AnyReader = TypeVar("AnyReader", DataFrameReader, DataStreamReader)
Columns: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]

FORMAT = "anabranch-workload"
_ARROW_ROWS = 50_000
_PARTITION_ROWS = 10_000  # fewer rows are not worth a task
_NAP_S = 0.01


def stream(
    spark: SparkSession,
    load: Workload,
    *,
    speed: float | None = None,
    each_batch: int | None = None,
    partitions: int | None = None,
    columns: Columns | None = None,
) -> DataFrame:
    """The rows of a workload as a streaming DataFrame.

    It has the columns at, value, key and, if the workload has one, payload. With
    `availableNow=True` a run ends with the last row; with `speed` it waits until that row is due.

    - speed: seconds of the workload per second, such as 1 or 10; by default all rows are due at
      once.
    - each_batch: the most rows per batch.
    - partitions: how many tasks read a batch; by default as many as there are cores. A small batch
      has fewer.
    - columns: a function from one Arrow batch to another, to make other columns.

    Raises a `TopologyError` if an argument is not valid.
    """
    if speed is not None and not 0 < speed < inf:
        raise TopologyError(f"speed is {speed!r}; valid: a number above 0, or None")
    for name, value in (("each_batch", each_batch), ("partitions", partitions)):
        if value is not None and not (isinstance(value, int) and value > 0):
            raise TopologyError(f"{name} is {value!r}; valid: a whole number above 0, or None")
    for name, pace_of in (("speed", speed), ("each_batch", each_batch)):
        if pace_of is not None:
            refuse_pace(name, pace_of)
    pace = {"speed": json.dumps(speed), "each_batch": json.dumps(each_batch)}
    return _reader(spark, spark.readStream, load, columns, partitions).options(**pace).load()


def static(spark: SparkSession, load: Workload, *, columns: Columns | None = None) -> DataFrame:
    """The rows of a workload as a static DataFrame, for comparisons and `run_batch`.

    - columns: a function from one Arrow batch to another, to make other columns.
    """
    return _reader(spark, spark.read, load, columns, None).load()


def _reader(
    spark: SparkSession,
    reader: AnyReader,
    load: Workload,
    columns: Columns | None,
    partitions: int | None,
) -> AnyReader:
    spark.dataSource.register(WorkloadSource)
    dumped = ""
    if columns is not None:
        dumped = b64encode(cloudpickle.dumps(columns)).decode()  # type: ignore[no-untyped-call]
    tasks = partitions or spark.sparkContext.defaultParallelism
    return reader.format(FORMAT).options(load=_encoded(load), columns=dumped, partitions=str(tasks))


def backlog(progress: Mapping[str, Any]) -> int | None:
    """The rows of a query's workloads that were due but not read by the end of a batch.

    None if the query reads no workload.

    - progress: of the batch, such as `run.query.lastProgress`.
    """
    found = [_waiting(each["endOffset"], each["latestOffset"]) for each in progress["sources"]]
    known = [each for each in found if each is not None]
    return sum(known) if known else None


def _waiting(end: str | None, latest: str | None) -> int | None:
    read, due = (json.loads(each) if each else None for each in (end, latest))
    if (
        not isinstance(read, dict)
        or not isinstance(due, dict)
        or read.keys() != {"row", "began_ms", "of"}
    ):
        return None
    return max(0, int(due["row"]) - int(read["row"]))


@dataclass
class RowRange(InputPartition):
    """Rows start to end - 1."""

    start: int
    end: int


class WorkloadSource(DataSource):
    """The format "anabranch-workload"; made by stream() and static()."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.load = _decoded(options["load"])
        self.speed: float | None = json.loads(options.get("speed", "null"))
        self.each_batch: int | None = json.loads(options.get("each_batch", "null"))
        self.most_partitions = int(options["partitions"])
        # The driver sends this program's own function to its tasks. No checkpoint contains it.
        self.columns: Columns | None = (
            cloudpickle.loads(b64decode(options["columns"])) if options["columns"] else None
        )

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self.made(0, 0).schema, prefer_timestamp_ntz=False)

    def made(self, start: int, end: int) -> pa.RecordBatch:
        """Rows start to end - 1."""
        rows = self.load.batch(start, end)
        return rows if self.columns is None else self.columns(rows)

    def reader(self, schema: StructType) -> StaticReader:  # noqa: ARG002 - as Spark calls it
        return StaticReader(self)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: ARG002, N802 - Spark's name
        return StreamReader(self)

    def split(self, start: int, end: int) -> list[RowRange]:
        """Even ranges of rows, each large enough for a task."""
        count = max(1, min(self.most_partitions, (end - start) // _PARTITION_ROWS))
        cuts = [start + (end - start) * i // count for i in range(count + 1)]
        return [RowRange(*cut) for cut in pairwise(cuts) if cut[0] < cut[1]]

    def batches(self, rows: RowRange) -> Iterator[pa.RecordBatch]:
        for start in range(rows.start, rows.end, _ARROW_ROWS):
            yield self.made(start, min(start + _ARROW_ROWS, rows.end))


class StaticReader(DataSourceReader):
    """All rows at once."""

    def __init__(self, source: WorkloadSource) -> None:
        self.source = source

    def partitions(self) -> Sequence[InputPartition]:
        return self.source.split(0, self.source.load.total)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.source.batches(partition) if isinstance(partition, RowRange) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Computes which rows are due, in a process beside the driver, and makes rows, in tasks."""

    def __init__(self, source: WorkloadSource) -> None:
        self.source = source
        self.fingerprint = blake2b(_encoded(source.load).encode(), digest_size=6).hexdigest()
        # Spark makes a new batch if offsets differ. Where a reader does not get the start of the
        # clock back, offsets have 0 instead, so that they stay equal.
        self.began_ms = int(time.time() * 1000) if SOURCES_KNOW_THEIR_START else 0
        self.to_the_end = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - as Spark calls it
        return (
            ReadAllAvailable()
            if self.source.each_batch is None
            else ReadMaxRows(self.source.each_batch)
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
        self.to_the_end = True

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The offset up to which rows are due, within the limit. A run to the end waits for rows.

        Spark 4.1 passes no start. Then all rows are due.
        """
        if start is None:
            return self._offset(self.source.load.total)
        self._check(start)
        self.began_ms = start["began_ms"]
        first, total = start["row"], self.source.load.total
        while (due := self._due()) <= first < total and self.to_the_end:
            time.sleep(_NAP_S)
        most = first + limit.max_rows if isinstance(limit, ReadMaxRows) else total
        return self._offset(max(first, min(due, most)))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        return self._offset(self._due())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(start)
        return self.source.split(start["row"], end["row"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowRange)
        return self.source.batches(partition)

    def _check(self, offset: dict[str, Any]) -> None:
        if offset["of"] != self.fingerprint:
            raise CheckpointError(
                f"the offsets belong to another workload than this one: {self.source.load}"
            )

    def _due(self) -> int:
        load, speed = self.source.load, self.source.speed
        return (
            load.total if speed is None else load.due((time.time() - self.began_ms / 1000) * speed)
        )

    def _offset(self, row: int) -> dict[str, Any]:
        return {"row": row, "began_ms": self.began_ms, "of": self.fingerprint}


def _encoded(load: Workload) -> str:
    return json.dumps(asdict(load) | {"lasting": f"{load.seconds} seconds"}, sort_keys=True)


def _decoded(text: str) -> Workload:
    given = json.loads(text)
    return Workload(
        **given
        | {
            "rate": msgspec.convert(given["rate"], Rate),
            "keys": msgspec.convert(given["keys"], Keys),
        }
    )
