"""The effects of changes: reported with what was promised, and not repeated without effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.elastic import (
    Elastic,
    Guards,
    Memory,
    Observation,
    control,
)
from anabranch.elastic.controller import kind_of
from anabranch.elastic.observation import Offer, Resize
from anabranch.elastic.replay import figures_of, replay
from anabranch.plan.route import even_route
from tests.elastic.loop import LATENCY, Loop, progressive, steady
from tests.elastic.recorded import RECORDED, SETTINGS, step


def test_more_slots_that_change_nothing_are_not_added_again() -> None:
    loop = Loop(steady(30_000), LATENCY, slots=2, bottleneck=True).run(500)
    assert len(loop.resizes) == 1, loop
    assert any("had no effect" in note for note in loop.notes), loop


def test_other_shards_that_change_nothing_are_not_moved_again() -> None:
    """The measured load of shards is wrong, as for rows of very different costs.

    Moving them has no effect.
    """
    weights = np.ones(128)
    weights[:32] = 8.0
    loop = Loop(steady(20_000), Elastic(policy="static"), slots=4, weights=weights, bottleneck=True)
    loop.route = replace(loop.route, slot_of=tuple(shard // 32 for shard in range(128)))
    loop.run(400)
    assert [kind_of(change) for _, decision in loop.decisions for change in decision.changes] == [
        "other shards"
    ], loop
    assert any("other shards had no effect" in note for note in loop.notes), loop


def test_a_person_who_resizes_meanwhile_is_no_failure_of_the_controller() -> None:
    loop = Loop(steady(50_000), LATENCY, slots=3, limit=80_000)
    while not loop.decisions:
        loop.run(loop.at + 0.1)
    loop.route = loop.route.resized(
        5
    )  # another route than the one decided, with a version after it
    loop.run(loop.at + 0.1)
    assert any("was not applied" in note for note in loop.notes), loop
    loop.run(loop.at + 120)
    assert loop.memory.blocked == {}, loop
    assert loop.route.slots >= 6, loop


def test_effects_of_all_changes_are_reported_with_what_was_promised() -> None:
    loop = Loop(progressive, LATENCY).run(900)
    effects = [effect for *_, decision in loop.trace for effect in decision.effects]
    changes = [change for _, decision in loop.decisions for change in decision.changes]
    assert len(effects) >= len(changes) - 1, loop
    more = [effect for effect in effects if effect.what == "areas: more slots"]
    assert more
    assert all(effect.share is not None and effect.share > 0.5 for effect in more), more


def test_each_change_reports_its_effect_beside_what_it_promised() -> None:
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


def test_other_components_are_taken_where_they_save_rows_and_their_effect_is_reported() -> None:
    memory, decisions = Memory(), []
    for i in range(1, 40):
        seen = step(i, 4_000.0, even_route(64, 2), offer=OFFER if i == 20 else None)
        memory, decision = control(memory, seen if i <= 20 else one_component(seen), SETTINGS)
        decisions.append(decision)
    assert [each.step for each in decisions if each.replan is not None] == [20]
    assert (
        "areas, total -> areas + total by exact: 1,000 -> 0 rows of a step" in decisions[19].reason
    )
    (effect,) = [effect for each in decisions for effect in each.effects]
    assert (effect.before, effect.expected, effect.observed, effect.share) == (
        pytest.approx(0.1),
        0.0,
        0.0,
        1.0,
    )


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
