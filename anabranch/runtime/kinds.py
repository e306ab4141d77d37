"""The registry of works: the code of a slot task for an operator, by the kind of its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.plan.ids import PartId
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.operators.process import ProcessPlan
from anabranch.plan.operators.sessions import SessionPlan
from anabranch.plan.operators.windows import WindowsPlan
from anabranch.runtime.joins import JoinWork
from anabranch.runtime.operator import ShardWork, WorkPlace
from anabranch.runtime.process.task import ProcessWork
from anabranch.runtime.tasks import NodeTask
from anabranch.runtime.windows import WindowsWork

WORKS: Mapping[str, type[ShardWork[Any, Any]]] = {
    WindowsPlan.kind: WindowsWork,
    SessionPlan.kind: WindowsWork,
    JoinSide.kind: JoinWork,
    ProcessPlan.kind: ProcessWork,
}


def works_of(tasks: Sequence[NodeTask], place: WorkPlace) -> dict[PartId, ShardWork[Any, Any]]:
    """The works of a slot: one for each operator, or part of an operator, that holds state."""
    return {
        each.plan.part: WORKS[each.plan.kind].of(each, tasks, place)
        for each in tasks
        if each.plan.holds_state
    }
