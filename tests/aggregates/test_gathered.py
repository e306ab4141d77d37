"""Partials of variable size.

Any grouping and order of merging gives the same, state is restored as it was, errors are as stated.
"""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.aggregates.gathered import Distinct, Foremost, Frequent, Hll, Kll, Smallest
from anabranch.aggregates.partials import Partial
from anabranch.state.codec.blob import Entries, decode, encode
from anabranch.types import from_lists, from_ordered, objects, ordered, to_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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


Row = tuple[int, Any]


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, list[list[Row]]]:
    """A type, and rows of (event time, value) in some groups."""
    kind = draw(st.sampled_from(sorted(VALUES)))
    rows = st.lists(st.tuples(st.integers(0, 3), VALUES[kind]), max_size=5)
    return kind, draw(st.lists(rows, min_size=1, max_size=6))


def normal(kind: str, rows: Sequence[Row]) -> list[Row]:
    """Rows with values as partials hold them."""
    values = ordered(pa.array([value for _, value in rows], type=arrow(kind)), kind)
    return list(zip((at for at, _ in rows), values, strict=True))


def arrow(kind: str) -> pa.DataType:
    return from_ordered([], kind).type


# The results of the lift, in Python, over rows with normal values.
LIFTS: dict[str, tuple[Callable[[str], Partial], Callable[[list[Row]], Any]]] = {
    "distinct": (Distinct, lambda rows: frozenset(value for _, value in rows)),
    "smallest": (
        lambda kind: Smallest(kind, 2),
        lambda rows: tuple(sorted({value for _, value in rows})[:2]),
    ),
    "foremost": (lambda kind: Foremost(kind, 3), lambda rows: tuple(sorted(rows)[:3])),
    "frequent": (
        lambda kind: Frequent(kind, 100),
        lambda rows: dict(Counter(value for _, value in rows)),
    ),
}


