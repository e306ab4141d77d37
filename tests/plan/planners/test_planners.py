"""Component plans by cost: the exact plan equals brute force; exact <= greedy <= its starting plan; hints and the bound are kept."""

from __future__ import annotations

import time
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import TopologyError
from anabranch.plan.planners.cbp import GREEDY, depth_first, improve_by_moves, plan_greedily
from anabranch.plan.planners.chooser import AUTO, plan_components
from anabranch.plan.planners.cola import plan_cola
from anabranch.plan.planners.cost import Adaptation, Costs, state_moved
from anabranch.plan.planners.problem import (
    Hints,
    PlannerOperator,
    Space,
    StreamEdge,
    StreamGraph,
    bits,
)
from anabranch.plan.planners.set_cover import (
    feasible_components,
    greedy_cover,
    grow_components,
    plan_cover,
    plan_exactly,
    pool,
)
from anabranch.plan.planners.solution import fusion_plan
from tests.plan.planners.component_graphs import (
    adaptations,
    cheapest,
    check,
    feasible_plans,
    graphs,
    operator,
    streams,
)

CLOSE = 1e-6


@settings(max_examples=60)
@given(graphs(), adaptations, st.booleans())
def test_the_exact_plan_equals_brute_force_and_the_greedy_ones_lie_above(
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


def test_the_toll_query_is_one_component_by_direction_and_segment() -> None:
    """CBP, Fig. 1: four operators partitioned consistently by (Dir, Seg)."""
    keys = {
        "o1": {"Ts", "Vid", "Spd", "Dir", "Seg", "Pos"},
        "o2": {"Vid", "Dir", "Seg"},
        "o3": {"Dir", "Seg"},
        "o4": {"Dir", "Seg"},
    }
    edges = [("o1", "o2", 10), ("o1", "o3", 10), ("o2", "o4", 2), ("o3", "o4", 2)]
    tolls = StreamGraph(
        tuple(PlannerOperator(name=n, attributes=frozenset(k)) for n, k in keys.items()),
        tuple(StreamEdge(*edge) for edge in edges),
    )
    for plan in (
        plan_exactly(tolls, Adaptation()),
        plan_greedily(tolls, Adaptation()),
        plan_components(tolls, Adaptation()),
    ):
        assert [c.attributes for c in plan.components] == [{"Dir", "Seg"}]
        assert plan.cost == 0


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


def test_state_moves_when_slots_are_added_and_removed_and_when_one_is_loaded_above_the_threshold() -> (
    None
):
    state = np.full((2, 4), 10.0)

    def moved(before: list[float], after: list[float], threshold: float = 1.2) -> float:
        return state_moved(
            np.array([before, after], dtype=float), state, capacity=20, threshold=threshold
        )

    assert moved([5, 5, 5, 5], [5, 5, 5, 5]) == 0, "one slot moves nothing"
    assert moved([10, 10, 10, 10], [10, 10, 10, 10]) == 0, "two slots in balance"
    assert moved([5, 5, 5, 5], [10, 10, 10, 10]) == 20, "a second slot takes half"
    assert moved([10, 10, 10, 10], [5, 5, 5, 5]) == 20, "a slot that goes leaves its half"
    assert moved([10, 10, 10, 10], [12, 12, 8, 8]) == 0, "within the threshold"
    assert moved([10, 10, 10, 10], [15, 15, 5, 5]) == pytest.approx(20 * (30 - 24) / 30), (
        "what is above 1.2 of the mean leaves"
    )
    assert moved([10, 10, 10, 10], [15, 15, 5, 5], threshold=1.0) == pytest.approx(
        20 * (30 - 20) / 30
    )


WAVE = [[10, 10], [40, 40], [10, 10], [40, 40]]


def test_operators_are_not_fused_where_that_moves_more_state_than_it_saves_rows() -> None:
    small, large = (
        operator("small", "x", [[3, 3]] * 4, state=1000),
        operator("large", "x", WAVE, state=10),
    )
    graph = StreamGraph((large, small), (StreamEdge("large", "small", 500),))
    adaptation = Adaptation(capacity=40)
    plan = plan_components(graph, adaptation)
    assert plan.partition == {frozenset({"small"}), frozenset({"large"})}
    assert plan.reasons[0].text.startswith("fusing saves a rate of 500 and adds ")
    free = plan_components(graph, Adaptation(capacity=40, weight=0))
    assert free.partition == {frozenset({"small", "large"})}
    costs = Costs(Space(graph), adaptation)
    assert depth_first(costs) == [0b11]
    assert improve_by_moves(costs, [0b11]) == [0b01, 0b10], (
        "an operator may leave for a component of its own"
    )


def test_a_bound_that_no_plan_can_keep_is_reported() -> None:
    graph = StreamGraph(
        (operator("a", "x", WAVE, state=100), operator("b", "x", WAVE, state=1)),
        (StreamEdge("a", "b", 1000),),
    )
    plan = plan_components(graph, Adaptation(capacity=20, bound=50))
    assert plan.above_bound == (("a",),)
    assert plan.partition == {frozenset("a"), frozenset("b")}
    assert "above the bound of 50" in plan.reasons[0].text
    with pytest.raises(TopologyError, match="bound=-1; valid: 0 or more"):
        Adaptation(bound=-1)


def test_without_statistics_only_streams_count() -> None:
    graph = streams({"a": "x", "b": "x", "c": "y"}, ("a", "b", 3), ("b", "c", 4))
    plan = plan_components(graph, Adaptation(capacity=1))
    assert (plan.communication, plan.adaptation, plan.planner) == (4, 0, "exact")


def large(operators: int, seed: int, degree: float = 1.5) -> StreamGraph:
    """A random graph with two hours of histograms."""
    chance = np.random.default_rng(seed)
    edges: dict[tuple[int, int], float] = {}
    while len(edges) < operators * degree:
        a, b = sorted(chance.choice(operators, 2, replace=False).tolist())
        edges[a, b] = float(chance.integers(1, 10_000)) * 120
    rates = chance.integers(100, 20_000, operators).tolist()
    return StreamGraph(
        tuple(
            PlannerOperator(
                name=f"o{i}",
                attributes=frozenset(f"a{j}" for j in chance.choice(4, 2, replace=False)),
                state=float(rate),
                loads=chance.poisson(rate / 64, (120, 64)).astype(float),
            )
            for i, rate in enumerate(rates)
        ),
        tuple(StreamEdge(f"o{a}", f"o{b}", rate) for (a, b), rate in edges.items()),
    )


def test_180_operators_are_planned_greedily_in_less_than_a_second() -> None:
    graph, adaptation = large(180, seed=1), Adaptation(capacity=2000)
    times = []
    for _ in range(3):  # the best of three: others may use the machine
        began = time.process_time()
        plan = plan_greedily(graph, adaptation)
        times.append(time.process_time() - began)
    check(plan, graph, ordered=True)
    assert plan.cost < graph.rate
    assert min(times) < 1, "0.4 s on a busy machine"
    costs = Costs(Space(graph), adaptation)
    assert plan.cost <= fusion_plan(costs, depth_first(costs), "start").cost
    check(plan_cola(graph, adaptation), graph, ordered=True)


def test_an_exact_plan_that_is_asked_for_by_name_and_not_affordable_is_refused() -> None:
    with pytest.raises(
        TopologyError,
        match=r"the exact plan of 60 operators would have more than 500 sets .* valid: \"auto\"",
    ):
        plan_exactly(large(60, seed=2), Adaptation(capacity=2000), most=500)


def test_a_large_graph_is_beyond_the_budget_of_the_exact_planner() -> None:
    graph = large(60, seed=2)
    adaptation = Adaptation(capacity=2000)
    plan = plan_components(graph, adaptation, budget=500)
    assert plan.planner in {GREEDY, AUTO}
    assert plan.cost <= plan_greedily(graph, adaptation).cost
    costs = Costs(Space(graph), adaptation)
    candidates = pool(costs, 300)
    assert set(improve_by_moves(costs, depth_first(costs))) <= set(candidates)
    check(
        fusion_plan(costs, greedy_cover(costs, candidates), "cover"),
        graph,
        ordered=True,
        bound=inf,
    )


@settings(max_examples=40)
@given(graphs(), adaptations, st.integers(0, 2**32 - 1))
def test_what_a_set_costs_does_not_depend_on_what_was_asked_before(
    graph: StreamGraph, adaptation: Adaptation, seed: int
) -> None:
    costs = Costs(Space(graph, ordered=False), adaptation)
    sets = 1 + np.random.default_rng(seed).integers(0, costs.space.every, size=12)
    for units in map(int, sets):
        fresh = Costs(Space(graph, ordered=False), adaptation)
        assert costs.adaptation(units) == pytest.approx(fresh.adaptation(units), rel=1e-9, abs=1e-6)


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
