"""Recorded steps under another policy, effects that are reported, and plans that are offered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.elastic.replay import on_routes, replay, totals
from anabranch.elastic.settings import POLICIES
from anabranch.plan.route import even_route
from tests.elastic.recorded import OVERHEAD_S, RECORDED, SETTINGS, step


@pytest.mark.parametrize("name", ["auto", *POLICIES])
def test_every_policy_replays_a_history_by_its_name_and_the_same_each_time(name: str) -> None:
    first, again = (replay(RECORDED, replace(SETTINGS, policy=name)) for _ in range(2))
    assert [each.decision.reason for each in first] == [each.decision.reason for each in again]
    found = totals(first)
    assert found.steps == len(RECORDED)
    if name in {"static", "flux"}:
        assert found.resizes == 0
        assert found.slot_seconds == found.slot_seconds_recorded
    else:
        assert found.resizes > 0, name


def test_a_policy_replayed_follows_the_surge_and_sees_its_own_decisions() -> None:
    found = replay(RECORDED, SETTINGS)
    slots = {each.seen.step: each.seen.components[0].route.slots for each in found}
    assert slots[30] <= 2 < slots[100]
    assert slots[239] < slots[100]
    assert not any("was not applied" in note for each in found for note in each.decision.notes)
    busy = [each for each in found if 60 <= each.seen.step < 120]
    assert all(each.seen.duration_s < each.recorded.duration_s for each in busy)
    sums = totals(found)
    assert sums.resizes >= 2
    assert sums.reversals <= 2
    assert sums.step_s < sums.step_s_recorded


def test_a_step_on_other_routes_does_the_same_work() -> None:
    seen = step(1, 10_000.0, even_route(64, 1))
    other = on_routes(seen, {"areas": even_route(64, 4)})
    assert other.components[0].slot_s.sum() - 4 * OVERHEAD_S == pytest.approx(1.0)
    assert other.components[1] is seen.components[1]
    assert other.duration_s == pytest.approx(
        seen.duration_s - 1.0 + other.components[0].slot_s.max() - OVERHEAD_S
    )
    assert on_routes(seen, {"areas": even_route(32, 4)}) is seen
    assert on_routes(seen, {}) is seen
