"""What a slot task is given of its operators, and what it makes of them in a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from anabranch.plan.operators.base import OperatorPlan
from anabranch.state.checkpoint.commits import Stored
from anabranch.state.store.local import INACTIVE
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """Where and how shards live on a host."""

    root: str | None
    wait_s: float
    limit_bytes: int | None
    inactive: float = INACTIVE  # bound for the state of runs that are not active


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedRows:
    """Rows come as results of another operator of the same slot: which of its columns are the
    keys and the inputs of partials.
    """

    operator: str
    keys: tuple[str, ...]
    inputs: tuple[str | tuple[str, ...] | None, ...]
    payload: tuple[str, ...] = ()
    time: str = "window"  # the column that says when a row happened
    window: str | None = None  # the window whose results are meant; None: of all


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingRows:
    """Rows come through the exchange: where their columns are; combined already, or one by one
    with their event time.
    """

    columns: Mapping[str, str]
    combined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """Results that go to an operator of a later level: its number, and the shared column for each
    of the results' columns.
    """

    number: int
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """What a slot task needs to know of one of its operators in a step."""

    number: int
    operator: str
    plan: OperatorPlan
    rows: FusedRows | ArrivingRows
    emits: tuple[Emitted, ...] = ()
    written: bool = True  # some sink wants the results of all windows
    windows: tuple[str, ...] = ()  # whose results sinks want by themselves
    committed: Mapping[int, Version] = field(default_factory=dict)
    snapshot: frozenset[int] = frozenset()
    restore: Mapping[int, list[Stored]] = field(default_factory=dict)  # from the durable log
    others: tuple[OperatorPlan, ...] = ()  # parts that read the same rows: what they take counts
    first: bool = True  # the part that reports what none takes
    early: bool = False  # also write windows that are still open, as they are
    late: bool = False  # some sink wants the rows that are left out
    # The column with the latest event times, where this operator reports them for its source.
    seen: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """The times of a step: by one watermark rows are late, by the other windows close."""

    late_before_us: int | None
    close_until_us: int | None
    finish: bool = False  # close everything
    clock_us: int | None = None  # by which rows are ahead; None in a step without rows


@dataclass(slots=True)
class NodeOutcome:
    """What the rows and the watermark of a step made of one operator in a slot."""

    rows_in: dict[int, int] = field(default_factory=dict)
    rows_out: dict[int, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    late: pa.Table | None = None
    results: pa.Table | None = None
    shards: Array | None = None  # of the results that are complete: their shards
    until_us: int | None = None
    newest_us: int | None = None  # no row that it got from another operator, or took, is later
    keys_in: dict[int, float] = field(default_factory=dict)
    arrived: int = 0
    distinct: int = 0
    writes: dict[int, Write] = field(default_factory=dict)


# What an operator of the same slot has given, of all its parts.
Upstream: TypeAlias = Callable[[str], Sequence[NodeOutcome]]
