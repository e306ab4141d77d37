"""The input of a slot task about its operators, and the outcome of each operator in a step."""

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
    """Where and how shards are stored on a host."""

    root: str | None
    wait_s: float
    limit_bytes: int | None
    inactive: float = INACTIVE  # limit for the state of inactive runs


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedRows:
    """Rows that are results of another operator of the same slot.

    It has the names of the columns that are keys, inputs of partials and payload.
    """

    operator: str
    keys: tuple[str, ...]
    inputs: tuple[str | tuple[str, ...] | None, ...]
    payload: tuple[str, ...] = ()
    time: str = "window"  # the event-time column
    window: str | None = None  # the window whose results it takes; None: all windows


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingRows:
    """Rows that come through the exchange, and the columns they are in.

    They are combined already, or come one by one with their event time.
    """

    columns: Mapping[str, str]
    combined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """Results that go to an operator of a later level: its number, and the shared column for each
    column of the results.
    """

    number: int
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """What a slot task needs to know about one of its operators in a step."""

    number: int
    operator: str
    plan: OperatorPlan
    rows: FusedRows | ArrivingRows
    emits: tuple[Emitted, ...] = ()
    written: bool = True  # some sink wants the results of all windows
    windows: tuple[str, ...] = ()  # windows whose results go to sinks of their own
    committed: Mapping[int, Version] = field(default_factory=dict)
    snapshot: frozenset[int] = frozenset()
    restore: Mapping[int, list[Stored]] = field(default_factory=dict)  # from the durable log
    others: tuple[OperatorPlan, ...] = ()  # other parts of the operator, which read the same rows
    first: bool = True  # this part reports the rows that no part takes
    early: bool = False  # also write the current results of open windows
    late: bool = False  # some sink wants the rows that are left out
    # The column with the latest event times, if this operator reports them for its source.
    seen: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """The times of a step: one watermark for late rows, and one for closing windows."""

    late_before_us: int | None
    close_until_us: int | None
    finish: bool = False  # close everything
    clock_us: int | None = None  # the clock of the batch; None in a step without rows


@dataclass(slots=True)
class NodeOutcome:
    """The outcome of a step for one operator in a slot."""

    rows_in: dict[int, int] = field(default_factory=dict)
    rows_out: dict[int, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    late: pa.Table | None = None
    results: pa.Table | None = None
    shards: Array | None = None  # the shard of each complete result
    until_us: int | None = None
    newest_us: int | None = None  # the newest row that it took, or got from another operator
    keys_in: dict[int, float] = field(default_factory=dict)
    arrived: int = 0
    distinct: int = 0
    writes: dict[int, Write] = field(default_factory=dict)


# From the name of an operator in the same slot to the outcomes of all its parts.
Upstream: TypeAlias = Callable[[str], Sequence[NodeOutcome]]
