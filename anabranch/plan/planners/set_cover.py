"""Component plans as a choice among all feasible components (CBP 5.2, Algorithm 2).

Exact: each operator is in exactly one chosen component. So the cost of a plan is the rate of all
streams plus the sum of (psi - phi) over its components. HiGHS solves this integer program. In plans
that must run level by level, the level of each unit is a variable of the program too.

The paper's weight psi + l - phi counts l once for each component, and so favours plans of few
components. It is used for the greedy cover, which needs weights above zero.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anabranch.errors import AnabranchError, TopologyError
from anabranch.plan.planners.cbp import NO_HINTS, depth_first, improve_by_moves
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import Hints, Space, StreamGraph, bits
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_array

EXACT, SET_COVER = "exact", "set cover"


@dataclass(frozen=True, slots=True)
class Candidates:
    """Components to choose from. `complete` means that there are no others."""

    components: tuple[int, ...]
    complete: bool


def feasible_components(costs: Costs, most: int, largest: int | None = None) -> Candidates:
    """Up to `most` feasible components of up to `largest` units, small ones first.

    A set grows by neighbours. A set above the bound grows too, because adding a unit may bring it
    below. Every component is reached, because it always has a connected subset with one unit fewer.
    """
    space = costs.space
    layer = [1 << i for i in range(len(space.units))]
    found = list(layer)
    tried = len(layer)
    size = 1
    while layer and size != largest:
        grown: dict[int, None] = {}
        for units in layer:
            for i in bits(space.neighbours(units) & ~units):
                bigger = units | 1 << i
                if bigger not in grown and space.attributes(bigger) and not space.are_apart(bigger):
                    grown[bigger] = None
                    if tried + len(grown) > most:
                        return Candidates(tuple(found), complete=False)
        tried += len(grown)
        found += [
            c
            for c in grown
            if costs.is_within_bound(c) and (not space.ordered or space.is_convex(c))
        ]
        layer = list(grown)
        size += 1
    return Candidates(tuple(found), complete=not layer)


def grow_components(costs: Costs) -> list[int]:
    """Larger candidates, if not all can be listed: each unit grows by neighbours, by rate.

    A set is taken when it is half as large again as the last one, and at the end. With all of them,
    the integer program took ten times as long on graphs of 100 operators, and its plans saved at
    most a hundredth more.
    """
    space = costs.space
    found: dict[int, None] = {}
    for first in range(len(space.units)):
        own = space.attributes(1 << first)
        for attribute in bits(own) if own > 0 else range(len(space.attribute_names)):
            taken = 1
            component, weight, inside = (
                1 << first,
                costs.weight(1 << first),
                space.inside(1 << first),
            )
            rates = dict(space.rates[first])
            while rates:
                best = max(rates, key=lambda i: (rates[i], -i))
                del rates[best]
                grown = component | 1 << best
                if not (space.attributes(1 << best) >> attribute & 1 and costs.is_feasible(grown)):
                    continue
                joined = inside + space.between(best, component)
                if costs.adaptation(grown) - joined >= weight:
                    continue
                component, weight, inside = grown, costs.adaptation(grown) - joined, joined
                for i, rate in space.rates[best].items():
                    if not component >> i & 1:
                        rates[i] = rates.get(i, 0.0) + rate
                if 2 * component.bit_count() >= 3 * taken and (
                    not space.ordered or space.is_convex(component)
                ):
                    taken = component.bit_count()
                    found[component] = None
            if component & (component - 1) and (not space.ordered or space.is_convex(component)):
                found[component] = None
    return list(found)


def plan_exactly(
    streams: StreamGraph,
    adaptation: Adaptation,
    hints: Hints = NO_HINTS,
    *,
    ordered: bool = True,
    most: int = 1 << 62,
) -> FusionPlan:
    """The cheapest plan of all.

    The number of components may grow exponentially with the operators: see chooser.py.
    """
    costs = Costs(Space(streams, hints, ordered=ordered), adaptation)
    candidates = feasible_components(costs, most)
    if not candidates.complete:
        raise TopologyError(
            f"the exact plan of {len(streams.operators)} operators would examine more than "
            f"{most:,} sets; valid: "
            '"auto", which is exact as long as that is affordable, or "greedy"'
        )
    return fusion_plan(costs, cheapest_partition(costs, candidates.components), EXACT)


def plan_cover(
    streams: StreamGraph,
    adaptation: Adaptation,
    hints: Hints = NO_HINTS,
    *,
    ordered: bool = True,
    most: int = 20_000,
) -> FusionPlan:
    """The greedy set cover over as many of the feasible components as are listed."""
    costs = Costs(Space(streams, hints, ordered=ordered), adaptation)
    return fusion_plan(costs, greedy_cover(costs, pool(costs, most)), SET_COVER)


def pool(costs: Costs, most: int) -> list[int]:
    """All feasible components, if they are not too many.

    Else small ones, grown ones, and those of the greedy plan.
    """
    candidates = feasible_components(costs, most)
    if candidates.complete:
        return list(candidates.components)
    by_moves = improve_by_moves(costs, depth_first(costs))
    return list(dict.fromkeys([*candidates.components, *grow_components(costs), *by_moves]))


def cheapest_partition(costs: Costs, candidates: Sequence[int]) -> list[int]:
    """The cheapest partition into candidates, by an integer program.

    Each unit is in one chosen component.
    """
    from scipy.optimize import (  # importing it takes a third of the time of importing Anabranch
        Bounds,
        LinearConstraint,
        milp,
    )
    from scipy.sparse import csr_array, hstack

    space = costs.space
    weights = np.array([costs.weight(c) for c in candidates])
    scale = max(float(np.abs(weights).max()), 1e-300)
    count = len(space.units) if space.ordered else 0  # a level for each unit
    members = _matrix([1 << i for i in range(len(space.units))], candidates)
    constraints = [LinearConstraint(hstack([members, csr_array((len(space.units), count))]), 1, 1)]
    if space.ordered:
        constraints += _levels(space, candidates)
    answer = milp(
        np.concatenate([weights / scale, np.zeros(count)]),
        integrality=np.concatenate([np.ones(len(candidates)), np.zeros(count)]),
        bounds=Bounds(
            0, np.concatenate([np.ones(len(candidates)), np.full(count, max(count - 1, 0))])
        ),
        constraints=constraints,
        options={"mip_rel_gap": 0.0},
    )
    if answer.x is None:
        raise AnabranchError(
            f"the integer program of {len(candidates)} components was not solved: {answer.message}"
        )
    return sorted(c for c, x in zip(candidates, answer.x, strict=False) if x > 0.5)


def _levels(space: Space, candidates: Sequence[int]) -> list[LinearConstraint]:
    """Constraints on levels: the ends of a stream share a component, or the target is above.

    Components are connected, so a component has one level, and no two can wait for each other.
    """
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_array, hstack

    ends = [(i, j) for i in range(len(space.units)) for j in bits(space.out[i])]
    if not ends:
        return []
    count = len(space.units)
    shared = _matrix([1 << i | 1 << j for i, j in ends], candidates)
    places = [[e for e, _ in enumerate(ends) for _ in range(2)], [i for end in ends for i in end]]
    rises = csr_array(([-1.0, 1.0] * len(ends), places), shape=(len(ends), count))
    return [
        LinearConstraint(hstack([shared, rises]), 1, np.inf),
        LinearConstraint(hstack([count * shared, rises]), -np.inf, count),
    ]


def _matrix(sets: Sequence[int], candidates: Sequence[int]) -> csr_array:
    """Which of the candidates (columns) contain each of the sets (rows)."""
    from scipy.sparse import csr_array

    found = [
        (row, column)
        for row, units in enumerate(sets)
        for column, c in enumerate(candidates)
        if c & units == units
    ]
    rows, columns = zip(*found, strict=True) if found else ((), ())
    return csr_array((np.ones(len(found)), (rows, columns)), shape=(len(sets), len(candidates)))


def refine_partition(costs: Costs, candidates: Sequence[int], rounds: int = 3) -> list[int]:
    """The cheapest partition if not all components are listed.

    It is computed again with components that differ from it by one unit.
    """
    space = costs.space
    known = dict.fromkeys(candidates)
    plan = cheapest_partition(costs, candidates)
    for _ in range(rounds):
        nearby = [c ^ 1 << i for c in plan for i in bits(c | space.neighbours(c))]
        nearby += [a | b for a in plan for b in plan if a < b and space.neighbours(a) & b]
        more = [c for c in dict.fromkeys(nearby) if c and c not in known and costs.is_feasible(c)]
        known |= dict.fromkeys(c for c in more if not space.ordered or space.is_convex(c))
        before, plan = plan, cheapest_partition(costs, list(known))
        if plan == before:
            break
    return plan


def greedy_cover(costs: Costs, candidates: Sequence[int]) -> list[int]:
    """Always chooses the component with the least weight per operator not covered yet.

    Operators that are already covered are left out of it.
    """
    space = costs.space
    rate = space.streams.rate
    heap = [((costs.weight(c) + rate) / c.bit_count(), n, c, c) for n, c in enumerate(candidates)]
    heapq.heapify(heap)
    plan: list[int] = []
    left = space.every
    while left:
        price, n, whole, units = heapq.heappop(heap)
        new = units & left
        if new != units and new:
            price *= units.bit_count() / new.bit_count()
            heapq.heappush(heap, (price, n, whole, new))
        elif (
            new
            and costs.is_feasible(new)
            and space.is_ordered([*plan, new, *(1 << i for i in bits(left & ~new))])
        ):
            plan.append(new)
            left &= ~new
    return sorted(plan)
