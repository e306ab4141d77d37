"""Calls a user's function with Arrow rows in its form, times it by value, and finds failed rows.

If a function of batches fails, it is called again with each half of the batch, until the rows are
found on which it fails. That is safe: it is stateless and does not depend on how rows are batched.
Rows whose value is frequent get batches of their own, so that their time is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import ApplyError, place_of
from anabranch.topology.apply import PANDAS, ROWS, ApplySpec
from anabranch.types import Array, exact_array

_ALONE = 32  # with so many rows of one value, the value gets batches of its own
_SHOWN = 400  # the most characters of a row, or of an error, in a message


@dataclass(slots=True)
class Called:
    """The outcome of calls: results, failed rows with their errors, and the time of each row."""

    results: list[pa.Table] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: Array = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True)
class ApplyCalls:
    """The function of an apply. It takes rows of schema `given` and returns rows of `made`."""

    operator: str
    work: ApplySpec
    given: pa.Schema
    made: pa.Schema

    def __call__(self, rows: pa.Table, values: Array | None) -> Called:
        """Calls the function with some rows. If values are given, it times frequent ones apart."""
        called = Called(seconds=np.zeros(len(rows)))
        if self.work.fn is None:
            called.results.append(rows)
        elif self.work.form == ROWS:
            self._by_row(rows, called)
        else:
            for batch in _batches(len(rows), values, self.work.batch_rows):
                begin = time.perf_counter()
                self._by_batch(rows, batch, called)
                called.seconds[batch] = (time.perf_counter() - begin) / len(batch)
        return called

    def _by_row(self, rows: pa.Table, called: Called) -> None:
        fn, made = self.work.fn, []
        assert fn is not None
        origin: list[int] = []
        for i, row in enumerate(rows.to_pylist()):
            begin = time.perf_counter()
            try:
                found = _listed(fn(row))
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything
                self._failed(rows, i, f"{type(error).__name__}: {error}", called, place_of(error))
                continue
            finally:
                called.seconds[i] = time.perf_counter() - begin
            for each in found:
                self._check_row(each)
            made += found
            origin += [i] * len(found)
        self._convert(rows, made, origin, called)

    def _convert(self, rows: pa.Table, made: list[Any], origin: list[int], called: Called) -> None:
        """Adds returned rows to the results. A row with a value that does not fit has failed."""
        try:
            called.results.append(self._table(made))
            return
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
        fits = []
        wrong: dict[int, str] = {}
        for row, i in zip(made, origin, strict=True):
            if (misfit := self._misfit(row)) is not None:
                wrong.setdefault(i, misfit)
        for i, misfit in wrong.items():
            self._failed(rows, i, misfit, called)
        fits = [row for row, i in zip(made, origin, strict=True) if i not in wrong]
        called.results.append(self._table(fits))

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        columns = [exact_array([row[each.name] for row in rows], each.type) for each in self.made]
        return pa.Table.from_arrays(columns, schema=self.made)

    def _misfit(self, row: Mapping[str, Any]) -> str | None:
        for each in self.made:
            try:
                exact_array([row[each.name]], each.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                value = _short(repr(row[each.name]))
                return f"it returned {value} for column {each.name!r} of type {each.type}"
        return None

    def _check_row(self, row: object) -> None:
        if not isinstance(row, Mapping):
            raise self._wrong(
                f"returned {_short(repr(row))}; valid: a dict, a list of dicts, or None"
            )
        if set(row) != set(self.made.names):
            raise self._wrong_columns([str(each) for each in row])

    def _by_batch(self, rows: pa.Table, batch: Array, called: Called) -> None:
        """Calls the function with some rows; if it fails, with each half of them."""
        assert self.work.fn is not None
        given = rows.take(pa.array(batch))
        try:
            called.results.append(self._made_of(self.work.fn, given))
        except ApplyError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything
            if len(batch) == 1:
                cause = f"{type(error).__name__}: {error}"
                self._failed(rows, int(batch[0]), cause, called, place_of(error))
                return
            for half in np.array_split(batch, 2):
                self._by_batch(rows, half, called)

    def _made_of(self, fn: Callable[[Any], Any], given: pa.Table) -> pa.Table:
        if self.work.form == PANDAS:
            frame = fn(given.to_pandas())
            columns = getattr(frame, "columns", None)
            if columns is None or not hasattr(frame, "to_numpy"):
                raise self._wrong(f"returned {type(frame).__name__}; valid: a pandas DataFrame")
            self._check_columns([str(each) for each in columns])
            return pa.Table.from_pandas(frame, schema=self.made, preserve_index=False)
        made = fn(given.combine_chunks().to_batches()[0])
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise self._wrong(
                f"returned {type(made).__name__}; valid: a pyarrow RecordBatch or Table"
            )
        self._check_columns(made.column_names)
        return made.select(self.made.names).cast(self.made)

    def _check_columns(self, names: Sequence[str]) -> None:
        if sorted(names) != sorted(self.made.names):
            raise self._wrong_columns(names)

    def _failed(self, rows: pa.Table, i: int, cause: str, called: Called, place: str = "") -> None:
        """Makes a row that failed a dead letter, or raises an `ApplyError`."""
        if not self.work.dead_letters:
            row = _short(repr(rows.slice(i, 1).to_pylist()[0]))
            raise ApplyError(f"apply {self.operator!r} failed on row {row}: {_short(cause)}{place}")
        called.failed.append(i)
        called.errors.append(cause)

    def _wrong_columns(self, names: Sequence[str]) -> ApplyError:
        made = ", ".join(self.made.names)
        return self._wrong(f"returned columns ({', '.join(names)}); its schema has ({made})")

    def _wrong(self, what: str) -> ApplyError:
        return ApplyError(f"apply {self.operator!r} {what}")


def _listed(made: object) -> list[Any]:
    """What a function returned for a row, as a list: nothing, one row, or several."""
    if made is None:
        return []
    return list(made) if isinstance(made, list | tuple | Iterator) else [made]


def _batches(rows: int, values: Array | None, most: int) -> Iterator[Array]:
    """The rows of each call, by number. A frequent value has calls of its own."""
    if values is None:
        order, ends = np.arange(rows), np.array([rows])
    else:
        order = np.argsort(values, kind="stable")
        changes = np.flatnonzero(np.diff(values[order])) + 1
        ends = np.append(changes, rows)
    rest: list[Array] = []
    begin = 0
    for end in ends.tolist():
        group = order[begin:end]
        begin = end
        if values is not None and len(group) < min(_ALONE, most):
            rest.append(group)
            continue
        yield from (group[at : at + most] for at in range(0, len(group), most))
    if rest:
        others = np.sort(np.concatenate(rest))
        yield from (others[at : at + most] for at in range(0, len(others), most))


def _short(text: str) -> str:
    """The text in one short line: Spark's own message contains it, and it is read from there."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
