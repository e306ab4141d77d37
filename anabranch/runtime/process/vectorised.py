"""`process` in the vectorised form: one call with all rows of a slot, and state as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import StepError, place_of
from anabranch.runtime.process.handles import SlotContext, SlotRows, SlotState
from anabranch.runtime.process.ordered import NO_TIME_US
from anabranch.state.codec.cells import (
    NO_HEAD,
    Head,
    Span,
    has_heads,
    head_of,
    renoted,
    sealed_cell,
)
from anabranch.state.memory.cells import state_record
from anabranch.topology.process import Logic
from anabranch.topology.state_types import StateType
from anabranch.types import Array, exact_array


def run_columns(
    operator: str, logic: Logic, rows: SlotRows, cells: Sequence[bytes | None], span: Span
) -> tuple[list[bytes | None], Array, Mapping[str, Any]]:
    """Calls the class. Returns the cells of all keys afterwards, and the returned rows.

    The rows are the number of each row's key, and the columns.
    """
    assert not isinstance(logic.state, StateType), "the class works on columns"
    columns, expiry = logic.state, None
    if logic.ttl_us is not None or has_heads(cells):
        expiry = Expiry(logic.ttl_us, span, cells)
        cells = expiry.living(rows)
    record, new = state_record(columns, cells)
    before = record.copy()
    state, ctx = SlotState(columns, record, new), SlotContext(span.after_us)
    who = f"operator {operator!r}, {logic.name}"
    try:
        made = logic.given.process(rows, state, ctx)
    except Exception as error:
        text = " ".join(str(error).split())
        raise StepError(
            f"{who}: process() raised {type(error).__name__}: {text}{place_of(error)}"
        ) from error
    state.into(record, who)
    kept: list[bytes | None] = record.view(f"V{record.dtype.itemsize}").tolist()
    same = ~new & (record == before)
    for i in np.flatnonzero(same).tolist():
        kept[i] = cells[i]
    for i in ctx.gone().tolist():
        kept[i] = None
    numbers, given = _returned(made, len(cells), who)
    return (kept if expiry is None else expiry.sealed(kept, rows)), numbers, given


class Expiry:
    """The time to live of keys with rows, checked before their rows and after them."""

    def __init__(self, ttl_us: int | None, span: Span, cells: Sequence[bytes | None]) -> None:
        self._ttl_us, self._span, self._cells = ttl_us, span, cells
        self._heads = [None if cell is None else head_of(cell)[0] for cell in cells]

    def living(self, rows: SlotRows) -> list[bytes | None]:
        """The cells without their heads; None for a key that had expired before its first row."""
        first = np.minimum.reduceat(rows.t, rows.starts).tolist()
        return [
            None
            if cell is None or head is None or self._is_over(head, at)
            else b"\0" + head_of(cell)[1]
            for cell, head, at in zip(self._cells, self._heads, first, strict=True)
        ]

    def _is_over(self, head: Head, first_us: int) -> bool:
        until = self._span.until_us
        return (
            head.expires_us is not None
            and until is not None
            and head.expires_us <= min(until, first_us)
        )

    def sealed(self, kept: Sequence[bytes | None], rows: SlotRows) -> list[bytes | None]:
        """The cells with the time at which each expires; None for a key that has expired."""
        newest = np.maximum.reduceat(rows.t, rows.starts).tolist()
        made = (
            self._sealed(*each) for each in zip(self._cells, self._heads, kept, newest, strict=True)
        )
        return list(made)

    def _sealed(
        self, cell: bytes | None, head: Head | None, now: bytes | None, newest_us: int
    ) -> bytes | None:
        if now is None or self._ttl_us is None:
            return now
        span, known = self._span, (newest_us, self._span.after_us)
        expires = max(
            (us + self._ttl_us for us in known if us is not None and us != NO_TIME_US), default=None
        )
        if expires is not None and span.until_us is not None and expires <= span.until_us:
            return None
        made = sealed_cell(renoted(head, expires, span.until_us), now[1:])
        return cell if made == cell else made


def expired(cell: bytes, ttl_us: int | None, until_us: int | None) -> bytes | None:
    """The new cell of a key without rows whose alarm is due; None if the key has expired."""
    head, state = head_of(cell)
    if ttl_us is None:
        return sealed_cell(NO_HEAD, state)
    if until_us is None or head.expires_us is None or head.expires_us > until_us:
        return sealed_cell(renoted(head, head.expires_us, until_us), state)
    return None


def _returned(made: Any, keys: int, who: str) -> tuple[Array, Mapping[str, Any]]:
    """The numbers of keys and the columns that the class returned; by default all keys."""
    if made is None:
        return np.empty(0, dtype=np.int64), {}
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Mapping):
        numbers, columns = np.asarray(made[0]), made[1]
    elif isinstance(made, Mapping):
        numbers, columns = np.arange(keys), made
    else:
        raise StepError(
            f"{who}: process() returned {type(made).__name__}; valid: a dict of columns with one "
            "value per key, a pair of key numbers and such a dict, or None"
        )
    if (
        numbers.ndim != 1
        or numbers.dtype.kind not in "iu"
        or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < keys)
    ):
        raise StepError(f"{who}: process() returned key numbers that are not from 0 to {keys - 1}")
    return numbers, columns


def arrow_columns(
    columns: Mapping[str, Any], schema: pa.Schema, count: int, who: str
) -> list[pa.Array]:
    """The returned columns in their declared types. Raises a `StepError` if one does not fit."""
    if set(columns) != set(schema.names):
        raise StepError(
            f"{who}: process() returned columns [{', '.join(columns)}]; "
            f"declared: [{', '.join(schema.names)}]"
        )
    found = []
    for each in schema:
        values = columns[each.name]
        try:
            array = (
                values.cast(each.type)
                if isinstance(values, pa.Array | pa.ChunkedArray)
                else _array(values, each.type)
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise StepError(
                f"{who}: column {each.name!r} that process() returned is not of type {each.type}: "
                f"{error}"
            ) from None
        if len(array) != count:
            raise StepError(
                f"{who}: column {each.name!r} that process() returned has {len(array)} values; "
                f"valid: {count}"
            )
        found.append(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
    return found


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiubM":
        made = pa.array(np.ascontiguousarray(values))
        return (
            made.cast(pa.timestamp("us")).cast(kind)
            if values.dtype.kind == "M"
            else made.cast(kind)
        )
    return exact_array(values, kind)
