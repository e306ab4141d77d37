"""Recorded steps under another policy, effects that are told, plans that are offered, and policies by their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anabranch.elastic import (
    ComponentObservation,
    Elastic,
    Guards,
    Memory,
    Observation,
    SourceObservation,
    control,
)
from anabranch.elastic.observation import Offer, Resize, by_slot
from anabranch.elastic.policies.baselines import EXECUTOR_CENTRIC, RESOURCE_CENTRIC
from anabranch.elastic.policies.latency import makespan
from anabranch.elastic.replay import figures_of, on_routes, replay, totals
from anabranch.elastic.settings import POLICIES
from anabranch.plan.route import Route, even_route

COST_S = 1e-4
OVERHEAD_S = 0.02


def step(number: int, rate: float, route: Route, **changes: Any) -> Observation:
    """A second of a run: two components, the second of which gets a tenth of the rows."""
    shards = len(route.slot_of)
    weights = np.linspace(1.0, 1.4, shards)
    weights /= weights.sum()
    components = tuple(
        ComponentObservation(
            name=name,
            route=route,
            rows=rate * part * weights,
            rows_out=rate * part * weights / 10,
            cpu_s=rate * part * weights * COST_S,
            state_bytes=np.ones(shards),
            slot_s=by_slot(rate * part * weights * COST_S, route) + OVERHEAD_S,
            level=level,
            parents=parents,
        )
        for name, part, level, parents in (("areas", 1.0, 1, ()), ("total", 0.1, 2, ("areas",)))
    )
    seen = Observation(
        step=number,
        at=float(number),
        duration_s=0.2 + sum(makespan(each.slot_s, 8) for each in components),
        cores=8,
        interval_s=1.0,
        sources={"loans": SourceObservation(rows=rate, rows_per_s=rate)},
        components=components,
    )
    return replace(seen, **changes)


def surge(number: int) -> float:
    return 50_000.0 if 40 <= number < 120 else 4_000.0


RECORDED = [step(i, surge(i), even_route(64, 2)) for i in range(1, 240)]
SETTINGS = Elastic(latency="2 seconds", max_slots=8)


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


def test_each_change_tells_its_effect_beside_what_it_promised() -> None:
    found = replay(RECORDED, SETTINGS)
    made = [change for each in found for change in each.decision.changes]
    effects = [effect for each in found for effect in each.decision.effects]
    assert len(effects) == len(made)
    for change, effect in zip(made, effects, strict=True):
        assert effect.what.startswith(change.component)
        scale = 1e6 if isinstance(change, Resize) else 1.0
        assert effect.expected == pytest.approx(scale * change.expected.after)
        assert effect.share is None or effect.share > 0.5, effect
    first = next(each.decision for each in found if each.decision)
    figures = figures_of(first)
    assert figures["areas: slots before"] == 2
    assert figures["areas: slots after"] == first.changes[0].route.slots
    assert figures["target s"] == 2.0


def test_the_rivals_differ_in_what_a_change_costs() -> None:
    rivals = ("resource-centric", "naive executor-centric", "latency")
    found = {name: totals(replay(RECORDED, replace(SETTINGS, policy=name))) for name in rivals}
    resource, naive = found["resource-centric"], found["naive executor-centric"]
    assert resource.resizes == naive.resizes > 0
    assert resource.pause_s > 50 * naive.pause_s > 0
    assert naive.pause_s == pytest.approx(naive.resizes * EXECUTOR_CENTRIC.agree_s)
    assert resource.pause_s > resource.resizes * RESOURCE_CENTRIC.agree_s
    assert found["latency"].pause_s == 0


def test_the_naive_way_moves_more_shards() -> None:
    def moved(name: str) -> int:
        found = replay(RECORDED, replace(SETTINGS, policy=name))
        before = {each.seen.step: {c.name: c.route for c in each.seen.components} for each in found}
        sizes = [
            (each.seen.step, change)
            for each in found
            for change in each.decision.changes
            if isinstance(change, Resize)
        ]
        return sum(
            sum(
                a != b
                for a, b in zip(
                    before[at][change.component].slot_of, change.route.slot_of, strict=True
                )
            )
            for at, change in sizes
        )

    assert moved("naive executor-centric") > 1.3 * moved("resource-centric")


def test_learning_comes_to_know_rates_that_come_again() -> None:
    again = [step(i, surge(i % 240), even_route(64, 2)) for i in range(1, 500)]
    found = replay(again, replace(SETTINGS, policy="learning"))
    assert any("learnt from" in each.decision.reason for each in found)
    reasons = [each.decision.reason for each in found if each.decision]
    assert reasons


def test_work_is_what_a_slot_spends_not_the_cpu_alone() -> None:
    """An operator that waits for a service uses no CPU, and yet needs slots."""
    waits = [
        replace(
            each,
            components=tuple(
                replace(c, busy_s=c.cpu_s, cpu_s=c.cpu_s / 100) for c in each.components
            ),
        )
        for each in RECORDED
    ]
    assert [each.decision.changes for each in replay(waits, SETTINGS)] == [
        each.decision.changes for each in replay(RECORDED, SETTINGS)
    ]


def test_closing_steps_tell_nothing_until_nothing_else_comes_for_long() -> None:
    nothing = SourceObservation(rows=0.0)
    mixed = []
    for each in RECORDED[:100]:
        mixed += [
            each,
            replace(
                each, step=each.step, at=each.at + 0.5, closing=True, sources={"loans": nothing}
            ),
        ]
    plain, with_closing = (
        [e.decision.changes for e in replay(steps, SETTINGS) if e.decision]
        for steps in (RECORDED[:100], mixed)
    )
    assert plain == with_closing != []
    memory = Memory()
    for each in RECORDED[40:60]:
        memory, _ = control(memory, each, SETTINGS)
    reasons = []
    for i in range(100):
        idle = replace(
            RECORDED[60], step=61 + i, at=60.0 + 10 * i, closing=True, sources={"loans": nothing}
        )
        memory, decision = control(memory, idle, SETTINGS)
        reasons.append(decision.reason)
    assert reasons[:5] == ["a closing step"] * 5
    assert reasons[-1] != "a closing step"


OFFER = Offer(
    planner="exact",
    before=("areas", "total"),
    after=("areas + total",),
    rows_before=1000.0,
    rows_after=0.0,
)


def one_component(seen: Observation) -> Observation:
    return replace(
        seen, components=(replace(seen.components[0], name="areas + total"),), offer=None
    )


def test_other_components_are_taken_where_they_save_rows_and_their_effect_is_told() -> None:
    memory, told = Memory(), []
    for i in range(1, 40):
        seen = step(i, 4_000.0, even_route(64, 2), offer=OFFER if i == 20 else None)
        memory, decision = control(memory, seen if i <= 20 else one_component(seen), SETTINGS)
        told.append(decision)
    assert [each.step for each in told if each.replan is not None] == [20]
    assert "areas, total -> areas + total by exact: 1,000 -> 0 rows of a step" in told[19].reason
    (effect,) = [effect for each in told for effect in each.effects]
    assert (effect.before, effect.expected, effect.observed, effect.share) == (
        pytest.approx(0.1),
        0.0,
        0.0,
        1.0,
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
def test_components_stay_where_it_is_not_worth_it(settings: Elastic, offer: Offer) -> None:
    memory = Memory()
    for i in range(1, 30):
        memory, decision = control(
            memory, step(i, 4_000.0, even_route(64, 2), offer=offer), settings
        )
        assert decision.replan is None


def test_a_plan_without_effect_is_not_taken_again_and_one_that_was_not_taken_is_noticed() -> None:
    settings = replace(SETTINGS, guards=Guards(replan_s=10.0, block_s=10.0))
    memory, plans, notes = Memory(), 0, list[str]()
    for i in range(1, 74):
        seen = step(i, 4_000.0, even_route(64, 2))
        if i > 20:  # the planner was wrong: as many rows between components as before
            seen = replace(
                seen,
                components=(replace(seen.components[0], name="areas + total"), seen.components[1]),
            )
            offer = replace(OFFER, before=("areas + total", "total"), after=("areas", "total"))
        else:
            offer = replace(OFFER, after=("areas + total", "total"))
        memory, decision = control(
            memory, replace(seen, offer=offer if i == 20 or i > 30 else None), settings
        )
        plans += decision.replan is not None
        notes += decision.notes
    assert plans == 2, notes
    assert any("other components had no effect" in note for note in notes)
    assert any("were not taken" in note for note in notes)
