"""What adapting components costs, by hand-made histograms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import TopologyError
from anabranch.plan.planners.cbp import depth_first, improve_by_moves
from anabranch.plan.planners.chooser import plan_components
from anabranch.plan.planners.cost import Adaptation, Costs, state_moved
from anabranch.plan.planners.problem import (
    Space,
    StreamEdge,
    StreamGraph,
)
from tests.plan.planners.component_graphs import (
    adaptations,
    graphs,
    operator,
    streams,
)


def test_state_moves_when_slots_come_and_go_and_when_one_is_above_the_threshold() -> None:
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


@settings(max_examples=40)
@given(graphs(), adaptations, st.integers(0, 2**32 - 1))
def test_the_cost_of_a_set_does_not_depend_on_earlier_calls(
    graph: StreamGraph, adaptation: Adaptation, seed: int
) -> None:
    costs = Costs(Space(graph, ordered=False), adaptation)
    sets = 1 + np.random.default_rng(seed).integers(0, costs.space.every, size=12)
    for units in map(int, sets):
        fresh = Costs(Space(graph, ordered=False), adaptation)
        assert costs.adaptation(units) == pytest.approx(fresh.adaptation(units), rel=1e-9, abs=1e-6)
