"""The controller in a closed loop.

What users of other autoscalers report as failures must not happen here.

The loop is a small simulated run: batches of the rows that have arrived, slots with a cost per
row, pauses where a test wants them. It has no clock and no randomness; a test that fails prints
what happened.
"""

from __future__ import annotations

import time
from dataclasses import replace
from math import sin

import numpy as np
import pytest

from anabranch.elastic import (
    AutoScale,
    Elastic,
    Guards,
    Memory,
    control,
)
from anabranch.elastic.controller import kind_of
from anabranch.elastic.observation import Offer, by_slot
from anabranch.elastic.policies.baselines import Incremental, Static
from anabranch.plan.route import even_route
from tests.elastic.loop import LATENCY, Loop, erratic, progressive, steady
from tests.elastic.recorded import SETTINGS, step


@pytest.mark.parametrize("settings", [Elastic(), LATENCY], ids=["autoscale", "latency"])
def test_a_steady_input_leads_to_one_number_of_slots_that_stays(settings: Elastic) -> None:
    loop = Loop(steady(50_000), settings, limit=100_000).run(600)
    assert loop.resizes[-1][0] < 200, loop
    assert loop.reversals <= 1, loop
    assert 5 < loop.route.slots <= 10, loop
    assert all(latency < 3 for at, _, latency, _ in loop.trace if at > 300), loop


def test_a_start_with_far_too_few_slots_and_no_limit_of_a_batch_is_recovered_from() -> None:
    loop = Loop(steady(50_000), LATENCY).run(3000)
    assert loop.route.slots >= 6, loop
    assert loop.waits <= 60_000, loop


@pytest.mark.parametrize("settings", [Elastic(), LATENCY], ids=["autoscale", "latency"])
def test_an_input_that_swings_does_not_make_slots_swing(settings: Elastic) -> None:
    loop = Loop(lambda at: 45_000 + 9_000 * sin(at / 5), settings, slots=6).run(900)
    assert loop.reversals <= 2, loop
    assert not [at for at, *_ in loop.resizes if at > 450], loop


def test_slots_that_are_needed_again_are_given_up_less_easily() -> None:
    """The input swings just slower than the stabilisation time.

    This is the worst case for any fixed time.
    """
    loop = Loop(lambda at: 60_000.0 if at % 160 < 60 else 8_000.0, LATENCY, limit=150_000).run(2000)
    shrinks = [at for at, before, after in loop.resizes if after < before]
    assert loop.memory.patience["areas"] > 1, loop
    assert len([at for at in shrinks if at > 1000]) < len([at for at in shrinks if at <= 1000]), (
        loop
    )


def test_progressive_input_is_followed_without_going_back_and_forth() -> None:
    loop = Loop(progressive, LATENCY).run(900)
    static = Loop(progressive, replace(LATENCY, policy=Static()), slots=16).run(900)
    assert loop.reversals <= 1, loop
    assert loop.misses(3.0) <= len(loop.trace) // 50, loop
    assert loop.slot_seconds < 0.6 * static.slot_seconds, f"{loop}\n{static}"


def test_autoscale_follows_the_progressive_input_with_fewer_slot_seconds_than_incremental() -> None:
    ours = Loop(progressive, Elastic(policy=AutoScale())).run(900)
    rival = Loop(progressive, Elastic(policy=Incremental())).run(900)
    assert ours.reversals <= 1, ours
    assert ours.slot_seconds < rival.slot_seconds, f"{ours}\n{rival}"


def test_the_controller_survives_erratic_input() -> None:
    loop = Loop(erratic, LATENCY).run(900)
    assert loop.misses(3.0) <= len(loop.trace) // 20, loop
    assert loop.reversals <= 6, loop
    assert loop.waits <= 2 * 8_000, loop


def test_a_run_that_catches_up_keeps_its_slots() -> None:
    """After a restart a million rows wait.

    The slots suffice for the input and the backlog falls: neither more nor fewer slots.
    """
    loop = Loop(steady(20_000), LATENCY, slots=5, limit=40_000, waits=1_000_000).run(50)
    assert loop.waits < 200_000, loop
    assert loop.resizes == [], loop


def test_a_backlog_that_grows_is_answered_with_more_slots() -> None:
    loop = Loop(steady(30_000), Elastic(), slots=2, limit=60_000).run(300)
    assert loop.route.slots >= 4, loop
    assert loop.waits <= 60_000, loop


def test_a_busy_component_is_never_scaled_in() -> None:
    """A policy that is wrong about the need, as with a forecast from a wrong output ratio."""

    class OneIsEnough(Static):
        def wanted(self, seen, latency_s, most):  # type: ignore[no-untyped-def]
            return replace(super().wanted(seen, latency_s, most), slots={"areas": 1})

    loop = Loop(steady(45_000), Elastic(policy=OneIsEnough()), slots=6).run(600)
    assert loop.route.slots == 6, loop
    assert any("none is given up" in decision.reason for *_, decision in loop.trace), loop


def test_a_restart_in_the_middle_of_a_change_decides_again() -> None:
    """The driver dies between the decision and the step that would have applied it."""
    loop = Loop(steady(50_000), LATENCY, slots=3, applied=False)
    while not loop.decisions:
        loop.run(loop.at + 0.1)
    kept, loop.applied = loop.memory, True
    loop.run(loop.at + 0.1)
    assert any("was not applied" in note for note in loop.notes), loop
    assert loop.memory.blocked == {}
    loop.run(loop.at + 60)
    assert loop.route.slots > 3, loop
    fresh = Loop(steady(50_000), LATENCY, slots=3)
    assert kept != fresh.memory
    fresh.run(3)
    assert not fresh.decisions, "a new run warms up first"


