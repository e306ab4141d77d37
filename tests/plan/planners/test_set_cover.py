"""The exact planner and the set cover, against all partitions of small graphs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import TopologyError
from anabranch.plan.planners.cbp import depth_first, plan_greedily
from anabranch.plan.planners.chooser import plan_components
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import (
    Hints,
    Space,
    StreamGraph,
    bits,
)
from anabranch.plan.planners.set_cover import (
    feasible_components,
    grow_components,
    plan_cover,
    plan_exactly,
)
from anabranch.plan.planners.solution import fusion_plan
from tests.plan.planners.component_graphs import (
    adaptations,
    cheapest,
    check,
    feasible_plans,
    graphs,
    large,
    streams,
)

CLOSE = 1e-6


@settings(max_examples=60)
@given(graphs(), adaptations, st.booleans())
def test_the_exact_plan_equals_brute_force_and_greedy_plans_are_not_better(
    graph: StreamGraph, adaptation: Adaptation, ordered: bool
) -> None:
    exact = plan_exactly(graph, adaptation, ordered=ordered)
    least = cheapest(graph, adaptation, Hints(), ordered=ordered)
    allowed = CLOSE * max(1.0, graph.rate)
    assert exact.cost == pytest.approx(least, abs=allowed)
    greedy = plan_greedily(graph, adaptation, ordered=ordered)
    costs = Costs(Space(graph, ordered=ordered), adaptation)
    start = fusion_plan(costs, depth_first(costs), "start")
    cover = plan_cover(graph, adaptation, ordered=ordered)
    chosen = plan_components(graph, adaptation, ordered=ordered)
    assert exact.cost <= greedy.cost + allowed
    assert greedy.cost <= start.cost + allowed
    assert chosen.cost == pytest.approx(exact.cost, abs=allowed)
    for plan in (exact, greedy, start, cover, chosen):
        check(plan, graph, ordered=ordered, bound=adaptation.bound)
        assert least <= plan.cost + allowed


@settings(max_examples=40)
@given(graphs(), adaptations)
def test_a_pair_kept_apart_is_apart_and_the_plan_is_the_cheapest_of_those(
    graph: StreamGraph, adaptation: Adaptation
) -> None:
    names = frozenset(o.name for o in graph.operators[:2])
    hints = Hints(apart=(names,) if len(names) == 2 else ())
    exact = plan_exactly(graph, adaptation, hints)
    assert exact.cost == pytest.approx(
        cheapest(graph, adaptation, hints, ordered=True), abs=CLOSE * max(1.0, graph.rate)
    )
    for plan in (
        exact,
        plan_greedily(graph, adaptation, hints),
        plan_cover(graph, adaptation, hints),
    ):
        assert not any(names <= set(c.operators) for c in plan.components if len(names) == 2)
        check(plan, graph, ordered=True)


@settings(max_examples=40)
@given(graphs(), adaptations)
def test_a_pair_to_be_fused_is_fused_or_refused(graph: StreamGraph, adaptation: Adaptation) -> None:
    hints = Hints(fuse=tuple(frozenset({s.source, s.target}) for s in graph.streams[:1]))
    try:
        exact = plan_exactly(graph, adaptation, hints)
    except TopologyError:
        assert not any(
            costs.space.is_component(c) and hints.fuse[0] == set(costs.space.names(c))
            for costs in [Costs(Space(graph), Adaptation())]
            for plan in feasible_plans(costs)
            for c in plan
        )
        return
    assert exact.cost == pytest.approx(
        cheapest(graph, adaptation, hints, ordered=True), abs=CLOSE * max(1.0, graph.rate)
    )
    for plan in (
        exact,
        plan_greedily(graph, adaptation, hints),
        plan_cover(graph, adaptation, hints),
    ):
        assert all(any(group <= set(c.operators) for c in plan.components) for group in hints.fuse)
        check(plan, graph, ordered=True)


@given(graphs(), adaptations)
def test_all_feasible_components_are_found_once(graph: StreamGraph, adaptation: Adaptation) -> None:
    costs = Costs(Space(graph, ordered=False), adaptation)
    found = feasible_components(costs, most=1 << 20)
    assert found.complete
    assert sorted(found.components) == [
        c for c in range(1, costs.space.every + 1) if costs.is_feasible(c)
    ]


def test_components_that_would_wait_for_each_other_are_not_chosen_both() -> None:
    crossed = streams(
        {"a1": "x", "a2": "x", "b1": "y", "b2": "y"},
        ("a1", "a2", 9),
        ("b1", "b2", 8),
        ("a1", "b2", 1),
        ("b1", "a2", 1),
    )
    plan = plan_exactly(crossed, Adaptation())
    assert plan.partition == {frozenset({"a1", "a2"}), frozenset({"b1"}), frozenset({"b2"})}
    assert plan.communication == 10
    assert plan.reasons[1].text == "one component would wait for others that wait for it"
    assert plan_exactly(crossed, Adaptation(), ordered=False).communication == 2
    assert plan_greedily(crossed, Adaptation()).cost == 10


def test_an_exact_plan_that_is_asked_for_by_name_and_not_affordable_is_refused() -> None:
    with pytest.raises(
        TopologyError,
        match=r"the exact plan of 60 operators would examine more than 500 sets; valid: \"auto\"",
    ):
        plan_exactly(large(60, seed=2), Adaptation(capacity=2000), most=500)


@settings(max_examples=40)
@given(graphs(), adaptations, st.booleans())
def test_grown_components_are_feasible_and_worth_more_than_their_first_operator(
    graph: StreamGraph, adaptation: Adaptation, ordered: bool
) -> None:
    costs = Costs(Space(graph, ordered=ordered), adaptation)
    for units in grow_components(costs):
        assert costs.is_feasible(units)
        assert units & (units - 1)
        assert costs.weight(units) < max(costs.weight(1 << i) for i in bits(units)) + CLOSE * max(
            1.0, graph.rate
        )
