"""What a planner found: groups, costs, and a reason for each stream."""

from __future__ import annotations

import pytest

from anabranch.plan.planners.cbp import NO_HINTS
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import Hints, Space, StreamGraph
from anabranch.plan.planners.solution import FusionPlan, fusion_plan
from tests.plan.planners.component_graphs import operator, streams


def plan_of(graph: StreamGraph, *groups: str, hints: Hints = NO_HINTS) -> FusionPlan:
    """The plan of a partition; operators have one letter."""
    space = Space(graph, hints)
    units = [sum({1 << space.unit_of[name] for name in group}) for group in groups]
    return fusion_plan(Costs(space, Adaptation()), units, "by hand")


GRAPH = streams(
    {"a": "xy", "b": "x", "c": "y", "d": None}, ("a", "b", 5), ("a", "c", 2), ("b", "d", 1)
)


def test_groups_are_in_the_order_of_their_first_operators_with_their_attributes() -> None:
    plan = plan_of(GRAPH, "c", "d", "ab")
    assert [each.operators for each in plan.components] == [("a", "b"), ("c",), ("d",)]
    assert [each.attributes for each in plan.components] == [{"x"}, {"y"}, None]
    assert plan.partition == {frozenset("ab"), frozenset("c"), frozenset("d")}


def test_only_streams_between_groups_cost_communication() -> None:
    plan = plan_of(GRAPH, "ab", "c", "d")
    assert (plan.communication, plan.communication_unfused) == (3, 8)
    assert [each.saved for each in plan.components] == [5, 0, 0]
    assert plan.cost == 3


@pytest.mark.parametrize(
    ("groups", "stream", "fused", "reason"),
    [
        ("ab c d", ("a", "b"), True, "both may be partitioned by (x); that saves a rate of 5"),
        ("ab c d", ("a", "c"), False, "no attribute in common: (x) and (y)"),
        ("a b c d", ("b", "d"), False, "fusing these two would pay (1 saved"),
        ("a c bd", ("b", "d"), True, "both may be partitioned by (x)"),
    ],
)
def test_each_stream_has_a_reason(
    groups: str, stream: tuple[str, str], fused: bool, reason: str
) -> None:
    plan = plan_of(GRAPH, *groups.split())
    [found] = [r for r in plan.reasons if (r.stream.source, r.stream.target) == stream]
    assert found.fused is fused
    assert found.text.startswith(reason)


def test_hints_are_reasons() -> None:
    fuse = plan_of(GRAPH, "ab", "c", "d", hints=Hints(fuse=(frozenset("ab"),)))
    assert fuse.reasons[0].text == "fused by a hint, partitioned by (x)"
    apart = plan_of(GRAPH, "a", "b", "c", "d", hints=Hints(apart=(frozenset("ab"),)))
    assert apart.reasons[0].text == "kept apart by a hint"


def test_a_group_that_would_wait_for_others_is_refused_for_that_reason() -> None:
    graph = streams({"a": "x", "b": "y", "c": "x"}, ("a", "b", 1), ("b", "c", 1), ("a", "c", 9))
    plan = plan_of(graph, "a", "b", "c")
    texts = {(r.stream.source, r.stream.target): r.text for r in plan.reasons}
    assert texts["a", "c"] == "one component would wait for others that wait for it"


def test_a_bound_of_adaptation_that_a_group_exceeds_is_reported() -> None:
    wave = [[10, 10], [40, 40], [10, 10], [40, 40]]
    graph = StreamGraph((operator("a", "x", wave, state=100),), ())
    costs = Costs(Space(graph), Adaptation(capacity=30, bound=1))
    assert fusion_plan(costs, [1], "by hand").above_bound == (("a",),)
