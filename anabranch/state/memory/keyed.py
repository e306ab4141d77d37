"""What the decoded states of a slot have in common.

Keys have numbers, and each number belongs to a shard. Entries are read and written by shard.
`WindowsState` forms windows from partials, `SessionState` forms sessions. A slot task uses both in
the same way. `JoinState` holds the rows of two streams.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.plan.operators.aggregates import AggregatePlan
from anabranch.plan.operators.base import OperatorPlan
from anabranch.state.codec.blob import Entries
from anabranch.state.memory.keys import KeyTable
from anabranch.state.store.version import Version
from anabranch.types import Array

_DENSE = 4  # arrays have a place for every key if more than 1/4 of the keys occur
_SMALL = 1024  # key tables below this size are not worth shrinking

PlanT = TypeVar("PlanT")
EntriesT = TypeVar("EntriesT")


class Formed(Protocol):
    """Result rows: the numbers of their keys, their merged partials, and the window of each row."""

    @property
    def rows(self) -> Array: ...

    @property
    def columns(self) -> tuple[Array, ...]: ...

    @property
    def early(self) -> bool:
        """True if the windows are still open."""

    @property
    def window(self) -> int:
        """The number of the window definition in the plan."""

    def edges(self) -> tuple[Array, Array]:
        """The start and the end of each row's window."""


@dataclass(slots=True)
class NumberedState(ABC, Generic[PlanT, EntriesT]):
    """All shards of a slot.

    `versions` has the version of each shard; None while the shard is being changed.
    """

    plan: PlanT
    keys: KeyTable
    versions: dict[int, Version | None] = field(default_factory=dict)
    shard_of: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    dropped_us: int | None = None  # what was over at this watermark has been dropped

    @abstractmethod
    def absorb(self, parts: Iterable[tuple[int, EntriesT]]) -> None:
        """Merges decoded deltas or snapshots of several shards, each shard at most once."""

    def absorb_all(self, layers: Sequence[Sequence[tuple[int, EntriesT]]]) -> None:
        """Merges one layer of deltas or snapshots after the other."""
        for layer in layers:
            self.absorb(layer)

    @abstractmethod
    def next_end(self, after_us: int | None) -> int | None:
        """The first end after a watermark, when something may close; None if nothing is open."""

    @abstractmethod
    def final_end(self) -> int | None:
        """The last end of everything that is open."""

    @abstractmethod
    def drop(self, watermark_us: int | None) -> None:
        """Drops what is over at a watermark, and the numbers of keys that then have no state."""

    @abstractmethod
    def forget(self, before_us: int | None) -> None:
        """Drops what starts before a time."""

    @abstractmethod
    def snapshot(self, shards: Collection[int]) -> dict[int, EntriesT]:
        """Everything that some shards hold."""

    @abstractmethod
    def nothing(self) -> EntriesT:
        """The entries of an empty shard."""

    @abstractmethod
    def rows_by_shard(self) -> dict[int, int]:
        """How many rows or partials each shard holds."""

    @abstractmethod
    def _rows_held(self) -> Array:
        """For each key number, whether it has state."""

    @abstractmethod
    def _clear(self, gone: Array) -> None:
        """Drops the state of some keys. `gone` says it for each key number."""

    @abstractmethod
    def _renumber(self, kept: Array) -> None:
        """Drops all key numbers but these, which become 0, 1, ..."""

    def number(self, keys: pa.Table, shards: Array) -> Array:
        """The numbers of keys. New keys get new numbers."""
        rows, fresh = self.keys.rows(keys)
        if len(fresh):
            self.shard_of = np.concatenate([self.shard_of, shards[fresh].astype(np.int32)])
        return rows

    def leave(self, shards: Collection[int]) -> None:
        """Drops some shards, which belong to another slot now.

        Their keys keep their numbers until it pays to renumber.
        """
        gone = np.isin(self.shard_of, list(shards))
        if gone.any():
            self._clear(gone)
            self._reclaim()
        for shard in shards:
            self.versions.pop(shard, None)

    def reaches(self, watermark_us: int | None) -> bool:
        """Whether everything that was still open at a watermark is here.

        It is not if an attempt dropped more and then failed.
        """
        return self.dropped_us is None or (
            watermark_us is not None and self.dropped_us <= watermark_us
        )

    def _numbers_of(self, kept: Array) -> Array:
        """Drops all keys but these. Gives the new number of each old one, -1 if it is dropped."""
        numbers = np.full(len(self.keys), -1, dtype=np.int32)
        numbers[kept] = np.arange(len(kept), dtype=np.int32)
        self.keys.keep(kept)
        self.shard_of = self.shard_of[kept]
        return numbers

    def _reclaim(self) -> None:
        """Renumbers the keys if more than half of the numbers have no state."""
        if len(self.keys) > _SMALL:
            held = self._rows_held()
            if 2 * held.sum() < len(self.keys):
                self._renumber(np.flatnonzero(held))


