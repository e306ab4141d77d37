"""Online shuffle grouping (DABS-Storm 5).

Sketches, the task's and the scheduler's states, the greedy bound, adaptation.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.elastic.grouping.osg import (
    State,
    assign_rows,
    greedy,
    measure_rows,
    new_scheduler,
    new_task,
    receive_answer,
    receive_sketches,
)
from anabranch.elastic.grouping.sketches import (
    Osg,
    add_rows,
    empty_sketches,
)

SMALL = Osg(epsilon=0.05, delta=0.05, window=8, mu=0.2)


def array(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_a_task_takes_a_snapshot_then_sends_when_stable_and_begins_again() -> None:
    task = new_task(SMALL)
    steady = array([1, 2] * 4), np.array([1.0, 2.0] * 4)
    task, sent = measure_rows(task, steady[0][:5], steady[1][:5], SMALL)
    assert (task.snapshot, sent, task.since) == (None, None, 5)
    task, sent = measure_rows(task, steady[0][5:], steady[1][5:], SMALL)
    assert sent is None
    assert task.snapshot is not None
    task, sent = measure_rows(task, *steady, SMALL)
    assert sent is not None
    assert sent.rows == 16
    assert (task.snapshot, task.sketches.rows, task.rows, task.seconds) == (None, 0, 16, 24.0)
    task, _ = measure_rows(task, *steady, SMALL)
    task, sent = measure_rows(task, steady[0], steady[1] * 3, SMALL)  # twice the mean: not stable
    assert sent is None
    task, sent = measure_rows(task, steady[0], steady[1] * 2, SMALL)
    assert sent is not None
    assert sent.rows == 24


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.1, 5)), max_size=60), st.data())
def test_a_task_is_the_same_however_its_rows_are_cut(
    rows: list[tuple[int, float]], data: st.DataObject
) -> None:
    values, seconds = array([v for v, _ in rows]), np.array([s for _, s in rows])
    whole, sent_whole = measure_rows(new_task(SMALL), values, seconds, SMALL)
    task, sent = new_task(SMALL), None
    at = 0
    while at < len(rows):
        upto = data.draw(st.integers(at + 1, len(rows)))
        task, found = measure_rows(task, values[at:upto], seconds[at:upto], SMALL)
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
    costs = add_rows(empty_sketches(SMALL), array([1, 2]), np.array([5.0, 1.0]), SMALL)
    scheduler = new_scheduler(2)
    scheduler, given_ = assign_rows(scheduler, array([1, 1, 1]), SMALL)
    assert given_.slots.tolist() == [0, 1, 0]
    scheduler = receive_sketches(scheduler, 0, costs)
    assert scheduler.state is State.ROUND_ROBIN
    scheduler, given_ = assign_rows(scheduler, array([1]), SMALL)
    assert given_.slots.tolist() == [1]
    scheduler = receive_sketches(scheduler, 1, costs)
    assert scheduler.state is State.SEND_ALL
    scheduler, given_ = assign_rows(scheduler, array([1]), SMALL)
    assert (scheduler.state, given_.slots.tolist(), given_.asked) == (
        State.SEND_ALL,
        [0],
        ((0, 1, 5.0),),
    )
    scheduler, given_ = assign_rows(
        scheduler, array([2, 2, 2]), SMALL
    )  # one goes to the task that is asked, two to the least loaded
    assert (scheduler.state, given_.slots.tolist(), given_.asked) == (
        State.WAIT_ALL,
        [1, 1, 1],
        ((0, 1, 1.0),),
    )
    scheduler = receive_answer(scheduler, 0, 1, -4.5)
    assert scheduler.state is State.WAIT_ALL
    assert receive_answer(scheduler, 1, 0, 0.0) is scheduler  # of an earlier epoch
    scheduler = receive_answer(scheduler, 1, 1, 0.25)
    assert scheduler.state is State.RUN
    np.testing.assert_allclose(scheduler.estimated, [0.5, 3.25])
    scheduler, given_ = assign_rows(scheduler, array([1, 2]), SMALL)
    assert given_.slots.tolist() == [0, 1]
    scheduler = receive_sketches(scheduler, 0, costs)
    assert (scheduler.state, scheduler.epoch) == (State.SEND_ALL, 2)


@given(st.lists(st.integers(0, 9), max_size=80), st.integers(1, 5), st.data())
def test_assigning_row_by_row_is_assigning_all_at_once(
    rows: list[int], slots: int, data: st.DataObject
) -> None:
    seen = add_rows(
        empty_sketches(SMALL), array([0, 1, 2, 3, 4]), np.array([1.0, 2.0, 4.0, 8.0, 16.0]), SMALL
    )
    scheduler = new_scheduler(slots)
    for slot in range(slots):
        scheduler = receive_sketches(scheduler, slot, seen)
    whole_after, whole = assign_rows(scheduler, array(rows), SMALL)
    chosen, at, asked = [], 0, []
    while at < len(rows):
        upto = data.draw(st.integers(at + 1, len(rows)))
        scheduler, part = assign_rows(scheduler, array(rows[at:upto]), SMALL)
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


def test_the_bound_of_the_greedy_assignment_is_tight() -> None:
    slots = 4
    rows = [1.0] * (slots * (slots - 1)) + [float(slots)]
    _, loads = greedy(np.tile(rows, (slots, 1)), np.zeros(slots))
    assert loads.max() == (2 - 1 / slots) * slots  # the optimum is `slots`
