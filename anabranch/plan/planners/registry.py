"""The planners of components by name: those of the papers, and the one that chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.errors import TopologyError, unknown
from anabranch.plan.planners.cbp import GREEDY, plan_greedily
from anabranch.plan.planners.chooser import AUTO, plan_components
from anabranch.plan.planners.cola import COLA, plan_cola
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.fusion import (
    BASELINE,
    BY_ATTRIBUTES,
    BY_RATES,
    Score,
    fuse,
    fuse_baseline,
)
from anabranch.plan.planners.problem import Hints, Space, StreamGraph
from anabranch.plan.planners.set_cover import EXACT, SET_COVER, plan_cover, plan_exactly
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

__all__ = ["AUTO", "PLANNERS", "UNFUSED", "plan_by"]

UNFUSED = "unfused"
# The sets to examine if the user asks for the exact plan by name: half a minute.
MOST_EXACTLY = 20_000


def plan_by(
    name: str, streams: StreamGraph, hints: Hints, adaptation: Adaptation, *, measured: bool
) -> FusionPlan:
    """The plan of a planner.

    "auto" plans by cost if rates are measured, else by attributes, which needs no run.
    """
    if name == AUTO and measured:
        return plan_components(streams, adaptation, hints)
    if name == AUTO:
        return fuse(streams, Score.PA, hints)
    if name not in PLANNERS:
        raise TopologyError(unknown("planner", name, [AUTO, *PLANNERS]))
    return PLANNERS[name](streams, adaptation, hints)


def _unfused(streams: StreamGraph, adaptation: Adaptation, hints: Hints) -> FusionPlan:
    """Every operator by itself, except those that the user fuses."""
    costs = Costs(Space(streams, hints), adaptation)
    return fusion_plan(costs, [1 << i for i in range(len(costs.space.units))], UNFUSED)


PLANNERS: Mapping[str, Callable[[StreamGraph, Adaptation, Hints], FusionPlan]] = {
    UNFUSED: _unfused,
    BY_ATTRIBUTES: lambda streams, _, hints: fuse(streams, Score.PA, hints),
    BY_RATES: lambda streams, _, hints: fuse(streams, Score.COMM, hints),
    BASELINE: lambda streams, _, hints: fuse_baseline(streams, hints=hints),
    GREEDY: plan_greedily,
    EXACT: lambda streams, adaptation, hints: plan_exactly(
        streams, adaptation, hints, most=MOST_EXACTLY
    ),
    SET_COVER: plan_cover,
    COLA: plan_cola,
}
