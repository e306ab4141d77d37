"""Grouping from step to step: the estimate of one step is used by the next.

Sketches travel with the reports of a step. A step ends when all slots are idle, so nothing of it is
left to do in the next: the cumulated times of the scheduler start at zero in each step. The answers
to its questions come with the reports and show the error of the estimate. Each source partition has
a scheduler, and all of them use the same sketches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from anabranch.elastic.grouping.osg import (
    Scheduler,
    State,
    Task,
    new_scheduler,
    new_task,
    receive_sketches,
)
from anabranch.elastic.grouping.sketches import Osg, Sketches, merge_sketches, variation
from anabranch.errors import TopologyError, unknown
from anabranch.topology.apply import AUTO, GROUPINGS, HASH, OSG, ROUND_ROBIN

__all__ = [
    "AUTO",
    "HASH",
    "OSG",
    "ROUND_ROBIN",
    "Grouping",
    "TaskObservation",
    "after_step",
    "grouping_is_useless",
    "new_grouping",
    "partition_scheduler",
    "with_slots",
]

# The coefficient of variation of a row's time by value from which on "auto" groups by cost.
VARIES = 0.2
VARIES_NO_MORE = 0.1  # below it, grouping by cost ends
# The mean time of a row below which grouping by cost takes more than it saves.
WORTH_S = 50e-6
_ORDER_S = 1e-9  # between empty slots, so that schedulers start with different ones


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskObservation:
    """What a task reports after a step: itself, its newest sketches, and its time."""

    task: Task
    sent: Sketches | None
    rows: int
    seconds: float
    estimated_s: float | None  # None where the step had no estimate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """How the next step groups the rows of an operator, why, and what is known for it."""

    wanted: str  # one of GROUPINGS
    way: str  # one of them but "auto"
    reason: str
    tasks: tuple[Task, ...]
    scheduler: Scheduler
    # Of the last estimate: the largest difference over the mean time of a slot.
    error: float | None = None

    @property
    def slots(self) -> int:
        return len(self.tasks)

    @property
    def state(self) -> State:
        return self.scheduler.state


def new_grouping(wanted: str, slots: int, settings: Osg) -> Grouping:
    """The grouping of the first step."""
    if wanted not in GROUPINGS:
        raise TopologyError(unknown("grouping", wanted, GROUPINGS))
    way = ROUND_ROBIN if wanted in {AUTO, OSG} else wanted
    reason = "as asked for" if wanted == way else "the time of rows is not known yet"
    tasks = tuple(new_task(settings) for _ in range(slots))
    return Grouping(
        wanted=wanted, way=way, reason=reason, tasks=tasks, scheduler=new_scheduler(slots)
    )


def after_step(grouping: Grouping, seen: Mapping[int, TaskObservation]) -> Grouping:
    """The grouping of the next step, from what the tasks of this one report."""
    tasks = tuple(
        seen[slot].task if slot in seen else each for slot, each in enumerate(grouping.tasks)
    )
    scheduler = grouping.scheduler
    if scheduler.state is State.SEND_ALL:  # all were asked, and all reports are answers
        scheduler = replace(scheduler, state=State.RUN, to_ask=0)
    for slot, each in sorted(seen.items()):
        if each.sent is not None:
            scheduler = receive_sketches(scheduler, slot, each.sent)
    scheduler = replace(scheduler, estimated=np.zeros(len(tasks)))
    way, reason = _choice(grouping, scheduler)
    return replace(
        grouping, tasks=tasks, scheduler=scheduler, way=way, reason=reason, error=_error(seen)
    )


def with_slots(grouping: Grouping, slots: int, settings: Osg) -> Grouping:
    """The grouping for another number of slots.

    What is known about rows is kept; new tasks are assumed to be like the others.
    """
    if slots == grouping.slots:
        return grouping
    everything = merge_sketches(each for each in grouping.scheduler.sketches if each is not None)
    known = grouping.state is not State.ROUND_ROBIN
    more = slots - grouping.slots
    sketches = (*grouping.scheduler.sketches, *([everything if known else None] * more))[:slots]
    scheduler = replace(new_scheduler(slots), sketches=sketches, epoch=grouping.scheduler.epoch)
    if known:
        last = sketches[-1]
        assert last is not None, "a scheduler that knows has the sketches of all"
        scheduler = receive_sketches(scheduler, slots - 1, last)
    tasks = (*grouping.tasks, *(new_task(settings) for _ in range(more)))[:slots]
    return replace(grouping, tasks=tasks, scheduler=scheduler)


def partition_scheduler(grouping: Grouping, partition: int) -> Scheduler:
    """The scheduler of one source partition in the next step; each starts with another slot."""
    slots = grouping.slots
    if grouping.way != OSG:
        return new_scheduler(slots, partition)
    order = np.roll(np.arange(slots, dtype=np.float64), partition) * np.float64(_ORDER_S)
    return replace(grouping.scheduler, estimated=order, turn=partition % slots)


def grouping_is_useless(grouping: Grouping) -> bool:
    """True if grouping by cost is known to save nothing; then it is enough to watch the costs."""
    return (
        grouping.wanted == AUTO
        and grouping.way == ROUND_ROBIN
        and grouping.state is not State.ROUND_ROBIN
    )


def _choice(grouping: Grouping, scheduler: Scheduler) -> tuple[str, str]:
    """How rows are grouped, and why.

    As the user asks; by cost only when all tasks have reported theirs, and with "auto" only where
    costs vary.
    """
    if grouping.wanted in {ROUND_ROBIN, HASH}:
        return grouping.way, grouping.reason
    everything = merge_sketches(each for each in scheduler.sketches if each is not None)
    if everything is None or scheduler.state is State.ROUND_ROBIN:
        known = sum(each is not None for each in scheduler.sketches)
        return ROUND_ROBIN, f"{known} of {scheduler.slots} slots have reported what rows take"
    varies, mean = variation(everything), everything.mean_s
    cost = f"a row takes {_spelled(mean)} on average, by value it varies by {varies:.0%} of that"
    if grouping.wanted == OSG:
        return OSG, f"as asked for; {cost}"
    limit = VARIES_NO_MORE if grouping.way == OSG else VARIES
    if mean < WORTH_S:
        return ROUND_ROBIN, f"{cost}; below {_spelled(WORTH_S)} spreading rows by cost does not pay"
    if varies < limit:
        return ROUND_ROBIN, f"{cost}; that is less than {limit:.0%}"
    return OSG, f"{cost}; that is not less than {limit:.0%}"


def _error(seen: Mapping[int, TaskObservation]) -> float | None:
    estimates = [
        (each.seconds, each.estimated_s) for each in seen.values() if each.estimated_s is not None
    ]
    mean = sum(seconds for seconds, _ in estimates) / len(estimates) if estimates else 0.0
    return (
        max(abs(seconds - estimated) for seconds, estimated in estimates) / mean if mean else None
    )


def _spelled(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
