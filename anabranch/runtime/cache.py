"""Decoded slots that a worker keeps between steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, NamedTuple

from anabranch.plan.ids import PartId
from anabranch.state.memory.keyed import NumberedState

_CACHED_SLOTS = 64


class Owner(NamedTuple):
    """The operator that decoded slots belong to. A later run may have another plan, so the epoch
    is part of it.
    """

    checkpoint: str
    part: PartId
    epoch: int


class DecodedCache:
    """The decoded slots of this process. The least recently used is removed first.

    A slot that is in use is not in the cache.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: OrderedDict[tuple[Owner, frozenset[int]], NumberedState[Any, Any]] = (
            OrderedDict()
        )

    def take(self, owner: Owner, shards: frozenset[int]) -> NumberedState[Any, Any] | None:
        """Removes and returns the slot of exactly these shards."""
        return self._slots.pop((owner, shards), None)

    def nearest(self, owner: Owner, shards: Collection[int]) -> NumberedState[Any, Any] | None:
        """Removes and returns the slot with most of these shards, if it has at least half."""
        near = [key for key in self._slots if key[0] == owner]
        best = max(near, key=lambda key: len(key[1].intersection(shards)), default=None)
        if best is None or 2 * len(best[1].intersection(shards)) < max(1, len(shards)):
            return None
        return self._slots.pop(best)

    def put(self, owner: Owner, state: NumberedState[Any, Any]) -> None:
        """Keeps a slot.

        A cached slot with at least half of its shards in this one is removed: it is this slot under
        an older route. One with fewer shards in common stays, because another task of this step
        may still use it. But there are at most two copies per shard, on average.
        """
        shards = frozenset(state.versions)
        for key in [
            key
            for key in self._slots
            if key[0] == owner and 2 * len(shards & key[1]) >= len(key[1])
        ]:
            del self._slots[key]
        self._slots[owner, shards] = state
        mine = [key for key in self._slots if key[0] == owner]
        many = sum(len(key[1]) for key in mine) - 2 * len(
            frozenset().union(*(key[1] for key in mine))
        )
        for key in mine:
            if many <= 0:
                break
            many -= len(key[1])
            del self._slots[key]
        while len(self._slots) > self._size:
            self._slots.popitem(last=False)


decoded_slots = DecodedCache(_CACHED_SLOTS)
