"""The decoded sessions of one slot: the open sessions of all keys, merged and closed with arrays.

An open session is one row: its key's number and its merged partials, with its first and last event
time. Those two times are enough. A new row between them belongs to the session, because it is at
most a gap away from another row. A row before or after them is compared with them. Partials of
panes, deltas and snapshots have the same form, and those at most a gap apart become one.

A closed session is dropped. A later row begins a new one, however near it is. So sessions that were
over at the watermark before a step must be dropped before the partials of the step are added. That
holds when rows arrive, and when deltas are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.plan.operators.base import KeptPartial
from anabranch.plan.operators.sessions import SessionPlan
from anabranch.state.codec.blob import Entries
from anabranch.state.memory.keyed import KeyedState
from anabranch.topology.windows import NEVER
from anabranch.types import Array

_FITS = 1 << 62


@dataclass(frozen=True, slots=True)
class ClosedSessions:
    """Sessions, each with its own start and end. A key may have several.

    If they are early, they are not complete.
    """

    start_us: Array
    end_us: Array
    rows: Array
    columns: tuple[Array, ...]
    early: bool = False

    @property
    def window(self) -> int:
        return 0

    def edges(self) -> tuple[Array, Array]:
        """The start and the end of each session."""
        return self.start_us, self.end_us


@dataclass(slots=True)
class SessionState(KeyedState):
    """The open sessions of all shards of a slot: key number `rows[i]` has `columns[...][i]`.

    They are not sorted. Before the rows of a step are added, `drop` must be called with the
    watermark that decided which rows are late. Deltas store that watermark.
    """

    plan: SessionPlan
    rows: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    columns: tuple[Array, ...] = ()

    def __post_init__(self) -> None:
        self.columns = self.columns or tuple(column.empty(0) for column in self.plan.columns)

    def add(self, rows: Array, pane: Array, columns: Sequence[Array]) -> None:  # noqa: ARG002
        """Merges partials into sessions that are at most a gap away.

        Partials that connect two sessions make them one.
        """
        if not len(rows):
            return
        touched = np.zeros(len(self.keys), dtype=bool)
        touched[rows] = True
        mine = touched[self.rows]
        old, rest = np.flatnonzero(mine), np.flatnonzero(~mine)
        met = [
            np.concatenate([column[old], values])
            for column, values in zip(self.columns, columns, strict=True)
        ]
        met_rows, met = self._united(np.concatenate([self.rows[old], rows]), met)
        self.rows = np.concatenate([self.rows[rest], met_rows])
        self.columns = tuple(
            np.concatenate([column[rest], values])
            for column, values in zip(self.columns, met, strict=True)
        )

    def newest(self, pane: Array, columns: Sequence[Array]) -> int:  # noqa: ARG002
        """The last event time."""
        return int(columns[self.plan.last].max())

    def _united(self, rows: Array, columns: Sequence[Array]) -> tuple[Array, list[Array]]:
        """One row for each session.

        A row joins the session before it if it has the same key and starts at most a gap after it.
        """
        first, last = columns[self.plan.first], columns[self.plan.last]
        order, reached = _swept(rows, first, last)
        rows, first, columns = rows[order], first[order], [column[order] for column in columns]
        new = (rows[1:] != rows[:-1]) | (first[1:] > reached[:-1] + self.plan.session.gap_us)
        starts = np.flatnonzero(np.concatenate([[True], new]))
        _merge_runs(self.plan.kept, columns, starts)
        return rows[starts], [column[starts] for column in columns]

    def absorb(self, parts: Iterable[tuple[int, Entries]]) -> None:
        """Adds deltas or snapshots of several shards, each shard at most once.

        They must come in the order of steps. Sessions of a shard that had closed before its delta
        are dropped first, so the shards may be at different steps.
        """
        parts = [(shard, entries) for shard, entries in parts if len(entries)]
        if not parts:
            return
        over = np.full(
            1 + max(int(self.shard_of.max(initial=0)), *(shard for shard, _ in parts)), NEVER
        )
        for shard, entries in parts:
            over[shard] = NEVER if entries.after_us is None else entries.after_us
        self._keep(self._ends() > over[self.shard_of[self.rows]])
        self.add(*self._gathered(parts, self._numbers(parts)))

    def close(self, after_us: int | None, until_us: int | None) -> list[ClosedSessions]:
        """The sessions that end in (after, until], by end and start."""
        if until_us is None:
            return []
        ends = self._ends()
        return self._formed(
            (ends > (NEVER if after_us is None else after_us)) & (ends <= until_us), early=False
        )

    def open_windows(self, until_us: int | None) -> list[ClosedSessions]:
        """The sessions that are still open, with the rows so far."""
        return self._formed(self._ends() > (NEVER if until_us is None else until_us), early=True)

    def _formed(self, which: Array, *, early: bool) -> list[ClosedSessions]:
        at = np.flatnonzero(which)
        if not len(at):
            return []
        start, end = self.columns[self.plan.first], self._ends()
        at = at[np.lexsort((self.rows[at], start[at], end[at]))]
        columns = tuple(column[at] for column in self.columns)
        return [ClosedSessions(start[at], end[at], self.rows[at], columns, early)]

    def next_end(self, after_us: int | None) -> int | None:
        """The end of the first open session, if no more rows come."""
        ends = self._ends()
        ends = ends[ends > (NEVER if after_us is None else after_us)]
        return int(ends.min()) if len(ends) else None

    def final_end(self) -> int | None:
        """The end of the last session, if no more rows come."""
        return int(self._ends().max()) if len(self.rows) else None

    def drop(self, watermark_us: int | None) -> None:
        """Drops sessions that end at or before a watermark, and keys that have no other session."""
        if watermark_us is not None:
            self._keep(self._ends() > watermark_us)
            self.dropped_us = (
                watermark_us if self.dropped_us is None else max(self.dropped_us, watermark_us)
            )
        self._reclaim()

    def forget(self, before_us: int | None) -> None:
        """Drops sessions that start before a time."""
        if before_us is not None:
            self._keep(self.columns[self.plan.first] >= before_us)

    def entries(self, rows: Array, pane: Array, columns: Sequence[Array]) -> dict[int, Entries]:
        """Partials of this slot's keys, by shard, with the keys themselves instead of numbers.

        They have the watermark from before they came.
        """
        found = KeyedState.entries(self, rows, pane, columns)
        return {
            shard: replace(entries, after_us=self.dropped_us) for shard, entries in found.items()
        }

    def snapshot(self, shards: Collection[int]) -> dict[int, Entries]:
        """The open sessions of some shards. The pane of a session is its first event time."""
        at = np.flatnonzero(np.isin(self.shard_of[self.rows], list(shards)))
        columns = [column[at] for column in self.columns]
        found = self.entries(self.rows[at], columns[self.plan.first], columns)
        return {shard: found.get(shard) or self.nothing() for shard in shards}

    def rows_by_shard(self) -> dict[int, int]:
        """How many open sessions each shard holds."""
        counts = np.bincount(self.shard_of[self.rows])
        return {int(shard): int(counts[shard]) for shard in np.flatnonzero(counts)}

    def _ends(self) -> Array:
        """When each session ends if no other row comes.

        Event times are limited, so this does not overflow.
        """
        ends: Array = self.columns[self.plan.last] + self.plan.session.gap_us
        return ends

    def _keep(self, which: Array) -> None:
        if not which.all():
            self.rows = self.rows[which]
            self.columns = tuple(column[which] for column in self.columns)

    def _rows_held(self) -> Array:
        held = np.zeros(len(self.keys), dtype=bool)
        held[self.rows] = True
        return held

    def _clear(self, gone: Array) -> None:
        self._keep(~gone[self.rows])

    def _renumber(self, kept: Array) -> None:
        self.rows = self._numbers_of(kept)[self.rows]


def _swept(rows: Array, first: Array, last: Array) -> tuple[Array, Array]:
    """An order by row and first time, and the latest last time of the same row up to each place.

    Row and time are combined into one number: sorting it takes an eighth of the time of sorting by
    two. If the number would be too large, ranks replace the times.
    """
    start = int(first.min())
    span = int(last.max()) - start + 1
    values: Array | None = None
    if span * (int(rows.max()) + 1) < _FITS:
        first, last = first - start, last - start
    else:
        values, at = np.unique(np.concatenate([first, last]), return_inverse=True)
        first, last, span = at[: len(first)], at[len(first) :], len(values)
    base = rows.astype(np.int64) * span
    order = np.argsort(base + first)
    reached: Array = np.maximum.accumulate((base + last)[order]) - base[order]
    return order, reached + start if values is None else values[reached]


def _merge_runs(kept: Sequence[KeptPartial], columns: Sequence[Array], starts: Array) -> None:
    """Merges each run of neighbours into its first row. A run begins at each of `starts`.

    It merges pairs, then pairs of pairs: a run of n takes log2(n) operations, over all runs at
    once.
    """
    size = len(columns[0])
    place = np.arange(size) - np.repeat(starts, np.diff(starts, append=size))
    left, step = np.flatnonzero(place), 1
    while len(left):
        odd = (place[left] & step) > 0
        source, left = left[odd], left[~odd]
        for each in kept:
            mine = columns[each.columns]
            each.partial.merge(mine, source - step, [column[source] for column in mine])
        step *= 2
