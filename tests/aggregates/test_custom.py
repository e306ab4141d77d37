"""Aggregates of users.

What is refused, how state is folded, merged and kept, and how a class gets to a worker.
"""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from anabranch.aggregates.functions import approx_count_distinct
from anabranch.errors import StepError, TopologyError
from anabranch.plan import make_plan
from anabranch.topology import Aggregate, Compute, Consolidate, Field, Graph, Source, tumbling, udaf
from anabranch.topology.graph import Named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.types import Array


class Joined:
    """All texts, sorted."""

    state_type = list[str]
    result_type = "array<string>"

    def init(self) -> list[str]:
        return []

    def add(self, state: list[str], text: str) -> list[str]:
        state.append(text)
        return state

    def merge(self, left: list[str], right: list[str]) -> list[str]:
        left += right
        return left

    def finish(self, state: list[str]) -> list[str]:
        return sorted(state)


@dataclass(frozen=True)
class Largest:
    """The largest product of two numbers, but no less than a floor."""

    floor: int = 0
    state_types = ("bigint",)
    result_type = "bigint"

    @property
    def identities(self) -> tuple[int]:
        return (self.floor,)

    def lift(self, group: Array, size: int, left: Array, right: Array) -> tuple[Array]:
        best = np.full(size, self.floor)
        np.maximum.at(best, group, left * right)
        return (best,)

    def merge(self, into: Sequence[Array], at: Any, lifted: Sequence[Array]) -> None:
        into[0][at] = np.maximum(into[0][at], lifted[0])

    def finish(self, best: Array) -> Array:
        return best


def collected(rows: list[list[tuple[Any, ...]] | None], *kinds: pa.DataType) -> pa.ChunkedArray:
    """What the lift gives: a list of structs for each key and pane."""
    kind = pa.list_(pa.struct([(f"a{i}", each) for i, each in enumerate(kinds)]))
    lists = [
        None if each is None else [{f"a{i}": v for i, v in enumerate(row)} for row in each]
        for each in rows
    ]
    return pa.chunked_array([pa.array(lists, kind)])


def test_plain_state_is_folded_merged_and_finished_and_what_was_merged_stays_as_it_was() -> None:
    aggregate = udaf(Joined)("name")
    [partial] = aggregate.partials("struct<a0:string>")
    one = partial.arrive([collected([[("b",), ("a",)], [], None], pa.string())])
    two = partial.arrive([collected([[("c",)], [("d",)], None], pa.string())])
    into = [column.empty(3) for column in partial.columns]
    for each in (one, two, one):
        partial.merge(into, slice(0, 3), each)
    assert aggregate.finish("", tuple(into)).to_pylist() == [["a", "a", "b", "b", "c"], ["d"], []]
    assert aggregate.finish("", tuple(one)).to_pylist() == [["a", "b"], [], []]
    [column] = partial.columns
    assert column.from_arrow(column.to_arrow(into[0])).tolist() == into[0].tolist()


def test_vectorised_state_is_lifted_merged_and_finished() -> None:
    aggregate = udaf(Largest(floor=1))("v", "w")
    [partial] = aggregate.partials("struct<a0:bigint,a1:int>")
    lifted = partial.arrive([collected([[(2, 3), (4, 1)], None, [(0, 9)]], pa.int64(), pa.int32())])
    into = [column.empty(4) for column in partial.columns]
    partial.merge(into, np.array([3, 0, 1]), lifted)
    assert aggregate.finish("", tuple(into)).to_pylist() == [1, 1, 1, 6]


