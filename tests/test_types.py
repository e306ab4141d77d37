"""Types of columns by their Spark name: in Arrow, in NumPy, and in the order that Spark has."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import TopologyError
from anabranch.types import (
    arrow_type,
    column_type,
    dtype_of,
    exact_array,
    from_lists,
    from_ordered,
    ordered,
    to_array,
    to_arrow,
    to_lists,
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bigint": st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)]),
    "double": st.sampled_from(
        [0.0, -0.0, float("nan"), -float("nan"), float("inf"), float("-inf"), 1.5, -2.5]
    ),
    "string": st.sampled_from(["", "a", "é", "𝄞", "b"]),
    "binary": st.sampled_from([b"", b"\x00", b"\xff"]),
    "decimal(10,2)": st.integers(-5, 5).map(lambda cents: Decimal(cents).scaleb(-2)),
    "boolean": st.booleans(),
}


def arrow(kind: str) -> pa.DataType:
    return from_ordered([], kind).type


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_ordered_values_come_back_and_sort_as_in_spark(kind: str, data: st.DataObject) -> None:
    lists = data.draw(st.lists(st.none() | st.lists(VALUES[kind], max_size=4), max_size=5))
    column = pa.array(lists, pa.list_(arrow(kind)))
    held = list(from_lists(column, kind))
    back = to_lists(
        [None if given is None else each for given, each in zip(lists, held, strict=True)],
        kind,
        null=True,
    )
    assert list(from_lists(back, kind)) == held
    assert back.is_null().to_pylist() == column.is_null().to_pylist()


def test_odd_floats_are_ordered_as_spark_orders_them() -> None:
    odd = [float("-inf"), -1e300, -5e-324, -0.0, 0.0, 5e-324, 1.0, float("inf"), float("nan")]
    numbers = ordered(pa.array(odd), "double")
    assert numbers == sorted(numbers)
    assert numbers[3] == numbers[4]
    assert str(from_ordered(numbers, "double").to_pylist()) == str([*odd[:3], 0.0, *odd[4:]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("array<bigint>", pa.list_(pa.int64())),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        (
            "struct<a:int,b:array<struct<c:string,d:decimal(3,1)>>>",
            pa.struct(
                [
                    ("a", pa.int32()),
                    ("b", pa.list_(pa.struct([("c", pa.string()), ("d", pa.decimal128(3, 1))]))),
                ]
            ),
        ),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
    ],
)
def test_a_spark_type_is_an_arrow_type_however_deep(name: str, expected: pa.DataType) -> None:
    assert column_type(name) == expected


def test_maps_are_columns_only_where_they_may_be_and_unknown_types_are_named() -> None:
    assert column_type("map<string,int>", maps=True) == pa.map_(pa.string(), pa.int32())
    with pytest.raises(TopologyError, match=r"map<string,int> cannot be aggregated; valid: tiny"):
        column_type("map<string,int>")


@pytest.mark.parametrize("kind", ["bigint", "date", "timestamp", "boolean", "double", "string"])
def test_a_column_with_nulls_comes_back_from_its_array(kind: str) -> None:
    whole = pa.array([1, None, 0], pa.int64() if kind == "timestamp" else pa.int32())
    column = whole.cast(arrow_type(kind))
    missing = None if kind == "string" else 0
    held = to_array(column, dtype_of(kind), missing)
    valid = np.array([True, False, True])
    assert to_arrow(held, kind, valid).to_pylist() == column.to_pylist()


def test_a_decimal_becomes_the_nearest_float() -> None:
    column = pa.array([Decimal("0.07"), Decimal("1234567.89")], pa.decimal128(10, 2))
    assert to_array(column, np.dtype(np.float64), 0.0).tolist() == [0.07, 1234567.89]


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("bigint", 1.5, "1.5 is not a whole number"),
        ("int", 2.9, "2.9 is not a whole number"),
        ("int", 2**40, "too large"),
        ("tinyint", -200, "too large|out of range"),
        ("bigint", np.float32(0.5), "is not a whole number"),
        ("bigint", Decimal("1.5"), "is not a whole number"),
        ("bigint", float("nan"), "nan"),
        ("bigint", 1e300, "1e"),
        ("date", 1.5, "1.5 is not a whole number"),
        ("timestamp", 1.5, "1.5 is not a whole number"),
        ("float", 1e39, "1e\\+39 is too large for a float"),
        ("bigint", "1", "'1'"),
        ("array<int>", [1, 2.5], "2.5 is not a whole number"),
        ("array<int>", np.array([2.5]), "2.5"),
        ("struct<a:int,b:array<bigint>>", {"a": 1, "b": [None, 0.5]}, "0.5 is not a whole number"),
        ("map<string,int>", {"x": 0.5}, "0.5 is not a whole number"),
        ("map<string,int>", [("x", 0.5)], "0.5 is not a whole number"),
    ],
)
def test_a_value_that_would_change_in_its_column_is_refused(
    kind: str, value: Any, said: str
) -> None:
    with pytest.raises((pa.ArrowException, ValueError, TypeError), match=said):
        exact_array([None, value], column_type(kind, maps=True))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [1, None, 2.0, Decimal(3), np.int8(4), -(2**63)]),
        ("int", (1, 2.0)),
        ("float", [1e38, float("inf"), float("nan"), None, 0.1]),
        ("double", [1, 1.5, None]),
        ("timestamp", [5, 5.0, None]),
        ("array<int>", [[1, 2.0], None, []]),
        ("struct<a:int>", [{"a": 2.0}, None, {"a": None}, {}]),
        ("map<string,int>", [{"x": 2.0}, None, [("y", 1)]]),
        ("string", ["a", None]),
    ],
)
def test_a_value_that_its_column_holds_is_kept_as_pyarrow_has_it(kind: str, values: Any) -> None:
    declared = column_type(kind, maps=True)
    assert exact_array(values, declared).equals(pa.array(values, declared)) or kind == "float"
