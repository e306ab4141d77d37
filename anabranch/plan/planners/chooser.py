"""Which planner plans: the exact one as long as that is affordable, else the better of two greedy plans.

Planners have no clock, so what is affordable is counted in work: sets of operators that are looked at. Measured on one core of a busy
machine with histograms of 120 windows and 64 shards: a set takes 0.03 ms to list, a feasible component 0.4 ms for its psi and 0.3 to
1.1 ms of the integer program (between 40 and 8,900 components).
"""

from __future__ import annotations

from anabranch.plan.planners.cbp import NO_HINTS, depth_first, improve_by_moves
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.fusion import Score, fuse_by_score
from anabranch.plan.planners.problem import Hints, Space, StreamGraph
from anabranch.plan.planners.set_cover import cheapest_partition, feasible_components
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

MOST_SETS = 2_000  # two seconds or so


def plan_components(
    streams: StreamGraph,
    adaptation: Adaptation,
    hints: Hints = NO_HINTS,
    *,
    ordered: bool = True,
    budget: int = MOST_SETS,
) -> FusionPlan:
    """The exact plan if there are at most `budget` sets to look at; else moves from a depth-first plan and from Enorm's fusion."""
    costs = Costs(Space(streams, hints, ordered=ordered), adaptation)
    candidates = feasible_components(costs, budget)
    if candidates.complete:
        return fusion_plan(costs, cheapest_partition(costs, candidates.components), "exact")
    starts = {
        "moves from a depth-first plan": depth_first(costs),
        "moves from fusion by comm": fuse_by_score(costs, Score.COMM),
    }
    plans = [
        fusion_plan(costs, improve_by_moves(costs, start), planner)
        for planner, start in starts.items()
    ]
    return min(plans, key=lambda plan: plan.cost)
