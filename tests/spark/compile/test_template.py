"""A query that is analysed once gives, over other rows and with other functions, what it would
give if it were made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StructField, StructType

from anabranch.spark.compile.template import Template
from anabranch.spark.jvm import in_place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = StructType([StructField("k", LongType()), StructField("n", LongType())])


def given(spark: SparkSession, rows: int, keys: int, partitions: int) -> DataFrame:
    """Rows as a streaming query hands them over."""
    made = spark.range(0, rows, 1, partitions).selectExpr(f"id % {keys} as k", "id as v")
    return in_place(made, "k")


def times(
    factor: int, ballast: bytes = b""
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def function(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            n = pc.multiply(batch.column("n"), factor + 0 * len(ballast))
            yield pa.RecordBatch.from_arrays([batch.column("k"), n], ["k", "n"])

    return function


def query(rows: DataFrame, factor: int) -> DataFrame:
    counted = (
        rows.groupBy("k")
        .count()
        .withColumnRenamed("count", "n")
        .repartitionById(2, (rows["k"] % 2).cast("int"))
    )
    return counted.mapInArrow(times(factor), SCHEMA)


def counts(frame: DataFrame) -> dict[int, int]:
    found: dict[int, int] = {}
    for k, n in frame.collect():
        found[k] = found.get(k, 0) + n
    return found


def test_other_rows_and_functions_go_through_the_same_query(spark: SparkSession) -> None:
    rows = given(spark, 100, 5, 2)
    template = Template.of(query(rows, 1), rows)
    assert template is not None
    for size, keys, partitions, factor in ((60, 3, 2, 1), (70, 7, 3, 10), (0, 1, 1, 1)):
        others = given(spark, size, keys, partitions)
        frame = template.over(others, [(times(factor), SCHEMA)])
        assert frame is not None
        assert frame._jdf.queryExecution().executedPlan().toString().count("Exchange ") == 1
        assert counts(frame) == {k: factor * len(range(k, size, keys)) for k in range(keys) if size}


def test_a_function_that_is_too_large_goes_another_way(spark: SparkSession) -> None:
    rows = given(spark, 10, 2, 1)
    template = Template.of(query(rows, 1), rows)
    assert template is not None
    assert template.over(rows, [(times(1, bytes(2 << 20)), SCHEMA)]) is None


def test_a_query_over_several_rows_is_no_template(spark: SparkSession) -> None:
    rows, others = given(spark, 10, 2, 1), given(spark, 10, 2, 1)
    assert Template.of(rows.unionAll(others), rows) is None
    assert Template.of(query(rows, 1), others) is None
