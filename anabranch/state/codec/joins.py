"""Rows that wait in a join, and the bytes of a delta or a snapshot of one of its shards.

The form is that of `anabranch.state.codec.blob`: the keys, and the rows of both sides. State is all
rows of a snapshot and of the deltas after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.errors import StateError
from anabranch.plan.operators.joins import SIDES, JoinPlan, Side
from anabranch.state.codec.blob import sealed, unsealed
from anabranch.types import Array

_MAGIC = b"abj1"
_NUMBERS = pa.schema([("key", pa.int32()), ("pane", pa.int64()), ("times", pa.int64())])


@dataclass(frozen=True, slots=True)
class SideRows:
    """Rows of one side: the number of its key, its pane, how often it came, and other columns."""

    key: Array
    pane: Array
    times: Array
    payload: pa.Table

    def __len__(self) -> int:
        return len(self.key)

    def only(self, at: Array) -> SideRows:
        """The rows at some places."""
        return SideRows(
            self.key[at], self.pane[at], self.times[at], self.payload.take(pa.array(at))
        )


@dataclass(frozen=True, slots=True)
class JoinEntries:
    """Rows of a shard: `key` of both sides numbers rows of `keys`."""

    keys: pa.Table
    rows: Mapping[Side, SideRows]

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows.values())


def no_rows(plan: JoinPlan, side: Side) -> SideRows:
    """A side without rows."""
    numbers = np.empty(0, dtype=np.int64)
    return SideRows(
        numbers.astype(np.int32), numbers, numbers, plan.payload_schema(side).empty_table()
    )


def encode_join(entries: JoinEntries, plan: JoinPlan) -> bytes:
    """The bytes of some rows."""
    tables = []
    for side in SIDES:
        rows = entries.rows[side]
        numbers = [
            pa.array(values, each.type)
            for values, each in zip((rows.key, rows.pane, rows.times), _NUMBERS, strict=True)
        ]
        tables.append(
            pa.Table.from_arrays([*numbers, *rows.payload.columns], schema=_schema(plan, side))
        )
    return sealed(_MAGIC, [entries.keys, *tables])


def decode_join(blob: bytes, plan: JoinPlan) -> JoinEntries:
    """The rows in a blob; a damaged one, or one with other columns, is a StateError."""
    keys, *tables = unsealed(_MAGIC, blob, 3)
    if keys.schema != plan.key_schema():
        raise StateError(
            f"a state blob of {plan.operator!r} has other keys: {_described(keys.schema)}"
        )
    found: dict[Side, SideRows] = {}
    for side, table in zip(SIDES, tables, strict=True):
        if table.schema != _schema(plan, side):
            raise StateError(
                f"a state blob of {plan.operator!r} has other columns on the {side}: "
                f"{_described(table.schema)}"
            )
        key, pane, times = (table.column(i).combine_chunks().to_numpy() for i in range(3))
        found[side] = SideRows(key, pane, times, table.select(range(3, table.num_columns)))
    return JoinEntries(keys, found)


def _schema(plan: JoinPlan, side: Side) -> pa.Schema:
    return pa.schema([*_NUMBERS, *plan.payload_schema(side)])


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in schema)
