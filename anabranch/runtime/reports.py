"""What the tasks of a step report to the driver.

A slot task reports what it did to each shard, an apply what it did with its rows. A report is a row
that passes through all later stages to the driver's `collect`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np

from anabranch.elastic.grouping.steps import TaskObservation
from anabranch.plan.ids import ComponentId, PartId
from anabranch.state.checkpoint.log import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """One shard of one operator in one step."""

    rows_in: int
    rows_out: int
    cpu_s: float
    state_bytes: int
    stored: Stored | None  # None if the step did not change the shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file of results that a slot wrote."""

    path: str
    rows: int
    window: str | None = None  # the window of the results; None: all windows without own file


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One operator of one slot in one step."""

    part: PartId
    shards: Mapping[int, ShardReport]
    missing: tuple[int, ...] = ()
    results: tuple[Written, ...] = ()
    late: Written | None = None
    # Rows that no open window takes, by reason.
    left_out: Mapping[str, int] = field(default_factory=dict)
    until_us: int | None = None  # windows that end by then are closed
    next_end_us: int | None = None  # the end of the first window that is still open
    newest_us: int | None = None  # the newest row that it took, or got from another operator
    key_numbers: int = 0  # keys that the decoded slot has numbers for
    arrived: int = 0  # combined rows that came
    distinct: int = 0  # distinct keys and panes among them
    keys_in: Mapping[int, float] = field(default_factory=dict)  # keys by interval length in panes


class SlotReport(msgspec.Struct, frozen=True, kw_only=True, tag="slot"):
    """One slot of a component in one step."""

    component: ComponentId
    slot: int
    host: str
    pid: int
    started: float
    ended: float
    cpu_s: float
    nodes: tuple[NodeReport, ...]
    phases: Mapping[str, float] = {}  # seconds of each phase of the task
    seen_us: Mapping[int, int] = {}  # the latest event time of rows for an operator, by its number

    @property
    def of(self) -> ComponentId:
        """What reports: the component."""
        return self.component


class ApplyReport(msgspec.Struct, frozen=True, kw_only=True, tag="apply"):
    """One slot of an apply in one step."""

    apply: str
    slot: int
    started: float
    ended: float
    seen: TaskObservation
    rows_out: int
    failed: int
    results: Written | None
    letters: Written | None  # the rows that failed

    @property
    def of(self) -> str:
        """What reports: the name of the apply."""
        return self.apply


TaskReport: TypeAlias = SlotReport | ApplyReport
ReportKey: TypeAlias = tuple[ComponentId | str, int]  # a component or an apply, and its slot


def encoded(report: TaskReport) -> bytes:
    """A report as JSON, which `decoded` reads."""
    return _ENCODER.encode(report)


def decoded(report: bytes | str) -> TaskReport:
    """A report from its JSON."""
    return _DECODER.decode(report)


def _plain(value: Any) -> Any:
    """An array of float64 as its shape and bytes, so that a sketch is decoded bit by bit."""
    if isinstance(value, np.ndarray):
        return value.shape, value.astype(np.float64, copy=False).tobytes()
    if isinstance(value, np.number):
        return value.item()
    raise NotImplementedError(f"a report cannot hold a {type(value).__name__}")


def _array(_type: type, value: Any) -> Any:
    shape, data = msgspec.convert(value, tuple[tuple[int, ...], bytes])
    return np.frombuffer(data, dtype=np.float64).reshape(shape).copy()


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER: msgspec.json.Decoder[TaskReport] = msgspec.json.Decoder(TaskReport, dec_hook=_array)


@dataclass(frozen=True, slots=True)
class StepReports:
    """All reports of one job."""

    slots: tuple[SlotReport, ...] = ()
    applies: tuple[ApplyReport, ...] = ()

    @classmethod
    def decoded(cls, rows: Iterable[bytes | str]) -> StepReports:
        """The reports that a job has collected."""
        found = [decoded(row) for row in rows]
        return cls(
            tuple(each for each in found if isinstance(each, SlotReport)),
            tuple(each for each in found if isinstance(each, ApplyReport)),
        )

    def nodes(self) -> Iterator[tuple[PartId, NodeReport]]:
        """The reports of all slots about their operators."""
        return ((each.part, each) for report in self.slots for each in report.nodes)

    def of_apply(self, name: str) -> list[ApplyReport]:
        """The reports of an apply, by slot."""
        return sorted(
            (each for each in self.applies if each.apply == name), key=lambda each: each.slot
        )

    def check_complete(self, expected: Iterable[ReportKey]) -> None:
        """Raises an error if a report is missing, or came twice because a task ran again."""
        reports: list[TaskReport] = [*self.slots, *self.applies]
        found = Counter((each.of, each.slot) for each in reports)
        wanted = Counter(expected)
        if found != wanted:
            odd = [*(wanted - found), *(found - wanted)]
            names = ", ".join(sorted({f"{name} {slot}" for name, slot in odd}))
            raise RuntimeError(f"slots that have not reported exactly once: {names}")

    def missing(self) -> dict[PartId, list[int]]:
        """The shards that tasks did not find in the committed state, by operator."""
        found: dict[PartId, list[int]] = {}
        for name, each in self.nodes():
            if each.missing:
                found.setdefault(name, []).extend(each.missing)
        return found

    def latest_event_us(self, watched: Mapping[str, int]) -> dict[str, int]:
        """The latest event time of each source. `watched` has the operator that reports it."""
        times = {
            source: [each.seen_us[number] for each in self.slots if number in each.seen_us]
            for source, number in watched.items()
        }
        return {source: max(found) for source, found in times.items() if found}

    def next_end_us(self) -> int | None:
        """The end of the first window that is still open."""
        ends = [each.next_end_us for _, each in self.nodes() if each.next_end_us is not None]
        return min(ends, default=None)


def files_of(written: Sequence[Written | None]) -> tuple[str, ...]:
    """The paths of the files; None stands for a file that was not written."""
    return tuple(each.path for each in written if each is not None)


def moving_mean(
    before: Mapping[PartId, Mapping[int, float]], reports: StepReports
) -> dict[PartId, dict[int, float]]:
    """The mean number of distinct keys, by interval length in panes.

    It is half the mean so far plus half of this step.
    """
    now: dict[PartId, dict[int, float]] = {}
    for name, each in reports.nodes():
        mine = now.setdefault(name, {})
        for length, keys in each.keys_in.items():
            mine[length] = mine.get(length, 0.0) + keys
    found: dict[PartId, dict[int, float]] = {}
    for name, mine in now.items():
        old = before.get(name, {})
        halves = {length: (old.get(length, keys) + keys) / 2 for length, keys in mine.items()}
        found[name] = {**old, **halves}
    return found
