"""Values chosen by the order of something else do not depend on the order of merging."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.aggregates.by_order import AtGreatest, AtLeast, Earliest, Latest
from anabranch.aggregates.partials import (
    Partial,
)
from anabranch.types import Array, from_ordered, ordered

if TYPE_CHECKING:
    from collections.abc import Callable


def merged(partial: Partial, parts: list[list[Array]]) -> list[object]:
    into = [column.empty(1) for column in partial.columns]
    for part in parts:
        partial.merge(into, np.array([0]), part)
    return [column[0] for column in into]


def single(partial: Partial, *values: object) -> list[Array]:
    return [
        np.array([value], dtype=column.dtype)
        for value, column in zip(values, partial.columns, strict=True)
    ]


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-5, 5)), min_size=1, max_size=8),
    st.randoms(),
)
def test_first_and_last_do_not_depend_on_the_order_of_merging(
    pairs: list[tuple[int, int]], random: object
) -> None:
    for partial, expected in ((Earliest("bigint"), min(pairs)), (Latest("bigint"), max(pairs))):
        shuffled = list(pairs)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        assert tuple(merged(partial, [single(partial, *pair) for pair in shuffled])) == expected


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


@given(
    st.sampled_from(sorted(VALUES)),
    st.sampled_from(sorted(VALUES)),
    st.data(),
    st.sampled_from([(AtLeast, min), (AtGreatest, max)]),
)
def test_the_value_at_the_extreme_does_not_depend_on_the_order_of_merging(
    kind: str, by: str, data: st.DataObject, which: tuple[type[Partial], Callable[..., Any]]
) -> None:
    pairs = data.draw(st.lists(st.tuples(VALUES[kind], VALUES[by]), min_size=1, max_size=6))
    partial = which[0](f"struct<a0:{kind},a1:{by}>")
    into = [column.empty(1) for column in partial.columns]
    for value, order in [*pairs, (None, None)]:
        lifted = [
            pa.chunked_array([pa.array([each], type_)])
            for each, type_ in ((order, arrow(by)), (value, arrow(kind)))
        ]
        count = pa.chunked_array([pa.array([0 if value is None else 1])])
        partial.merge(into, np.array([0]), partial.arrive([count, *lifted]))
    values, orders = (
        ordered(pa.array([v for v, _ in pairs], arrow(kind)), kind),
        ordered(pa.array([o for _, o in pairs], arrow(by)), by),
    )
    expected = which[1](zip(orders, values, strict=True))[1]
    found = pa.array(into[2].tolist(), pa.string() if kind == "string" else None)
    assert ordered(found.cast(arrow(kind)), kind) == [expected]
    assert into[0].tolist() == [len(pairs)]
