"""What a slot task reports to the driver: what it did to each shard of its operators, what it wrote, what it found missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.plan.ids import ComponentId, PartId
from anabranch.state.checkpoint.commits import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """One shard of one operator in one step."""

    rows_in: int
    rows_out: int
    cpu_s: float
    state_bytes: int
    stored: Stored | None  # None where the step did not change the shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file of results that a slot wrote."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One operator of one slot in one step."""

    part: PartId
    shards: Mapping[int, ShardReport]
    missing: tuple[int, ...] = ()
    results: Written | None = None
    late: Written | None = None
    left_out: Mapping[str, int] = field(
        default_factory=dict
    )  # rows that no open window takes, by reason
    until_us: int | None = None  # windows that end by then are closed
    next_end_us: int | None = None  # the end of the first window that is still open
    key_numbers: int = 0  # keys that the decoded slot has numbers for
    arrived: int = 0  # combined rows that came
    distinct: int = 0  # of them, keys and panes
    keys_in: Mapping[int, float] = field(
        default_factory=dict
    )  # keys with rows in an interval of so many panes


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One slot of a component in one step."""

    component: ComponentId
    slot: int
    host: str
    pid: int
    started: float
    ended: float
    cpu_s: float
    nodes: tuple[NodeReport, ...]
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of the task
    seen_us: Mapping[int, int] = field(
        default_factory=dict
    )  # the latest event time of rows for an operator, by its number


def nodes_in(reports: Sequence[Report]) -> Iterator[tuple[PartId, NodeReport]]:
    """What all slots tell of their operators."""
    return ((each.part, each) for report in reports for each in report.nodes)


def check_complete(reports: Sequence[Report], wanted: Sequence[tuple[ComponentId, int]]) -> None:
    """Every slot of every level has reported once: a task that Spark ran again may have reported twice, or too late."""
    found = sorted((report.component, report.slot) for report in reports)
    if found != sorted(wanted):
        odd = sorted({*wanted} ^ {*found}) or sorted(
            {each for each in found if found.count(each) > 1}
        )
        raise RuntimeError(
            f"slots that have not reported exactly once: {', '.join(f'{name} {slot}' for name, slot in odd)}"
        )


def missing_in(reports: Sequence[Report]) -> dict[PartId, list[int]]:
    """The shards that tasks did not find in the committed state, by operator."""
    found: dict[PartId, list[int]] = {}
    for name, each in nodes_in(reports):
        if each.missing:
            found.setdefault(name, []).extend(each.missing)
    return found


def seen_in(reports: Sequence[Report], watched: Mapping[str, int]) -> dict[str, int]:
    """The latest event time of each source that an operator tells it for, by its number; none where no row had one."""
    told = {
        source: [each.seen_us[number] for each in reports if number in each.seen_us]
        for source, number in watched.items()
    }
    return {source: max(times) for source, times in told.items() if times}


def moving_mean(
    before: Mapping[PartId, Mapping[int, float]], reports: Sequence[Report]
) -> dict[PartId, dict[int, float]]:
    """Keys in intervals of so many panes, over all slots: half the last mean, half this step."""
    now: dict[PartId, dict[int, float]] = {}
    for name, each in nodes_in(reports):
        mine = now.setdefault(name, {})
        for length, keys in each.keys_in.items():
            mine[length] = mine.get(length, 0.0) + keys
    return {
        name: {
            **(old := before.get(name, {})),
            **{length: (old.get(length, keys) + keys) / 2 for length, keys in mine.items()},
        }
        for name, mine in now.items()
    }
