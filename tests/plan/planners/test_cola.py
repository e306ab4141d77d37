"""The baseline of placed slots.

Sparse cuts, and streams that are saved only if both ends share a host.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import TopologyError
from anabranch.plan.planners.cola import place_slots, plan_cola, sparse_parts
from anabranch.plan.planners.cost import Adaptation
from anabranch.plan.planners.problem import StreamEdge, StreamGraph
from anabranch.plan.planners.set_cover import plan_exactly
from tests.plan.planners.component_graphs import adaptations, check, graphs, operator, streams


def test_a_graph_is_cut_where_the_rate_across_is_least() -> None:
    rates = np.zeros((6, 6))
    for a, b, rate in ((0, 1, 9), (1, 2, 9), (3, 4, 9), (4, 5, 9), (2, 3, 1)):
        rates[a, b] = rates[b, a] = rate
    parts = sparse_parts(rates, np.ones(6), most=3)
    assert sorted(sorted(part.tolist()) for part in parts) == [[0, 1, 2], [3, 4, 5]]
    assert len(sparse_parts(rates, np.ones(6), most=0)) == 6


@settings(max_examples=40)
@given(graphs(), adaptations, st.booleans())
def test_cola_as_a_planner_gives_components_that_can_run(
    graph: StreamGraph, adaptation: Adaptation, ordered: bool
) -> None:
    plan = plan_cola(graph, adaptation, ordered=ordered)
    check(plan, graph, ordered=ordered, bound=adaptation.bound)
    assert plan.cost >= plan_exactly(graph, adaptation, ordered=ordered).cost - 1e-6 * max(
        1.0, graph.rate
    )


def test_a_stream_between_slots_of_two_operators_is_saved_only_where_both_ends_share_a_host() -> (
    None
):
    loads = [[10, 10, 10, 10]] * 3
    graph = StreamGraph(
        (operator("a", "x", loads), operator("b", "y", loads)), (StreamEdge("a", "b", 100),)
    )
    one = place_slots(graph, Adaptation(capacity=20), hosts=1)
    assert (one.hosts, one.slots, one.communication) == (1, 4, 0)
    two = place_slots(graph, Adaptation(capacity=20), hosts=2)
    assert two.hosts == 2
    assert two.communication == pytest.approx(50)
    with pytest.raises(TopologyError, match="'a' has no loads"):
        place_slots(streams({"a": "x"}), Adaptation(), hosts=1)
