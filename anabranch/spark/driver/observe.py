"""From the reports of a step to an `Observation`: figures by shard and slot of each component, and what the sources did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anabranch.elastic.observation import ComponentSeen, Observation, SourceSeen
from anabranch.plan.ids import APPLIES, PartId
from anabranch.plan.model import Component, Plan
from anabranch.plan.route import Route
from anabranch.runtime.reports import Report, nodes_in
from anabranch.spark.driver.progress import Progress
from anabranch.spark.driver.source_progress import BatchProgress
from anabranch.state.checkpoint.commits import Commit

_BESIDE = frozenset({"open", "load"})  # phases of a slot task that do not depend on its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What of an observation is the same in all steps of a run."""

    cores: int
    interval_s: float = 0.0


def observe(
    plan: Plan, commit: Commit, progress: Progress, reports: Sequence[Report], place: Place
) -> Observation:
    """One committed step, as far as its own reports tell."""
    return Observation(
        step=progress.step,
        at=progress.finished_at,
        duration_s=progress.duration_s,
        cores=place.cores,
        interval_s=place.interval_s,
        disturbed=progress.attempts > 1 or progress.restored > 0,
        closing=progress.batch_id is None,
        sources=_sources(plan, commit, reports, progress),
        components=(
            *([_applied(plan, commit.routes[APPLIES], progress)] if plan.applies else []),
            *(
                _component(plan, each, commit.routes[each.name], reports)
                for each in plan.components
            ),
        ),
    )


def _component(
    plan: Plan, component: Component, route: Route, reports: Sequence[Report]
) -> ComponentSeen:
    shards = len(route.slot_of)
    rows, rows_out, cpu_s, busy_s, state_bytes = (np.zeros(shards) for _ in range(5))
    slot_s = np.zeros(route.slots)
    entering = {
        node.name
        for node in component.nodes
        if not plan.is_fused(node) and plan.is_first_part(node)
    }
    leaving = _leaving(plan, component)
    for report in (each for each in reports if each.component == component.name):
        slot_s[report.slot] = sum(report.phases.values()) or report.ended - report.started
        work_s = sum(seconds for phase, seconds in report.phases.items() if phase not in _BESIDE)
        own = np.zeros(shards)
        for name, node in ((each.part, each) for each in report.nodes):
            for shard, each in node.shards.items():
                own[shard] += each.cpu_s
                state_bytes[shard] += each.state_bytes
                rows[shard] += each.rows_in if name in entering else 0
                rows_out[shard] += each.rows_out if name in leaving else 0
        cpu_s += own
        if (total := own.sum()) > 0:
            busy_s += own * (work_s / total)
    return ComponentSeen(
        name=str(component.name),
        route=route,
        rows=rows,
        rows_out=rows_out,
        cpu_s=cpu_s,
        busy_s=busy_s,
        state_bytes=state_bytes,
        slot_s=slot_s,
        level=component.level,
        parents=tuple(dict.fromkeys(_parents(plan, component))),
    )


def _applied(plan: Plan, route: Route, progress: Progress) -> ComponentSeen:
    """All applies as one component before the first level.

    Their rows may go to any slot and have no state, so nothing is gained by moving shards: each slot has an even part of all work,
    and each of its shards an even part of that.
    """
    slot_of = np.array(route.slot_of, dtype=np.int64)
    shards = np.bincount(slot_of, minlength=route.slots)
    part = 1.0 / (np.count_nonzero(shards) * shards[slot_of])
    seen = {
        name: each for name, each in progress.applies.items() if len(each.slot_s) == route.slots
    }
    slot_s = (
        np.sum([each.slot_s for each in seen.values()], axis=0) if seen else np.zeros(route.slots)
    )
    first = {each.name for each in plan.applies if each.stage == 1}
    last = {each.name for each in plan.applies} - {each.feed.stream for each in plan.applies}
    busy_s = part * slot_s.sum()
    return ComponentSeen(
        name=str(APPLIES),
        route=route,
        rows=part * sum(each.rows_in for name, each in seen.items() if name in first),
        rows_out=part * sum(each.rows_out for name, each in seen.items() if name in last),
        cpu_s=busy_s,
        busy_s=busy_s,
        state_bytes=np.zeros(len(part)),
        slot_s=slot_s,
    )


def _parents(plan: Plan, component: Component) -> list[str]:
    operators = {node.operator for node in plan.nodes}
    streams = [
        node.feed.stream
        for node in component.nodes
        if not plan.is_fused(node) and node.feed.stream in operators
    ]
    return [str(plan.component_of(plan.parts_of(stream)[0].name).name) for stream in streams]


def _leaving(plan: Plan, component: Component) -> set[PartId]:
    """The nodes whose results other components read; where none is read, all."""
    inside = {node.name for node in component.nodes}
    read = {node.feed.stream for node in plan.nodes if node.name not in inside}
    return {node.name for node in component.nodes if node.operator in read} or inside


def _sources(
    plan: Plan, commit: Commit, reports: Sequence[Report], progress: Progress
) -> dict[str, SourceSeen]:
    """Rows by what operators took of each source, until Spark tells how many it read."""
    taken: dict[PartId, float] = {}
    for name, each in nodes_in(reports):
        taken[name] = taken.get(name, 0.0) + sum(shard.rows_in for shard in each.shards.values())
    found = {}
    for source in plan.sources:
        seen_us = commit.seen.get(source.name)
        found[source.name] = SourceSeen(
            rows=max(
                (
                    taken.get(node.name, 0.0)
                    for node in plan.nodes
                    if node.feed.stream == source.name
                ),
                default=0.0,
            ),
            lag_s=None if seen_us is None else progress.finished_at - seen_us / 1e6,
        )
    return found


def completed(
    seen: Observation, spark: BatchProgress | None, before: Observation | None
) -> Observation:
    """The observation with what Spark knows of the batch, and with the rate at which rows arrive since the step before."""
    sources: Mapping[str, SourceSeen] = seen.sources
    if spark is not None:
        if len(spark.rows) == len(sources):
            given = zip(sources.items(), spark.rows, spark.backlog, strict=True)
            sources = {
                name: replace(each, rows=rows, backlog=waits or 0.0)
                for (name, each), rows, waits in given
            }
        seen = replace(seen, duration_s=max(seen.duration_s, spark.seconds or 0.0))
    if seen.closing and before is not None:  # nothing was taken, so what waited waits
        sources = {
            name: replace(
                each, backlog=before.sources[name].backlog if name in before.sources else 0.0
            )
            for name, each in sources.items()
        }
    if before is not None and not seen.closing:
        period_s = max(seen.at - before.at, 1e-9)
        sources = {
            name: replace(each, rows_per_s=_arriving(each, before.sources.get(name), period_s))
            for name, each in sources.items()
        }
    return replace(seen, sources=sources)


def _arriving(each: SourceSeen, before: SourceSeen | None, period_s: float) -> float:
    """What was taken, and what waits more than before."""
    waited = each.backlog if before is None else before.backlog
    return max(0.0, each.rows + each.backlog - waited) / period_s
