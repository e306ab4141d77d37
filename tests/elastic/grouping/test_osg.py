"""Online shuffle grouping (DABS-Storm 5): sketches, the task's and the scheduler's states, the greedy bound, adaptation."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.elastic.grouping.osg import (
    State,
    answered,
    assigned,
    costs_of,
    executed,
    greedy,
    new_scheduler,
    new_task,
    received,
)
from anabranch.elastic.grouping.sketches import (
    Osg,
    added,
    cells_of,
    change,
    frequency,
    merged,
    nothing_seen,
    times_of,
    variation,
)
from anabranch.elastic.grouping.steps import (
    AUTO,
    HASH,
    OSG,
    ROUND_ROBIN,
    Grouping,
    TaskSeen,
    after_step,
    new_grouping,
    partition_scheduler,
    pays_not,
    with_slots,
)
from anabranch.errors import TopologyError

SMALL = Osg(epsilon=0.05, delta=0.05, window=8, mu=0.2)
values_64 = st.integers(-(2**63), 2**63 - 1)


def array(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_the_shape_of_a_sketch_follows_epsilon_and_delta() -> None:
    assert Osg().shape == (3, 54)  # Table 2: both 0.05
    assert Osg(epsilon=0.7, delta=0.25).shape == (2, 4)  # Fig. 6


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"delta": 1.5}, "delta=1.5"),
        ({"window": 0}, "window=0"),
        ({"mu": -1.0}, "mu=-1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        Osg(**wrong)  # type: ignore[arg-type]


def test_hash_functions_are_near_two_universal_and_differ_by_row_and_seed() -> None:
    near = np.arange(4000)  # neighbours, the worst case for a weak hash
    for seed in range(5):
        cells = cells_of(near, Osg(seed=seed))
        assert cells.shape == (3, 4000)
        assert cells.min() >= 0
        assert cells.max() < 54
        for row in cells:
            counts = np.bincount(row, minlength=54)
            collisions = (counts * (counts - 1)).sum() / (4000 * 3999)
            assert collisions < 1.1 / 54
        assert (cells[0] != cells[1]).mean() > 0.9
    assert (cells_of(near, Osg(seed=1)) != cells_of(near, Osg(seed=2))).mean() > 0.9


@given(st.lists(st.tuples(values_64, st.floats(0, 1e3)), min_size=1, max_size=200))
def test_a_sketch_never_counts_less_than_there_was_and_pieces_merge_to_the_whole(
    rows: list[tuple[int, float]],
) -> None:
    values, seconds = array([v for v, _ in rows]), np.array([s for _, s in rows])
    half = len(rows) // 2
    whole = added(nothing_seen(SMALL), values, seconds, SMALL)
    parts = [
        added(nothing_seen(SMALL), values[cut], seconds[cut], SMALL)
        for cut in (slice(half), slice(half, None))
    ]
    both = merged(parts)
    assert both is not None
    np.testing.assert_allclose(both.frequencies, whole.frequencies)
    np.testing.assert_allclose(both.times, whole.times, atol=1e-6)
    for value, count in Counter(values.tolist()).items():
        assert frequency(whole, array([value]), SMALL)[0] >= count
    assert whole.rows == len(rows)
    assert whole.seconds == pytest.approx(seconds.sum())
    estimates = times_of(whole, values, SMALL)
    assert (estimates >= seconds.min() - 1e-9).all()
    assert (estimates <= seconds.max() + 1e-9).all()


def test_the_error_of_counts_is_within_epsilon_but_for_delta() -> None:
    rng = np.random.default_rng(5)
    misses = []
    for seed in range(20):
        values = array(rng.zipf(1.5, 5000).clip(max=10**12))
        sketch = added(nothing_seen(Osg(seed=seed)), values, np.ones(5000), Osg(seed=seed))
        known, counts = np.unique(values, return_counts=True)
        off = frequency(sketch, known, Osg(seed=seed)) - counts
        misses.append((off >= 0.05 * (5000 - counts)).mean())
    assert np.mean(misses) <= 0.05


def test_the_time_of_a_value_without_collisions_is_its_mean_and_one_never_seen_is_unknown() -> None:
    sketch = added(nothing_seen(SMALL), array([7, 7, 9]), np.array([1.0, 3.0, 10.0]), SMALL)
    np.testing.assert_allclose(times_of(sketch, array([7, 9]), SMALL), [2.0, 10.0])
    unseen = next(
        v
        for v in range(10**6)
        if not sketch.frequencies[np.arange(3), cells_of(array([v]), SMALL)[:, 0]].any()
    )
    assert np.isnan(times_of(sketch, array([unseen]), SMALL)[0])
    costs = costs_of([sketch, None], array([7, 9, unseen]), SMALL)
    np.testing.assert_allclose(costs, [[2.0, 10.0, 14 / 3]] * 2)


def test_equation_14_by_hand() -> None:
    settings = Osg(epsilon=0.9, delta=0.5)  # 1 x 3
    first = added(nothing_seen(settings), array([1]), np.array([4.0]), settings)
    assert change(first.ratios(), first) == 0.0
    later = added(
        first, array([1]), np.array([2.0]), settings
    )  # 4 -> 3 in the only cell that is used
    assert change(first.ratios(), later) == pytest.approx(0.25)
    assert change(nothing_seen(settings).ratios(), later) == np.inf


def test_a_task_takes_a_snapshot_then_sends_when_stable_and_begins_anew() -> None:
    task = new_task(SMALL)
    steady = array([1, 2] * 4), np.array([1.0, 2.0] * 4)
    task, sent = executed(task, steady[0][:5], steady[1][:5], SMALL)
    assert (task.snapshot, sent, task.since) == (None, None, 5)
    task, sent = executed(task, steady[0][5:], steady[1][5:], SMALL)
    assert sent is None
    assert task.snapshot is not None
    task, sent = executed(task, *steady, SMALL)
    assert sent is not None
    assert sent.rows == 16
    assert (task.snapshot, task.sketches.rows, task.rows, task.seconds) == (None, 0, 16, 24.0)
    task, _ = executed(task, *steady, SMALL)
    task, sent = executed(task, steady[0], steady[1] * 3, SMALL)  # twice the mean: not stable
    assert sent is None
    task, sent = executed(task, steady[0], steady[1] * 2, SMALL)
    assert sent is not None
    assert sent.rows == 24


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.1, 5)), max_size=60), st.data())
def test_a_task_is_the_same_however_its_rows_are_cut(
    rows: list[tuple[int, float]], data: st.DataObject
) -> None:
    values, seconds = array([v for v, _ in rows]), np.array([s for _, s in rows])
    whole, sent_whole = executed(new_task(SMALL), values, seconds, SMALL)
    task, sent = new_task(SMALL), None
    at = 0
    while at < len(rows):
        upto = data.draw(st.integers(at + 1, len(rows)))
        task, found = executed(task, values[at:upto], seconds[at:upto], SMALL)
        sent, at = found or sent, upto
    np.testing.assert_allclose(task.sketches.times, whole.sketches.times, atol=1e-9)
    assert (task.since, task.rows, task.snapshot is None) == (
        whole.since,
        whole.rows,
        whole.snapshot is None,
    )
    assert (sent is None) == (sent_whole is None)
    if sent is not None and sent_whole is not None:
        np.testing.assert_allclose(sent.times, sent_whole.times, atol=1e-9)


def test_the_scheduler_goes_through_its_states() -> None:
    costs = added(nothing_seen(SMALL), array([1, 2]), np.array([5.0, 1.0]), SMALL)
    scheduler = new_scheduler(2)
    scheduler, given_ = assigned(scheduler, array([1, 1, 1]), SMALL)
    assert given_.slots.tolist() == [0, 1, 0]
    scheduler = received(scheduler, 0, costs)
    assert scheduler.state is State.ROUND_ROBIN
    scheduler, given_ = assigned(scheduler, array([1]), SMALL)
    assert given_.slots.tolist() == [1]
    scheduler = received(scheduler, 1, costs)
    assert scheduler.state is State.SEND_ALL
    scheduler, given_ = assigned(scheduler, array([1]), SMALL)
    assert (scheduler.state, given_.slots.tolist(), given_.asked) == (
        State.SEND_ALL,
        [0],
        ((0, 1, 5.0),),
    )
    scheduler, given_ = assigned(
        scheduler, array([2, 2, 2]), SMALL
    )  # one is asked, two go to the least loaded
    assert (scheduler.state, given_.slots.tolist(), given_.asked) == (
        State.WAIT_ALL,
        [1, 1, 1],
        ((0, 1, 1.0),),
    )
    scheduler = answered(scheduler, 0, 1, -4.5)
    assert scheduler.state is State.WAIT_ALL
    assert answered(scheduler, 1, 0, 0.0) is scheduler  # of an earlier epoch
    scheduler = answered(scheduler, 1, 1, 0.25)
    assert scheduler.state is State.RUN
    np.testing.assert_allclose(scheduler.estimated, [0.5, 3.25])
    scheduler, given_ = assigned(scheduler, array([1, 2]), SMALL)
    assert given_.slots.tolist() == [0, 1]
    scheduler = received(scheduler, 0, costs)
    assert (scheduler.state, scheduler.epoch) == (State.SEND_ALL, 2)


@given(st.lists(st.integers(0, 9), max_size=80), st.integers(1, 5), st.data())
def test_assigning_row_by_row_is_assigning_all_at_once(
    rows: list[int], slots: int, data: st.DataObject
) -> None:
    seen = added(
        nothing_seen(SMALL), array([0, 1, 2, 3, 4]), np.array([1.0, 2.0, 4.0, 8.0, 16.0]), SMALL
    )
    scheduler = new_scheduler(slots)
    for slot in range(slots):
        scheduler = received(scheduler, slot, seen)
    whole_after, whole = assigned(scheduler, array(rows), SMALL)
    chosen, at, asked = [], 0, []
    while at < len(rows):
        upto = data.draw(st.integers(at + 1, len(rows)))
        scheduler, part = assigned(scheduler, array(rows[at:upto]), SMALL)
        asked += [(row + at, epoch, time) for row, epoch, time in part.asked]
        chosen += part.slots.tolist()
        at = upto
    assert chosen == whole.slots.tolist()
    assert tuple(asked) == whole.asked
    assert scheduler.state is whole_after.state
    np.testing.assert_allclose(scheduler.estimated, whole_after.estimated)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 4))
def test_greedy_is_within_its_bound_of_the_best_makespan(costs: list[int], slots: int) -> None:
    """osg-bound: at most 2 - 1/k times the optimum, which is found by trying everything."""
    chosen, loads = greedy(np.tile(np.array(costs, dtype=float), (slots, 1)), np.zeros(slots))
    best = min(
        max(sum(c for c, s in zip(costs, way, strict=True) if s == slot) for slot in range(slots))
        for way in itertools.product(range(slots), repeat=len(costs))
    )
    assert loads.max() <= (2 - 1 / slots) * best + 1e-9
    np.testing.assert_allclose(np.bincount(chosen, weights=costs, minlength=slots), loads)


def test_the_bound_is_tight() -> None:
    slots = 4
    rows = [1.0] * (slots * (slots - 1)) + [float(slots)]
    _, loads = greedy(np.tile(rows, (slots, 1)), np.zeros(slots))
    assert loads.max() == (2 - 1 / slots) * slots  # the optimum is `slots`


class Stream:
    """Rows of values by zipf 1.5, each value with a time of its own, spread by a grouping step by step."""

    def __init__(self, wanted: str, slots: int = 8, seed: int = 3) -> None:
        self.rng, self.settings = np.random.default_rng(seed), Osg()
        weights = 1 / np.arange(1, 513) ** 1.5
        self.weights = weights / weights.sum()
        self.ids = self.rng.integers(-(2**62), 2**62, 512)
        self.costs = self.rng.integers(1, 65, 512) * 1e-3
        self.grouping: Grouping = new_grouping(wanted, slots, self.settings)

    def step(self, rows: int = 400, partitions: int = 2) -> float:
        """Runs a step; the time of the busiest slot over the mean of all."""
        drawn = self.rng.choice(512, rows, p=self.weights)
        slots = np.empty(rows, dtype=np.int64)
        for partition in range(partitions):
            mine = slice(partition, None, partitions)
            scheduler = partition_scheduler(self.grouping, partition)
            _, given_ = assigned(scheduler, self.ids[drawn[mine]], self.settings)
            slots[mine] = (
                given_.slots
                if self.grouping.way != HASH
                else self.ids[drawn[mine]] % self.grouping.slots
            )
        values, seconds = self.ids[drawn], self.costs[drawn]
        seen = {}
        for slot, task in enumerate(self.grouping.tasks):
            mine_ = slots == slot
            task_after, sent = executed(task, values[mine_], seconds[mine_], self.settings)
            estimate = costs_of(self.grouping.scheduler.sketches, values[mine_], self.settings)[
                slot
            ].sum()
            seen[slot] = TaskSeen(
                task=task_after,
                sent=sent,
                rows=int(mine_.sum()),
                seconds=float(seconds[mine_].sum()),
                estimated_s=float(estimate) if self.grouping.way == OSG else None,
            )
        self.grouping = after_step(self.grouping, seen)
        loads = np.bincount(slots, weights=seconds, minlength=len(seen))
        return float(loads.max() / loads.mean())


def test_by_cost_is_better_than_by_turns_is_better_than_by_hash() -> None:
    """osg-rr: with value-dependent costs the busiest slot has less to do."""
    mean = {}
    for wanted in (OSG, ROUND_ROBIN, HASH):
        stream = Stream(wanted)
        mean[wanted] = np.mean([stream.step() for _ in range(40)][10:])
    assert mean[OSG] < 1.08 < mean[ROUND_ROBIN] < 1.2 < mean[HASH]


def test_it_adapts_within_a_few_steps_when_costs_change() -> None:
    stream = Stream(OSG)
    before = np.mean([stream.step() for _ in range(20)][10:])
    stream.costs = stream.rng.permutation(stream.costs)
    changed = [stream.step() for _ in range(20)]
    assert max(changed[:3]) > 1.15
    assert np.mean(changed[8:]) < 1.1
    assert np.mean(changed[8:]) == pytest.approx(before, abs=0.05)


def test_auto_begins_by_turns_and_goes_by_cost_where_it_varies() -> None:
    stream = Stream(AUTO)
    assert (stream.grouping.way, stream.grouping.reason) == (
        ROUND_ROBIN,
        "the time of rows is not known yet",
    )
    stream.step(rows=80)
    assert stream.grouping.reason == "0 of 8 slots have told what rows take"
    for _ in range(10):
        stream.step()
    assert stream.grouping.way == OSG
    assert "varies by" in stream.grouping.reason
    assert stream.grouping.error is not None
    assert stream.grouping.error < 0.5


@pytest.mark.parametrize(("cost", "why"), [(3e-3, "less than 20%"), (2e-6, "does not pay")])
def test_auto_stays_by_turns_where_all_values_cost_the_same_or_next_to_nothing(
    cost: float, why: str
) -> None:
    stream = Stream(AUTO)
    stream.costs = np.full(512, cost) if cost > 1e-3 else stream.costs * cost
    for _ in range(10):
        stream.step()
    assert stream.grouping.way == ROUND_ROBIN
    assert why in stream.grouping.reason
    assert stream.grouping.state is not State.ROUND_ROBIN  # it knows, and stays
    assert pays_not(stream.grouping)
    stream.costs = stream.rng.integers(1, 65, 512) * 1e-3
    for _ in range(10):
        stream.step()
    assert stream.grouping.way == OSG
    assert not pays_not(stream.grouping)


def test_another_number_of_slots_keeps_what_is_known() -> None:
    stream = Stream(OSG)
    for _ in range(10):
        stream.step()
    for slots in (12, 5, 8):
        stream.grouping = with_slots(stream.grouping, slots, stream.settings)
        assert (stream.grouping.slots, stream.grouping.state) == (slots, State.SEND_ALL)
        assert stream.step() < 1.3
        assert np.mean([stream.step() for _ in range(5)]) < 1.12
    fresh = with_slots(new_grouping(OSG, 2, Osg()), 3, Osg())
    assert (fresh.slots, fresh.state) == (3, State.ROUND_ROBIN)


def test_schedulers_of_several_partitions_begin_with_different_slots() -> None:
    stream = Stream(OSG)
    for _ in range(10):
        stream.step()
    running = replace(
        stream.grouping, scheduler=replace(stream.grouping.scheduler, state=State.RUN)
    )
    firsts = {
        int(assigned(partition_scheduler(running, p), stream.ids[:1], Osg())[1].slots[0])
        for p in range(8)
    }
    assert firsts == set(range(8))
    turns = new_grouping(ROUND_ROBIN, 8, Osg())
    assert {
        int(assigned(partition_scheduler(turns, p), stream.ids[:1], Osg())[1].slots[0])
        for p in range(8)
    } == firsts


def test_variation_is_none_for_equal_costs_and_large_for_unlike_ones() -> None:
    values = np.arange(40)
    assert variation(added(nothing_seen(SMALL), values, np.full(40, 0.5), SMALL)) == pytest.approx(
        0.0, abs=1e-9
    )
    unlike = np.where(values % 2, 1.0, 0.0)
    assert 0.3 < variation(added(nothing_seen(SMALL), values, unlike, SMALL)) <= 1.0
    assert variation(nothing_seen(SMALL)) == 0.0


def test_an_unknown_grouping_is_refused() -> None:
    with pytest.raises(
        TopologyError, match="unknown grouping 'random'; valid: auto, round robin, hash, osg"
    ):
        new_grouping("random", 2, Osg())
