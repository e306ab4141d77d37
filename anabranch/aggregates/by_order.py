"""Partials that keep one value, chosen by the order of something else.

They are used by first, last, min_by and max_by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.aggregates.groups import valid
from anabranch.aggregates.partials import At, Partial, PartialColumn
from anabranch.types import Array, dtype_of, struct_fields

_INT64 = np.iinfo(np.int64)


class _AtExtreme(Partial, ABC):
    """The value at the first or last event time.

    Ties go to the smaller (first) or larger (last) value.
    """

    @property
    @abstractmethod
    def latest(self) -> bool: ...

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        never = _INT64.min if self.latest else _INT64.max
        nothing = {"i": 0, "f": 0.0, "O": None}[dtype_of(self.type).kind]
        return PartialColumn("bigint", never), PartialColumn(self.type, nothing)

    @property
    def lift(self) -> tuple[str, ...]:
        pick = "max" if self.latest else "min"
        row = "if({x} is null, null, named_struct('t', {t}, 'v', {x}))"
        struct = f"{pick}({row})"
        return f"{struct}.t", f"{struct}.v"

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:
        time, value = self.columns
        return [np.where(valid(values), t, time.empty(1)), value.from_arrow(values)]

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        time, value = (column[at] for column in into)
        time_new, value_new = values
        earlier, same = (
            (time_new > time, time_new == time)
            if self.latest
            else (time_new < time, time_new == time)
        )
        tie = _below(value, value_new) if self.latest else _below(value_new, value)
        take = earlier | (same & tie)
        into[0][at] = np.where(take, time_new, time)
        into[1][at] = np.where(take, value_new, value)


class Earliest(_AtExtreme):
    """The value at the first event time."""

    @property
    def latest(self) -> bool:
        return False


class Latest(_AtExtreme):
    """The value at the last event time."""

    @property
    def latest(self) -> bool:
        return True


class _AtBest(Partial, ABC):
    """The value with the largest or smallest order, from pairs (value, order).

    Ties go to the larger or smaller value.
    """

    @property
    @abstractmethod
    def most(self) -> bool: ...

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        fields = struct_fields(self.type)
        assert fields is not None, "the input is a struct of two fields"
        value, order = fields.values()
        nothing = {"i": 0, "f": 0.0, "O": None}
        return (
            PartialColumn("bigint", 0),
            PartialColumn(order, nothing[dtype_of(order).kind]),
            PartialColumn(value, nothing[dtype_of(value).kind]),
        )

    @property
    def lift(self) -> tuple[str, ...]:
        pair = "if({x}.a0 is null or {x}.a1 is null, null, named_struct('o', {x}.a1, 'v', {x}.a0))"
        best = f"{'max' if self.most else 'min'}({pair})"
        return f"count({pair})", f"{best}.o", f"{best}.v"

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:  # noqa: ARG002
        value, order = values.flatten()
        both = valid(value) & valid(order)
        found = zip(self.columns[1:], (order, value), strict=True)
        return [
            both.astype(np.int64),
            *(np.where(both, column.from_arrow(each), column.empty(1)) for column, each in found),
        ]

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        n, order, value = (column[at] for column in into)
        n_new, order_new, value_new = values
        old, new = (
            ((order, value), (order_new, value_new))
            if self.most
            else ((order_new, value_new), (order, value))
        )
        better = _below(old[0], new[0]) | (~_below(new[0], old[0]) & _below(old[1], new[1]))
        take = (n_new > 0) & ((n == 0) | better)
        into[0][at] = n + n_new
        into[1][at] = np.where(take, order_new, order)
        into[2][at] = np.where(take, value_new, value)


class AtLeast(_AtBest):
    """The value at the smallest order."""

    @property
    def most(self) -> bool:
        return False


class AtGreatest(_AtBest):
    """The value at the largest order."""

    @property
    def most(self) -> bool:
        return True


def _below(left: Array, right: Array) -> Array:
    if left.dtype.kind == "O":
        return np.array(
            [b is not None and (a is None or a < b) for a, b in zip(left, right, strict=True)],
            dtype=bool,
        )
    below: Array = left < right
    return below | (np.isnan(right) & ~np.isnan(left)) if left.dtype.kind == "f" else below
