"""What steps show: pauses, costs that change, load that moves, and plans that change."""

from __future__ import annotations

from dataclasses import replace

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
from anabranch.elastic.evaluation import History, evaluate
from anabranch.elastic.observation import by_slot
from anabranch.elastic.replay import replay
from anabranch.lab.steps import SimulatedComponent, SimulatedSteps
from anabranch.plan.route import Route
from tests.elastic.loop import LATENCY, Loop, steady
from tests.elastic.recorded import RECORDED, SETTINGS


def test_pauses_are_not_read_as_low_capacity() -> None:
    quiet = Loop(steady(30_000), LATENCY, slots=5).run(400)
    paused = Loop(
        steady(30_000),
        LATENCY,
        slots=5,
        pauses={1: 6.0, 2: 4.0, 3: 2.0, 40: 5.0, 90: 8.0, 200: 5.0},
    ).run(400)
    assert paused.resizes == quiet.resizes == [], paused
    assert any("a pause" in decision.reason for *_, decision in paused.trace), paused


def test_a_component_without_rows_yet_does_not_end_the_controller() -> None:
    """A later level gets its first rows when windows close, maybe after many steps."""
    components = (
        SimulatedComponent(name="areas", cost_s=4e-4),
        SimulatedComponent(name="all", cost_s=2e-5, level=1, per_row=0.0, parents=("areas",)),
    )
    even = np.full(64, 1 / 64)
    steps = SimulatedSteps(components, steady(5_000), LATENCY, even, interval_s=1.0).run(60)
    assert steps.routes["areas"].slots > 1
    assert steps.routes["all"].slots == 1


def test_work_that_really_became_slower_is_no_pause() -> None:
    loop = Loop(steady(20_000), LATENCY, slots=3).run(100)
    assert loop.resizes == [], loop
    loop.slow, loop.limit = 4.0, 40_000
    loop.run(600)
    assert loop.route.slots >= 9, loop
    assert loop.waits <= 40_000, loop


@pytest.mark.parametrize("shards", [64, 512])
def test_after_the_keys_are_shuffled_slots_are_level_again_within_two_steps(shards: int) -> None:
    """Elasticutor 5.1: 10,000 keys, whose loads are permuted at once.

    The skew is larger than there, so that it always shows.
    """
    chance = np.random.default_rng(11)
    popularity = 1 / np.arange(1, 10_001) ** 0.9
    shard_of = chance.integers(0, shards, 10_000)
    loop = Loop(steady(30_000), Elastic(policy="static"), slots=8, shards=shards)
    above = []
    for _ in range(6):
        loads = np.bincount(
            shard_of, weights=popularity[chance.permutation(10_000)], minlength=shards
        )
        loop.weights = loads / loads.sum()
        loop.run(loop.at + 20)
        above.append(loop.longest_uneven)
        loop.longest_uneven = 0
    assert above[1:] == [2] * 5, (above, loop)


def test_the_fixed_time_of_a_slot_is_not_load_of_its_shards() -> None:
    """Small steps: a slot needs 50 ms for itself and 5 ms for its rows.

    A shard that is almost alone in its slot is not hot because of that.
    """
    chance = np.random.default_rng(3)
    route = Route(tuple([0] * 2 + [1] * 30), 2, 1)
    history = History()
    for step in range(1, 12):
        rows = np.array([10.0] * 32) * chance.uniform(0.95, 1.05)
        slot_s = 0.05 + 5e-5 * by_slot(rows, route)
        work_s = rows * (slot_s / by_slot(rows, route))[np.array(route.slot_of)]
        seen = ComponentObservation(
            name="areas",
            route=route,
            rows=rows,
            rows_out=rows,
            cpu_s=work_s,
            state_bytes=rows,
            slot_s=slot_s + 0.01,
        )
        sources = {"loans": SourceObservation(rows=float(rows.sum()))}
        observed = Observation(
            step=step, at=float(step), duration_s=0.3, cores=2, sources=sources, components=(seen,)
        )
        history, evaluation = evaluate(history, observed, Guards())
    [loaded] = evaluation.components
    assert loaded.hot_share < 0.1, "not 1/4"
    assert loaded.cost_s == pytest.approx(5e-5, rel=0.5)
    assert evaluation.overhead_s == pytest.approx(0.06, rel=0.1)


def test_another_plan_or_number_of_shards_forgets_what_was_measured() -> None:
    loop = Loop(steady(50_000), LATENCY, slots=3)
    while not loop.decisions:
        loop.run(loop.at + 0.1)
    assert loop.memory.pending
    seen = loop.observed()
    (component,) = seen.components
    other = Loop(steady(50_000), LATENCY, slots=3, shards=64, waits=50_000).observed().components[0]
    loop.memory, _ = control(
        loop.memory, replace(seen, components=(replace(other, name="streets"),)), LATENCY
    )
    assert loop.memory.pending == ()
    loop.memory, _ = control(
        loop.memory, replace(seen, components=(replace(other, name=component.name),)), LATENCY
    )


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


def test_closing_steps_do_not_count_until_nothing_else_comes_for_long() -> None:
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
