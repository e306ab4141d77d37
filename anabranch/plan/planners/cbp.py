"""Component plans by cost, greedily (CBP 5.1, Algorithm 1).

It begins with a plan by depth-first search, then moves one operator after another. Unlike in the
paper, an operator may also move into a component of its own. Depth-first search fuses all it can,
and if adaptation is expensive, only such a move undoes that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import Hints, Space, StreamGraph, bits
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

GREEDY = "greedy"
NO_HINTS = Hints()
_GAIN = 1e-9  # as a part of the rate of all streams; a smaller profit is rounding


def plan_greedily(
    streams: StreamGraph, adaptation: Adaptation, hints: Hints = NO_HINTS, *, ordered: bool = True
) -> FusionPlan:
    """Algorithm 1."""
    costs = Costs(Space(streams, hints, ordered=ordered), adaptation)
    return fusion_plan(costs, improve_by_moves(costs, depth_first(costs)), GREEDY)


def depth_first(costs: Costs) -> list[int]:
    """The starting plan: an operator joins the component it is reached from, if feasible."""
    space = costs.space
    alone = [1 << i for i in range(len(space.units))]
    of = dict(enumerate(alone))
    seen = 0
    roots = sorted(of, key=lambda i: (space.into[i] != 0, i))
    for root in roots:
        stack = [] if seen >> root & 1 else [root]
        seen |= 1 << root
        while stack:
            here = stack[-1]
            following = space.out[here] & ~seen
            if not following:
                stack.pop()
                continue
            child = next(bits(following))
            seen |= 1 << child
            stack.append(child)
            grown = of[here] | 1 << child
            if costs.is_feasible(grown) and space.is_ordered(
                {grown, *(c for c in of.values() if not c & grown)}
            ):
                of.update(dict.fromkeys(bits(grown), grown))
    return sorted(set(of.values()))


@dataclass(frozen=True, slots=True)
class UnitMove:
    """An operator (or unit) that leaves its component for another, or for one of its own."""

    unit: int
    source: int
    target: int  # 0: a component of its own
    profit: float

    @property
    def result(self) -> tuple[int, ...]:
        return tuple(c for c in (self.source ^ 1 << self.unit, self.target | 1 << self.unit) if c)


def improve_by_moves(costs: Costs, components: Iterable[int]) -> list[int]:
    """The admissible move with the largest profit, again and again, until none has any."""
    space = costs.space
    plan = set(components)
    least = _GAIN * max(space.streams.rate, 1.0)
    moves: dict[int, list[UnitMove]] = {}
    changed = space.every
    while True:
        for component in plan:
            costs.keep(component)
        of = {i: c for c in plan for i in bits(c)}
        for unit in bits(changed | space.neighbours(changed)):
            moves[unit] = _moves(costs, unit, of, least)
        best = _best(space, plan, moves)
        if best is None:
            return sorted(plan)
        plan = plan - {best.source, best.target} | set(best.result)
        changed = best.source | best.target


def _moves(costs: Costs, unit: int, of: dict[int, int], least: float) -> list[UnitMove]:
    """All moves of a unit that leave two feasible components and profit more than the least.

    For the profit see the equations before Algorithm 1.
    """
    space, source = costs.space, of[unit]
    rest = source ^ 1 << unit
    if rest and not space.is_component(rest):
        return []
    found = []
    stays = space.between(unit, rest)
    for target in sorted(
        {of[i] for i in bits(space.near[unit] & ~source)} | ({0} if rest else set())
    ):
        gain = space.between(unit, target) - stays
        now = costs.adaptation(source) + (costs.adaptation(target) if target else 0.0)
        if gain + now <= least:
            continue  # it does not pay even with no adaptation afterwards
        grown = target | 1 << unit
        if not space.is_component(grown):
            continue
        profit = (
            gain
            + now
            - costs.adaptation(grown, target)
            - (costs.adaptation(rest, source) if rest else 0.0)
        )
        if profit > least and costs.is_feasible(grown) and (not rest or costs.is_feasible(rest)):
            found.append(UnitMove(unit, source, target, profit))
    return found


def _best(space: Space, plan: set[int], moves: dict[int, list[UnitMove]]) -> UnitMove | None:
    """The move with the largest profit whose plan can run level by level. Ties go to the first."""
    every = sorted(
        (move for each in moves.values() for move in each),
        key=lambda m: (-m.profit, m.unit, m.target),
    )
    for move in every:
        if space.is_ordered(plan - {move.source, move.target} | set(move.result)):
            return move
    return None
