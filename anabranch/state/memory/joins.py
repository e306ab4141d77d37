"""The decoded state of a join in one slot.

Rows of both sides wait in panes. When a window closes, it joins the rows of its panes. Both sides
share the key numbers, so rows match if their numbers are equal. A null in a key equals nothing;
rows with one wait only on an outer side, which also gives rows without a partner.

A pane is a list of chunks, each at least twice as long as the next. So a row is copied only a few
times, however many steps a pane lasts.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.plan.evolution import names_of
from anabranch.plan.operators.joins import SIDES, JoinPlan, Side
from anabranch.plan.panes import Closing
from anabranch.state.codec.joins import JoinEntries, SideRows, no_rows
from anabranch.state.memory.keyed import NumberedState, groups, numbered
from anabranch.state.memory.pairs import match
from anabranch.types import Array, arrow_type

_BLOCK = 1 << 20  # rows of results made at once: strings in one Arrow array take at most 2 GiB


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows of one side in one pane: key numbers, how often each came, other columns."""

    key: Array
    times: Array
    payload: pa.Table

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Rows of one side, sorted by pane and repeated as often as they came.

    The rows of `panes[i]` are those from `starts[i]` up to `starts[i + 1]`.
    """

    panes: Array
    starts: Array
    key: Array
    at: Array  # the row number in `payload`
    payload: pa.Table

    def within(self, closing: Closing) -> slice:
        """Where the rows of a window are."""
        first, last = np.searchsorted(self.panes, (closing.start_us, closing.end_us))
        return slice(int(self.starts[first]), int(self.starts[last]))


@dataclass(frozen=True, slots=True)
class _Window:
    """The result of one window: the key of each row, and its row number in each payload.

    The row number is -1 if the row has no partner on that side.
    """

    key: Array
    left: Array
    right: Array


@dataclass(slots=True)
class JoinState(NumberedState[JoinPlan, JoinEntries]):
    """The rows of all shards of a slot that wait for a window to close."""

    sides: dict[Side, dict[int, list[Waiting]]] = field(
        default_factory=lambda: {side: {} for side in SIDES}
    )

    def number(self, keys: pa.Table, shards: Array) -> Array:
        """The numbers of keys; new keys get new numbers. -0.0 counts and comes out as 0.0."""
        for i, each in enumerate(keys.schema):
            if pa.types.is_floating(each.type):
                keys = keys.set_column(i, each, pc.add(keys.column(i), pa.scalar(0.0, each.type)))
        return NumberedState.number(self, keys, shards)

    def add(self, side: Side, rows: SideRows) -> None:
        """Adds rows of one side. Rows that can never be in a result are left out."""
        rows = self._wanted(side, rows)
        schema = self.plan.payload_schema(side)
        payload = (
            pa.Table.from_arrays(rows.payload.columns, names=schema.names)
            .cast(schema)
            .combine_chunks()
        )
        panes, number = numbered(rows.pane, self.plan.panes.width_us)
        starts, order = groups(number)
        for start, end in itertools.pairwise(starts):
            at = order[start:end]
            # `take`, not a slice: a slice would keep the rows of all other panes in memory too.
            waiting = Waiting(
                rows.key[at], rows.times[at], payload.take(pa.array(at)).combine_chunks()
            )
            chunks = self.sides[side].setdefault(int(panes[number[at[0]]]), [])
            chunks.append(waiting)
            while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]):
                chunks[-2:] = [_merged(chunks[-2:])]

    def absorb(self, parts: Iterable[tuple[int, JoinEntries]]) -> None:
        """Adds the rows of decoded deltas or snapshots of several shards."""
        parts = [(shard, entries) for shard, entries in parts if len(entries)]
        if not parts:
            return
        sizes = [len(entries.keys) for _, entries in parts]
        shards = np.repeat([shard for shard, _ in parts], sizes)
        numbers = self.number(pa.concat_tables([entries.keys for _, entries in parts]), shards)
        offsets = np.cumsum([0, *sizes])[:-1]
        for side in SIDES:
            given = [entries.rows[side] for _, entries in parts]
            key = np.concatenate(
                [numbers[rows.key + offset] for offset, rows in zip(offsets, given, strict=True)]
            )
            pane = np.concatenate([rows.pane for rows in given])
            times = np.concatenate([rows.times for rows in given])
            self.add(
                side, SideRows(key, pane, times, pa.concat_tables([rows.payload for rows in given]))
            )

    def close(self, after_us: int | None, until_us: int | None) -> tuple[pa.Table, Array]:
        """The joined rows of the windows that end in (after, until], and the shard of each row.

        Windows are sorted by end, start and definition.
        """
        closings = self.plan.panes.closings(self._panes(), after_us, until_us)
        if not closings:
            return self.plan.result_schema().empty_table(), np.empty(0, dtype=np.int32)
        first, last = min(each.start_us for each in closings), closings[-1].end_us
        left, right = (self._ordered(side, first, last) for side in SIDES)
        # Keys with a null on the right get a number that no row on the left has. So they match
        # nothing.
        matched = (
            np.where(self._nulls()[right.key], len(self.keys), right.key)
            if len(right.key)
            else right.key
        )
        joined = [self._join(each, left, right, matched) for each in closings]
        return self._results(closings, joined, left.payload, right.payload)

    def _ordered(self, side: Side, start_us: int, end_us: int) -> _Ordered:
        """The rows of a side in [start, end), sorted by pane."""
        held = self.sides[side]
        panes = sorted(pane for pane in held if start_us <= pane < end_us)
        chunks = [chunk for pane in panes for chunk in held[pane]]
        if not chunks:
            none = no_rows(self.plan, side)
            return _Ordered(
                none.pane, np.zeros(1, dtype=np.int64), none.key, none.pane, none.payload
            )
        times = np.concatenate([chunk.times for chunk in chunks])
        sizes = [sum(int(chunk.times.sum()) for chunk in held[pane]) for pane in panes]
        at = np.repeat(np.arange(len(times)), times)
        key = np.concatenate([chunk.key for chunk in chunks])[at]
        payload = pa.concat_tables([chunk.payload for chunk in chunks]).combine_chunks()
        return _Ordered(np.array(panes), np.cumsum([0, *sizes]), key, at, payload)

    def _join(self, closing: Closing, left: _Ordered, right: _Ordered, matched: Array) -> _Window:
        """One window: all pairs, and the rows of outer sides that have no partner."""
        mine, theirs = left.within(closing), right.within(closing)
        found = match(left.key[mine], matched[theirs], len(self.keys) + 1)
        left_only = found.left_only if self.plan.outer("left") else found.left_only[:0]
        right_only = found.right_only if self.plan.outer("right") else found.right_only[:0]
        on_left, on_right = np.concatenate([found.left, left_only]), right_only
        key = np.concatenate([left.key[mine][on_left], right.key[theirs][on_right]])
        nothing = np.full(max(len(left_only), len(right_only)), -1)
        return _Window(
            key,
            np.concatenate([left.at[mine][on_left], nothing[: len(right_only)]]),
            np.concatenate(
                [
                    right.at[theirs][found.right],
                    nothing[: len(left_only)],
                    right.at[theirs][right_only],
                ]
            ),
        )

    def _results(
        self,
        closings: Sequence[Closing],
        joined: Sequence[_Window],
        left: pa.Table,
        right: pa.Table,
    ) -> tuple[pa.Table, Array]:
        """The result rows (keys, window, its name, both payloads), and the shard of each."""
        sizes = [len(each.key) for each in joined]
        key = np.concatenate([each.key for each in joined])
        keys = _taken(self.keys.table(), key)
        moment = arrow_type(self.plan.time_type)
        edges = [
            pa.array(np.repeat(np.array(edge, dtype=np.int64), sizes)).cast(moment)
            for edge in ([each.start_us for each in closings], [each.end_us for each in closings])
        ]
        windows = [window.name for window in self.plan.panes.windows]
        names = pa.table(
            [pa.array([*windows, *(names_of(name)[1] for name in windows)])], names=["name"]
        )
        which = np.repeat(np.array([self._name_number(each) for each in closings]), sizes)
        columns = [
            *keys,
            pa.StructArray.from_arrays(edges, ["start", "end"]),
            *_taken(names, which),
            *_taken(left, np.concatenate([each.left for each in joined])),
            *_taken(right, np.concatenate([each.right for each in joined])),
        ]
        return pa.Table.from_arrays(columns, schema=self.plan.result_schema()), self.shard_of[key]

    def _name_number(self, closing: Closing) -> int:
        """The number of a window's name in the list of names.

        A window that lacks rows from before it was added has a second name, which says so.
        """
        since = self.plan.complete_from.get(closing.window)
        late = since is not None and closing.start_us < since
        return closing.window + (len(self.plan.panes.windows) if late else 0)

    def next_end(self, after_us: int | None) -> int | None:
        """The end of the first open window that contains a pane with rows."""
        return self.plan.panes.next_end(self._panes(), after_us)

    def final_end(self) -> int | None:
        """The end of the last window that contains a pane with rows."""
        return self.plan.panes.final_end(self._panes())

    def drop(self, watermark_us: int | None) -> None:
        """Drops panes that no open window contains, and key numbers that no pane uses any more."""
        if watermark_us is not None:
            panes = np.fromiter(self._panes(), dtype=np.int64)
            self._remove(panes[self.plan.panes.last_ends(panes) <= watermark_us].tolist())
            self.dropped_us = (
                watermark_us if self.dropped_us is None else max(self.dropped_us, watermark_us)
            )
        self._reclaim()

    def forget(self, before_us: int | None) -> None:
        """Drops panes that start before a time."""
        self._remove([pane for pane in self._panes() if before_us is not None and pane < before_us])

    def entries(self, arrived: Mapping[Side, SideRows]) -> dict[int, JoinEntries]:
        """Rows of this slot's keys, by shard, with the keys themselves instead of their numbers."""
        parts: dict[int, dict[Side, SideRows]] = {}
        for side, given in arrived.items():
            rows = self._wanted(side, given)
            starts, order = groups(self.shard_of[rows.key])
            for start, end in itertools.pairwise(starts):
                at = order[start:end]
                parts.setdefault(int(self.shard_of[rows.key[at[0]]]), {})[side] = rows.only(at)
        table = self.keys.table()
        found = {}
        for shard, held in sorted(parts.items()):
            numbers, key = np.unique(
                np.concatenate([rows.key for rows in held.values()]), return_inverse=True
            )
            mine = np.split(
                key.astype(np.int32), np.cumsum([len(rows) for rows in held.values()])[:-1]
            )
            renumbered = {
                side: SideRows(each, rows.pane, rows.times, rows.payload)
                for each, (side, rows) in zip(mine, held.items(), strict=True)
            }
            found[shard] = JoinEntries(
                table.take(numbers),
                {side: renumbered.get(side) or no_rows(self.plan, side) for side in SIDES},
            )
        return found

    def snapshot(self, shards: Collection[int]) -> dict[int, JoinEntries]:
        """All rows of some shards."""
        mine = np.isin(self.shard_of, list(shards))
        held = {}
        for side in SIDES:
            parts = []
            for pane, chunk in (
                (pane, chunk) for pane, chunks in self.sides[side].items() for chunk in chunks
            ):
                rows = SideRows(
                    chunk.key, np.full(len(chunk), pane, dtype=np.int64), chunk.times, chunk.payload
                )
                parts.append(rows.only(np.flatnonzero(mine[chunk.key])))
            if parts:
                held[side] = SideRows(
                    np.concatenate([rows.key for rows in parts]),
                    np.concatenate([rows.pane for rows in parts]),
                    np.concatenate([rows.times for rows in parts]),
                    pa.concat_tables([rows.payload for rows in parts]).combine_chunks(),
                )
        found = self.entries(held)
        return {shard: found.get(shard) or self.nothing() for shard in shards}

    def nothing(self) -> JoinEntries:
        """The entries of a shard without rows."""
        return JoinEntries(
            self.keys.table().slice(0, 0), {side: no_rows(self.plan, side) for side in SIDES}
        )

    def rows_by_shard(self) -> dict[int, int]:
        """How many rows of both sides each shard holds."""
        counts = np.zeros(int(self.shard_of.max(initial=-1)) + 1, dtype=np.int64)
        for chunk in self._chunks():
            counts += np.bincount(self.shard_of[chunk.key], minlength=len(counts))
        return {int(shard): int(counts[shard]) for shard in np.flatnonzero(counts)}

    def _panes(self) -> set[int]:
        return {pane for held in self.sides.values() for pane in held}

    def _chunks(self) -> Iterable[Waiting]:
        return (
            chunk for held in self.sides.values() for chunks in held.values() for chunk in chunks
        )

    def _remove(self, panes: Iterable[int]) -> None:
        for pane in panes:
            for held in self.sides.values():
                held.pop(pane, None)

    def _nulls(self) -> Array:
        """For each key number, whether one of its columns is null."""
        found = np.zeros(len(self.keys), dtype=bool)
        for column in self.keys.table().columns:
            if column.null_count:
                found |= column.is_null().to_numpy()
        return found

    def _wanted(self, side: Side, rows: SideRows) -> SideRows:
        """The rows that can be in a result.

        Rows with a null in their key can be only on an outer side.
        """
        if self.plan.outer(side) or not any(
            column.null_count for column in self.keys.table().columns
        ):
            return rows
        lost = self._nulls()[rows.key]
        return rows.only(np.flatnonzero(~lost)) if lost.any() else rows

    def _rows_held(self) -> Array:
        held = np.zeros(len(self.keys), dtype=bool)
        for chunk in self._chunks():
            held[chunk.key] = True
        return held

    def _clear(self, gone: Array) -> None:
        for held in self.sides.values():
            for pane, chunks in list(held.items()):
                kept = [(chunk, np.flatnonzero(~gone[chunk.key])) for chunk in chunks]
                chunks[:] = [
                    Waiting(
                        chunk.key[at],
                        chunk.times[at],
                        chunk.payload.take(pa.array(at)).combine_chunks(),
                    )
                    for chunk, at in kept
                    if len(at)
                ]
                if not chunks:
                    del held[pane]

    def _renumber(self, kept: Array) -> None:
        numbers = self._numbers_of(kept)
        for held in self.sides.values():
            for chunks in held.values():
                chunks[:] = [
                    Waiting(numbers[chunk.key], chunk.times, chunk.payload) for chunk in chunks
                ]


def _merged(chunks: Sequence[Waiting]) -> Waiting:
    """Several chunks as one."""
    return Waiting(
        np.concatenate([chunk.key for chunk in chunks]),
        np.concatenate([chunk.times for chunk in chunks]),
        pa.concat_tables([chunk.payload for chunk in chunks]).combine_chunks(),
    )


def _taken(table: pa.Table, at: Array) -> list[pa.ChunkedArray]:
    """The columns of a table at these row numbers, in blocks. A row number of -1 gives nulls."""
    missing = at < 0
    index = pa.array(at, mask=missing if missing.any() else None)
    blocks = [index.slice(start, _BLOCK) for start in range(0, max(len(at), 1), _BLOCK)]
    return [
        pa.chunked_array(
            [each for block in blocks for each in column.take(block).chunks], column.type
        )
        for column in table.columns
    ]
