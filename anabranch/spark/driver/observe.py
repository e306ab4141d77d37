"""Makes an `Observation` from the reports of a step: figures by shard, by slot and by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from anabranch.elastic.observation import ComponentObservation, Observation, SourceObservation
from anabranch.metrics import Progress
from anabranch.plan.ids import APPLIES, PartId
from anabranch.plan.model import Component, Plan
from anabranch.plan.route import Route
from anabranch.runtime.reports import SlotReport
from anabranch.spark.driver.source_progress import BatchProgress
from anabranch.state.checkpoint.commits import Commit

_BESIDE = frozenset({"open", "load"})  # phases of a slot task that do not depend on its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The part of an observation that is the same in all steps of a run."""

    cores: int
    interval_s: float = 0.0


class SparkQuery(Protocol):
    """What steps need to know about Spark's streaming query."""

    def clock_us(self, batch_id: int) -> int:
        """The clock of the running batch. It is the same if the batch runs again."""

    def event_times(self) -> Mapping[str, int]:
        """The latest event time in the running batch, by source, where Spark observes it."""

    def last_progress(self) -> BatchProgress | None:
        """What Spark says about its last batch."""


class NoQuery(SparkQuery):
    """For steps without a streaming query: static rows and their clock."""

    def __init__(self, clock_us: int | None = None) -> None:
        self._clock_us = clock_us or 0

    def clock_us(self, batch_id: int) -> int:  # noqa: ARG002
        return self._clock_us

    def event_times(self) -> Mapping[str, int]:
        return {}

    def last_progress(self) -> None:
        return None


class StepWatch:
    """Keeps the observation of a step until Spark has reported on its batch."""

    def __init__(self) -> None:
        self._waiting: tuple[Observation, int | None] | None = None
        self._before: Observation | None = None

    def keep(self, seen: Observation, batch_id: int | None) -> None:
        """Keeps a step that was just committed."""
        self._waiting = seen, batch_id

    def complete(self, query: SparkQuery) -> Observation | None:
        """The last step with what Spark says about it; None if it was returned before."""
        if self._waiting is None:
            return None
        (waiting, batch_id), self._waiting = self._waiting, None
        spark = None if batch_id is None else _last_progress(query)
        if spark is not None and spark.batch_id != batch_id:
            spark = None
        seen = completed(waiting, spark, self._before)
        if not seen.closing or self._before is None:
            self._before = seen
        return seen


def _last_progress(query: SparkQuery) -> BatchProgress | None:
    try:
        return query.last_progress()
    except Exception:  # noqa: BLE001 - a query that has ended may not answer any more
        return None


def observe(
    plan: Plan,
    commit: Commit,
    progress: Progress,
    reports: Sequence[SlotReport],
    conditions: Conditions,
) -> Observation:
    """The observation of a committed step, from its reports alone."""
    return Observation(
        step=progress.step,
        at=progress.finished_at,
        duration_s=progress.duration_s,
        cores=conditions.cores,
        interval_s=conditions.interval_s,
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
    plan: Plan, component: Component, route: Route, reports: Sequence[SlotReport]
) -> ComponentObservation:
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
        for node in report.nodes:
            for shard, each in node.shards.items():
                own[shard] += each.cpu_s
                state_bytes[shard] += each.state_bytes
                rows[shard] += each.rows_in if node.part in entering else 0
                rows_out[shard] += each.rows_out if node.part in leaving else 0
        cpu_s += own
        if (total := own.sum()) > 0:
            busy_s += own * (work_s / total)
    return ComponentObservation(
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


def _applied(plan: Plan, route: Route, progress: Progress) -> ComponentObservation:
    """All applies as one component before the first level.

    Their rows may go to any slot and have no state, so moving shards gains nothing. The work is
    therefore shown as evenly spread: over the slots, and over the shards of each slot.
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
    return ComponentObservation(
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
    """The nodes whose results other components read; if there are none, all nodes."""
    inside = {node.name for node in component.nodes}
    read = {node.feed.stream for node in plan.nodes if node.name not in inside}
    return {node.name for node in component.nodes if node.operator in read} or inside


def _sources(
    plan: Plan, commit: Commit, reports: Sequence[SlotReport], progress: Progress
) -> dict[str, SourceObservation]:
    """The rows that operators took from each source. Later Spark reports how many it read."""
    taken: dict[PartId, float] = {}
    for report in reports:
        for each in report.nodes:
            rows = sum(shard.rows_in for shard in each.shards.values())
            taken[each.part] = taken.get(each.part, 0.0) + rows
    found = {}
    for source in plan.sources:
        seen_us = commit.seen.get(source.name)
        found[source.name] = SourceObservation(
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
    """The observation, with what Spark knows about the batch and the rate at which rows arrive."""
    sources: Mapping[str, SourceObservation] = seen.sources
    if spark is not None:
        if len(spark.rows) == len(sources):
            given = zip(sources.items(), spark.rows, spark.backlog, strict=True)
            sources = {
                name: replace(each, rows=rows, backlog=waits or 0.0)
                for (name, each), rows, waits in given
            }
        seen = replace(seen, duration_s=max(seen.duration_s, spark.seconds or 0.0))
    if seen.closing and before is not None:  # no rows were taken, so the backlog is unchanged
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


def _arriving(each: SourceObservation, before: SourceObservation | None, period_s: float) -> float:
    """The rows per second that arrived: those taken, plus the growth of the backlog."""
    waited = each.backlog if before is None else before.backlog
    return max(0.0, each.rows + each.backlog - waited) / period_s
