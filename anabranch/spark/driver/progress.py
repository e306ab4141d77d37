"""What a run tells about itself: one `Progress` a step, and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.runtime.reports import Report, nodes_in
from anabranch.state.checkpoint.commits import Commit
from anabranch.state.checkpoint.events import Event

__all__ = ["Event", "Progress", "progress_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyProgress:
    """One apply in one step."""

    rows_in: int
    rows_out: int
    failed: int
    grouping: str  # how rows were given to slots
    slot_s: tuple[float, ...]  # the time of the rows of each slot
    started_at: float  # when the first slot began
    makespan_s: float  # from then to the end of the last slot
    estimate_error: float | None = (
        None  # largest difference between estimate and time of a slot, over the mean; None without one
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One committed step."""

    step: int
    batch_id: int | None  # None for a closing step
    rows_in: (
        int  # that operators took from sources: a row counts once for each operator that reads it
    )
    rows_out: int  # that sinks got
    left_out: Mapping[str, int]  # rows that no open window took, by reason
    slots: int  # of the component that has most
    shards: int
    watermark_us: int | None
    max_event_us: int | None
    slot_s: Mapping[int, float]
    slot_phases_s: Mapping[str, float]  # phases of the slot tasks, summed
    state_bytes: int
    attempts: int
    restored: int
    key_numbers: int = 0  # keys that are held
    duration_s: float = 0.0
    phases_s: Mapping[str, float] = field(
        default_factory=dict
    )  # job, restore, sinks, commit, clean
    finished_at: float = 0.0
    slots_of: Mapping[str, int] = field(default_factory=dict)  # each component
    applies: Mapping[str, ApplyProgress] = field(default_factory=dict)


def progress_of(
    commit: Commit,
    reports: Sequence[Report],
    counts: dict[str, int],
    attempts: int,
    restored: int,
    *,
    closing: bool,
) -> Progress:
    """What a step was, from its record and its reports."""
    slot_phases: dict[str, float] = {}
    for report in reports:
        for name, seconds in report.phases.items():
            slot_phases[name] = slot_phases.get(name, 0.0) + seconds
    return Progress(
        step=commit.step,
        batch_id=None if closing else commit.batch_id,
        rows_in=counts.pop("in"),
        rows_out=counts.pop("out"),
        left_out=counts,
        slots=commit.slots,
        shards=max(len(route.slot_of) for route in commit.routes.values()),
        watermark_us=commit.watermark_us,
        max_event_us=commit.max_event_us,
        slot_s={
            i: each.ended - each.started
            for i, each in enumerate(sorted(reports, key=lambda r: (r.component, r.slot)))
        },
        slot_phases_s=slot_phases,
        state_bytes=sum(
            shard.state_bytes for _, each in nodes_in(reports) for shard in each.shards.values()
        ),
        key_numbers=sum(each.key_numbers for _, each in nodes_in(reports)),
        attempts=attempts,
        restored=restored,
        slots_of={str(name): route.slots for name, route in commit.routes.items()},
    )