def test_a_hot_key_above_a_slots_capacity_is_reported_and_does_not_make_slots_thrash() -> None:
    weights = np.ones(128)
    weights[17] = 128.0  # half of all rows
    loop = Loop(steady(30_000), LATENCY, slots=2, weights=weights).run(600)
    assert len(loop.decisions) <= 3, loop
    assert loop.route.slots <= 3, loop
    reports = [note for note in loop.notes if "shard 17 alone has 50% of the load" in note]
    assert len(reports) in (1, 2), loop
    assert "more slots do not help" in reports[0]


def test_a_hot_shard_gets_a_slot_of_its_own_where_one_slot_can_do_it() -> None:
    weights = np.ones(128)
    weights[17] = 40.0
    loop = Loop(steady(20_000), replace(LATENCY, policy="static"), slots=4, weights=weights).run(60)
    assert [kind_of(change) for _, decision in loop.decisions for change in decision.changes] == [
        "other shards"
    ], loop
    assert by_slot(loop.weights, loop.route).max() * 4 <= 1.2, loop


def test_no_input_for_a_long_time_gives_slots_up_once_and_a_new_input_is_no_shock() -> None:
    loop = Loop(lambda at: 0.0 if 100 <= at < 1500 else 20_000.0, LATENCY, slots=4).run(1500)
    assert loop.route.slots == 1, loop
    quiet = [at for at, *_ in loop.resizes if at > 600]
    assert quiet == [], loop
    loop.run(1600)
    assert 3 <= loop.route.slots <= 6, loop


def test_a_run_without_any_input_decides_nothing() -> None:
    loop = Loop(steady(0), Elastic(), slots=4).run(300)
    assert loop.decisions == [], loop


def test_advice_is_given_once_and_changes_nothing() -> None:
    loop = Loop(steady(30_000), replace(LATENCY, mode="advise"), slots=2, limit=15_000).run(200)
    assert loop.route.version == 1
    assert loop.decisions
    assert all(decision.advice for _, decision in loop.decisions)
    assert len(loop.decisions) <= 3, loop


def test_nothing_is_decided_or_remembered_when_elasticity_is_off() -> None:
    loop = Loop(steady(90_000), Elastic(mode="off")).run(100)
    assert loop.decisions == []
    assert loop.memory == Memory()


def test_limits_hold_and_a_change_is_bounded() -> None:
    loop = Loop(steady(70_000), replace(LATENCY, max_slots=6, min_slots=2), limit=100_000).run(300)
    assert all(after <= min(6, max(2 * before, before + 1)) for _, before, after in loop.resizes), (
        loop
    )
    assert loop.route.slots == 6, loop
    idle = Loop(lambda at: 9_000.0 if at < 50 else 10.0, Elastic(min_slots=2), slots=8).run(900)
    assert idle.route.slots == 2, idle
    assert all(after >= before / 2 for _, before, after in idle.resizes), idle


def test_a_decision_says_why_and_what_it_expects() -> None:
    loop = Loop(steady(50_000), LATENCY, slots=4).run(60)
    _, decision = loop.decisions[0]
    (change,) = decision.changes
    assert decision.reason.startswith("areas: 4 -> ")
    assert decision.figures["target s"] == 2.5
    assert 0 < change.expected.after < change.expected.before
    assert change.route.version == 2
    assert len(change.route.slot_of) == 128


@pytest.mark.parametrize("policy", ["autoscale", "latency"])
def test_a_decision_for_32_hosts_and_8192_shards_takes_milliseconds(policy: str) -> None:
    chance = np.random.default_rng(7)
    weights = chance.exponential(size=8192)
    settings = Elastic(
        latency="2 seconds", policy=policy, guards=Guards(judge_steps=1, cool_down_s=0.0)
    )
    loop = Loop(steady(1_500_000), settings, slots=200, cores=256, shards=8192, weights=weights)
    taken = []
    for _ in range(25):
        seen = loop.observed()
        started = time.perf_counter()
        loop.memory, decision = control(loop.memory, seen, settings)
        taken.append((time.perf_counter() - started, decision.reason))
        if decision:
            loop.route = decision.changes[0].route
    print(
        f"{policy}: median {1e3 * sorted(taken)[12][0]:.1f} ms, longest {1e3 * max(taken)[0]:.1f} "
        f"ms ({max(taken)[1]})"
    )
    assert any("->" in reason for _, reason in taken), taken
    assert sorted(taken)[12][0] < 0.05
    assert max(taken)[0] < 0.5


def test_figures_of_decisions_are_plain_numbers() -> None:
    """They go to logs, which write NumPy's numbers differently or not at all."""
    loop = Loop(lambda at: 20_000 + 500 * at, LATENCY, slots=1).run(90)
    figures = [value for _, decision in loop.decisions for value in decision.figures.values()]
    assert figures
    assert {type(value) for value in figures} == {float}


OFFER = Offer(
    planner="exact",
    before=("areas", "total"),
    after=("areas + total",),
    rows_before=1000.0,
    rows_after=0.0,
)


@pytest.mark.parametrize(
    ("settings", "offer"),
    [
        (replace(SETTINGS, replan=False), OFFER),
        (SETTINGS, replace(OFFER, rows_after=900.0)),
        (SETTINGS, replace(OFFER, rows_before=0.0)),
        (SETTINGS, replace(OFFER, after=OFFER.before)),
        (replace(SETTINGS, mode="off"), OFFER),
    ],
)
def test_components_stay_where_a_replan_saves_too_little(settings: Elastic, offer: Offer) -> None:
    memory = Memory()
    for i in range(1, 30):
        memory, decision = control(
            memory, step(i, 4_000.0, even_route(64, 2), offer=offer), settings
        )
        assert decision.replan is None
