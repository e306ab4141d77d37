"""Evaluate: from the figures of one step to what the policies need.

The cost of a row is seconds of work, smoothed over steps. What a step takes beside its rows is the
median of the steps before. Steps that say nothing about cost are left out: the first steps of a
run, the first after a change, and a step that took far longer than its rows explain (garbage
collection, a busy machine), unless many such steps follow each other. Rows that arrive are counted
apart from rows that a step took: a run that catches up takes more than arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import median

import numpy as np

from anabranch.elastic.observation import (
    ComponentEvaluation,
    ComponentObservation,
    Evaluation,
    Floats,
    Observation,
)
from anabranch.elastic.policies.latency import makespan
from anabranch.elastic.settings import Guards

_RECENT = 5  # steps
# The variance of rows over their squared mean from which on a line through them is meaningful.
_MEANINGFUL = 0.01
_AT_LEAST = 0.02  # of a slot's work is for its rows
_FADING = 0.9  # the weight of what slots had, one step later
_SHIFTED = 0.1  # of all work in other shards
# Three times the mean of what chance moves: half of sqrt(2 / pi) * sqrt(shards / rows).
_BY_CHANCE = 1.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Smoothed:
    """One component over the steps so far, newer steps with more weight."""

    work_s: Floats
    rows: float
    rows_out: float
    source_rows: float
    # Of rows x and work y of slots: their number, and the sums of x, y, x * x and x * y.
    moments: Floats = field(default_factory=lambda: np.zeros(5))

    @property
    def fixed_s(self) -> float:
        """Seconds that a slot takes whatever its rows, by a line through rows and work of slots.

        0 where all slots had about as many rows, or none at all.
        """
        n, x, y, xx, xy = map(float, self.moments)
        if n <= 0 or (spread := xx / n - (x / n) ** 2) <= _MEANINGFUL * (x / n) ** 2:
            return 0.0
        slope = (xy / n - x * y / n / n) / spread
        return min(max(0.0, (y - slope * x) / n), (1 - _AT_LEAST) * y / n)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What is remembered of a step."""

    step: int
    at: float
    duration_s: float
    period_s: float
    arrives: float  # rows per second, over all sources
    backlog: float
    rates: Mapping[str, float]  # rows per second that each component gets of what arrives
    worked: Mapping[str, float]  # seconds of work
    # Seconds of the longest slot per row of the component, and the longest slot over the mean of
    # all; both only for components that had rows.
    longest_s: Mapping[str, float]
    uneven: Mapping[str, float]
    versions: Mapping[str, int]  # of the routes
    fixed_s: float
    overhead_s: float
    # Rows that came from other components, per row of the sources; None without rows.
    between: float | None = None
    components: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The steps so far; `facts` holds those that count."""

    facts: tuple[StepFigures, ...] = ()
    smoothed: Mapping[str, Smoothed] = field(default_factory=dict)
    warmed: int = 0  # steps with rows
    skipped: int = 0  # suspicious steps in a row
    last: Observation | None = None
    settled: int = 0  # steps since a route changed


def evaluate(history: History, seen: Observation, guards: Guards) -> tuple[History, Evaluation]:
    """The history with this step, and what it means."""
    fact = _figures(history, seen)
    same_routes = history.last is not None and _versions(history.last) == _versions(seen)
    settled = history.settled + 1 if same_routes else 0
    warmed = history.warmed + (seen.rows > 0)
    hold = _reason_to_hold(replace(history, settled=settled, warmed=warmed), seen, guards)
    skipped = history.skipped + 1 if hold else 0
    facts, smoothed = history.facts, history.smoothed
    if hold is None:
        facts = (*facts, fact)[-guards.remember :]
        smoothed = {
            each.name: _smoothed(smoothed.get(each.name), each, seen.rows, guards.smooth)
            for each in seen.components
        }
    after = History(
        facts=facts, smoothed=smoothed, warmed=warmed, skipped=skipped, last=seen, settled=settled
    )
    return after, _evaluation(after, fact, seen, (hold,) if hold else (), guards)


def _reason_to_hold(history: History, seen: Observation, guards: Guards) -> str | None:
    """Why this step says nothing about cost; None where it does."""
    if history.warmed <= guards.steps(guards.warm_up_steps, seen.duration_s):
        return f"warming up: step {history.warmed} of {guards.warm_up_steps}"
    if history.last is not None and history.settled < guards.settle_steps:
        return "settling after a change"
    if seen.disturbed:
        return "the step was tried again or restored shards"
    explained = _explained_s(history, seen)
    paused = explained is not None and seen.duration_s > guards.pause * explained
    if paused and history.skipped < guards.steps(guards.pause_steps, seen.duration_s):
        return f"a pause: the step took {seen.duration_s:.2f} s, its rows explain {explained:.2f} s"
    return None


def _explained_s(history: History, seen: Observation) -> float | None:
    """Seconds that a step with these rows should take; None while little is known."""
    if len(history.facts) < 3:
        return None
    levels: dict[int, float] = {}
    for each in seen.components:
        past = history.smoothed.get(each.name)
        if past is not None and past.rows > 0:
            rows = each.by_slot(each.rows)
            longest = float(rows.max()) * past.work_s.sum() / past.rows
            levels[each.level] = max(levels.get(each.level, 0.0), longest)
    recent = history.facts[-_RECENT:]
    count = len({each.level for each in seen.components})
    overhead_s = median(fact.overhead_s for fact in recent) * count
    return median(fact.fixed_s for fact in recent) + overhead_s + sum(levels.values())


def _figures(history: History, seen: Observation) -> StepFigures:
    last = history.last
    period_s = max(seen.at - last.at, seen.duration_s) if last is not None else seen.duration_s
    arrives = _arrives(last, seen, period_s)
    total = seen.rows
    fixed_s = {name: past.fixed_s for name, past in history.smoothed.items()}
    beside = []
    for each in seen.components:
        net_s = net_work(each, fixed_s.get(each.name, 0.0))
        beside.append(each.slot_s - each.by_slot(net_s))
    overheads = np.maximum(0.0, np.concatenate(beside))
    return StepFigures(
        step=seen.step,
        at=seen.at,
        duration_s=seen.duration_s,
        period_s=period_s,
        arrives=arrives,
        backlog=sum(source.backlog for source in seen.sources.values()),
        rates={
            each.name: arrives * float(each.rows.sum() / total) if total else 0.0
            for each in seen.components
        },
        worked={each.name: float(each.work_s.sum()) for each in seen.components},
        longest_s={
            each.name: float(each.slot_s.max() / rows)
            for each in seen.components
            if (rows := each.rows.sum()) > 0
        },
        uneven={
            each.name: float(each.slot_s.max() / mean)
            for each in seen.components
            if (mean := each.slot_s.mean()) > 0
        },
        versions=_versions(seen),
        fixed_s=max(0.0, seen.duration_s - levels_s(seen.components, seen.cores)),
        overhead_s=float(np.median(overheads)) if overheads.size else 0.0,
        between=seen.between / total if total else None,
        components=tuple(each.name for each in seen.components),
    )


def levels_s(components: Sequence[ComponentObservation], cores: int) -> float:
    """Seconds of slot tasks in a step: levels run one after another, slots of a level on cores."""
    levels: dict[int, list[Floats]] = {}
    for each in components:
        levels.setdefault(each.level, []).append(each.slot_s)
    return sum(makespan(np.concatenate(tasks), cores) for tasks in levels.values())


def _arrives(last: Observation | None, seen: Observation, period_s: float) -> float:
    """Rows that arrive per second: as counted, or by what was taken and how the backlog changed."""
    arrives = 0.0
    for name, source in seen.sources.items():
        if source.rows_per_s is not None:
            arrives += source.rows_per_s
            continue
        before = last.sources.get(name, source) if last is not None else source
        came = source.rows + source.backlog - before.backlog
        arrives += max(0.0, came) / max(period_s, 1e-9)
    return arrives


def _smoothed(
    past: Smoothed | None, each: ComponentObservation, source_rows: float, weight: float
) -> Smoothed:
    if past is None or len(past.work_s) != len(each.work_s):
        first = Smoothed(
            moments=_moments(each),
            work_s=each.work_s,
            rows=float(each.rows.sum()),
            rows_out=float(each.rows_out.sum()),
            source_rows=source_rows,
        )
        return replace(first, work_s=net_work(each, first.fixed_s))
    if not source_rows:
        return past
    moments = _FADING * past.moments + _moments(each)
    now_s = net_work(each, replace(past, moments=moments).fixed_s)
    work_s = past.work_s
    if _shifted(work_s, now_s, each.rows.sum()):
        # Other keys are hot: what was known about shards is of no use.
        work_s = now_s * (work_s.sum() / now_s.sum())
    return Smoothed(
        moments=moments,
        work_s=work_s + weight * (now_s - work_s),
        rows=past.rows + weight * (float(each.rows.sum()) - past.rows),
        rows_out=past.rows_out + weight * (float(each.rows_out.sum()) - past.rows_out),
        source_rows=past.source_rows + weight * (source_rows - past.source_rows),
    )


def _moments(each: ComponentObservation) -> Floats:
    rows, work_s = each.by_slot(each.rows), each.by_slot(each.work_s)
    return np.array([len(rows), rows.sum(), work_s.sum(), rows @ rows, rows @ work_s])


def net_work(each: ComponentObservation, fixed_s: float) -> Floats:
    """Work by shard without what its slot takes whatever its rows.

    That part stays where it is when shards move.
    """
    slot_s = each.by_slot(each.work_s)
    net_s = np.maximum(slot_s - fixed_s, _AT_LEAST * slot_s)
    part: Floats = net_s / np.where(slot_s > 0, slot_s, 1.0)
    of_shard: Floats = part[each.slot_of]
    return each.work_s * of_shard


def _shifted(before: Floats, now: Floats, rows: float) -> bool:
    """True if the load moved between shards by more than sampling noise."""
    if before.sum() <= 0 or now.sum() <= 0:
        return False
    moved = float(np.abs(before / before.sum() - now / now.sum()).sum()) / 2
    return moved > max(_SHIFTED, _BY_CHANCE * sqrt(len(now) / max(rows, 1.0)))


def _evaluation(
    history: History, fact: StepFigures, seen: Observation, holds: tuple[str, ...], guards: Guards
) -> Evaluation:
    recent = history.facts[-_RECENT:] or (fact,)
    period_s = max(1e-9, median(each.period_s for each in recent))
    drains = _drains(history.facts, fact, guards.catch_up_s)
    pending = 0.0 if drains else fact.backlog / guards.catch_up_s
    return Evaluation(
        step=seen.step,
        now=seen.at,
        step_s=median(each.duration_s for each in recent),
        period_s=period_s,
        fixed_s=median(each.fixed_s for each in recent),
        overhead_s=median(each.overhead_s for each in recent),
        cores=seen.cores,
        components=tuple(_component(each, history, fact, pending) for each in seen.components),
        backlog=fact.backlog,
        waits=_waits(fact),
        drains=drains,
        idle=not any(each.arrives or each.backlog for each in (*recent, fact)),
        interval_s=seen.interval_s,
        holds=holds,
    )


def _component(
    each: ComponentObservation, history: History, fact: StepFigures, pending: float
) -> ComponentEvaluation:
    past = history.smoothed.get(each.name)
    total = float(past.work_s.sum()) if past else 0.0
    even = np.full(len(each.rows), 1.0 / len(each.rows))
    rates = tuple((one.at, one.rates[each.name]) for one in history.facts if each.name in one.rates)
    recent = [one for one in history.facts[-_RECENT:] if each.name in one.worked] or [fact]
    worked_s = sum(one.worked[each.name] for one in recent)
    span_s = sum(one.period_s for one in recent)
    return ComponentEvaluation(
        name=each.name,
        level=each.level,
        parents=each.parents,
        route=each.route,
        share=past.work_s / total if past and total > 0 else even,
        cost_s=total / past.rows if past and past.rows > 0 else 0.0,
        selectivity=past.rows_out / past.rows if past and past.rows > 0 else 1.0,
        rate=median(rate for _, rate in rates[-3:]) if rates else 0.0,
        rates=rates,
        pending=pending * (past.rows / past.source_rows if past and past.source_rows else 1.0),
        busy=worked_s / span_s / each.route.slots if span_s > 0 else 0.0,
    )


def _drains(facts: tuple[StepFigures, ...], fact: StepFigures, within_s: float) -> bool:
    """True if the backlog falls and is gone in time at this pace."""
    if not _waits(fact):
        return True
    earlier = [each for each in facts if each.at < fact.at][-3:]
    if not earlier:
        return False
    pace = (earlier[0].backlog - fact.backlog) / (fact.at - earlier[0].at)
    return pace > 0 and fact.backlog / pace <= within_s


def _waits(fact: StepFigures) -> bool:
    """True if rows wait beyond what the next step takes in any case."""
    return fact.backlog > fact.arrives * fact.period_s


def _versions(seen: Observation) -> dict[str, int]:
    return {each.name: each.route.version for each in seen.components}
