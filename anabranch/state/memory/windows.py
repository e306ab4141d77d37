"""The decoded windows of one slot: the panes of all its shards, merged and closed with arrays.

A pane is a list of chunks, one for each step that had rows for it. A chunk is dense (it has a place
for every key number) if many keys are active, else sparse (it lists its key numbers). Chunks are
merged when there are many, and when a window closes.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from anabranch.plan.consolidation import PANE, Piece
from anabranch.plan.operators.windows import WindowsPlan
from anabranch.plan.panes import Closing, ends_between
from anabranch.state.codec.blob import Entries
from anabranch.state.memory.keyed import Formed, KeyedState, groups, numbered
from anabranch.types import Array

_MANY_CHUNKS = 4
_DENSE = 4  # a chunk is dense when it holds more than 1/4 of the keys
_MANY_FORMED = 256


@dataclass(frozen=True, slots=True)
class Chunk:
    """Partials of some keys in one pane.

    `rows` has their key numbers. If it is None, they are the numbers 0, 1, ... up to the length.
    """

    rows: Array | None
    columns: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True)
class Closed:
    """A window: the keys that have rows in it, and their merged partials.

    If it is early, it is not complete.
    """

    closing: Closing
    chunk: Chunk
    early: bool = False

    @cached_property
    def _present(self) -> tuple[Array, tuple[Array, ...]]:
        return present(self.chunk)

    @property
    def rows(self) -> Array:
        return self._present[0]

    @property
    def columns(self) -> tuple[Array, ...]:
        return self._present[1]

    @property
    def keys(self) -> int:
        """How many keys have rows in the window."""
        return count_present(self.chunk)

    @property
    def window(self) -> int:
        return self.closing.window

    def edges(self) -> tuple[Array, Array]:
        """The start and the end of each row's window, which are the same for all rows."""
        return np.full(len(self.rows), self.closing.start_us), np.full(
            len(self.rows), self.closing.end_us
        )