@dataclass(slots=True)
class KeyedState(NumberedState[AggregatePlan, Entries]):
    """The partials of a slot, which are formed into windows or sessions.

    Partials are read and written by shard.
    """

    @abstractmethod
    def add(self, rows: Array, pane: Array, columns: Sequence[Array]) -> None:
        """Merges partials in. No (row, pane) may occur twice in one call."""

    @abstractmethod
    def newest(self, pane: Array, columns: Sequence[Array]) -> int:
        """An upper bound of the event times of all rows in some partials."""

    @abstractmethod
    def close(self, after_us: int | None, until_us: int | None) -> Sequence[Formed]:
        """The windows that end in (after, until], with every key that has rows in them."""

    @abstractmethod
    def open_windows(self, until_us: int | None) -> Sequence[Formed]:
        """The windows that are still open, with the rows so far."""

    def combine(
        self, rows: Array, pane: Array, part: Array, columns: Sequence[Array]
    ) -> tuple[Array, Array, Sequence[Array]]:
        """Merges the partials of several parts into one partial per (row, pane).

        A part has at most one for each (row, pane).
        """
        parts = np.unique(part)
        if len(parts) <= 1:
            return rows, pane, columns
        panes, number = numbered(pane, self.plan.panes.width_us)
        at, size = number * len(self.keys) + rows, len(panes) * len(self.keys)
        held: Array | None = None
        if size > _DENSE * len(rows):
            held, at = np.unique(at, return_inverse=True)
            size = len(held)
        merged = merged_parts(self.plan, at, size, part, columns)
        if held is None:
            held = np.flatnonzero(merged[0])
            merged = tuple(column[held] for column in merged)
        return (held % len(self.keys)).astype(rows.dtype), panes[held // len(self.keys)], merged

    def keys_by_length(self, closed: Sequence[Formed]) -> dict[int, float]:  # noqa: ARG002
        """The mean number of keys with rows in an interval, by its length in panes.

        Empty if planning does not use it.
        """
        return {}

    def entries(self, rows: Array, pane: Array, columns: Sequence[Array]) -> dict[int, Entries]:
        """Partials of this slot's keys, by shard, with the keys themselves instead of numbers."""
        starts, order = groups(self.shard_of[rows])
        table = self.keys.table()
        found = {}
        for start, end in itertools.pairwise(starts):
            at = order[start:end]
            numbers, key = np.unique(rows[at], return_inverse=True)
            kept = tuple(column[at] for column in columns)
            found[int(self.shard_of[rows[at[0]]])] = Entries(
                table.take(numbers), key.astype(np.int32), pane[at], kept
            )
        return found

    def nothing(self) -> Entries:
        """The entries of a shard without partials."""
        columns = tuple(column.empty(0) for column in self.plan.columns)
        return Entries(
            self.keys.table().slice(0, 0), np.empty(0, np.int32), np.empty(0, np.int64), columns
        )

    def _numbers(self, parts: Sequence[tuple[int, Entries]]) -> list[Array]:
        """The numbers of the keys of each part. New keys get new numbers."""
        sizes = [len(entries.keys) for _, entries in parts]
        keys = pa.concat_tables([entries.keys for _, entries in parts])
        numbers = self.number(keys, np.repeat([shard for shard, _ in parts], sizes))
        return np.split(numbers, np.cumsum(sizes)[:-1])

    def _gathered(
        self, parts: Sequence[tuple[int, Entries]], numbers: Sequence[Array]
    ) -> tuple[Array, Array, list[Array]]:
        """Entries of several shards as rows of this slot, with the numbers of their keys."""
        rows = np.concatenate(
            [mine[entries.key] for mine, (_, entries) in zip(numbers, parts, strict=True)]
        )
        pane = np.concatenate([entries.pane for _, entries in parts])
        columns = [
            np.concatenate(group)
            for group in zip(*(entries.columns for _, entries in parts), strict=True)
        ]
        return rows, pane, columns


def merged_parts(
    plan: OperatorPlan, at: Array, size: int, part: Array, columns: Sequence[Array]
) -> tuple[Array, ...]:
    """Merges the partials of several parts into one partial for each group, 0 to size - 1.

    A part has at most one for each group.
    """
    merged = tuple(column.empty(size) for column in plan.columns)
    for each in np.unique(part):
        mine = np.flatnonzero(part == each)
        for kept in plan.kept:
            kept.partial.merge(
                merged[kept.columns], at[mine], [column[mine] for column in columns[kept.columns]]
            )
    return merged


def groups(values: Array) -> tuple[Array, Array]:
    """An order that brings equal values together, and where in it each group starts.

    The last start is the end of the last group.
    """
    if not len(values):
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64)
    small = (
        values.astype(np.uint16) if values.min() >= 0 and values.max() < 1 << 16 else values
    )  # NumPy sorts 16-bit numbers by radix
    order = np.argsort(small, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    return starts, order


def numbered(pane: Array, width_us: int | None) -> tuple[Array, Array]:
    """Distinct panes (maybe with some between them), and the position of each given pane there."""
    if not len(pane):
        return pane, pane
    first, last = int(pane.min()), int(pane.max())
    if width_us is not None and (last - first) // width_us < 1 << 12:
        number, rest = np.divmod(pane - first, width_us)
        if not rest.any():  # no pane is cut
            return np.arange(first, last + 1, width_us), number
    panes, number = np.unique(pane, return_inverse=True)
    return panes, number
