"""OSG over a batch of rows: at its end, tasks learn and answer the requests of the scheduler."""

from __future__ import annotations

from anabranch.elastic.grouping.osg import (
    Scheduler,
    Task,
    assign_rows,
    measure_rows,
    receive_answer,
    receive_sketches,
)
from anabranch.elastic.grouping.sketches import Osg, Values
from anabranch.elastic.observation import Floats


def grouped(
    scheduler: Scheduler, tasks: list[Task], values: Values, costs: Floats, settings: Osg
) -> tuple[Scheduler, list[Task], Values]:
    """The scheduler and the tasks after the batch, and the task of each row."""
    scheduler, given = assign_rows(scheduler, values, settings)
    after = list(tasks)
    for slot, task in enumerate(tasks):
        here = given.slots == slot
        after[slot], sent = measure_rows(task, values[here], costs[here], settings)
        for row, epoch, estimated in given.asked:
            if given.slots[row] == slot:
                until = task.seconds + float(costs[: row + 1][here[: row + 1]].sum())
                scheduler = receive_answer(scheduler, slot, epoch, until - estimated)
        if sent is not None:
            scheduler = receive_sketches(scheduler, slot, sent)
    return scheduler, after, given.slots
