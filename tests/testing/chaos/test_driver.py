"""What the driver process of a chaos run asks of the engine."""

from __future__ import annotations

from anabranch.testing.chaos.driver import shuffled


def test_another_route_uses_all_slots() -> None:
    for seed in range(20):
        table = shuffled(8, 3, seed)
        assert len(table) == 8
        assert set(table) == {0, 1, 2}
    assert len({tuple(shuffled(8, 3, seed)) for seed in range(20)}) > 10
