"""Decoded slots between steps: found by their shards, never held by two, bounded."""

from __future__ import annotations

from anabranch.plan.ids import PartId
from anabranch.runtime.cache import DecodedCache, Owner
from anabranch.state.memory.keyed import NumberedState
from anabranch.state.memory.kinds import state_of
from anabranch.state.store.version import Version
from tests.plan.every_kind import nodes

MINE = Owner("c", PartId("w"), 1)


def slot(*shards: int) -> NumberedState[object, object]:
    found = state_of(nodes()["windows"].plan)
    found.versions = {shard: Version(1, "t") for shard in shards}
    return found


def test_a_slot_is_taken_once_by_exactly_its_shards_and_its_owner() -> None:
    cache, state = DecodedCache(4), slot(0, 1)
    cache.put(MINE, state)
    assert cache.take(MINE, frozenset({0})) is None
    assert cache.take(MINE._replace(epoch=2), frozenset({0, 1})) is None
    assert cache.take(MINE, frozenset({0, 1})) is state
    assert cache.take(MINE, frozenset({0, 1})) is None, "one that is being changed is not in it"


def test_the_nearest_slot_has_at_least_half_of_the_shards() -> None:
    cache, near, far = DecodedCache(4), slot(0, 1, 2), slot(7, 8)
    cache.put(MINE, near)
    cache.put(MINE, far)
    assert cache.nearest(MINE, [0, 5, 6, 7, 9]) is None
    assert cache.nearest(MINE, [1, 2, 3, 7]) is near
    assert cache.nearest(MINE._replace(part=PartId("w", "x")), [7, 8]) is None


def test_slots_of_an_older_route_are_removed_from_the_cache() -> None:
    cache, old, few, new = DecodedCache(4), slot(0, 1), slot(2, 3, 4), slot(1, 2)
    for each in (old, few, new):
        cache.put(MINE, each)
    assert cache.take(MINE, frozenset({0, 1})) is None
    assert cache.take(MINE, frozenset({2, 3, 4})) is few, "it shares few shards and is needed yet"
    assert cache.take(MINE, frozenset({1, 2})) is new


def test_the_least_recently_kept_goes_first() -> None:
    cache, slots = DecodedCache(2), [slot(n) for n in range(3)]
    for each in slots:
        cache.put(MINE, each)
    found = [cache.take(MINE, frozenset({n})) for n in range(3)]
    assert found == [None, slots[1], slots[2]]
