"""OSG over a batch of rows: when the batch is over tasks learn, and answer what they were asked in
it.
"""

from __future__ import annotations

from anabranch.elastic.grouping.osg import Scheduler, Task, answered, assigned, executed, received
from anabranch.elastic.grouping.sketches import Osg, Values
from anabranch.elastic.observation import Floats


def grouped(
    scheduler: Scheduler, tasks: list[Task], values: Values, costs: Floats, settings: Osg
) -> tuple[Scheduler, list[Task], Values]:
    """The scheduler and the tasks after the batch, and the task of each row."""
    scheduler, given = assigned(scheduler, values, settings)
    after = list(tasks)
    for slot, task in enumerate(tasks):
        here = given.slots == slot
        after[slot], sent = executed(task, values[here], costs[here], settings)
        for row, epoch, estimated in given.asked:
            if given.slots[row] == slot:
                until = task.seconds + float(costs[: row + 1][here[: row + 1]].sum())
                scheduler = answered(scheduler, slot, epoch, until - estimated)
        if sent is not None:
            scheduler = received(scheduler, slot, sent)
    return scheduler, after, given.slots
