"""The controller in a closed loop: what users of other autoscalers report as failures must not happen here.

The loop is a run in small: batches of what has arrived, slots with a cost for each row, pauses where a test wants them. No clock, no
randomness; each test prints what happened when it fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import sin

import numpy as np
import pytest

from anabranch.elastic import (
    AutoScale,
    ComponentObservation,
    Decision,
    Elastic,
    Guards,
    Memory,
    Observation,
    SourceObservation,
    control,
)
from anabranch.elastic.controller import kind_of
from anabranch.elastic.evaluation import History, evaluate
from anabranch.elastic.observation import Resize, by_slot
from anabranch.elastic.policies.baselines import Incremental, Knowledge, Learning, Static
from anabranch.elastic.policies.latency import makespan
from anabranch.plan.route import Route, even_route

COST_S = 1e-4  # a slot does 10,000 rows a second


@dataclass(repr=False)
class Loop:
    """A run with one component. `rate` gives rows a second at a time."""

    rate: Callable[[float], float]
    settings: Elastic
    slots: int = 1
    cores: int = 16
    shards: int = 128
    weights: np.ndarray | None = None
    limit: float = float("inf")  # rows a step
    interval_s: float = 1.0
    fixed_s: float = 0.2
    overhead_s: float = 0.02
    pauses: dict[int, float] = field(default_factory=dict)  # step -> seconds
    slow: float = 1.0
    bottleneck: bool = False  # something beside slots takes the time
    applied: bool = True
    waits: float = 0.0
    at: float = 0.0
    step: int = 0
    memory: Memory = field(default_factory=Memory)
    trace: list[tuple[float, int, float, Decision]] = field(default_factory=list)
    longest_uneven: int = 0  # steps in a row with a slot above theta
    _uneven: int = 0

    def __post_init__(self) -> None:
        self.route = even_route(self.shards, self.slots)
        if self.weights is None:
            self.weights = np.ones(self.shards)
        self.weights = self.weights / self.weights.sum()

    def observed(self) -> Observation:
        assert self.weights is not None
        self.step += 1
        rows = min(self.waits, self.limit)
        self.waits -= rows
        cpu_s = rows * self.weights * COST_S * self.slow
        slot_s = by_slot(cpu_s, self.route) + self.overhead_s
        if self.bottleneck:
            slot_s = np.full(self.route.slots, rows * COST_S / 2 + self.overhead_s)
        pause = self.pauses.get(self.step, 0.0)
        slot_s[0] += pause
        cpu_s = cpu_s * (1 + 3 * (pause > 0))
        duration_s = self.fixed_s + makespan(slot_s, self.cores)
        period_s = max(self.interval_s, duration_s)
        self.waits += self.rate(self.at) * period_s
        self.at += period_s
        component = ComponentObservation(
            name="areas",
            route=self.route,
            rows=rows * self.weights,
            rows_out=rows * self.weights / 10,
            cpu_s=cpu_s,
            state_bytes=np.zeros(self.shards),
            slot_s=slot_s,
        )
        source = SourceObservation(rows=rows, backlog=self.waits)
        return Observation(
            step=self.step,
            interval_s=self.interval_s,
            at=self.at,
            duration_s=duration_s,
            cores=self.cores,
            sources={"loans": source},
            components=(component,),
        )

    def run(self, until_s: float) -> Loop:
        for _ in range(5000):
            if self.at >= until_s:
                break
            seen = self.observed()
            level = (
                self.weights is None
                or by_slot(self.weights, self.route).max() * self.route.slots <= self.settings.theta
            )
            self._uneven = 0 if level else self._uneven + 1
            self.longest_uneven = max(self.longest_uneven, self._uneven)
            self.memory, decision = control(self.memory, seen, self.settings)
            latency_s = seen.duration_s + self.waits / max(1.0, self.rate(self.at))
            self.trace.append((self.at, self.route.slots, latency_s, decision))
            if decision and not decision.advice and self.applied:
                self.route = decision.changes[0].route
        return self

    @property
    def decisions(self) -> list[tuple[float, Decision]]:
        return [(at, decision) for at, _, _, decision in self.trace if decision]

    @property
    def resizes(self) -> list[tuple[float, int, int]]:
        return [
            (at, c.before, c.route.slots)
            for at, one in self.decisions
            for c in one.changes
            if isinstance(c, Resize)
        ]

    @property
    def reversals(self) -> int:
        ways = [after > before for _, before, after in self.resizes]
        return sum(a != b for a, b in pairwise(ways))

    @property
    def notes(self) -> list[str]:
        return [note for *_, decision in self.trace for note in decision.notes]

    @property
    def slot_seconds(self) -> float:
        times = [0.0, *(at for at, *_ in self.trace)]
        return sum(
            (b - a) * slots
            for a, b, (_, slots, *_) in zip(times, times[1:], self.trace, strict=False)
        )

    def misses(self, latency_s: float) -> int:
        return sum(latency > latency_s for _, _, latency, _ in self.trace)

    def __repr__(self) -> str:
        lines = [f"{at:7.1f} s: {decision.reason}" for at, decision in self.decisions]
        figures = f"{len(self.resizes)} resizes, {self.reversals} reversals, {self.misses(3.0)} of {len(self.trace)} steps above 3 s"
        return "\n".join(
            [
                *lines,
                *self.notes,
                f"{figures}, {self.slot_seconds:.0f} slot-seconds, {self.waits:.0f} rows wait",
            ]
        )


def steady(rate: float) -> Callable[[float], float]:
    return lambda _: rate


def progressive(at: float) -> float:
    """DABS-Storm, Fig. 11: a large increase, a plateau, a decrease."""
    return 5_000 + 250 * min(at, 300.0) if at < 500 else max(5_000.0, 80_000 - 250 * (at - 500))


def erratic(at: float) -> float:
    """DABS-Storm, Fig. 11: sudden and severe variations."""
    peaks = ((60, 80, 60_000), (200, 215, 90_000), (330, 420, 70_000), (600, 605, 90_000))
    return next((float(rate) for start, end, rate in peaks if start <= at < end), 8_000.0)


LATENCY = Elastic(latency="2500 ms")


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
    """The input swings just slower than the stabilisation time: the worst case for any fixed time."""
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


def test_erratic_input_is_survived() -> None:
    loop = Loop(erratic, LATENCY).run(900)
    assert loop.misses(3.0) <= len(loop.trace) // 20, loop
    assert loop.reversals <= 6, loop
    assert loop.waits <= 2 * 8_000, loop


def test_a_run_that_catches_up_keeps_its_slots() -> None:
    """After a restart a million rows wait; slots suffice for what arrives and the backlog falls: neither more nor fewer slots."""
    loop = Loop(steady(20_000), LATENCY, slots=5, limit=40_000, waits=1_000_000).run(50)
    assert loop.waits < 200_000, loop
    assert loop.resizes == [], loop


def test_a_backlog_that_grows_is_answered_with_more_slots() -> None:
    loop = Loop(steady(30_000), Elastic(), slots=2, limit=60_000).run(300)
    assert loop.route.slots >= 4, loop
    assert loop.waits <= 60_000, loop


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


def test_work_that_really_became_slower_is_no_pause() -> None:
    loop = Loop(steady(20_000), LATENCY, slots=3).run(100)
    assert loop.resizes == [], loop
    loop.slow, loop.limit = 4.0, 40_000
    loop.run(600)
    assert loop.route.slots >= 9, loop
    assert loop.waits <= 40_000, loop


def test_a_busy_component_is_never_scaled_in() -> None:
    """A policy that is wrong about the need, as with a forecast from a wrong output ratio."""

    class OneIsEnough(Static):
        def wanted(self, seen, latency_s, most):  # type: ignore[no-untyped-def]
            return replace(super().wanted(seen, latency_s, most), slots={"areas": 1})

    loop = Loop(steady(45_000), Elastic(policy=OneIsEnough()), slots=6).run(600)
    assert loop.route.slots == 6, loop
    assert any("none is given up" in decision.reason for *_, decision in loop.trace), loop


def test_more_slots_that_change_nothing_are_not_added_again() -> None:
    loop = Loop(steady(30_000), LATENCY, slots=2, bottleneck=True).run(500)
    assert len(loop.resizes) == 1, loop
    assert any("had no effect" in note for note in loop.notes), loop


def test_other_shards_that_change_nothing_are_not_moved_again() -> None:
    """The load of shards is told wrongly, as with rows that cost different times: moving them brings nothing."""
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


def test_effects_of_all_changes_are_told_with_what_was_promised() -> None:
    loop = Loop(progressive, LATENCY).run(900)
    effects = [effect for *_, decision in loop.trace for effect in decision.effects]
    changes = [change for _, decision in loop.decisions for change in decision.changes]
    assert len(effects) >= len(changes) - 1, loop
    more = [effect for effect in effects if effect.what == "areas: more slots"]
    assert more
    assert all(effect.share is not None and effect.share > 0.5 for effect in more), more


def test_a_restart_in_the_middle_of_a_change_decides_anew() -> None:
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


def test_a_hot_key_above_a_slots_capacity_is_told_and_does_not_make_slots_thrash() -> None:
    weights = np.ones(128)
    weights[17] = 128.0  # half of all rows
    loop = Loop(steady(30_000), LATENCY, slots=2, weights=weights).run(600)
    assert len(loop.decisions) <= 3, loop
    assert loop.route.slots <= 3, loop
    told = [note for note in loop.notes if "shard 17 alone has 50% of the load" in note]
    assert len(told) in (1, 2), loop
    assert "more slots do not help" in told[0]


def test_a_hot_shard_gets_a_slot_of_its_own_where_one_slot_can_do_it() -> None:
    weights = np.ones(128)
    weights[17] = 40.0
    loop = Loop(steady(20_000), replace(LATENCY, policy="static"), slots=4, weights=weights).run(60)
    assert [kind_of(change) for _, decision in loop.decisions for change in decision.changes] == [
        "other shards"
    ], loop
    assert by_slot(loop.weights, loop.route).max() * 4 <= 1.2, loop


@pytest.mark.parametrize("shards", [64, 512])
def test_after_the_keys_are_shuffled_slots_are_level_again_within_two_steps(shards: int) -> None:
    """Elasticutor 5.1: 10,000 keys, whose loads are permuted at once; more skewed than there, so that it always shows."""
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


def test_what_a_slot_takes_whatever_its_rows_is_not_the_load_of_its_shards() -> None:
    """Small steps: a slot takes 50 ms for itself and 5 ms for its rows. A shard that has a slot almost alone is not hot by that."""
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


def test_advice_is_said_once_and_changes_nothing() -> None:
    loop = Loop(steady(30_000), replace(LATENCY, mode="advise"), slots=2, limit=15_000).run(200)
    assert loop.route.version == 1
    assert loop.decisions
    assert all(decision.advice for _, decision in loop.decisions)
    assert len(loop.decisions) <= 3, loop


def test_off_is_off() -> None:
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


def test_learning_repeats_what_it_has_seen() -> None:
    knowledge = Knowledge()
    for rate in (8_000, 30_000, 60_000, 70_000, 90_000):
        for slots in range(1, 13):
            knowledge = knowledge.learnt(rate, slots, rate * COST_S / slots)
    assert (knowledge.best(8_000), knowledge.best(60_000), knowledge.best(1)) == (1, 9, None)
    policy = Learning(knowledge=knowledge)
    loop = Loop(erratic, Elastic(policy=policy)).run(900)
    again = Loop(erratic, Elastic(policy=policy)).run(900)
    assert loop.resizes == again.resizes
    assert loop.resizes
    explored = Loop(erratic, Elastic(policy=replace(policy, explore=0.5, seed=3))).run(300)
    same = Loop(erratic, Elastic(policy=replace(policy, explore=0.5, seed=3))).run(300)
    assert explored.resizes == same.resizes


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
        f"{policy}: median {1e3 * sorted(taken)[12][0]:.1f} ms, longest {1e3 * max(taken)[0]:.1f} ms ({max(taken)[1]})"
    )
    assert any("->" in reason for _, reason in taken), taken
    assert sorted(taken)[12][0] < 0.05
    assert max(taken)[0] < 0.5


def test_figures_of_decisions_are_plain_numbers() -> None:
    """They go to logs: NumPy's are written as other things, or not at all."""
    loop = Loop(lambda at: 20_000 + 500 * at, LATENCY, slots=1).run(90)
    figures = [value for _, decision in loop.decisions for value in decision.figures.values()]
    assert figures
    assert {type(value) for value in figures} == {float}


def test_another_plan_and_another_number_of_shards_start_anew() -> None:
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
