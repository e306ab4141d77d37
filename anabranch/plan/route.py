"""The route: which slot each shard belongs to.

It has a version and changes only between two steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.plan.ids import ComponentId

_CHAIN = 16
_LONG_CHAIN = 64


@dataclass(frozen=True, slots=True)
class Route:
    """Shard -> slot."""

    slot_of: tuple[int, ...]
    slots: int
    version: int

    def resized(self, slots: int) -> Route:
        """The route with another number of slots.

        As many shards as possible stay where they are, and the numbers of shards are level.
        """
        shards = len(self.slot_of)
        room = [shards // slots + (1 if slot < shards % slots else 0) for slot in range(slots)]
        new = [-1] * shards
        for shard, slot in enumerate(self.slot_of):
            if slot < slots and room[slot]:
                new[shard] = slot
                room[slot] -= 1
        free = (slot for slot in range(slots) for _ in range(room[slot]))
        return Route(
            tuple(slot if slot >= 0 else next(free) for slot in new), slots, self.version + 1
        )


def even_route(shards: int, slots: int) -> Route:
    """Shards dealt out to slots one after another."""
    return Route(tuple(shard % slots for shard in range(shards)), slots, 1)


def routes_for(
    components: Iterable[ComponentId], before: Mapping[ComponentId, Route], shards: int, slots: int
) -> dict[ComponentId, Route]:
    """The routes of components: existing ones, and even ones for new components."""
    return {name: before.get(name) or even_route(shards, slots) for name in components}


def snapshots_due(chains: Mapping[int, Sequence[tuple[int, int | None]]], shards: int) -> list[int]:
    """The shards that should be snapshotted now, by the (delta, snapshot) sizes of their chains.

    A snapshot is due when reading the deltas costs as much as reading half the snapshot. So a
    restore reads little, and snapshots cost at most as much as deltas. Not all shards are due in
    one step, so that no step is long.
    """
    due = []
    for shard, chain in chains.items():
        deltas = len(chain) - (1 if chain and chain[0][1] is not None else 0)
        base = chain[0][1] or 0 if chain else 0
        added = sum(delta for delta, snapshot in chain if snapshot is None)
        if deltas >= _LONG_CHAIN or (deltas >= _CHAIN and 2 * added >= base):
            due.append((deltas, shard))
    return [shard for _, shard in sorted(due, reverse=True)[: max(1, shards // 8)]]