@dataclass(slots=True)
class WindowsState(KeyedState):
    """The panes of all shards of a slot, and the windows that are formed from them."""

    plan: WindowsPlan
    panes: dict[int, list[Chunk]] = field(default_factory=dict)
    formed: dict[tuple[int, int], tuple[Chunk, int]] = field(
        default_factory=dict
    )  # by family and end, with the watermark until which each is of use
    merges: int = 0  # partials that were merged into windows

    def add(self, rows: Array, pane: Array, columns: Sequence[Array]) -> None:
        """Merges partials in. No (row, pane) may occur twice in one call."""
        panes, number = numbered(pane, self.plan.panes.width_us)
        starts, order = groups(number)
        for start, end in itertools.pairwise(starts):
            at = order[start:end]
            which = int(panes[number[at[0]]])
            chunk = self._chunk(rows[at], tuple(column[at] for column in columns))
            chunks = self.panes.setdefault(which, [])
            chunks.append(chunk)
            if len(chunks) > _MANY_CHUNKS:
                chunks[:] = [self._merged(chunks)]
            self._late(which, chunk)

    def newest(self, pane: Array, columns: Sequence[Array]) -> int:  # noqa: ARG002
        """The last microsecond of the last pane."""
        return self.plan.panes.end_of(int(pane.max())) - 1

    def _late(self, pane: int, chunk: Chunk) -> None:
        """Adds late rows to intervals that were formed before they came.

        Longer windows, which are still open, will be formed from these intervals.
        """
        for (number, end_us), (held, until_us) in self.formed.items():
            if pane < end_us and self.plan.consolidation.start_of(number, end_us) <= pane:
                self.formed[number, end_us] = self._merged([held, chunk]), until_us

    def absorb(self, parts: Iterable[tuple[int, Entries]]) -> None:
        """Merges decoded deltas or snapshots of several shards, each shard at most once."""
        self.absorb_all([list(parts)])

    def absorb_all(self, layers: Sequence[Sequence[tuple[int, Entries]]]) -> None:
        """Merges one layer after the other. The keys of all layers are looked up at once."""
        layers = [
            [(shard, entries) for shard, entries in layer if len(entries)] for layer in layers
        ]
        every = [part for layer in layers for part in layer]
        numbers = iter(self._numbers(every) if every else ())
        for layer in layers:
            if layer:
                self.add(*self._gathered(layer, [next(numbers) for _ in layer]))

    def close(self, after_us: int | None, until_us: int | None) -> list[Closed]:
        """The windows that end in (after, until], with every key that has rows in them.

        They are formed as the consolidation plan says.
        """
        closed = []
        intervals = self._ended(after_us, until_us)
        ordered = sorted(self.panes) if intervals else []
        many = 2 * len(self.formed) + _MANY_FORMED
        for number, end_us, closing in intervals:
            if len(self.formed) > many:
                self._expire(end_us - 1)
                many = 2 * len(self.formed) + _MANY_FORMED
            chunk = self._form(number, end_us, end_us, ordered)
            assert chunk is not None, "a window closes because one of its panes has rows"
            if closing is not None:
                closed.append(Closed(closing, chunk))
        return closed

    def _ended(
        self, after_us: int | None, until_us: int | None
    ) -> list[tuple[int, int, Closing | None]]:
        """The intervals that end in (after, until], sorted by end.

        Each has its family, and the window that closes with it. An interval that only helps to form
        later windows has no window; it is formed as soon as it ends.
        """
        plan = self.plan.consolidation
        found: list[tuple[int, int, Closing | None]] = []
        if plan.formed_early and self.panes and until_us is not None:
            ordered = sorted(self.panes)
            for number, window in plan.formed_early:
                ends = ends_between(window, ordered, after_us, until_us)
                found += [(number, end, None) for end in ends]
        closings = self.plan.panes.closings(self.panes, after_us, until_us)
        found += [(plan.of_window[each.window], each.end_us, each) for each in closings]
        return sorted(found, key=lambda each: each[1])

    def open_windows(self, until_us: int | None) -> list[Closed]:
        """The windows that are still open, with the rows so far."""
        last = self.plan.panes.final_end(self.panes)
        ordered = sorted(self.panes)
        found = []
        for closing in self.plan.panes.closings(self.panes, until_us, last):
            number = self.plan.consolidation.of_window[closing.window]
            chunks: list[Chunk] = []
            for piece in self.plan.consolidation.pieces(number, closing.end_us):
                held = self.formed.get((piece.family, piece.end_us))
                chunks += self._between(piece, ordered) if held is None else [held[0]]
            found.append(Closed(closing, self._merged(chunks), early=True))
        return found

    def _form(self, number: int, end_us: int, now_us: int, ordered: Sequence[int]) -> Chunk | None:
        """The partials of one interval of a family; None if it has no rows.

        They are reused if they were formed before, else merged from the parts of the interval.
        """
        if (held := self.formed.get((number, end_us))) is not None:
            return held[0]
        plan = self.plan.consolidation
        whole = Piece(PANE, plan.start_of(number, end_us), end_us)
        panes = bisect_left(ordered, end_us) - bisect_left(ordered, whole.start_us)
        if not panes:
            return None
        pieces = plan.pieces(number, end_us)
        if panes <= sum(piece.count for piece in pieces):
            pieces = [whole]
        found: list[Chunk] = []
        for piece in pieces:
            if piece.family == PANE:
                found += self._between(piece, ordered)
            elif (part := self._form(piece.family, piece.end_us, now_us, ordered)) is not None:
                found.append(part)
        self.merges += len(found)
        chunk = self._merged(found)
        if (until_us := plan.kept_until(number, end_us, now_us)) is not None:
            self.formed[number, end_us] = chunk, until_us
        return chunk

    def _between(self, piece: Piece, ordered: Sequence[int]) -> list[Chunk]:
        """The panes of a part, each as one chunk."""
        low, high = bisect_left(ordered, piece.start_us), bisect_left(ordered, piece.end_us)
        return [self._pane(pane) for pane in ordered[low:high]]

    def _pane(self, pane: int) -> Chunk:
        """A pane that is being closed, as one chunk: few more rows will come."""
        chunks = self.panes[pane]
        if len(chunks) > 1:
            chunks[:] = [self._merged(chunks)]
        return chunks[0]

    def next_end(self, after_us: int | None) -> int | None:
        """The end of the first open window that contains a pane with rows."""
        return self.plan.panes.next_end(self.panes, after_us)

    def final_end(self) -> int | None:
        """The end of the last window that contains a pane with rows."""
        return self.plan.panes.final_end(self.panes)

    def keys_by_length(self, closed: Sequence[Formed]) -> dict[int, float]:
        """The mean number of keys with rows in an interval, by its length in panes.

        It is counted in the windows that closed and in their last panes. Panes that are cut have
        different lengths and do not count.
        """
        found: dict[int, list[int]] = {}
        width = self.plan.panes.width_us
        if width is None:
            return {}
        spaced = [window.grid is not None for window in self.plan.panes.windows]
        windows = [each for each in closed if isinstance(each, Closed) and spaced[each.window]]
        for each in windows:
            found.setdefault((each.closing.end_us - each.closing.start_us) // width, []).append(
                each.keys
            )
        ends = {each.closing.end_us - width for each in windows}
        if 1 not in found and (last := sorted(ends & self.panes.keys())):
            found[1] = [count_present(self._pane(pane)) for pane in last]
        return {length: sum(counts) / len(counts) for length, counts in found.items()}

    def drop(self, watermark_us: int | None) -> None:
        """Drops panes that no open window contains, and key numbers that no pane uses any more."""
        if watermark_us is not None:
            panes = np.fromiter(self.panes, dtype=np.int64)
            for pane in panes[self.plan.panes.last_ends(panes) <= watermark_us].tolist():
                del self.panes[pane]
        self.dropped_us = watermark_us
        if watermark_us is not None:
            self._expire(watermark_us)
        self._reclaim()

    def _expire(self, now_us: int) -> None:
        """Drops formed intervals that no later window needs."""
        self.formed = {which: held for which, held in self.formed.items() if held[1] > now_us}

    def forget(self, before_us: int | None) -> None:
        """Drops panes that start before a time."""
        for pane in [pane for pane in self.panes if before_us is not None and pane < before_us]:
            del self.panes[pane]

    def snapshot(self, shards: Collection[int]) -> dict[int, Entries]:
        """All partials of some shards."""
        mine = np.isin(self.shard_of, list(shards))
        parts = []
        for pane, chunks in self.panes.items():
            rows, columns = present(self._merged(chunks))
            at = mine[rows]
            parts.append(
                (
                    rows[at],
                    np.full(int(at.sum()), pane, dtype=np.int64),
                    *(column[at] for column in columns),
                )
            )
        found: dict[int, Entries] = {}
        if parts:
            all_rows, all_panes, *all_columns = (
                np.concatenate(group) for group in zip(*parts, strict=True)
            )
            found = self.entries(all_rows, all_panes, all_columns)
        return {shard: found.get(shard) or self.nothing() for shard in shards}

    def rows_by_shard(self) -> dict[int, int]:
        """How many partials each shard holds."""
        counts = np.zeros(int(self.shard_of.max(initial=-1)) + 1, dtype=np.int64)
        for chunk in (chunk for chunks in self.panes.values() for chunk in chunks):
            rows = np.flatnonzero(chunk.columns[0]) if chunk.rows is None else chunk.rows
            counts += np.bincount(self.shard_of[rows], minlength=len(counts))
        return {int(shard): int(counts[shard]) for shard in np.flatnonzero(counts)}

    def _chunk(self, rows: Array, columns: tuple[Array, ...]) -> Chunk:
        if len(rows) * _DENSE <= len(self.keys):
            return Chunk(rows, columns)
        dense = tuple(column.empty(len(self.keys)) for column in self.plan.columns)
        for target, values in zip(dense, columns, strict=True):
            target[rows] = values
        return Chunk(None, dense)

    def _merged(self, chunks: Sequence[Chunk]) -> Chunk:
        """Several chunks as one: over all key numbers, or over those that occur if they are few."""
        if len(chunks) == 1:
            return chunks[0]
        numbers = [chunk.rows for chunk in chunks if chunk.rows is not None]
        rows: Array | None = None
        if len(numbers) == len(chunks) and sum(map(len, numbers)) * _DENSE <= len(self.keys):
            rows = np.unique(np.concatenate(numbers))
        first, *others = chunks
        if first.rows is None and len(first) == len(self.keys):
            columns = tuple(values.copy() for values in first.columns)
        else:
            columns = tuple(
                column.empty(len(self.keys) if rows is None else len(rows))
                for column in self.plan.columns
            )
            at = _places(first, rows)
            for into, values in zip(columns, first.columns, strict=True):
                into[at] = values
        for chunk in others:
            at = _places(chunk, rows)
            for kept in self.plan.kept:
                kept.partial.merge(columns[kept.columns], at, chunk.columns[kept.columns])
        return Chunk(rows, columns)

    def _rows_held(self) -> Array:
        held = np.zeros(len(self.keys), dtype=bool)
        for chunk in (chunk for chunks in self.panes.values() for chunk in chunks):
            if chunk.rows is None:
                held[: len(chunk)] |= chunk.columns[0] > 0
            else:
                held[chunk.rows] = True
        return held

    def leave(self, shards: Collection[int]) -> None:
        """Drops some shards, and all formed intervals, which may contain their rows."""
        self.formed = {}
        KeyedState.leave(self, shards)

    def _clear(self, gone: Array) -> None:
        for pane, chunks in list(self.panes.items()):
            left = [self._cleared(chunk, gone) for chunk in chunks]
            chunks[:] = [
                chunk
                for chunk in left
                if len(chunk) and (chunk.rows is not None or chunk.columns[0].any())
            ]
            if not chunks:
                del self.panes[pane]

    def _cleared(self, chunk: Chunk, gone: Array) -> Chunk:
        if chunk.rows is not None:
            at = np.flatnonzero(~gone[chunk.rows])
            return Chunk(chunk.rows[at], tuple(column[at] for column in chunk.columns))
        at = np.flatnonzero(gone[: len(chunk)])
        for kept, values in zip(self.plan.columns, chunk.columns, strict=True):
            values[at] = kept.empty(len(at))
        return chunk

    def _renumber(self, kept: Array) -> None:
        merged = {pane: present(self._merged(chunks)) for pane, chunks in self.panes.items()}
        formed = {
            which: (*present(chunk), until_us) for which, (chunk, until_us) in self.formed.items()
        }
        numbers = self._numbers_of(kept)
        self.panes = {
            pane: [self._chunk(numbers[rows], columns)] for pane, (rows, columns) in merged.items()
        }
        self.formed = {}
        for which, (rows, columns, until_us) in formed.items():
            at = np.flatnonzero(numbers[rows] >= 0)
            self.formed[which] = (
                self._chunk(numbers[rows[at]], tuple(column[at] for column in columns)),
                until_us,
            )


def _places(chunk: Chunk, rows: Array | None) -> slice | Array:
    """The positions of a chunk's partials among all key numbers, or among those in `rows`."""
    if chunk.rows is None:
        return slice(0, len(chunk))
    return chunk.rows if rows is None else np.searchsorted(rows, chunk.rows)


def count_present(chunk: Chunk) -> int:
    """How many keys have rows in a chunk."""
    return len(chunk) if chunk.rows is not None else int(np.count_nonzero(chunk.columns[0]))


def present(chunk: Chunk) -> tuple[Array, tuple[Array, ...]]:
    """The keys that have rows in a chunk, and their partials."""
    if chunk.rows is not None:
        return chunk.rows, chunk.columns
    at = np.flatnonzero(chunk.columns[0])
    return at, tuple(column[at] for column in chunk.columns)
