"""Online shuffle grouping: the slot of each row, by what its value costs (OSG, DABS-Storm 5).

A task measures its rows into sketches and sends these to the scheduler whenever they are stable.
The scheduler estimates from them what a row will take, and gives it to the task with the least
estimated cumulated time. That is within 2 - 1/k of the best possible. Everything here is a function
of values: the live step and the simulator call the same ones, one row or a batch of rows at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from anabranch.elastic.grouping.sketches import (
    Osg,
    Sketches,
    Values,
    add_to_cells,
    cells_of,
    empty_sketches,
    merge_sketches,
    relative_change,
    times_of,
)
from anabranch.elastic.observation import Floats


class State(StrEnum):
    """What the scheduler does (Fig. 7a)."""

    ROUND_ROBIN = "round robin"  # it does not know yet what rows take
    SEND_ALL = "send all"  # the next row of each task asks how much time it has really taken
    WAIT_ALL = "wait all"  # it knows, and waits for the answers
    RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """One task as it measures itself (Fig. 7b).

    Without a snapshot it is in START, with one it is STABILIZING.
    """

    sketches: Sketches
    snapshot: Floats | None = None
    since: int = 0  # rows since the last look
    seconds: float = 0.0  # C: the time of all its rows
    rows: int = 0


def new_task(settings: Osg) -> Task:
    """A task that has seen nothing."""
    return Task(sketches=empty_sketches(settings))


def measure_rows(
    task: Task, values: Values, seconds: Floats, settings: Osg
) -> tuple[Task, Sketches | None]:
    """A task after some more rows, and the newest sketches that it sends to the scheduler, if any.

    After each `window` rows it looks: the first look takes a snapshot, a later one sends the
    sketches and starts again if they have changed by no more than mu, and takes another snapshot
    otherwise.
    """
    sent: Sketches | None = None
    at, cells = 0, cells_of(values, settings)
    while at < len(values):
        upto = min(len(values), at + settings.window - task.since)
        more = slice(at, upto)
        task = replace(
            task,
            sketches=add_to_cells(task.sketches, cells[:, more], seconds[more]),
            since=task.since + upto - at,
            seconds=task.seconds + float(seconds[more].sum()),
            rows=task.rows + upto - at,
        )
        at = upto
        if task.since == settings.window:
            if (
                task.snapshot is not None
                and relative_change(task.snapshot, task.sketches) <= settings.mu
            ):
                sent = task.sketches
                task = replace(task, sketches=empty_sketches(settings), snapshot=None, since=0)
            else:
                task = replace(task, snapshot=task.sketches.ratios(), since=0)
    return task, sent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scheduler:
    """What a scheduler knows: the sketches of each task, and the time it has given to each."""

    sketches: tuple[Sketches | None, ...]
    estimated: Floats  # C hat, by slot
    state: State = State.ROUND_ROBIN
    turn: int = 0  # the slot that round robin gives the next row to
    to_ask: int = 0  # in SEND ALL: tasks that are still to be asked
    epoch: int = 0  # counts rounds of questions: answers to an earlier one are ignored
    answers: tuple[float | None, ...] = ()

    @property
    def slots(self) -> int:
        return len(self.sketches)


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """The slot of each row, and which rows carry a question to their task."""

    slots: npt.NDArray[np.int64]
    asked: tuple[
        tuple[int, int, float], ...
    ] = ()  # row, epoch, estimated cumulated time of its slot, the row included


def new_scheduler(slots: int, first: int = 0) -> Scheduler:
    """A scheduler without sketches.

    `first` is the slot of its first row; several schedulers start with different ones.
    """
    return Scheduler(sketches=(None,) * slots, estimated=np.zeros(slots), turn=first % slots)


def receive_sketches(scheduler: Scheduler, slot: int, sketches: Sketches) -> Scheduler:
    """The scheduler with new sketches of a task.

    When it has those of all tasks, it asks them all for their time, and again with each change.
    """
    known = tuple(sketches if i == slot else each for i, each in enumerate(scheduler.sketches))
    scheduler = replace(scheduler, sketches=known)
    if any(each is None for each in known):
        return scheduler
    slots = scheduler.slots
    return replace(
        scheduler,
        state=State.SEND_ALL,
        to_ask=slots,
        turn=0,
        epoch=scheduler.epoch + 1,
        answers=(None,) * slots,
    )


def receive_answer(scheduler: Scheduler, slot: int, epoch: int, difference: float) -> Scheduler:
    """The scheduler after an answer.

    `difference` is by how much the time of a task is above the estimate of the question.

    With the last answer the estimates are corrected.
    """
    if epoch != scheduler.epoch or scheduler.state in {State.ROUND_ROBIN, State.RUN}:
        return scheduler
    answers = tuple(difference if i == slot else each for i, each in enumerate(scheduler.answers))
    scheduler = replace(scheduler, answers=answers)
    if scheduler.state is State.SEND_ALL or any(each is None for each in answers):
        return scheduler
    return replace(
        scheduler,
        estimated=scheduler.estimated + np.array(answers, dtype=np.float64),
        state=State.RUN,
    )


def assign_rows(scheduler: Scheduler, values: Values, settings: Osg) -> tuple[Scheduler, Assigned]:
    """The slots of rows, in the order in which they come, and the scheduler after them."""
    slots = scheduler.slots
    if scheduler.state is State.ROUND_ROBIN:
        turns = (scheduler.turn + np.arange(len(values))) % slots
        return replace(scheduler, turn=int((scheduler.turn + len(values)) % slots)), Assigned(turns)
    known, kinds = np.unique(values, return_inverse=True)
    costs = costs_of(scheduler.sketches, known, settings)
    asking = min(scheduler.to_ask, len(values)) if scheduler.state is State.SEND_ALL else 0
    chosen = np.empty(len(values), dtype=np.int64)
    estimated = scheduler.estimated.copy()
    asked = []
    for row in range(asking):
        slot = (scheduler.turn + row) % slots
        chosen[row] = slot
        estimated[slot] += costs[slot, kinds[row]]
        asked.append((row, scheduler.epoch, float(estimated[slot])))
    chosen[asking:], estimated = greedy(costs, estimated, kinds[asking:])
    scheduler = replace(scheduler, estimated=estimated, turn=int((scheduler.turn + asking) % slots))
    if scheduler.state is State.SEND_ALL:
        left = scheduler.to_ask - asking
        scheduler = replace(
            scheduler, to_ask=left, state=State.SEND_ALL if left else State.WAIT_ALL
        )
    return scheduler, Assigned(chosen, tuple(asked))


def greedy(
    costs: Floats, estimated: Floats, kinds: npt.NDArray[np.int64] | None = None
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Each row to the slot with the least time so far: the slots, and their times after it.

    `costs` has a row for each slot and a column for each row; with `kinds`, a column for each kind
    of row, and a number for each row that says of which kind it is. Of slots with equal times the
    first one is taken.
    """
    rows = range(costs.shape[1]) if kinds is None else kinds.tolist()
    heap = [(time, slot) for slot, time in enumerate(estimated.tolist())]
    heapq.heapify(heap)
    by_slot = costs.tolist()
    chosen = []
    for kind in rows:
        time, slot = heap[0]
        chosen.append(slot)
        heapq.heapreplace(heap, (time + by_slot[slot][kind], slot))
    after = np.empty(len(heap))
    for time, slot in heap:
        after[slot] = time
    return np.array(chosen, dtype=np.int64), after


def costs_of(sketches: Sequence[Sketches | None], values: Values, settings: Osg) -> Floats:
    """The seconds of a row of each value (column) on each slot (row).

    A value that the sketches of a task have not seen is taken from those of all tasks together, and
    one that none has seen is taken to be an average row.
    """
    everything = merge_sketches(each for each in sketches if each is not None)
    if everything is None:
        return np.zeros((len(sketches), len(values)))
    common = times_of(everything, values, settings)
    common = np.where(np.isnan(common), everything.mean_s, common)
    lines = [common if each is None else times_of(each, values, settings) for each in sketches]
    return np.array([np.where(np.isnan(line), common, line) for line in lines])
