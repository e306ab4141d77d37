"""The chooser: exact where that is affordable, else the better of two greedy plans."""

from __future__ import annotations

from math import inf

from anabranch.plan.planners.cbp import GREEDY, depth_first, improve_by_moves, plan_greedily
from anabranch.plan.planners.chooser import AUTO, plan_components
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import (
    PlannerOperator,
    Space,
    StreamEdge,
    StreamGraph,
)
from anabranch.plan.planners.set_cover import (
    greedy_cover,
    plan_exactly,
    pool,
)
from anabranch.plan.planners.solution import fusion_plan
from tests.plan.planners.component_graphs import (
    check,
    large,
)


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
