"""Which expressions an aggregate or a filter may have, and the messages for others."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import TopologyError
from anabranch.spark.compile.expressions import type_of

AGAIN = "a step that runs again would be different"
NOW = "uses the current time, which is different if a step runs again; make it a column in a map()"


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    schema = "k string, at timestamp, ms bigint, xs array<bigint>, `odd name` double"
    return spark.createDataFrame([], schema)


def python_udf(**options: Any) -> Any:
    function = F.udf(lambda x: x, "bigint")
    return function.asNondeterministic() if options else function


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("rand()", AGAIN),
        ("rand(7)", AGAIN),
        ("length(uuid())", AGAIN),
        ("shuffle(xs)[0]", AGAIN),
        ("monotonically_increasing_id()", AGAIN),
        ("spark_partition_id()", AGAIN),
        ("length(input_file_name())", AGAIN),
        ("transform(xs, x -> x + rand())[0]", AGAIN),
        (lambda: F.randn() + 1, AGAIN),
        (("ms", "rand()"), AGAIN),
        ("unix_micros(current_timestamp())", NOW),
        ("unix_micros(now())", NOW),
        ("unix_date(current_date)", NOW),
        ("unix_date(curdate())", NOW),
        ("ms + unix_timestamp()", NOW),
        ("date_diff(localtimestamp(), at)", NOW),
        (lambda: F.unix_micros(F.current_timestamp()), NOW),
        ("max(ms)", "max(ms) is itself an aggregate; valid: an expression of one row, as in ab.m"),
        ("count(*)", "is itself an aggregate"),
        ("row_number() over (order by ms)", "is a window function, which reads other rows"),
        ("sum(ms) over (partition by k)", "is a window function, which reads other rows"),
        ("explode(xs)", "makes several rows from one; do that in a map() before"),
        ("stack(2, ms, ms)", "makes several rows from one"),
        ("(select max(id) from range(3))", "has a subquery; valid: an expression of one row"),
        ("exists(select 1 where ms > 3)", "has a subquery"),
        ("ms in (select id from range(3))", "has a subquery"),
        ("ms + max(ms)", "does not fit the stream's columns (k, at, ms, xs, odd name): "),
        ("nope", "nope does not fit the stream's columns (k, at, ms, xs, odd name): "),
        ("ms +", "does not fit the stream's columns"),
        (5, "5 is neither a Spark SQL expression nor a Column"),
        ((5, "ms"), "is neither a Spark SQL expression nor a Column"),
    ],
)
def test_an_expression_without_one_fixed_value_per_row_is_refused(
    rows: DataFrame, value: Any, said: str
) -> None:
    with pytest.raises(TopologyError) as error:
        type_of(rows, value() if callable(value) else value, "aggregate 'n'")
    assert str(error.value).startswith("aggregate 'n': ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "calls a Python function; call it in a map()"), ({"random": True}, AGAIN)],
)
def test_a_python_function_belongs_into_a_map(
    rows: DataFrame, options: dict[str, bool], said: str
) -> None:
    with pytest.raises(TopologyError) as error:
        type_of(rows, python_udf(**options)("ms") + 1, "aggregate 'n'")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ms", "bigint"),
        ("odd name", "double"),
        ("xs[0] + 1", "bigint"),
        ("aggregate(xs, 0L, (a, x) -> a + x)", "bigint"),
        ("date_trunc('day', at)", "timestamp"),
        ("'now()'", "string"),
        ("current_timezone()", "string"),
        (lambda: F.col("ms") * 2, "bigint"),
        (("ms", "k"), "struct<a0:bigint,a1:string>"),
    ],
)
def test_a_valid_expression_has_its_type(rows: DataFrame, value: Any, kind: str) -> None:
    given = value() if callable(value) else value  # columns need a session
    assert type_of(rows, given, "aggregate 'n'") == kind


def test_filters_aggregates_and_columns_of_a_process_are_all_looked_at(rows: DataFrame) -> None:
    class Read:
        state: int
        output = "n bigint"
        columns = {"n": ab.sum("rand()")}

        def process(self, key: Any, rows: Any, state: Any, ctx: Any) -> Any:
            raise AssertionError((key, rows, state, ctx))

    stream = ab.Topology("t").source(rows, event_time="at", delay="0 seconds")
    with pytest.raises(TopologyError, match=r"the filter of 'n': rand\(\) < 0\.5 must be determ"):
        stream.compute("k", n=ab.sum("ms", where="rand() < 0.5"))
    with pytest.raises(TopologyError, match=r"aggregate 'n': uuid\(\) must be deterministic"):
        stream.compute("k", n=ab.max("uuid()"))
    with pytest.raises(TopologyError, match=r"aggregate 'n': rand\(\) must be deterministic"):
        stream.process("k", Read, order="arrival")
    with pytest.raises(TopologyError, match="map must be deterministic"):
        stream.map(lambda df: df.withColumn("r", F.rand()))
