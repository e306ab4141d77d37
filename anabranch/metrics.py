"""Every figure of a step, declared once: name, unit, range, meaning and where it is shown.

Users read `Progress`, one per committed step. A test checks that its fields are declared here.
The columns of the history, the labels of the live view and the table of metrics in the docs are
made from these declarations. `python -m anabranch.metrics` prints that table.

To add a figure: declare it here, measure it, and give `Progress` a field for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MetricUnit(StrEnum):
    """The unit of a figure. It decides how the figure is stored and shown."""

    COUNT = "count"
    ROWS = "rows"
    ESTIMATE = "rows, estimated"
    RATE = "rows/s"
    SECONDS = "s"
    BYTES = "bytes"
    EVENT_TIME = "us since 1970"
    CLOCK = "s since 1970"
    SHARE = "share"
    FLAG = "yes or no"
    NAME = "name"
    FIGURES = "figures"  # a group of figures, each of which has its own declaration

    @property
    def type(self) -> type:
        """The type of a value."""
        if self in {MetricUnit.COUNT, MetricUnit.ROWS, MetricUnit.BYTES, MetricUnit.EVENT_TIME}:
            return int
        kinds: dict[MetricUnit, type] = {
            MetricUnit.FLAG: bool,
            MetricUnit.NAME: str,
            MetricUnit.FIGURES: dict,
        }
        return kinds.get(self, float)


class Shown(StrEnum):
    """Where a figure is shown."""

    PROGRESS = "progress"  # `Progress`, what `run.recentProgress` lists
    APPLY = "apply"  # `ApplyProgress`, one per apply in `Progress.applies`
    HISTORY = "history"  # history/*.parquet in the checkpoint, one row per step and component
    SOURCE = "source"  # one source in the column `sources` of the history
    LIVE = "live"  # the live view
    STEPS = "steps"  # the table of the last steps in the live view


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a step."""

    name: str
    unit: MetricUnit
    text: str
    shown: Mapping[Shown, str]  # per place: what it is listed by there; "": it is one value
    low: float | None = 0.0
    high: float | None = None
    optional: bool = False  # it may be None, if it is unknown
    label: str = ""  # in the live view

    def holds(self, value: object) -> bool:
        """True if a value, or each value of a list or mapping, is in the declared range."""
        if value is None:
            return self.optional
        if isinstance(value, Mapping):
            return all(self.holds(each) for each in value.values())
        if isinstance(value, list | tuple):
            return all(self.holds(each) for each in value)
        if not isinstance(value, int | float):
            return isinstance(value, self.unit.type) or self.unit is MetricUnit.FIGURES
        low, high = self.low, self.high
        return (low is None or value >= low) and (high is None or value <= high)

    @property
    def range(self) -> str:
        """The range of its values, for people to read."""
        if self.unit in {MetricUnit.FLAG, MetricUnit.NAME, MetricUnit.FIGURES} or self.low is None:
            return ""
        return f"{self.low:g} or more" if self.high is None else f"{self.low:g} to {self.high:g}"


def _figure(
    name: str,
    unit: MetricUnit,
    text: str,
    *,
    low: float | None = 0.0,
    optional: bool = False,
    label: str = "",
    **shown: str,
) -> Metric:
    places = {Shown(where): by for where, by in shown.items()}
    return Metric(
        name=name, unit=unit, text=text, shown=places, low=low, optional=optional, label=label
    )


_U = MetricUnit

