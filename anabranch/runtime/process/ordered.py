"""Rows of a slot in order: by key, then by event time or by arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.plan.panes import AHEAD, LEFT_OUT, OUT_OF_RANGE
from anabranch.state.codec.cells import encoded_keys
from anabranch.types import Array

NO_TIME_US = LEFT_OUT  # instead of the event time of a row that has none


def is_marked(t: Array) -> Array:
    """Which rows are left out in any order: those with a mark instead of a time."""
    found: Array = (t == AHEAD) | (t == OUT_OF_RANGE)
    return found


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows as they came.

    They have key columns, the columns for the user's class, event times and shards. The order of
    arrival is None if it is unknown. For combined rows, `counts` has the number of rows in each.
    """

    keys: pa.Table
    columns: pa.Table
    t: Array
    shards: Array
    arrival: Array | None
    counts: Array | None = None

    def __len__(self) -> int:
        return len(self.t)

    def only(self, which: Array) -> Incoming:
        """The rows for which an array is true."""
        mask = pa.array(which)
        arrival, counts = (
            None if each is None else each[which] for each in (self.arrival, self.counts)
        )
        return Incoming(
            self.keys.filter(mask),
            self.columns.filter(mask),
            self.t[which],
            self.shards[which],
            arrival,
            counts,
        )

    def by_shard(self) -> dict[int, int]:
        """How many rows came for each shard."""
        sums = np.bincount(self.shards, self.counts)
        return {shard: int(sums[shard]) for shard in np.flatnonzero(sums).tolist()}


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows by key: those of key i are from `starts[i]` up to `starts[i + 1]`."""

    keys: pa.Table  # each once, by shard
    shards: Array  # of the keys
    starts: Array
    columns: pa.Table
    t: Array


def ordered(rows: Incoming, *, by_time: bool) -> Ordered:
    """The rows by key, and in order for each key."""
    if rows.counts is not None:
        return _one_per_key(rows)
    code = _by_shard(key_codes(rows.keys), rows.shards)
    order = _places(rows, code, by_time=by_time)
    sorted_code = code[order]
    starts = np.flatnonzero(
        np.concatenate([[True], sorted_code[1:] != sorted_code[:-1]])
        if len(order)
        else np.zeros(0, bool)
    )
    first = order[starts]
    at = pa.array(order)
    return Ordered(
        rows.keys.take(pa.array(first)),
        rows.shards[first],
        np.append(starts, len(order)),
        rows.columns.take(at).combine_chunks(),
        rows.t[order],
    )


def _one_per_key(rows: Incoming) -> Ordered:
    """Combined rows, one per key, by shard. Whole numbers as keys are in the order of cells."""
    key = rows.keys.column(0)
    plain = rows.keys.num_columns == 1 and pa.types.is_integer(key.type) and not key.null_count
    order = (
        np.lexsort((key.to_numpy(), rows.shards))
        if plain
        else np.argsort(rows.shards, kind="stable")
    )
    at = pa.array(order)
    return Ordered(
        rows.keys.take(at),
        rows.shards[order],
        np.arange(len(order) + 1),
        rows.columns.take(at).combine_chunks(),
        rows.t[order],
    )


def key_codes(keys: pa.Table) -> Array:
    """A number for each row. Rows with equal keys have equal numbers."""
    code: Array | None = None
    for column in keys.columns:
        flat = column.combine_chunks()
        if pa.types.is_nested(flat.type) or pa.types.is_floating(flat.type):
            flat = pa.array(encoded_keys(pa.table([flat], names=["k"])), pa.binary())
        found = pc.dictionary_encode(flat, null_encoding="encode")
        mine: Array = found.indices.to_numpy()
        if code is None:
            code = mine
        else:
            _, code = np.unique(
                code.astype(np.int64) * len(found.dictionary) + mine, return_inverse=True
            )
    assert code is not None, "there is a key column"
    return code


def _by_shard(code: Array, shards: Array) -> Array:
    """Other numbers for the keys, ascending by shard."""
    of = np.zeros(int(code.max(initial=-1)) + 1, dtype=np.uint16)
    of[code] = shards
    ranks = np.empty(len(of), dtype=np.int64)
    ranks[np.argsort(of, kind="stable")] = np.arange(len(of))
    return ranks[code]


def _places(rows: Incoming, code: Array, *, by_time: bool) -> Array:
    """The indices of the rows in order: by key, then time, then arrival.

    If the arrival is unknown, values decide instead.
    """
    order = (
        _by_values(rows.columns)
        if rows.arrival is None
        else _sorted(np.arange(len(code)), rows.arrival)
    )
    if by_time or rows.arrival is None:
        order = _sorted(order, rows.t)
    # NumPy sorts 16-bit numbers by radix sort, which is faster.
    small = code.astype(np.uint16) if len(code) and code.max() < 1 << 16 else code
    return _sorted(order, small)


def _sorted(order: Array, values: Array) -> Array:
    """The order by these values; rows with equal values keep the order that they had."""
    found = values[order]
    if not len(found) or (found[1:] >= found[:-1]).all():
        return order
    return order[np.argsort(found, kind="stable")]


def _by_values(columns: pa.Table) -> Array:
    """The order of rows by their values.

    Rows of other operators come in any order, but a step that runs again must have the same one.
    """
    names = [
        each.name
        for each in columns.schema
        if not (pa.types.is_nested(each.type) or pa.types.is_binary(each.type))
    ]
    if not names or columns.num_rows < 2:
        return np.arange(columns.num_rows)
    found: Array = pc.sort_indices(
        columns, sort_keys=[(name, "ascending") for name in names]
    ).to_numpy()
    return found.astype(np.int64)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python values. Times are in UTC if the column has a time zone."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if column.null_count or not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)
    ):
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        return column.to_pylist()  # type: ignore[no-any-return]
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    if pa.types.is_timestamp(kind):
        values = column.cast(pa.int64()).to_numpy().astype("datetime64[us]").tolist()
        return values if kind.tz is None else [value.replace(tzinfo=UTC) for value in values]
    return values


def python_keys(keys: pa.Table) -> list[Any]:
    """Keys as the user's class gets them: the value of the only column, or a tuple of values."""
    columns: Sequence[list[Any]] = [python_values(column) for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
