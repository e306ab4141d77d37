"""What may be a component: connected, with a common attribute, not against a hint.

Mistakes are refused.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given

from anabranch.errors import TopologyError
from anabranch.plan.planners.problem import Hints, Space, StreamGraph, bits
from tests.plan.planners.component_graphs import graphs, operator, streams


def test_compatibility_is_not_transitive() -> None:
    triangle = streams(
        {"o1": "ab", "o2": "bc", "o3": "ac"}, ("o1", "o2", 1), ("o2", "o3", 1), ("o1", "o3", 1)
    )
    space = Space(triangle)
    assert all(space.is_component(1 << a | 1 << b) for a, b in itertools.combinations(range(3), 2))
    assert not space.is_component(0b111)


def test_a_map_takes_part_in_everything_and_a_global_aggregate_in_nothing() -> None:
    space = Space(streams({"map": None, "by": "a", "all": ""}, ("map", "by", 1), ("map", "all", 1)))
    assert space.attributes_named(0b001) is None
    assert space.attributes_named(0b011) == {"a"}
    assert space.is_component(0b011)
    assert not space.is_component(0b101)
    assert space.is_component(0b100)


@given(graphs())
def test_a_set_that_is_not_convex_is_in_no_ordered_plan(graph: StreamGraph) -> None:
    space = Space(graph)
    for units in range(1, space.every + 1):
        alone = [1 << i for i in bits(space.every & ~units)]
        assert space.is_convex(units) == space.is_ordered([units, *alone])


def test_two_convex_components_may_wait_for_each_other() -> None:
    crossed = streams(
        {"a1": "x", "a2": "x", "b1": "x", "b2": "x"},
        ("a1", "a2", 1),
        ("b1", "b2", 1),
        ("a1", "b2", 1),
        ("b1", "a2", 1),
    )
    space = Space(crossed)
    assert space.is_convex(0b0011)
    assert space.waiting([0b0011, 0b1100])
    assert Space(crossed, ordered=False).is_ordered([0b0011, 0b1100])


CHAIN = streams(
    {"a": "x", "b": "xy", "c": "y", "d": "x"},
    ("a", "b", 1),
    ("b", "c", 1),
    ("c", "d", 1),
    ("a", "d", 1),
)


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        (Hints(fuse=(frozenset("ac"),)), "no attribute in common"),
        (Hints(fuse=(frozenset("bd"),)), "no stream connects them all"),
        (Hints(fuse=(frozenset("ad"),)), "wait for others between them"),
        (
            Hints(fuse=(frozenset("ab"),), apart=(frozenset("ab"),)),
            "to be fused and to be kept apart",
        ),
        (Hints(fuse=(frozenset("az"),)), "unknown operator 'z'; valid: a, b, c, d"),
    ],
)
def test_hints_that_cannot_be_kept_are_refused(hints: Hints, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Space(CHAIN, hints)


def test_graphs_that_are_not_valid_are_refused() -> None:
    with pytest.raises(TopologyError, match="form a cycle"):
        Space(streams({"a": "x", "b": "x"}, ("a", "b", 1), ("b", "a", 1)))
    with pytest.raises(TopologyError, match="a stream of its own"):
        streams({"a": "x"}, ("a", "a", 1))
    with pytest.raises(TopologyError, match="unknown operator 'b'; valid: a"):
        streams({"a": "x"}, ("a", "b", 1))
    with pytest.raises(TopologyError, match="rate -1"):
        streams({"a": "x", "b": "x"}, ("a", "b", -1))
    with pytest.raises(TopologyError, match="duplicate operator 'a'"):
        StreamGraph((operator("a", "x"), operator("a", "y")), ())
    with pytest.raises(TopologyError, match="one shape"):
        StreamGraph((operator("a", "x", [[1, 2]]), operator("b", "y", [[1]])), ())
