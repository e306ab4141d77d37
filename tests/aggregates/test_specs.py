"""Specs of aggregates: types of results as in Spark, nulls, and what they refuse."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from anabranch.aggregates import functions as f
from anabranch.aggregates.specs import Aggregate, AvgOf, MaxOf, SumOf, text_of
from anabranch.errors import TopologyError


@pytest.mark.parametrize(
    ("aggregate", "given", "expected"),
    [
        (f.count(), "string", "bigint"),
        (f.sum("x"), "int", "bigint"),
        (f.sum("x"), "float", "double"),
        (f.sum("x"), "decimal(10,2)", "decimal(20,2)"),
        (f.sum("x"), "decimal(35,2)", "decimal(38,2)"),
        (f.avg("x"), "bigint", "double"),
        (f.avg("x"), "decimal(10,2)", "decimal(14,6)"),
        (f.min("x"), "string", "string"),
        (f.first("x"), "date", "date"),
        (f.variance("x"), "int", "double"),
        (f.bool_or("x"), "boolean", "boolean"),
        (f.count_distinct("x"), "string", "bigint"),
        (f.collect_set("x"), "int", "array<int>"),
    ],
)
def test_the_type_of_a_result_is_that_of_spark(
    aggregate: Aggregate, given: str, expected: str
) -> None:
    assert aggregate.result_type(given) == expected


@pytest.mark.parametrize(
    ("aggregate", "given", "nothing"),
    [
        (f.count(), "int", 0),
        (f.sum("x"), "bigint", None),
        (f.sum("x"), "decimal(10,2)", None),
        (f.avg("x"), "double", None),
        (f.max("x"), "string", None),
        (f.last("x"), "int", None),
        (f.stddev("x"), "double", None),
        (f.count_distinct("x"), "int", 0),
        (f.collect_list("x"), "int", []),
    ],
)
def test_a_group_without_values_has_a_null_or_a_count_of_zero(
    aggregate: Aggregate, given: str, nothing: Any
) -> None:
    columns = tuple(each.empty(1) for one in aggregate.partials(given) for each in one.columns)
    assert aggregate.finish(given, columns).to_pylist() == [nothing]


@pytest.mark.parametrize("aggregate", [f.sum("x"), f.avg("x"), f.variance("x")])
def test_numbers_are_wanted_where_text_is_given(aggregate: Aggregate) -> None:
    message = rf"{aggregate.kind}\(x\) has input of type string; valid: whole numbers, floats"
    with pytest.raises(TopologyError, match=message):
        aggregate.partials("string")


def test_parameters_tell_aggregates_of_a_kind_apart() -> None:
    assert f.sum("x").parameters == {}
    assert f.quantile("x", 0.5).parameters != f.quantile("x", 0.9).parameters
    assert f.top_k("x", 3) != f.top_k("x", 4)


def test_several_inputs_are_written_side_by_side() -> None:
    assert [text_of(each) for each in (None, "x", ("x", "y"))] == ["*", "x", "x, y"]


def test_an_aggregate_refuses_a_type_that_it_cannot_take() -> None:
    with pytest.raises(
        TopologyError, match=r"sum\(name\) has input of type string; valid: whole numbers"
    ):
        SumOf("name").partials("string")
    with pytest.raises(TopologyError, match="map<string,int> cannot be aggregated"):
        MaxOf("m").partials("map<string,int>")


def test_the_mean_of_decimals_is_rounded_half_up_as_in_spark() -> None:
    column = AvgOf("d").finish(
        "decimal(10,2)", (np.array([Decimal("1.00")], dtype=object), np.array([3]))
    )
    assert column.to_pylist() == [Decimal("0.333333")]
