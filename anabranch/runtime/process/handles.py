"""What a user's class gets: rows and a context with timers; in the vectorised form, arrays."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import StepError
from anabranch.runtime.process.ordered import NO_TIME_US, python_values
from anabranch.state.codec.cells import to_micros, to_time
from anabranch.topology.process import StateColumn
from anabranch.types import Array

# The names of columns are only known at run time.
make_row: Any = collections.namedtuple  # noqa: PYI024
GONE: Any = object()  # instead of a state: the key is forgotten


class Columns:
    """The rows of a slot as Python values. A column is converted once, when it is first used."""

    __slots__ = ("_lists", "_rows", "rows_of", "table")

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        # A property is twice as fast as __getattr__, which matters if keys have one row each.
        shown = {
            name: property(_taker(name))
            for name in table.column_names
            if name.isidentifier() and name not in vars(Rows)
        }
        self.rows_of: type[Rows] = type("Rows", (Rows,), {"__slots__": (), **shown})
        self._lists: dict[str, list[Any]] = {}
        self._rows: list[Any] | None = None

    def column(self, name: str) -> list[Any]:
        if name not in self._lists:
            if name not in self.table.column_names:
                raise AttributeError(
                    f"rows have no column {name!r}; they have {', '.join(self.table.column_names)}"
                )
            self._lists[name] = python_values(self.table.column(name))
        return self._lists[name]

    def rows(self) -> list[Any]:
        """All rows, as named tuples."""
        if self._rows is None:
            names = self.table.column_names
            kind: Any = make_row("Row", names, rename=True)
            self._rows = list(map(kind._make, zip(*map(self.column, names), strict=True)))
        return self._rows


def _taker(name: str) -> Callable[[Rows], list[Any]]:
    """A function that returns one column of some rows."""
    return lambda rows: rows._of.column(name)[rows._start : rows._end]  # noqa: SLF001


class Rows:
    """The rows of one key, in order.

    - Iterate over them to get named tuples: `row.price`. `rows[0]` and `len(rows)` work too.
    - `rows.price` or `rows["price"]` is a list with the values of one column.

    A column that does not exist raises an `AttributeError` that names those that do.
    """

    __slots__ = ("_end", "_of", "_start")

    def __init__(self, of: Columns, start: int, end: int) -> None:
        self._of, self._start, self._end = of, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[Any]:
        return iter(self._of.rows()[self._start : self._end])

    def __getitem__(self, which: str | int | slice) -> Any:
        if isinstance(which, str):
            return self._of.column(which)[self._start : self._end]
        return self._of.rows()[self._start : self._end][which]

    def __getattr__(self, name: str) -> list[Any]:
        return self._of.column(name)[self._start : self._end]

    def __repr__(self) -> str:
        return f"Rows({list(self)!r})"


class Call:
    """One call of the user's class: its rows or timer, and the state and timers of its key.

    The user's class uses it through a `Context`.
    """

    __slots__ = ("_array", "_times", "after_us", "at_us", "end", "name", "start", "state", "timers")

    def __init__(self, times: Array) -> None:
        self._array = times
        self._times: list[int] | None = None
        self.start = self.end = 0
        self.at_us: int | None = None  # the time of the timer, if the call is for one
        self.name = ""
        self.after_us: int | None = None
        self.timers: dict[str, int] | None = None
        self.state: Any = GONE

    @property
    def times(self) -> Sequence[int]:
        """The event times of all rows. Those of the call are from `start` up to `end`.

        They become Python values only if a class uses them. Many do not.
        """
        if self._times is None:
            self._times = self._array.tolist()
        return self._times or []


class Context:
    """The context of a call of your class: the time, the watermark, timers, and the key's state.

    Times are datetimes. They are in UTC, or without a time zone if the event time has none.
    """

    __slots__ = ("_call", "_has_timers", "_zone")

    def __init__(self, call: Call, *, zone: bool, has_timers: bool) -> None:
        self._call, self._zone, self._has_timers = call, zone, has_timers

    @property
    def watermark_us(self) -> int | None:
        """The watermark in microseconds since 1970; None if there is none yet."""
        return self._call.after_us

    @property
    def watermark(self) -> datetime | None:
        """The watermark; None if there is none yet.

        In the order of event time, this key gets no rows before it.
        """
        return self._time(self._call.after_us)

    @property
    def time_us(self) -> int | None:
        """The same as `time`, in microseconds since 1970."""
        call = self._call
        newest = max(call.times[call.start : call.end]) if call.at_us is None else call.at_us
        return None if newest == NO_TIME_US else newest

    @property
    def time(self) -> datetime | None:
        """The event time of the newest row of this call, or the time of the timer.

        None if no row has an event time.
        """
        return self._time(self.time_us)

    @property
    def name(self) -> str:
        """The name of the timer that this call is for; empty for a call with rows."""
        return self._call.name if self._call.at_us is not None else ""

    @property
    def timers(self) -> dict[str, datetime]:
        """The timers of the key, by name."""
        return {
            name: to_time(at, zone=self._zone) for name, at in (self._call.timers or {}).items()
        }

    def timer(self, at: datetime | int, name: str = "") -> None:
        """Sets a timer: `on_timer` is called when the watermark reaches its time.

        - at: a datetime, or microseconds since 1970.
        - name: a key has one timer per name. Setting it again moves it.

        Raises a `ValueError` if the time is not after the watermark, and a `TypeError` if the class
        has no `on_timer`.
        """
        us, call = to_micros(at), self._call
        if not self._has_timers:
            raise TypeError("the class has no method on_timer(self, key, state, ctx)")
        if not isinstance(name, str):
            raise TypeError(f"the name of a timer must be a string, got {name!r}")
        if call.after_us is not None and us <= call.after_us:
            raise ValueError(
                f"a timer in the past: {self._time(us)}, and the watermark is "
                f"{self._time(call.after_us)}; compare with ctx.watermark first"
            )
        if call.timers is None:
            call.timers = {}
        call.timers[name] = us

    def cancel(self, name: str = "") -> None:
        """Removes a timer. Nothing happens if there is none of that name."""
        if self._call.timers:
            self._call.timers.pop(name, None)

    def replace(self, state: Any) -> None:
        """Replaces the state of the key. A state that you change in place does not need it."""
        self._call.state = state

    def forget(self) -> None:
        """Removes the state of the key and its timers. With its next row it is a new key."""
        self._call.state, self._call.timers = GONE, None

    def _time(self, us: int | None) -> datetime | None:
        return None if us is None else to_time(us, zone=self._zone)


class SlotRows:
    """All rows of a slot, by key and then in order. The vectorised form of `process` gets it.

    - `rows["price"]`: a column as a NumPy array; a `KeyError` if there is no such column.
    - `rows.key`: the number of each row's key, from 0 on.
    - `rows.keys`: the keys by number, as an Arrow table.
    - `rows.starts`: where the rows of each key begin.
    - `rows.t`: event times, in microseconds since 1970.
    - `rows.table`: all columns, as an Arrow table.
    """

    __slots__ = ("_arrays", "key", "keys", "starts", "t", "table")

    def __init__(self, keys: pa.Table, starts: Array, table: pa.Table, t: Array) -> None:
        self.keys = keys  # by number, with the names of the key columns
        # Where the rows of each key begin: np.add.reduceat(rows["v"], rows.starts).
        self.starts = starts[:-1]
        self.table = table  # the columns in Arrow
        self.t = t  # event times, microseconds since 1970
        self.key = np.repeat(np.arange(len(keys)), np.diff(starts))
        self._arrays: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            if name not in self.table.column_names:
                raise KeyError(
                    f"rows have no column {name!r}; they have {', '.join(self.table.column_names)}"
                )
            self._arrays[name] = (
                self.table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
            )
        return self._arrays[name]


class SlotState:
    """The state of the keys that have rows, in the vectorised form of `process`.

    - `state.n`: the array of the declared column `n`, one value per key. Change it, or assign
      another array.
    - `state.new`: which keys are new.
    - `len(state)`: the number of keys.
    """

    def __init__(self, columns: Sequence[StateColumn], record: Array, new: Array) -> None:
        self.new = new  # which keys are new
        self._columns = tuple(columns)
        for each in columns:
            setattr(self, each.name, np.ascontiguousarray(record[each.name]))

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Array:
        known = [each for each in vars(self) if not each.startswith("_")]
        raise AttributeError(f"state has no column {name!r}; it has {', '.join(known)}")

    def __len__(self) -> int:
        return len(self.new)

    def into(self, record: Array, who: str) -> None:
        """Writes the columns to a record. Raises a `StepError` if one does not fit its type."""
        for each in self._columns:
            try:
                values = np.asarray(getattr(self, each.name))
                if values.shape != (len(self),):
                    raise ValueError(
                        f"its shape is {values.shape}; valid: ({len(self)},), one value per key"
                    )
                record[each.name] = _fitted(values, each.dtype)
            except (TypeError, ValueError) as error:
                raise StepError(
                    f"{who}: state column {each.name!r} does not fit its type {each.type}: {error}"
                ) from None


def _fitted(values: Array, dtype: np.dtype[Any]) -> Array:
    """The values of a state column in its type. Refuses whole numbers that do not fit."""
    made = values.astype(dtype, casting="same_kind")
    if values.dtype.kind in "iu" and dtype.itemsize < values.dtype.itemsize:
        for i in np.flatnonzero(made != values)[:1].tolist():
            raise ValueError(f"{values[i]} is too large")
    return made


class SlotContext:
    """The context of a call in the vectorised form of `process`: the watermark, and `forget`.

    `watermark_us` is the watermark in microseconds since 1970; None if there is none yet.
    """

    __slots__ = ("_gone", "watermark_us")

    def __init__(self, watermark_us: int | None) -> None:
        self.watermark_us = watermark_us
        self._gone: list[Array] = []

    @property
    def watermark(self) -> datetime | None:
        return None if self.watermark_us is None else to_time(self.watermark_us, zone=True)

    def forget(self, keys: Array) -> None:
        """Removes the state of some keys.

        - keys: their numbers, or an array of booleans with one value per key.
        """
        found = np.asarray(keys)
        self._gone.append(np.flatnonzero(found) if found.dtype == bool else found)

    def gone(self) -> Array:
        """The numbers of the keys that were forgotten."""
        return np.unique(np.concatenate(self._gone)) if self._gone else np.empty(0, dtype=np.int64)


Made = Mapping[str, Any] | tuple[Any, Mapping[str, Any]] | None  # what a vectorised class returns
