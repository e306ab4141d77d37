"""Grouping from step to step, for a stream whose rows have costs by value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.elastic.grouping.osg import (
    State,
    assign_rows,
    costs_of,
    measure_rows,
)
from anabranch.elastic.grouping.sketches import (
    Osg,
)
from anabranch.elastic.grouping.steps import (
    AUTO,
    HASH,
    OSG,
    ROUND_ROBIN,
    Grouping,
    TaskObservation,
    after_step,
    grouping_is_useless,
    new_grouping,
    partition_scheduler,
    with_slots,
)
from anabranch.errors import TopologyError


class Stream:
    """Rows with values by zipf 1.5, spread by a grouping step by step.

    Each value has a time of its own.
    """

    def __init__(self, wanted: str, slots: int = 8, seed: int = 3) -> None:
        self.rng, self.settings = np.random.default_rng(seed), Osg()
        weights = 1 / np.arange(1, 513) ** 1.5
        self.weights = weights / weights.sum()
        self.ids = self.rng.integers(-(2**62), 2**62, 512)
        self.costs = self.rng.integers(1, 65, 512) * 1e-3
        self.grouping: Grouping = new_grouping(wanted, slots, self.settings)

    def step(self, rows: int = 400, partitions: int = 2) -> float:
        """Runs a step; returns the time of the busiest slot over the mean of all."""
        drawn = self.rng.choice(512, rows, p=self.weights)
        slots = np.empty(rows, dtype=np.int64)
        for partition in range(partitions):
            mine = slice(partition, None, partitions)
            scheduler = partition_scheduler(self.grouping, partition)
            _, given_ = assign_rows(scheduler, self.ids[drawn[mine]], self.settings)
            slots[mine] = (
                given_.slots
                if self.grouping.way != HASH
                else self.ids[drawn[mine]] % self.grouping.slots
            )
        values, seconds = self.ids[drawn], self.costs[drawn]
        seen = {}
        for slot, task in enumerate(self.grouping.tasks):
            mine_ = slots == slot
            task_after, sent = measure_rows(task, values[mine_], seconds[mine_], self.settings)
            estimate = costs_of(self.grouping.scheduler.sketches, values[mine_], self.settings)[
                slot
            ].sum()
            seen[slot] = TaskObservation(
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


def test_grouping_adapts_within_a_few_steps_when_costs_change() -> None:
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
    assert stream.grouping.reason == "0 of 8 slots have reported what rows take"
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
    assert stream.grouping.state is not State.ROUND_ROBIN  # it has estimates, and keeps them
    assert grouping_is_useless(stream.grouping)
    stream.costs = stream.rng.integers(1, 65, 512) * 1e-3
    for _ in range(10):
        stream.step()
    assert stream.grouping.way == OSG
    assert not grouping_is_useless(stream.grouping)


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
        int(assign_rows(partition_scheduler(running, p), stream.ids[:1], Osg())[1].slots[0])
        for p in range(8)
    }
    assert firsts == set(range(8))
    turns = new_grouping(ROUND_ROBIN, 8, Osg())
    assert {
        int(assign_rows(partition_scheduler(turns, p), stream.ids[:1], Osg())[1].slots[0])
        for p in range(8)
    } == firsts


def test_an_unknown_grouping_is_refused() -> None:
    with pytest.raises(
        TopologyError, match="unknown grouping 'random'; valid: auto, round robin, hash, osg"
    ):
        new_grouping("random", 2, Osg())
