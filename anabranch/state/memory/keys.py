"""Numbers for keys: each distinct key of a slot gets one, and partials are arrays by key number.

A null is a key like any other. As in Spark's grouping, -0.0 is 0.0, and all NaN are equal.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.types import Array


class KeyTable:
    """Distinct keys and their numbers, 0 to n - 1 in order of arrival."""

    __slots__ = ("_arrow", "_frame", "_names")

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._arrow: list[pa.Table] = [schema.empty_table()]
        self._frame = _frame(schema.empty_table()).with_columns(pl.lit(0, pl.Int32).alias("row"))

    def __len__(self) -> int:
        return self._frame.height

    def rows(self, keys: pa.Table) -> tuple[Array, Array]:
        """The number of each key, and the positions where a new key occurs first, by number."""
        wanted = _frame(keys).with_row_index("at")
        numbers = np.full(len(keys), -1, dtype=np.int32)
        self._look_up(wanted, self._frame, numbers)
        missing = np.flatnonzero(numbers < 0)
        if not len(missing):
            return numbers, np.empty(0, dtype=np.int64)
        unknown = wanted[missing] if len(missing) < len(keys) else wanted
        fresh = unknown.unique(self._names, keep="first", maintain_order=True)
        first = fresh["at"].to_numpy().astype(np.int64)
        new = pl.Series("row", np.arange(len(self), len(self) + len(first)), dtype=pl.Int32)
        fresh = fresh.drop("at").with_columns(new)
        if len(first) == len(missing):
            numbers[missing] = new.to_numpy()
        else:
            self._look_up(unknown, fresh, numbers)
        self._frame = pl.concat([self._frame, fresh])
        self._arrow.append(keys.take(first))
        return numbers, first

    def keep(self, rows: Array) -> None:
        """Drops all keys but these. The i-th of them gets number i."""
        self._arrow = [self.table().take(rows)]
        numbers = pl.Series("row", np.arange(len(rows)), dtype=pl.Int32)
        self._frame = self._frame.drop("row")[rows].with_columns(numbers)

    def table(self) -> pa.Table:
        """The keys in the order of their numbers."""
        if len(self._arrow) > 1:
            self._arrow = [pa.concat_tables(self._arrow).combine_chunks()]
        return self._arrow[0]

    def _look_up(self, wanted: pl.DataFrame, known: pl.DataFrame, numbers: Array) -> None:
        """Fills in the numbers of keys that are known.

        An inner join hashes the shorter side; a left join would hash all known keys.
        """
        found = wanted.join(known, on=self._names, how="inner", nulls_equal=True)
        numbers[found["at"].to_numpy()] = found["row"].to_numpy()


def _frame(table: pa.Table) -> pl.DataFrame:
    """Keys for comparison in Polars: floats by their bits, because a join of one row misses NaN."""
    frame = pl.from_arrow(
        pa.table([_bits(column) for column in table.columns], names=table.column_names)
    )
    assert isinstance(frame, pl.DataFrame)
    return frame


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    flat = pc.add(column.combine_chunks(), pa.scalar(0.0, column.type))  # -0.0 becomes 0.0
    one_nan = pc.if_else(pc.is_nan(flat), pa.scalar(float("nan"), column.type), flat)
    return one_nan.view(pa.int64() if column.type == pa.float64() else pa.int32())
