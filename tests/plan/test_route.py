"""Routes stay level and move little; snapshots come in time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.route import Route, even_route, snapshots_due


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 20))
def test_a_resized_route_is_level_and_moves_no_more_than_it_must(
    shards: int, before: int, after: int
) -> None:
    before, after = min(before, shards), min(after, shards)
    old = even_route(shards, before)
    new = old.resized(after)
    sizes = Counter(new.slot_of)
    assert set(sizes) == set(range(after))
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert new.version == old.version + 1
    moved = sum(a != b for a, b in zip(old.slot_of, new.slot_of, strict=True))
    room = {slot: shards // after + (1 if slot < shards % after else 0) for slot in range(after)}
    must = sum(max(0, size - room.get(slot, 0)) for slot, size in Counter(old.slot_of).items())
    assert moved == must


def test_a_route_can_be_resized_again_and_again() -> None:
    route: Route = even_route(64, 1)
    for slots in (4, 2, 3, 64, 1):
        route = route.resized(slots)
        assert set(route.slot_of) == set(range(slots))


def test_a_snapshot_is_due_when_the_deltas_are_worth_half_of_it() -> None:
    assert snapshots_due({0: [(10, None)] * 15}, 64) == []
    assert snapshots_due({0: [(10, None)] * 16}, 64) == [0]
    assert snapshots_due({0: [(0, 1000), *[(10, None)] * 20]}, 64) == []
    assert snapshots_due({0: [(0, 1000), *[(10, None)] * 50]}, 64) == [0]
    assert snapshots_due({0: [(0, 10**9), *[(10, None)] * 64]}, 64) == [0]


def test_not_all_shards_are_snapshotted_in_one_step() -> None:
    assert len(snapshots_due({shard: [(10, None)] * 16 for shard in range(64)}, 64)) == 8
