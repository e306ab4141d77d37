"""The tasks of a step: the input of each level and of each stage of applies, as plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from anabranch.plan.ids import PartId
from anabranch.plan.model import Component, Node, Plan
from anabranch.plan.route import snapshots_due
from anabranch.runtime.apply.task import ApplyTask
from anabranch.runtime.reports import ReportKey
from anabranch.runtime.slot import ComponentTask, SlotTask
from anabranch.runtime.tasks import NodeTask, Watermarks
from anabranch.spark.driver.context import RunContext, RunState
from anabranch.spark.outlets import written_rows
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.log import Stored

Missing: TypeAlias = Mapping[PartId, Sequence[int]]  # shards by operator


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTasks:
    """The tasks of one attempt at a step."""

    slots: tuple[SlotTask, ...]  # by level
    applies: tuple[ApplyTask, ...] = ()  # by stage; none where the step has no input

    @property
    def step(self) -> int:
        return self.slots[0].step

    @property
    def marks(self) -> Watermarks:
        return self.slots[0].marks

    def attempt(self, job: int, *, distrust: bool) -> StepTasks:
        """The tasks of one attempt. `distrust`: node-local state is not opened."""
        return StepTasks(
            slots=tuple(replace(each, job=job, distrust=distrust) for each in self.slots),
            applies=tuple(replace(each, job=job) for each in self.applies),
        )

    def restoring(self, missing: Missing, checkpoint: Checkpoint) -> StepTasks:
        """The same tasks, which restore missing shards from the durable log first."""
        slots = tuple(_restoring(each, missing, checkpoint) for each in self.slots)
        return replace(self, slots=slots)

    def expected(self) -> list[ReportKey]:
        """The reports that must come: one per slot of every component and of every apply."""
        found: list[ReportKey] = [
            (component.name, slot)
            for task in self.slots
            for component in task.components
            for slot in range(component.slots)
        ]
        found += [
            (work.calls.operator, slot)
            for task in self.applies
            for work in task.works
            for slot in range(work.grouping.slots)
        ]
        return found


def step_tasks(
    context: RunContext, state: RunState, marks: Watermarks, early: Collection[PartId]
) -> tuple[SlotTask, ...]:
    """The slot tasks of a step, one per level. Without any state, one task with nothing to do."""
    checkpoint, levels = context.checkpoint, max(state.plan.levels, 1)
    return tuple(
        SlotTask(
            components=tuple(
                _component(context, state, each, early) for each in state.plan.at(level)
            ),
            checkpoint=checkpoint.files,
            checkpoint_id=checkpoint.header.id,
            state=context.settings.state,
            step=context.next_step,
            epoch=checkpoint.epoch,
            job=0,
            marks=marks,
            onward=state.levels.onward if level < levels else None,
            faults=context.settings.faults.not_counting(context.replans),
        )
        for level in range(1, levels + 1)
    )


def apply_tasks(context: RunContext, state: RunState) -> tuple[ApplyTask, ...]:
    """The tasks of applies, one per stage."""
    stages, checkpoint = state.levels.stages, context.checkpoint
    found = []
    for stage in stages.stages:
        works = tuple(
            stages.work(each, state.groupings[each.name], written_rows(context.outlets, each.name))
            for each in stage.applies
        )
        found.append(
            ApplyTask(
                works=works,
                checkpoint=checkpoint.files,
                step=context.next_step,
                epoch=checkpoint.epoch,
                job=0,
                schema=stages.schema,
                faults=context.settings.faults.not_counting(context.replans),
            )
        )
    return tuple(found)


def early_results(
    plan: Plan, step: int, written_at: Mapping[PartId, float], now: float
) -> tuple[set[PartId], dict[PartId, float]]:
    """The nodes that write early results in this step, and when each node last wrote any.

    A step that runs again replaces all that it wrote, so it may choose other nodes.
    """
    due, times = set(), dict(written_at)
    for node in plan.nodes:
        early = node.early
        if early is None:
            continue
        if early.steps is not None:
            is_due = step % early.steps == 0
        else:
            last = times.setdefault(node.name, now)
            is_due = early.us is not None and now - last >= early.us / 1e6
            times[node.name] = now if is_due else last
        if is_due:
            due.add(node.name)
    return due, times


def _component(
    context: RunContext, state: RunState, component: Component, early: Collection[PartId]
) -> ComponentTask:
    route = state.routes[component.name]
    return ComponentTask(
        name=component.name,
        route=route.slot_of,
        slots=route.slots,
        nodes=tuple(_node(context, state, node, early) for node in component.nodes),
    )


def _node(context: RunContext, state: RunState, node: Node, early: Collection[PartId]) -> NodeTask:
    plan, checkpoint, lift = state.plan, context.checkpoint, state.levels.lift
    inflow, written = state.levels.inflow(node), written_rows(context.outlets, node.operator)
    siblings = plan.sibling_parts(node)
    return NodeTask(
        number=next(i for i, each in enumerate(plan.nodes) if each.name == node.name),
        operator=node.operator,
        plan=node.plan,
        rows=inflow.rows,
        emits=inflow.emits,
        written=written.results,
        windows=written.windows,
        late=written.late,
        committed=checkpoint.versions(node.name),
        snapshot=frozenset(snapshots_due(_chain_sizes(checkpoint, node), context.shards)),
        others=tuple(each.plan for each in siblings if each.name != node.name),
        first=siblings[0].name == node.name,
        early=node.name in early,
        seen=lift.seen_in(node) if node in lift.nodes else None,
    )


def _chain_sizes(checkpoint: Checkpoint, node: Node) -> dict[int, list[tuple[int, int | None]]]:
    """The bytes of each delta and snapshot, by shard; empty if the node needs no snapshots."""
    if not node.plan.needs_snapshots:
        return {}
    return {
        shard: [(each.delta[1], each.snapshot[1] if each.snapshot else None) for each in chain]
        for shard, chain in checkpoint.chains.get(node.name, {}).items()
    }


def _restoring(task: SlotTask, missing: Missing, checkpoint: Checkpoint) -> SlotTask:
    def restored(node: NodeTask) -> NodeTask:
        name = node.plan.part
        chains = checkpoint.chains.get(name, {})
        lost: dict[int, list[Stored]] = {
            shard: chains.get(shard, []) for shard in missing.get(name, ())
        }
        return replace(node, restore=lost)

    components = tuple(
        replace(each, nodes=tuple(restored(node) for node in each.nodes))
        for each in task.components
    )
    return replace(task, components=components)