# fmt: off
METRICS: tuple[Metric, ...] = (
    # The step as a whole.
    _figure("step", _U.COUNT, "number of the step",
            low=1, progress="", history="", steps="", label="step"),
    _figure("batch_id", _U.COUNT, "Spark's number of the batch; none in a closing step",
            optional=True, progress="", steps="", label="batch"),
    _figure("finished_at", _U.CLOCK, "when the step ended", progress="", history=""),
    _figure("rows_in", _U.ROWS, "rows taken from sources, once per operator that reads them",
            progress="", apply="", history="shard", live="", steps="", label="rows in"),
    _figure("rows_per_s", _U.RATE, "rows in per second of the step; of a source: rows that arrive",
            optional=True, source="", live="", steps="", label="rows/s"),
    _figure("duration_s", _U.SECONDS, "time of the step; in the history as Spark measured it",
            progress="", history="", live="", steps="", label="step time"),
    _figure("rows_out", _U.ROWS, "rows that sinks got; of a component: rows that left it",
            progress="", apply="", history="shard", live="", steps="", label="results"),
    _figure("left_out", _U.ROWS,
            "rows that were late, ahead of the clock, in no window, or failed in an apply",
            progress="reason", live="reason", steps="reason", label="left out"),
    _figure("watermark_us", _U.EVENT_TIME, "windows that end by then are closed",
            low=None, optional=True, progress="", live="", steps="", label="watermark"),
    _figure("max_event_us", _U.EVENT_TIME, "the newest event time so far",
            low=None, optional=True, progress=""),
    _figure("interval_s", _U.SECONDS, "the trigger's interval; 0: steps follow at once",
            history=""),
    _figure("cores", _U.COUNT, "cores that Spark has", low=1, history=""),
    _figure("attempts", _U.COUNT, "attempts at the job", low=1, progress=""),
    _figure("restored", _U.COUNT, "shards restored from the durable log", progress=""),
    _figure("disturbed", _U.FLAG, "a job was tried again, or shards were restored", history=""),
    _figure("closing", _U.FLAG, "a step without input", history=""),
    _figure("phases_s", _U.SECONDS, "time of job, restore, sinks, commit and clean",
            progress="phase"),
    # Components, their slots and shards.
    _figure("component", _U.NAME, "the component that the row is about", history=""),
    _figure("level", _U.COUNT, "the level of the component; 0: applies", history=""),
    _figure("parents", _U.NAME, "the components that feed it", history="component"),
    _figure("slots", _U.COUNT, "slots of the component; in progress: of the largest component",
            low=1, progress="", history="", live="", label="slots"),
    _figure("slots_of", _U.COUNT, "slots of each component, and of all applies together",
            low=1, progress="component"),
    _figure("shards", _U.COUNT, "shards per component", low=1, progress=""),
    _figure("route_version", _U.COUNT, "version of the component's route", history=""),
    _figure("slot_of", _U.COUNT, "the slot of each shard", history="shard"),
    _figure("slot_s", _U.SECONDS, "time of the slot task; of an apply: time of its rows there",
            progress="slot", apply="slot", history="slot"),
    _figure("slot_phases_s", _U.SECONDS, "time of each phase of slot tasks, added up",
            progress="phase"),
    _figure("cpu_s", _U.SECONDS, "CPU time of the rows of a shard", history="shard"),
    _figure("busy_s", _U.SECONDS, "time of a slot for the rows of a shard, waiting included",
            optional=True, history="shard"),
    _figure("state_bytes", _U.BYTES, "node-local state of the shards that the step opened",
            progress="", history="shard", live="", label="state"),
    _figure("key_numbers", _U.COUNT, "keys that slots keep decoded", progress=""),
    # Sources.
    _figure("sources", _U.FIGURES, "figures of each source", history="source"),
    _figure("name", _U.NAME, "the source", source=""),
    _figure("rows", _U.ESTIMATE, "rows that the step took from the source", source=""),
    _figure("backlog", _U.ESTIMATE, "rows that wait at the source after the step", source=""),
    _figure("lag_s", _U.SECONDS, "how far the newest event time is behind the clock",
            low=None, optional=True, source=""),
    # Applies.
    _figure("applies", _U.FIGURES, "figures of each apply", progress="apply"),
    _figure("failed", _U.ROWS, "rows on which the function failed", apply=""),
    _figure("grouping", _U.NAME, "how rows were given to slots", apply=""),
    _figure("started_at", _U.CLOCK, "when the first slot began", apply=""),
    _figure("makespan_s", _U.SECONDS, "from then to the end of the last slot", apply=""),
    _figure("estimate_error", _U.SHARE,
            "largest difference of a slot's time from its estimate, over the mean time",
            optional=True, apply=""),
)
# fmt: on


def shown_in(where: Shown) -> Iterator[Metric]:
    """The figures that are shown in one place, in their order."""
    return (each for each in METRICS if where in each.shown)


def label_of(name: str) -> str:
    """What the live view calls a figure."""
    return next(each.label for each in METRICS if each.name == name)


def as_table() -> str:
    """All figures as a table in Markdown."""
    lines = ["| figure | unit | range | meaning | shown in |", "| --- | --- | --- | --- | --- |"]
    for each in METRICS:
        optional = " or none" if each.optional else ""
        places = [f"{where} by {by}" if by else f"{where}" for where, by in each.shown.items()]
        lines.append(
            f"| `{each.name}` | {each.unit} | {each.range}{optional} | {each.text} | "
            f"{', '.join(places)} |"
        )
    return "\n".join(lines) + "\n"


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


if __name__ == "__main__":
    print(as_table(), end="")  # noqa: T201
