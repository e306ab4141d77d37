"""What it costs to adapt a component: the state that moves between slots (CBP 4.1).

The paper counts state movements, psi, over a history of histograms of the loads of shards. It
leaves open by which policy shards move. Here psi is an estimate in closed form, so that a planner
can compute it for thousands of sets of operators per second. Before each adaptation, slots have the
shards that suited the window before: shards by number, cut into parts of equal load.
- The number of slots is ceil(load / capacity).
- If it stays the same, a slot gives away its load above `threshold` times the mean, with that share
  of its state.
- If it grows, a slot gives away its load above the mean. If it falls, slots are removed and give
  away all their state.

A component in one slot moves nothing. When a shard moves, the state of all operators of the
component moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import TopologyError
from anabranch.plan.planners.problem import PlannerOperator, Space, bits

Histograms = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptation:
    """How components are adapted, and what that may cost."""

    capacity: float = inf  # the load that a slot takes in one statistics window
    every: int = 1  # statistics windows from one adaptation to the next: 1/f
    threshold: float = 1.2  # largest load of a slot over the mean: above it shards move
    weight: float = 1.0  # the cost of one moved row of state, in rows on a stream
    bound: float = inf  # beta: the most that adapting a component may cost

    def __post_init__(self) -> None:
        for name, least in (
            ("capacity", 0),
            ("every", 1),
            ("threshold", 1),
            ("weight", 0),
            ("bound", 0),
        ):
            if not getattr(self, name) >= least:
                raise TopologyError(f"{name}={getattr(self, name)}; valid: {least} or more")


class Costs:
    """The costs of sets of units and of plans. Each set is computed once."""

    def __init__(self, space: Space, adaptation: Adaptation) -> None:
        self.space = space
        self.rules = adaptation
        shape = next(
            (o.loads.shape for o in space.streams.operators if o.loads is not None), (0, 0)
        )
        self.measured = (
            shape[0] >= 2 * adaptation.every and adaptation.capacity < inf and adaptation.weight > 0
        )
        self._one = (
            [_unit(unit, shape, adaptation.every) for unit in space.units] if self.measured else []
        )
        self._sums: dict[int, tuple[Histograms, Histograms]] = {}
        # Searches examine many sets, each of which differs from the one before by a unit or two.
        self._last: tuple[int, tuple[Histograms, Histograms]] | None = None
        self._moved: dict[int, float] = {}

    def adaptation(self, units: int, near: int | None = None) -> float:
        """The cost of adapting a component, psi.

        It is fastest with `near`, a set that was kept and differs little.
        """
        if not self.measured:
            return 0.0
        known = self._moved.get(units)
        if known is None:
            loads, states = self._sum(units, near)
            moved = state_moved(
                loads, states, self.rules.capacity * self.rules.every, self.rules.threshold
            )
            known = self._moved[units] = self.rules.weight * moved
        return known

    def keep(self, units: int) -> None:
        """Keeps the sums of a component, because the search will ask for similar ones next."""
        if self.measured and units not in self._sums:
            self._sums[units] = self._sum(units, None)

    def _sum(self, units: int, near: int | None) -> tuple[Histograms, Histograms]:
        """The loads and states of all operators of a component, by window and shard."""
        if near is not None and near in self._sums:
            found = self._changed(near, self._sums[near], units)
        elif self._last is not None and (units ^ self._last[0]).bit_count() < units.bit_count():
            found = self._changed(*self._last, units)
        else:
            parts = [self._one[i] for i in bits(units)]
            found = np.sum([y for y, _ in parts], axis=0), np.sum([z for _, z in parts], axis=0)
        self._last = (units, found)
        return found

    def _changed(
        self, near: int, sums: tuple[Histograms, Histograms], units: int
    ) -> tuple[Histograms, Histograms]:
        """The sums of a similar set, computed from the difference."""
        loads, states = (each.copy() for each in sums)
        for i in bits(units ^ near):
            change = np.add if units >> i & 1 else np.subtract
            change(loads, self._one[i][0], out=loads)
            change(states, self._one[i][1], out=states)
        return loads, states

    def is_within_bound(self, units: int) -> bool:
        return self.rules.bound == inf or self.adaptation(units) <= self.rules.bound

    def is_feasible(self, units: int) -> bool:
        """Whether a component is within the bound.

        A single unit is always feasible, because it cannot be divided.
        """
        alone = not units & (units - 1)
        return alone or (self.space.is_component(units) and self.is_within_bound(units))

    def weight(self, units: int) -> float:
        """What a component adds to the cost of a plan in which nothing is fused."""
        return self.adaptation(units) - self.space.inside(units)


def state_moved(loads: Histograms, states: Histograms, capacity: float, threshold: float) -> float:
    """The state that moves between slots over a history of windows (rows) and shards (columns)."""
    total = loads.sum(axis=1)
    slots = np.maximum(1, np.ceil(total / capacity - 1e-9)).astype(np.int64)
    before, after = slots[:-1], slots[1:]
    old = np.flatnonzero((before > 1) | (after > 1))
    if not len(old) or not loads.shape[1]:
        return 0.0
    before, after, now = before[old], after[old], old + 1
    most = int(before.max())
    cell = cut_into_slots(loads[old], before) + most * np.arange(len(old))[:, None]
    load = np.bincount(cell.ravel(), loads[now].ravel(), minlength=most * len(old)).reshape(
        len(old), most
    )
    state = np.bincount(cell.ravel(), states[now].ravel(), minlength=most * len(old)).reshape(
        len(old), most
    )
    allowed = total[now] / after * np.where(after == before, threshold, 1.0)
    leaves = np.maximum(load - allowed[:, None], 0.0) / np.where(load > 0, load, 1.0)
    moved = (state * leaves).sum(axis=1)
    gone = states[now].sum(axis=1) * (1 - after / before)
    return float(np.where(after < before, gone, moved).sum())


def cut_into_slots(loads: Histograms, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slot of each shard, by window: shards by number, cut into parts of about equal load."""
    middle = loads.cumsum(axis=1) - loads / 2
    total = loads.sum(axis=1)
    share = middle / np.where(total > 0, total, 1.0)[:, None]
    return np.minimum((share * slots[:, None]).astype(np.int64), slots[:, None] - 1)


def _unit(
    unit: tuple[PlannerOperator, ...], shape: tuple[int, ...], every: int
) -> tuple[Histograms, Histograms]:
    """Loads of a unit between two adaptations, and its state, spread over shards by load."""
    windows = shape[0] // every
    loads, states = np.zeros((windows, shape[1])), np.zeros((windows, shape[1]))
    for operator in unit:
        if operator.loads is not None:
            own = operator.loads[: windows * every].reshape(windows, every, -1).sum(axis=1)
            total = own.sum(axis=1, keepdims=True)
            loads += own
            states += operator.state * own / np.where(total > 0, total, 1.0)
    return loads, states