def merged(partial: Partial, parts: Sequence[Any]) -> Any:
    """Merges one after another, then each half first."""
    into = [column.empty(1) for column in partial.columns]
    for part in parts:
        partial.merge(into, np.array([0]), [objects([part])])
    found = into[0][0]
    if len(parts) > 2:
        left, right = (
            merged(partial, parts[: len(parts) // 2]),
            merged(partial, parts[len(parts) // 2 :]),
        )
        assert merged(partial, [right, left]) == found
    return found


@given(groups(), st.sampled_from(sorted(LIFTS)), st.randoms())
def test_merging_in_any_grouping_and_order_is_lifting_all_at_once(
    drawn: tuple[str, list[list[Row]]], name: str, shuffle: random.Random
) -> None:
    kind, parts = drawn
    partial, lift = LIFTS[name][0](kind), LIFTS[name][1]
    lifted = [lift(normal(kind, rows)) or None for rows in parts]
    shuffle.shuffle(lifted)
    before = copy.deepcopy(lifted)
    assert merged(partial, lifted) == (
        lift(normal(kind, [row for rows in parts for row in rows])) or None
    )
    assert lifted == before, "merging changed what it was given"


@given(groups(), st.sampled_from(sorted(LIFTS)))
def test_state_comes_back_from_its_bytes(drawn: tuple[str, list[list[Row]]], name: str) -> None:
    kind, parts = drawn
    partial, lift = LIFTS[name][0](kind), LIFTS[name][1]
    column = objects(lift(normal(kind, rows)) or None for rows in parts)
    number = np.arange(len(parts))
    entries = Entries(pa.table({"k0": number}), number.astype(np.int32), number, (column,))
    named = {str(i): column for i, column in enumerate(partial.columns)}
    again = decode(encode(entries, named), named)
    assert again.columns[0].tolist() == column.tolist()


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


def all_in(partial: Partial, parts: Sequence[Any]) -> Any:
    into = [column.empty(1) for column in partial.columns]
    for part in parts:
        partial.merge(into, slice(0, 1), [objects([part])])
    return into[0][0]


def hll(values: Sequence[int], lg_k: int) -> bytes:
    sketch = ds.hll_sketch(lg_k)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_compact())


@pytest.mark.parametrize("lg_k", [4, 8, 12])
@pytest.mark.parametrize("n", [1, 100, 20_000])
def test_an_estimate_is_within_its_error_and_does_not_depend_on_order(lg_k: int, n: int) -> None:
    partial, values, estimates = Hll("bigint", lg_k), list(range(n)), set()
    for seed in range(3):
        random.Random(seed).shuffle(values)
        estimates.add(partial.estimate(hll(values, lg_k)))
        estimates.add(
            partial.estimate(all_in(partial, [hll(values[i::4], lg_k) for i in range(4)]))
        )
    assert len(estimates) == 1
    assert abs(estimates.pop() - n) <= 3 * 1.04 / math.sqrt(2**lg_k) * n
    assert partial.estimate(None) == 0


def kll(values: Sequence[float], k: int) -> bytes | None:
    sketch = ds.kll_doubles_sketch(k)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize()) if len(values) else None


@given(
    st.lists(st.lists(st.integers(-9, 9).map(float), max_size=8), max_size=5),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_a_quantile_of_up_to_k_values_is_exact(parts: list[list[float]], q: float) -> None:
    partial, values = Kll("double", 40), sorted(value for part in parts for value in part)
    found = partial.quantiles(all_in(partial, [kll(part, 40) for part in parts]), [q])
    assert found == ([values[max(math.ceil(q * len(values)), 1) - 1]] if values else None)


@pytest.mark.parametrize("k", [50, 200])
def test_a_quantile_of_many_values_is_within_its_error(k: int) -> None:
    partial, error, near = (
        Kll("double", k),
        ds.kll_doubles_sketch.get_normalized_rank_error(k, False),
        [],
    )
    ranks = [each / 20 for each in range(1, 20)]
    for seed in range(5):
        values = np.random.default_rng(seed).permutation(20_000).astype(float)
        found = partial.quantiles(
            all_in(partial, [kll(part, k) for part in np.array_split(values, 50)]), ranks
        )
        assert found is not None
        near += [
            abs(value / 20_000 - rank) / error for value, rank in zip(found, ranks, strict=True)
        ]
    assert max(near) < 2.5
    assert sum(each <= 1 for each in near) >= 0.9 * len(near)


@pytest.mark.parametrize("parts", [1, 7])
def test_frequent_values_are_exact_up_to_the_bound_and_then_within_their_error(parts: int) -> None:
    values = [int(each) for each in np.random.default_rng(1).zipf(1.3, 20_000) if each < 10**6]
    true = Counter(values)
    for keep in (len(true), 50):
        partial = Frequent("bigint", keep)
        lifted = [partial._cut(dict(Counter(values[i::parts]))) for i in range(parts)]
        found = all_in(partial, lifted)
        worst = 0 if keep == len(true) else 2 * len(values) / keep
        assert len(found) <= keep
        assert all(true[value] - worst <= count <= true[value] for value, count in found.items())
        assert {value for value, count in true.items() if count > worst} <= set(found)


def test_what_sparks_sketch_counts_arrives_for_every_type() -> None:
    cases: list[tuple[str, Any, list[Any], list[Any]]] = [
        ("bigint", ds.PyLongsSerDe(), [3, -1], [3, -1]),
        ("date", ds.PyLongsSerDe(), [3, -1], [3, -1]),
        (
            "double",
            ds.PyDoublesSerDe(),
            [1.5, math.nan],
            ordered(pa.array([1.5, math.nan]), "double"),
        ),
        ("string", None, ["", "é"], ["", "é"]),
        ("binary", None, ["", "FF"], [b"", b"\xff"]),
        ("decimal(10,2)", None, ["1.50", "-2.00"], [Decimal("1.50"), Decimal("-2.00")]),
    ]
    for kind, serde, items, values in cases:
        sketch = ds.frequent_strings_sketch(5) if serde is None else ds.frequent_items_sketch(5)
        for times, item in enumerate(items, 1):
            sketch.update(item, times)
        sketches = [sketch.serialize() if serde is None else sketch.serialize(serde), None]
        lifted = pa.chunked_array(
            [pa.array([None if each is None else {"sketch": each} for each in sketches])]
        )
        [arrived] = Frequent(kind, 10).arrive([lifted])
        assert arrived.tolist() == [dict(zip(values, (1, 2), strict=True)), None]
