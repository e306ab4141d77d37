"""The `Progress` of a step, from its record and its reports."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.elastic.grouping.steps import Grouping
from anabranch.metrics import ApplyProgress, Progress
from anabranch.runtime.reports import ApplyReport, StepReports
from anabranch.spark.driver.job import JobResult
from anabranch.spark.driver.record import StepOutcome
from anabranch.state.checkpoint.commits import Commit


def progress_of(
    commit: Commit,
    outcome: StepOutcome,
    job: JobResult,
    *,
    applies: Mapping[str, ApplyProgress],
    phases_s: Mapping[str, float],
    times: tuple[float, float],
) -> Progress:
    """The figures of a step. `times` are when it began and ended."""
    reports, counts = outcome.reports, outcome.counts
    by_slot = sorted(reports.slots, key=lambda each: (f"{each.component}", each.slot))
    nodes = [each for _, each in reports.nodes()]
    return Progress(
        step=commit.step,
        batch_id=outcome.batch_id,
        rows_in=counts.rows_in,
        rows_out=counts.rows_out,
        left_out=counts.dropped,
        slots=commit.slots,
        shards=max(len(route.slot_of) for route in commit.routes.values()),
        watermark_us=commit.watermark_us,
        max_event_us=commit.max_event_us,
        slot_s={i: each.ended - each.started for i, each in enumerate(by_slot)},
        slot_phases_s=_phases(reports),
        state_bytes=sum(one.state_bytes for each in nodes for one in each.shards.values()),
        key_numbers=sum(each.key_numbers for each in nodes),
        attempts=job.attempts,
        restored=job.restored,
        slots_of={str(name): route.slots for name, route in commit.routes.items()},
        applies=applies,
        phases_s=phases_s,
        duration_s=times[1] - times[0],
        finished_at=times[1],
    )


def apply_progress(
    reports: StepReports, before: Mapping[str, Grouping], after: Mapping[str, Grouping]
) -> dict[str, ApplyProgress]:
    """What each apply did in a step, given its grouping in that step and in the next."""
    found = {}
    for name in before:
        mine = reports.of_apply(name)
        if mine:
            found[name] = _applied(mine, before[name].way, after[name].error)
    return found


def _applied(reports: list[ApplyReport], way: str, error: float | None) -> ApplyProgress:
    started = min(each.started for each in reports)
    return ApplyProgress(
        rows_in=sum(each.seen.rows for each in reports),
        rows_out=sum(each.rows_out for each in reports),
        failed=sum(each.failed for each in reports),
        grouping=way,
        slot_s=tuple(each.seen.seconds for each in reports),
        started_at=started,
        makespan_s=max(each.ended for each in reports) - started,
        estimate_error=error,
    )


def _phases(reports: StepReports) -> dict[str, float]:
    found: dict[str, float] = {}
    for report in reports.slots:
        for name, seconds in report.phases.items():
            found[name] = found.get(name, 0.0) + seconds
    return found
