"""COLA: operators in slots of their own, placed on hosts by graph partitioning (CBP 6.1).

Each operator is partitioned by its own key. So each of its slots sends to all slots of the next
operator, and only what stays on a host is saved. Slots are nodes of a graph, which is cut in two,
again and again, where the cut is sparsest, until each part fits on a host. The placement uses the
first statistics window, and stays as keys change. Each operator adapts by itself.

As a planner of components (`plan_cola`) it cuts the graph of operators in the same way, until each
part can be a component. Then it unites parts that can be one component after all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import TopologyError
from anabranch.plan.planners.cost import Adaptation, Costs, cut_into_slots
from anabranch.plan.planners.problem import Hints, PlannerOperator, Space, StreamGraph, bits
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

Array = NDArray[np.float64]
COLA = "cola"
NO_HINTS = Hints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The costs of a placement of operators' slots on hosts."""

    hosts: int
    slots: int
    communication: float
    adaptation: float


def plan_cola(
    streams: StreamGraph, adaptation: Adaptation, hints: Hints = NO_HINTS, *, ordered: bool = True
) -> FusionPlan:
    """Starts with all operators in one part; cuts a part that cannot be a component.

    It is cut where the rate across is least.
    """
    costs = Costs(Space(streams, hints, ordered=ordered), adaptation)
    space = costs.space
    count = len(space.units)
    rates = np.zeros((count, count))
    for one, others in enumerate(space.rates):
        for other, rate in others.items():
            rates[one, other] = rate
    loads = 1.0 + rates.sum(axis=1)

    def parts(units: int) -> list[int]:
        """Feasible components of some units."""
        if costs.is_feasible(units):
            return [units]
        part = np.array(list(bits(units)), dtype=np.intp)
        halves = _connected(space, units)
        if len(halves) == 1:
            halves = [
                _mask(each)
                for each in _sparse_cut(part, rates[np.ix_(part, part)], loads[part], least=0.0)
            ]
        return [found for half in halves for found in parts(half)]

    components = parts(space.every)
    while waiting := [c for c in space.waiting(components) if c & (c - 1)] if ordered else []:
        largest = max(waiting, key=lambda c: (c.bit_count(), -c))
        part = np.array(list(bits(largest)), dtype=np.intp)
        halves = [
            _mask(each)
            for each in _sparse_cut(part, rates[np.ix_(part, part)], loads[part], least=0.0)
        ]
        components = [c for c in components if c != largest] + [
            found for half in halves for found in parts(half)
        ]
    return fusion_plan(costs, _united(costs, components), COLA)


def _united(costs: Costs, components: list[int]) -> list[int]:
    """Unites parts that can be one component, those with the largest rate between them first."""
    space = costs.space
    refused: set[int] = set()
    while True:
        of = {i: c for c in components for i in bits(c)}
        pairs = {
            (min(of[i], of[j]), max(of[i], of[j]))
            for i, near in enumerate(space.rates)
            for j in near
            if of[i] != of[j]
        }
        between = {
            (a, b): sum(space.between(i, b) for i in bits(a))
            for a, b in pairs
            if a | b not in refused
        }
        best = max(between, key=lambda pair: (between[pair], -pair[0], -pair[1]), default=None)
        if best is None:
            return components
        both, others = best[0] | best[1], [c for c in components if c not in best]
        if costs.is_feasible(both) and space.is_ordered([both, *others]):
            components = [both, *others]
        else:
            refused.add(both)


def _connected(space: Space, units: int) -> list[int]:
    """The connected parts of some units."""
    found = []
    while units:
        reached = frontier = units & -units
        while frontier:
            frontier = space.neighbours(frontier) & units & ~reached
            reached |= frontier
        found.append(reached)
        units &= ~reached
    return found


def _mask(part: NDArray[np.intp]) -> int:
    return sum(1 << int(i) for i in part)


