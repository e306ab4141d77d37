"""Made-up rows for the examples.

The n-th row is a function of n alone: every run sees the same ones, however fast it goes.
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
    """A stream of 0, 1, 2 ... without end, in the column `value`; some of them in each batch."""
    spark = ab.spark_session(name)
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", each_batch).load()


def ticking(name: str, each_second: int) -> DataFrame:
    """The same, with this many per second."""
    spark = ab.spark_session(name)
    return spark.readStream.format("rate").option("rowsPerSecond", each_second).load()


def rows_of(
    name: str, load: ab.workloads.Workload, speed: float, columns: Columns | None = None
) -> DataFrame:
    """The stream of a workload, so many of its seconds in one of ours, with the columns that a
    function makes of its own.
    """
    spark = ab.spark_session(name)
    return ab.workloads.stream(spark, load, speed=speed, columns=columns)


def second(seconds: Column) -> Column:
    """The time this many seconds after the start."""
    return F.timestamp_seconds(F.lit(START) + seconds)


def chance(salt: int, of: str = "value") -> Column:
    """A number from 0 up to 1: a draw for each value of a column, and another one with another
    salt.
    """
    return F.pmod(F.xxhash64(of, F.lit(salt)), F.lit(1_000_000)) / 1_000_000


def one_of(values: Sequence[str], place: Column) -> Column:
    """The value at a place from 0 up to 1."""
    return F.get(F.array(*map(F.lit, values)), F.floor(place * len(values)).cast("int"))