def changed(kind: type, **members: Any) -> type:
    return type("Changed", (kind,), members)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            object,
            (
                r"udaf\(object\) has no method init; it needs: "
                r"init\(\), add\(\), merge\(\), finish\(\), state_type, result_type"
            ),
        ),
        (changed(Joined, merge=3), r"udaf\(Changed\) has no method merge"),
        (
            changed(Joined, result_type=float),
            r"result_type=<class 'float'> is not the name of a Spark type",
        ),
        (changed(Joined, result_type="text"), r"type text cannot be aggregated; valid: "),
        (
            changed(Joined, state_type=dict[str, int]),
            r"init\(\) does not return a state of type dict\[str, int\]",
        ),
        (
            changed(Joined, state_type=np.ndarray),
            r"init\(\) does not return a state of type ndarray .* valid: a dataclass or built-in",
        ),
        (
            changed(Largest, state_types=("bigint", "int")),
            r"state_types=\('bigint', 'int'\) and identities=\(0,\); valid: the same number",
        ),
        (changed(Largest, identities=("none",)), r"identity 'none' of a column of type bigint"),
        (
            changed(Joined, __init__=lambda _self, _: None),
            r"cannot be created without arguments .* pass an object instead",
        ),
    ],
)
def test_an_invalid_udaf_is_refused_with_what_it_needs(given: object, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        udaf(given)


def test_a_result_of_another_type_and_a_lift_of_another_size_are_errors_that_say_so() -> None:
    with pytest.raises(TopologyError, match=r"udaf\(Joined\) needs at least one expression"):
        udaf(Joined)()
    wrong = udaf(changed(Joined, result_type="bigint"))("name")
    with pytest.raises(
        StepError, match=r"udaf\(Changed\): finish returned values not of type bigint"
    ):
        wrong.finish("", (np.array([None], dtype=object),))
    half = udaf(changed(Joined, result_type="bigint", finish=lambda *_: 1.5))("name")
    with pytest.raises(StepError, match=r"not of type bigint: 1.5 is not a whole number"):
        half.finish("", (np.array([None], dtype=object),))
    [partial] = udaf(changed(Largest, lift=lambda *_: (np.zeros(9),)))("v", "w").partials(
        "struct<a0:bigint,a1:int>"
    )
    with pytest.raises(
        StepError, match=r"lift returned arrays of shape \[\(9,\)\]; valid: 1 of length 1"
    ):
        partial.arrive([collected([[(1, 2)]], pa.int64(), pa.int32())])


def test_parameters_are_part_of_the_fingerprint() -> None:
    def text(aggregate: Aggregate, kind: str) -> str:
        fields = (Field("k", "string"), Field("at", "timestamp"))
        graph = (
            Graph(name="t")
            .add(Source(name="s", fields=fields, event_time="at", unit_us=None, delay_us=0))
            .add(
                Compute(
                    name="c",
                    input="s",
                    by=fields[:1],
                    aggregates=(Named(name="n", aggregate=aggregate, input_type=kind),),
                )
            )
            .add(Consolidate(name="w", input="c", windows=(tumbling("1h"),)))
        )
        return make_plan(graph).nodes[0].fingerprint()["aggregates"]

    assert (
        text(approx_count_distinct("v", 10), "int") == "n = approx_count_distinct(v: int, lg_k=10)"
    )
    assert text(udaf(Largest(floor=5))("v", "w"), "struct<a0:int,a1:int>") == (
        "n = udaf(v, w: struct<a0:int,a1:int>, class=Largest(floor=5), state=bigint, result=bigint)"
    )
    assert text(udaf(Joined)("v", where="v > 0"), "struct<a0:string>") == (
        "n = udaf(v: struct<a0:string>, class=Joined, state=list[str], result=array<string>) "
        "where v > 0"
    )


def test_a_result_type_may_be_written_with_spaces() -> None:
    class Pairs(Joined):
        result_type = "array<struct<text: string, price: decimal(9, 2)>>"

        def finish(self, state: list[str]) -> list[dict[str, Any]]:  # type: ignore[override]
            return [{"text": each, "price": Decimal(1)} for each in state]

    aggregate = udaf(Pairs)("v")
    assert (
        aggregate.result_type("struct<a0:string>")
        == "array<struct<text:string,price:decimal(9,2)>>"
    )
    [state] = aggregate.partials("struct<a0:string>")[0].arrive(
        [pa.chunked_array([[[{"a0": "a"}]]])]
    )
    assert aggregate.finish("struct<a0:string>", (state,)).to_pylist() == [
        [{"text": "a", "price": Decimal("1.00")}]
    ]


SCRIPT = """
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass
class Point:
    x: float

@dataclass
class Points:
    seen: list[Point] = field(default_factory=list)

class Path:
    state_type = Points
    result_type = "double"
    def init(self): return Points()
    def add(self, state, x): return Points([*state.seen, Point(x)])
    def merge(self, left, right): return Points(left.seen + right.seen)
    def finish(self, state): return sum(point.x for point in state.seen)
"""
WORKER = """
import pickle, sys
import pyarrow as pa
aggregate, [partial] = pickle.loads(sys.stdin.buffer.read())
lifted = partial.arrive([pa.chunked_array([pa.array([[{"a0": 1.5}, {"a0": 2.0}]])])])
into = [column.empty(1) for column in partial.columns]
for _ in range(2):
    partial.merge(into, slice(0, 1), lifted)
print(aggregate.finish("", tuple(into)).to_pylist())
"""


def test_a_class_with_nested_state_travels_to_a_worker_that_has_not_its_module() -> None:
    module = types.ModuleType("anabranch_file")
    sys.modules[module.__name__] = module
    try:
        exec(compile(SCRIPT, "script.py", "exec"), vars(module))  # noqa: S102
        aggregate = udaf(module.Path)("x")
    finally:
        del sys.modules[module.__name__]
    shipped = cloudpickle.dumps((aggregate, aggregate.partials("struct<a0:double>")))
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input=shipped, capture_output=True, check=False, cwd=root
    )
    assert done.stdout == b"[7.0]\n", done.stderr.decode()
