"""Every figure of a step, declared once: name, unit, range, what it means and where it is shown.

`Progress` is what users read, one per committed step; a test checks that its fields are the declared
ones. The columns of the history, the labels of the live view and the table in docs/metrics.md are
made from the declarations: `python -m anabranch.metrics` prints that table.

To add a figure: declare it in `METRICS`, measure it, and give `Progress` a field for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Unit(StrEnum):
    """What a figure counts; it says how the figure is stored and shown."""

    COUNT = "count"
    ROWS = "rows"
    ROWS_PER_S = "rows/s"
    SECONDS = "s"
    BYTES = "bytes"
    EVENT_TIME = "us since 1970"
    CLOCK = "s since 1970"
    SHARE = "share"
    FLAG = "true or false"
    NAME = "name"


class Shown(StrEnum):
    """Where a figure is shown."""

    PROGRESS = "progress"  # a field of `Progress`
    APPLY = "apply"  # a field of `ApplyProgress`, one per apply
    HISTORY = "history"  # a column of history/*.parquet
    SOURCE = "source"  # of a source in that file
    LIVE = "live"  # a column of `anabranch run`


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a step. `by` says what it is listed by; empty: one value per step."""

    name: str
    unit: Unit
    text: str
    shown: tuple[Shown, ...]
    by: str = ""
    low: float | None = 0.0
    high: float | None = None
    optional: bool = False  # None where it is not known
    label: str = ""  # in the live view

    @property
    def range(self) -> str:
        """The values that it can have, as people read them."""
        if self.unit in {Unit.FLAG, Unit.NAME} or (self.low is None and self.high is None):
            return ""
        return f"{self.low:g} or more" if self.high is None else f"{self.low:g} to {self.high:g}"


_P, _A, _H, _S, _L = Shown.PROGRESS, Shown.APPLY, Shown.HISTORY, Shown.SOURCE, Shown.LIVE
_U = Unit

METRICS: tuple[Metric, ...] = (
    Metric(name="step", unit=_U.COUNT, low=1, shown=(_P, _H, _L), label="step",
           text="number of the step"),
    Metric(name="batch_id", unit=_U.COUNT, optional=True, shown=(_P, _L), label="batch",
           text="Spark's number of the batch; none in a closing step"),
    Metric(name="rows_in", unit=_U.ROWS, shown=(_P, _L), label="rows",
           text="rows that operators took from sources, once per operator that reads them"),
    Metric(name="rows_per_s", unit=_U.ROWS_PER_S, shown=(_L,), label="rows/s",
           text="rows_in over duration_s"),
    Metric(name="duration_s", unit=_U.SECONDS, shown=(_P, _H, _L), label="time",
           text="time of the step; in the history with Spark's own part"),
    Metric(name="rows_out", unit=_U.ROWS, shown=(_P, _L), label="results",
           text="rows that sinks got"),
    Metric(name="left_out", unit=_U.ROWS, by="reason", shown=(_P, _L), label="left out",
           text="rows that no open window took, or that failed in an apply"),
    Metric(name="watermark_us", unit=_U.EVENT_TIME, optional=True, low=None, shown=(_P, _L),
           label="watermark (UTC)", text="windows that end by then are closed"),
    Metric(name="max_event_us", unit=_U.EVENT_TIME, optional=True, low=None, shown=(_P,),
           text="newest event time so far"),
    Metric(name="slots", unit=_U.COUNT, low=1, shown=(_P,),
           text="slots of the component that has most"),
    Metric(name="slots_of", unit=_U.COUNT, by="component", low=1, shown=(_P,),
           text="slots of each component, and of all applies together"),
    Metric(name="shards", unit=_U.COUNT, low=1, shown=(_P,), text="shards per component"),
    Metric(name="slot_s", unit=_U.SECONDS, by="slot", shown=(_P, _H),
           text="time of each slot task; in the history the time it worked"),
    Metric(name="slot_phases_s", unit=_U.SECONDS, by="phase", shown=(_P,),
           text="time of each phase of the slot tasks, over all of them"),
    Metric(name="phases_s", unit=_U.SECONDS, by="phase", shown=(_P,),
           text="time of job, restore, sinks, commit and clean in the driver"),
    Metric(name="state_bytes", unit=_U.BYTES, shown=(_P,),
           text="node-local state of the shards that the step opened"),
    Metric(name="key_numbers", unit=_U.COUNT, shown=(_P,), text="keys that slots keep decoded"),
    Metric(name="attempts", unit=_U.COUNT, low=1, shown=(_P,), text="attempts at the job"),
    Metric(name="restored", unit=_U.COUNT, shown=(_P,),
           text="shards that were restored from the durable log"),
    Metric(name="finished_at", unit=_U.CLOCK, shown=(_P,), text="when the step ended"),
    Metric(name="applies", unit=_U.NAME, by="apply", shown=(_P,),
           text="figures of each apply; the rows below with place apply"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyProgress:
    """One apply in one step."""

    rows_in: int
    rows_out: int
    failed: int
    grouping: str
    slot_s: tuple[float, ...]
    started_at: float
    makespan_s: float
    estimate_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One committed step. `METRICS` says what each figure means."""

    step: int
    batch_id: int | None
    rows_in: int
    rows_out: int
    left_out: Mapping[str, int]
    slots: int
    shards: int
    watermark_us: int | None
    max_event_us: int | None
    slot_s: Mapping[int, float]
    slot_phases_s: Mapping[str, float]
    state_bytes: int
    attempts: int
    restored: int
    key_numbers: int = 0
    duration_s: float = 0.0
    phases_s: Mapping[str, float] = field(default_factory=dict)
    finished_at: float = 0.0
    slots_of: Mapping[str, int] = field(default_factory=dict)
    applies: Mapping[str, ApplyProgress] = field(default_factory=dict)

    @property
    def closing(self) -> bool:
        """True for a step without input."""
        return self.batch_id is None

    @property
    def rows_per_s(self) -> float:
        return self.rows_in / max(self.duration_s, 1e-9)
