"""Aggregates of variable size: results of none and of several values, and what is refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import datasketches as ds
import pytest

import anabranch.topology as ab
from anabranch.errors import TopologyError
from anabranch.types import Array, objects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def kll(values: Sequence[float], k: int) -> bytes | None:
    sketch = ds.kll_doubles_sketch(k)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize()) if len(values) else None


def test_results_of_no_value_and_of_several() -> None:
    nothing: Array = objects([None, (3, 5)])
    assert ab.collect_set("v").finish("bigint", (nothing,)).to_pylist() == [[], [3, 5]]
    assert ab.collect_list("v").finish(
        "bigint", (objects([None, ((0, 5), (1, 3))]),)
    ).to_pylist() == [[], [5, 3]]
    top = ab.top_k("v", 2).finish("string", (objects([None, {"b": 2, "a": 2, "c": 9}]),))
    assert top.to_pylist() == [[], [{"value": "c", "count": 9}, {"value": "a", "count": 2}]]
    assert ab.count_distinct("v").finish("bigint", (nothing,)).to_pylist() == [0, 2]
    assert ab.quantile("v", [0, 1]).finish(
        "bigint", (objects([None, kll([1.0, 2.0], 200)]),)
    ).to_pylist() == [None, [1.0, 2.0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ab.approx_count_distinct("v", 3),
            r"approx_count_distinct: lg_k=3; valid: 4 to 21",
        ),
        (
            lambda: ab.quantile("v", 1.5),
            r"quantile: q=1.5; valid: a number from 0 to 1, or a list of them",
        ),
        (lambda: ab.quantile("v", [0.5, "high"]), r"q='high'"),
        (lambda: ab.quantile("v", []), r"q is empty"),
        (lambda: ab.quantile("v", math.nan), r"q=nan"),
        (lambda: ab.quantile("v", 0.5, 7), r"quantile: k=7; valid: 8 to 65535"),
        (lambda: ab.top_k("v", 0), r"top_k: k=0; valid: 1 to 1000 \(keep\)"),
        (lambda: ab.top_k("v", 20, 10), r"top_k: k=20; valid: 1 to 10 \(keep\)"),
        (lambda: ab.top_k("v", 1, 10**6), r"top_k: keep=1000000; valid: 1 to 250000"),
        (lambda: ab.collect_list("v", 0), r"collect_list: limit=0; valid: 1 to"),
        (lambda: ab.collect_set("v", 2.5), r"collect_set: limit=2.5; valid: 1 to"),
        (lambda: ab.collect_set("v", True), r"limit=True"),
        (
            lambda: ab.bool_and("v").partials("int"),
            r"bool_and\(v\) has input of type int; valid: boolean",
        ),
        (
            lambda: ab.quantile("s", 0.5).partials("string"),
            r"quantile\(s\) has input of type string; valid: whole numbers",
        ),
        (
            lambda: ab.max_by("v", "m").partials("struct<a0:int,a1:map<string,int>>"),
            r"map<string,int> cannot be aggregated",
        ),
        (lambda: ab.count_distinct("a").partials("array<int>"), r"array<int> cannot be aggregated"),
        (
            lambda: ab.last("window").partials("struct<start:timestamp>"),
            r"struct<start:timestamp> cannot be aggregated",
        ),
    ],
)
def test_invalid_parameters_are_refused_with_the_valid_ones(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        make()