def place_slots(streams: StreamGraph, adaptation: Adaptation, hosts: int) -> Placed:
    """Places the slots of all operators on about this many hosts.

    Each host takes its share of the load and a tenth more.
    """
    shares = [_shares(operator, adaptation) for operator in streams.operators]
    first = np.cumsum([0, *(share.shape[1] for share in shares)])
    count = int(first[-1])
    number = {operator.name: i for i, operator in enumerate(streams.operators)}
    rates = np.zeros((count, count))
    loads = np.zeros(count)
    for i, operator in enumerate(streams.operators):
        if operator.loads is not None:
            loads[first[i] : first[i + 1]] = shares[i][0] * operator.loads.mean(axis=0).sum()
    ends = [(number[s.source], number[s.target], s.rate) for s in streams.streams]
    for a, b, rate in ends:
        pair = rate * np.outer(shares[a][0], shares[b][0])
        rates[first[a] : first[a + 1], first[b] : first[b + 1]] += pair
        rates[first[b] : first[b + 1], first[a] : first[a + 1]] += pair.T
    parts = sparse_parts(rates, loads, 1.1 * loads.sum() / hosts)
    on = np.zeros((len(parts), count))
    for host, part in enumerate(parts):
        on[host, part] = 1.0
    held = [
        on[:, first[i] : first[i + 1]] @ share.T for i, share in enumerate(shares)
    ]  # hosts x windows: shares of an operator
    saved = sum(rate * float((held[a] * held[b]).sum(axis=0).mean()) for a, b, rate in ends)
    costs = Costs(Space(streams, ordered=False), adaptation)
    alone = sum(costs.adaptation(1 << i) for i in range(len(streams.operators)))
    return Placed(
        hosts=len(parts), slots=count, communication=streams.rate - saved, adaptation=alone
    )


def _shares(operator: PlannerOperator, adaptation: Adaptation) -> Array:
    """The share of each slot (column) in an operator's load in each window (row).

    Shards are cut into slots by the window before.
    """
    if operator.loads is None:
        raise TopologyError(f"operator {operator.name!r} has no loads: slots are placed by load")
    loads = operator.loads
    slots = max(1, int(np.ceil(loads.sum(axis=1).mean() / adaptation.capacity - 1e-9)))
    before = np.vstack([loads[:1], loads[:-1]])
    cell = (
        cut_into_slots(before, np.full(len(loads), slots)) + slots * np.arange(len(loads))[:, None]
    )
    held = np.bincount(cell.ravel(), loads.ravel(), minlength=slots * len(loads)).reshape(
        len(loads), slots
    )
    total = loads.sum(axis=1, keepdims=True)
    return np.where(total > 0, held / np.where(total > 0, total, 1.0), 1.0 / slots)


def sparse_parts(rates: Array, loads: Array, most: float) -> list[NDArray[np.intp]]:
    """Parts of a graph, each with at most this load or a single node, by sparse cuts."""
    done, open_ = [], [np.arange(len(loads))]
    while open_:
        part = open_.pop()
        if len(part) == 1 or loads[part].sum() <= most:
            done.append(part)
        else:
            open_ += _sparse_cut(part, rates[np.ix_(part, part)], loads[part])
    return done


def _sparse_cut(
    part: NDArray[np.intp], rates: Array, loads: Array, least: float = 0.25
) -> list[NDArray[np.intp]]:
    """Cuts in two where the rate across is least for the load of the smaller side.

    The smaller side gets `least` of all load or more, if that is possible.

    Nodes are cut in the order of the second eigenvector of the Laplacian.
    """
    degrees = rates.sum(axis=1)
    _, vectors = np.linalg.eigh(np.diag(degrees) - rates)
    order = np.argsort(vectors[:, min(1, len(part) - 1)], kind="stable")
    sorted_rates = rates[np.ix_(order, order)]
    across = np.cumsum(degrees[order] - 2 * np.tril(sorted_rates, -1).sum(axis=1))[:-1]
    left = np.cumsum(loads[order])[:-1]
    smaller = np.minimum(left, loads.sum() - left)
    even = smaller >= min(loads.sum() * least, smaller.max())
    at = int(np.argmin(np.where(even, across / np.where(smaller > 0, smaller, 1.0), np.inf))) + 1
    return [part[order[:at]], part[order[at:]]]
