"""What a run tells about itself: one `Progress` a step, and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One committed step."""

    step: int
    batch_id: int | None  # None for a closing step
    rows_in: int
    rows_out: int
    left_out: Mapping[str, int]  # rows that no open window took, by reason
    slots: int
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
    phases_s: Mapping[str, float] = field(default_factory=dict)  # job, restore, sinks, commit, clean
    finished_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a person should know: what happened, in which step, and why."""

    at: float
    step: int
    kind: str
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)
