"""Rows that wait in a join, and the bytes of a delta or a snapshot of one of its shards.

The form is that of `anabranch.state.codec.blob`: the keys, and the rows of both sides. State is all
rows of a snapshot and of the deltas after it. Columns have names. A column that was added later is
null in older rows; a column that was removed is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.errors import StateError
from anabranch.plan.operators.joins import SIDES, JoinPlan, Side
from anabranch.state.codec.blob import sealed, unsealed
from anabranch.topology.graph import Field
from anabranch.types import Array

_MAGIC = b"abj2"
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
        """The rows at these positions."""
        return SideRows(
            self.key[at], self.pane[at], self.times[at], self.payload.take(pa.array(at))
        )


@dataclass(frozen=True, slots=True)
class JoinEntries:
    """Rows of a shard. On both sides, `key` is a row number of `keys`."""

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
    """Encodes the rows of a shard."""
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
    """Decodes rows. A damaged blob, or one with columns of other types, is a StateError."""
    keys, *tables = unsealed(_MAGIC, blob, 3)
    if keys.schema != plan.key_schema():
        raise StateError(
            f"a state blob of {plan.operator!r} has different keys: {_described(keys.schema)}"
        )
    found: dict[Side, SideRows] = {}
    for side, table in zip(SIDES, tables, strict=True):
        payload = _payload(table, plan, side)
        if payload is None or pa.schema(list(table.schema)[:3]) != _NUMBERS:
            raise StateError(
                f"a state blob of {plan.operator!r} has different columns on the {side}: "
                f"{_described(table.schema)}"
            )
        key, pane, times = (table.column(i).combine_chunks().to_numpy() for i in range(3))
        found[side] = SideRows(key, pane, times, payload)
    return JoinEntries(keys, found)


def _schema(plan: JoinPlan, side: Side) -> pa.Schema:
    names = map(_stored, plan.payload(side))
    types = (each.type for each in plan.payload_schema(side))
    return pa.schema([*_NUMBERS, *zip(names, types, strict=True)])


def _stored(column: Field) -> str:
    return f"row.{column.name}"


def _payload(table: pa.Table, plan: JoinPlan, side: Side) -> pa.Table | None:
    """The columns of a side that are not keys; None if one has another type."""
    schema, columns = plan.payload_schema(side), []
    for each, wanted in zip(plan.payload(side), schema, strict=True):
        place = table.schema.get_field_index(_stored(each))
        if place < 0:
            columns.append(pa.nulls(table.num_rows, wanted.type))
        elif table.schema.field(place).type == wanted.type:
            columns.append(table.column(place))
        else:
            return None
    if not columns:  # a table made from no columns would lose its number of rows
        return table.select([])
    return pa.Table.from_arrays(columns, schema=schema)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in schema)
