"""Chooses a planner: the exact one if that is affordable, else the better of two greedy plans.

Planners have no clock, so work is counted instead: the sets of operators that are examined.
Measured on one core of a busy machine with histograms of 120 windows and 64 shards: a set takes
0.03 ms to list. A feasible component takes 0.4 ms for its psi, and 0.3 to 1.1 ms in the integer
program (with 40 to 8,900 components).
"""

from __future__ import annotations

from anabranch.plan.planners.cbp import GREEDY, NO_HINTS, depth_first, improve_by_moves
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.fusion import Score, fuse_by_score
from anabranch.plan.planners.problem import Hints, Space, StreamGraph
from anabranch.plan.planners.set_cover import EXACT, cheapest_partition, feasible_components
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

AUTO = "auto"
MOST_SETS = 2_000  # about two seconds


def plan_components(
    streams: StreamGraph,
    adaptation: Adaptation,
    hints: Hints = NO_HINTS,
    *,
    ordered: bool = True,
    budget: int = MOST_SETS,
) -> FusionPlan:
    """The exact plan if at most `budget` sets must be examined.

    Else the better of two: moves from a depth-first plan, and moves from Enorm's fusion.
    """
    costs = Costs(Space(streams, hints, ordered=ordered), adaptation)
    candidates = feasible_components(costs, budget)
    if candidates.complete:
        return fusion_plan(costs, cheapest_partition(costs, candidates.components), EXACT)
    by_moves = improve_by_moves(costs, depth_first(costs))
    from_fusion = improve_by_moves(costs, fuse_by_score(costs, Score.COMM))
    # Only "auto" starts from fusion, so users get this plan again under that name.
    plans = (fusion_plan(costs, by_moves, GREEDY), fusion_plan(costs, from_fusion, AUTO))
    return min(plans, key=lambda plan: plan.cost)
