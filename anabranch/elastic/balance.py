"""Which slot each shard belongs to: Elasticutor 3.1, and Flux as Enorm 3.2 describes it.

Both move shards one by one from loaded to less loaded slots. `balance` goes on until the most
loaded slot is near the mean. `flux` makes one move for each pair of slots and is meant to be called
again and again. `spread` and `assign_anew` serve another number of slots.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.elastic.observation import Floats
from anabranch.plan.route import Route

THETA = 1.2  # Elasticutor 3.1
EVEN = 1.05  # for a new number of slots, where shards move in any case
_IDLE = 1e-3  # of the mean load: shards without load are spread too


@dataclass(frozen=True, slots=True)
class ShardMove:
    """One shard from one slot to another."""

    shard: int
    before: int
    after: int


def imbalance(loads: Floats, slot_of: Sequence[int], slots: int) -> float:
    """Delta: the load of the most loaded slot over the mean of all; 1 where there is no load."""
    slot_loads = np.bincount(np.asarray(slot_of), weights=loads, minlength=slots)
    return float(slot_loads.max() * slots / total) if (total := slot_loads.sum()) > 0 else 1.0


def balance(
    loads: Floats, slot_of: Sequence[int], slots: int, theta: float = THETA
) -> list[ShardMove]:
    """While delta > theta: of all moves from the most to the least loaded slot, the best one.

    That is the move that lowers delta most (Elasticutor 3.1): of the shard whose load is nearest to
    half the difference of the two slots. It also ends where no such move lowers the load of the
    most loaded slot.
    """
    total = float(loads.sum())
    if slots < 2 or total <= 0:
        return []
    held = _Held(loads, slot_of)
    slot_loads = np.bincount(held.slot_of, weights=loads, minlength=slots).tolist()
    most = [(-load, slot) for slot, load in enumerate(slot_loads)]
    least = [(load, slot) for slot, load in enumerate(slot_loads)]
    heapq.heapify(most)
    heapq.heapify(least)
    moves: list[ShardMove] = []
    while True:
        while -most[0][0] != slot_loads[most[0][1]]:  # an entry from before a move
            heapq.heappop(most)
        while least[0][0] != slot_loads[least[0][1]]:
            heapq.heappop(least)
        top, bottom = most[0][1], least[0][1]
        if slot_loads[top] * slots <= theta * total:
            return moves
        place = _nearest(held.shards(top), slot_loads[top] - slot_loads[bottom])
        if place is None:
            return moves
        load, shard = held.move(place, top, bottom)
        slot_loads[top] -= load
        slot_loads[bottom] += load
        for slot in (top, bottom):
            heapq.heappush(most, (-slot_loads[slot], slot))
            heapq.heappush(least, (slot_loads[slot], slot))
        moves.append(ShardMove(shard, top, bottom))


def flux(
    loads: Floats, slot_of: Sequence[int], slots: int, enough: float = THETA
) -> list[ShardMove]:
    """One move for each pair of slots (Flux, Enorm 3.2).

    Slots are sorted by load. The biggest shard that lowers the variance moves from the first slot
    to the last, from the second to the second-last, and so on, as long as the giving slot is above
    `enough` times the mean.
    """
    held = _Held(loads, slot_of)
    slot_loads = np.bincount(held.slot_of, weights=loads, minlength=slots)
    order = np.argsort(-slot_loads, kind="stable").tolist()
    moves = []
    for top, bottom in zip(order[: slots // 2], reversed(order), strict=False):
        if slot_loads[top] <= enough * slot_loads.mean():
            break
        shards = held.shards(top)
        place = bisect_left(shards, (slot_loads[top] - slot_loads[bottom], -1)) - 1
        if place >= 0 and shards[place][0] > 0:
            moves.append(ShardMove(shards[place][1], top, bottom))
    return moves


def apply_moves(slot_of: Sequence[int], moves: Sequence[ShardMove]) -> tuple[int, ...]:
    """The table after the moves."""
    after = list(slot_of)
    for move in moves:
        after[move.shard] = move.after
    return tuple(after)


def spread(loads: Floats, route: Route, slots: int) -> Route:
    """Another number of slots, with few moves.

    Each slot keeps what fits below the mean. The rest goes to the least loaded slot, heaviest
    first.
    """
    weights = loads + (loads.mean() * _IDLE or 1.0)
    mean = weights.sum() / slots
    old = np.asarray(route.slot_of)
    order = np.lexsort((-weights, old))
    before = np.cumsum(weights[order]) - weights[order]
    starts = np.searchsorted(old[order], np.arange(int(old.max()) + 1))
    own = before - before[np.minimum(starts, len(order) - 1)][old[order]] + weights[order]
    stays = np.zeros(len(old), dtype=bool)
    stays[order] = (old[order] < slots) & (own <= mean * EVEN)
    new = np.where(stays, old, -1)
    kept = np.bincount(old[stays], weights=weights[stays], minlength=slots)
    heap = [(load, slot) for slot, load in enumerate(kept.tolist())]
    heapq.heapify(heap)
    moving = np.flatnonzero(~stays)
    for shard in moving[np.argsort(-weights[moving], kind="stable")].tolist():
        load, slot = heap[0]
        new[shard] = slot
        heapq.heapreplace(heap, (load + float(weights[shard]), slot))
    table = new.tolist()
    return Route(apply_moves(table, balance(weights, table, slots, EVEN)), slots, route.version + 1)


def assign_anew(loads: Floats, slots: int, version: int) -> Route:
    """Another number of slots, wherever shards are: heaviest first, to the least loaded slot."""
    weights = loads + (loads.mean() * _IDLE or 1.0)
    heap = [(0.0, slot) for slot in range(slots)]
    table = [0] * len(loads)
    for shard in np.argsort(-weights, kind="stable").tolist():
        load, table[shard] = heap[0]
        heapq.heapreplace(heap, (load + float(weights[shard]), table[shard]))
    return Route(tuple(table), slots, version)


class _Held:
    """The shards of slots as (load, shard), lightest first.

    They are sorted when a slot is first asked for, because few slots give shards.
    """

    def __init__(self, loads: Floats, slot_of: Sequence[int]) -> None:
        self.slot_of = np.array(slot_of)
        self._loads = loads
        self._known: dict[int, list[tuple[float, int]]] = {}

    def shards(self, slot: int) -> list[tuple[float, int]]:
        if slot not in self._known:
            here = np.flatnonzero(self.slot_of == slot)
            self._known[slot] = sorted(zip(self._loads[here].tolist(), here.tolist(), strict=True))
        return self._known[slot]

    def move(self, place: int, before: int, after: int) -> tuple[float, int]:
        load, shard = self.shards(before).pop(place)
        if after in self._known:
            insort(self._known[after], (load, shard))
        self.slot_of[shard] = after
        return load, shard


def _nearest(held: Sequence[tuple[float, int]], difference: float) -> int | None:
    """The place of the shard whose load is nearest to half of a difference, and below all of it."""
    # By more than rounding, or two slots would hand each other the same shard for ever.
    difference *= 1 - 1e-9
    above = bisect_left(held, (difference / 2, -1))
    near = [
        place
        for place in (above - 1, above)
        if 0 <= place < len(held) and 0 < held[place][0] < difference
    ]
    return min(near, key=lambda place: abs(held[place][0] - difference / 2), default=None)
