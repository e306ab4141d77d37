"""Made-up rows for the examples.

The n-th row depends only on n, so every run sees the same rows, however fast it is.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import anabranch as ab

Columns: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
START = 1_769_889_600  # 2026-01-31 20:00 UTC


def numbers(name: str, each_batch: int) -> DataFrame:
    """An endless stream of 0, 1, 2, ... in the column `value`, with `each_batch` per batch."""
    spark = ab.spark_session(name)
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", each_batch).load()


def ticking(name: str, each_second: int) -> DataFrame:
    """The same, with `each_second` per second."""
    spark = ab.spark_session(name)
    return spark.readStream.format("rate").option("rowsPerSecond", each_second).load()


def rows_of(
    name: str, load: ab.workloads.Workload, speed: float, columns: Columns | None = None
) -> DataFrame:
    """The stream of a workload, at `speed` of its seconds per second.

    `columns` makes the columns of the stream from those of the workload.
    """
    spark = ab.spark_session(name)
    return ab.workloads.stream(spark, load, speed=speed, columns=columns)


def second(seconds: Column) -> Column:
    """The time this many seconds after the start."""
    return F.timestamp_seconds(F.lit(START) + seconds)


def chance(salt: int, of: str = "value") -> Column:
    """A random number in [0, 1) for each value of a column. Another salt gives another number."""
    return F.pmod(F.xxhash64(of, F.lit(salt)), F.lit(1_000_000)) / 1_000_000


def one_of(values: Sequence[str], place: Column) -> Column:
    """The value at a position, given as a number in [0, 1)."""
    return F.get(F.array(*map(F.lit, values)), F.floor(place * len(values)).cast("int"))
