"""What is learned from a step: how to lift, how applies group rows, and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.elastic.grouping.steps import Grouping, after_step
from anabranch.plan.lifting import AUTO, LiftCounts, Lifting
from anabranch.plan.model import Node, Plan
from anabranch.plan.operators.base import Travel
from anabranch.runtime.reports import StepReports
from anabranch.spark.driver.context import Notice, RunContext, RunState
from anabranch.state.checkpoint.statistics import Statistics


def learned(
    context: RunContext, state: RunState, reports: StepReports
) -> tuple[RunState, list[Notice]]:
    """The state of a run after a step with input, and the notices. Updates the statistics."""
    lifting = next_lifting(state.lifting, state.levels.lift.nodes, reports)
    notices = []
    if context.settings.lift == AUTO and lifting.way != state.lifting.way:
        notices.append(Notice("lift", f"{lifting.way}: {lifting.reason}"))
    groupings = next_groupings(state.groupings, reports)
    for name, after in groupings.items():
        if after.way != state.groupings[name].way:
            text = f"apply {name!r} groups rows by {after.way}: {after.reason}"
            notices.append(Notice("grouping", text))
    statistics = context.statistics
    statistics.groupings = {name: f"{g.way}: {g.reason}" for name, g in groupings.items()}
    measure(statistics, state.plan, reports, context.shards)
    return replace(state, lifting=lifting, groupings=groupings), notices


def next_lifting(lifting: Lifting, nodes: tuple[Node, ...], reports: StepReports) -> Lifting:
    """Whether the next step lifts first or routes first, by what this step has measured."""
    lifted = {node.name for node in nodes if node.plan.travel is not Travel.ROW_BY_ROW}
    mine = [each for name, each in reports.nodes() if name in lifted]
    rows = sum(shard.rows_in for each in mine for shard in each.shards.values())
    arrived, distinct = sum(each.arrived for each in mine), sum(each.distinct for each in mine)
    return lifting.next(LiftCounts(rows, arrived, distinct))


def next_groupings(groupings: Mapping[str, Grouping], reports: StepReports) -> dict[str, Grouping]:
    """How each apply groups its rows in the next step."""
    found = {}
    for name, grouping in groupings.items():
        seen = {each.slot: each.seen for each in reports.of_apply(name)}
        found[name] = after_step(grouping, seen) if seen else grouping
    return found


def measure(statistics: Statistics, plan: Plan, reports: StepReports, shards: int) -> None:
    """Adds what planners use to the statistics: each operator's rows by shard, and its state."""
    for node in plan.nodes:
        if not plan.is_first_part(node) or not node.plan.holds_state:
            continue
        mine = [each.shards for name, each in reports.nodes() if name == node.name]
        loads = {shard: one.rows_in for each in mine for shard, one in each.items()}
        statistics.add(
            node.operator,
            tuple(each.name for each in plan.component_of(node.name).attributes),
            [loads.get(shard, 0) for shard in range(shards)],
            rows_out=sum(one.rows_out for each in mine for one in each.values()),
            state_bytes=sum(one.state_bytes for each in mine for one in each.values()),
        )
