"""The record of a step, from the record before it and the reports of the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from anabranch.plan.ids import PartId
from anabranch.plan.model import Plan
from anabranch.plan.watermark import watermark_after
from anabranch.runtime.reports import StepReports, moving_mean
from anabranch.runtime.tasks import Watermarks
from anabranch.spark.driver.context import Notice, RunContext, RunState
from anabranch.spark.driver.resharding import attributes_of
from anabranch.spark.outlets import Outlet
from anabranch.state.checkpoint.commits import Commit
from anabranch.state.checkpoint.log import Stored
from anabranch.topology.graph import Source

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The numbers of rows in a step."""

    rows_in: int = 0  # that operators took from sources
    rows_out: int = 0  # that sinks got
    left_out: Mapping[str, int] = field(default_factory=dict)  # that no window took, by reason
    failed: int = 0  # in applies

    @property
    def dropped(self) -> dict[str, int]:
        """Rows that were left out or failed in an apply, by reason."""
        return {**({"failed": self.failed} if self.failed else {}), **self.left_out}

    def added_to(self, totals: Mapping[str, int]) -> dict[str, int]:
        """The totals of a checkpoint with this step: rows in, rows out, and dropped by reason."""
        found = dict(totals)
        for name, rows in {"in": self.rows_in, "out": self.rows_out, **self.dropped}.items():
            found[name] = found.get(name, 0) + rows
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a step did, before its record is written."""

    step: int
    batch_id: int | None  # None for a closing step
    marks: Watermarks
    reports: StepReports
    counts: Counts
    event_us: Mapping[str, int]  # the latest event time in the rows of each source


def counts_of(plan: Plan, outlets: Sequence[Outlet], reports: StepReports) -> Counts:
    """The numbers of rows in a step. A row counts once for each operator that reads it."""
    sources = {source.name for source in plan.sources}
    reading = {plan.sibling_parts(n)[0].name for n in plan.nodes if n.feed.stream in sources}
    sinks = {outlet.operator for outlet in outlets if not outlet.late}
    first_applies = {each.name for each in plan.applies if each.stage == 1}
    written = {node.name for node in plan.nodes if node.operator in sinks}
    rows_in = sum(each.seen.rows for each in reports.applies if each.apply in first_applies)
    rows_out = sum(each.rows_out for each in reports.applies if each.apply in sinks)
    left_out: dict[str, int] = {}
    for name, each in reports.nodes():
        if name in reading:
            rows_in += sum(shard.rows_in for shard in each.shards.values())
        if name in written:
            rows_out += sum(file.rows for file in each.results)
        for reason, rows in each.left_out.items():
            left_out[reason] = left_out.get(reason, 0) + rows
    failed = sum(each.failed for each in reports.applies)
    return Counts(rows_in=rows_in, rows_out=rows_out, left_out=left_out, failed=failed)


def next_watermark(
    sources: Sequence[Source],
    event_us: Mapping[str, int],
    silent_s: Mapping[str, float],
    watermark_us: int | None,
) -> int | None:
    """The watermark of the next step. `silent_s` is the time since each source had rows."""
    silent_us = {source: round(1e6 * seconds) for source, seconds in silent_s.items()}
    return watermark_after(sources, event_us, silent_us, watermark_us)


def commit_of(
    context: RunContext, state: RunState, outcome: StepOutcome, silent_s: Mapping[str, float]
) -> Commit:
    """The record of a step."""
    last, marks, reports = context.checkpoint.last, outcome.marks, outcome.reports
    known = dict(last.seen) if last else {}
    for source, us in outcome.event_us.items():
        known[source] = max(us, known.get(source, us))
    closed = [each.until_us for _, each in reports.nodes() if each.until_us is not None]
    until_us = marks.close_until_us
    watermark_us = max(closed, default=until_us) if marks.finish else until_us
    batch_id = outcome.batch_id
    if batch_id is None and last is not None:
        batch_id = last.batch_id
    return Commit(
        step=outcome.step,
        epoch=context.checkpoint.epoch,
        batch_id=batch_id,
        watermark_us=watermark_us,
        next_us=next_watermark(state.plan.sources, known, silent_s, watermark_us),
        seen=known,
        routes=dict(state.routes),
        stored=_stored(reports),
        attributes=attributes_of(state.plan),
        taken=taken_of(state.plan, last.taken if last else {}, reports),
        replans=context.replans,
        rows=outcome.counts.added_to(last.rows if last else {}),
        keys_in=moving_mean(last.keys_in if last else {}, reports),
        clock_us=marks.clock_us,
    )


def taken_of(plan: Plan, before: Mapping[PartId, int], reports: StepReports) -> dict[PartId, int]:
    """The newest event time of the rows that each operator has taken so far."""
    parts = {node.name for node in plan.nodes}
    found = {part: us for part, us in before.items() if part in parts}
    for part, each in reports.nodes():
        if each.newest_us is not None:
            found[part] = max(each.newest_us, found.get(part, each.newest_us))
    return found


def jump_notice(
    last: Commit | None, commit: Commit, event_us: Mapping[str, int]
) -> tuple[Notice, ...]:
    """The notice for a step whose rows have moved the watermark by more than a day."""
    before_us, after_us = last.next_us if last else None, commit.next_us
    if before_us is None or after_us is None or after_us - before_us <= _DAY_US:
        return ()
    days = (after_us - before_us) / _DAY_US
    newest = ", ".join(f"of source {name!r} {_utc(us)}" for name, us in event_us.items())
    text = (
        f"watermark jumped by {days:,.1f} days in step {commit.step}, from {_utc(before_us)} "
        f"to {_utc(after_us)} (UTC); newest row {newest or 'none: no source had rows'}"
    )
    return (Notice("watermark jump", text, {"days": days}),)


def _utc(us: int) -> str:
    try:
        return f"{datetime(1970, 1, 1) + timedelta(seconds=us // 1_000_000)}"  # noqa: DTZ001
    except OverflowError:
        return f"{us} us"


def _stored(reports: StepReports) -> dict[PartId, dict[int, Stored]]:
    """Where the log has the new state of each shard."""
    found: dict[PartId, dict[int, Stored]] = {}
    for name, each in reports.nodes():
        changed = {shard: one.stored for shard, one in each.shards.items() if one.stored}
        found.setdefault(name, {}).update(changed)
    return found
