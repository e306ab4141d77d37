"""`process` in plain Python: the class is called key by key, with rows and due timers in order.

The result depends on rows, cells and watermarks only. It is the cells after the step and the rows
that the class returned. Nothing else changes.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from anabranch.errors import StepError, place_of
from anabranch.runtime.process.handles import GONE, Call, Columns, Context
from anabranch.runtime.process.ordered import NO_TIME_US
from anabranch.state.codec.cells import NO_HEAD, Head, Span, head_of, renoted, sealed_cell
from anabranch.topology.process import Logic
from anabranch.topology.state_types import StateType
from anabranch.types import Array

# Stands for a timer's name when the time to live ends. It sorts after timers of the same time.
_EXPIRES = "\U0010ffff"
_PROCESS, _ON_TIMER, _ENCODING, _DECODING = "process()", "on_timer()", "encoding", "decoding"


@dataclass(slots=True)
class CallResults:
    """The outcome of all calls of a step: cells, returned rows, and the number of rows per key."""

    cells: list[bytes | None]
    rows: list[Any]
    counts: list[int]
    until_us: int | None = None  # the last timer that was due


class KeyCaller:
    """Calls a user's class for keys, one after another."""

    def __init__(
        self, operator: str, logic: Logic, rows: Columns, times: Array, *, zone: bool
    ) -> None:
        assert isinstance(logic.state, StateType), "the class works per key"
        self._operator, self._logic = operator, logic
        self._encode, self._decode, self._make = (
            logic.state.encoder(),
            logic.state.decoder(),
            logic.make,
        )
        self._process: Callable[..., Iterable[Any] | None] = logic.given.process
        self._on_timer: Callable[..., Iterable[Any] | None] | None = getattr(
            logic.given, "on_timer", None
        )
        self._by_time = logic.order == "event_time"
        self._rows, self._call = rows, Call(times)
        self._context = Context(self._call, zone=zone, has_timers=self._on_timer is not None)
        self._doing = ""

    def run(
        self, keys: Sequence[Any], cells: Sequence[bytes | None], starts: Sequence[int], span: Span
    ) -> CallResults:
        """Calls the class for each key with its rows and its due timers.

        The rows of key i are from `starts[i]` up to `starts[i + 1]`.
        """
        made, key = CallResults([], [], []), None
        encode, decode, call, ttl = self._encode, self._decode, self._call, self._logic.ttl_us
        out, after, counts = made.rows, made.cells, made.counts
        rows, make, process, context, rows_of = (
            self._rows,
            self._make,
            self._process,
            self._context,
            self._rows.rows_of,
        )
        try:
            for key, cell, start, end in zip(
                keys, cells, starts, itertools.islice(starts, 1, None), strict=False
            ):
                before = len(out)
                head, old, call.state = NO_HEAD, None, GONE
                if cell is not None:
                    self._doing = _DECODING
                    head, old = (NO_HEAD, cell[1:]) if cell[0] == 0 else head_of(cell)
                    call.state = decode(old)
                call.timers, call.after_us = (
                    dict(head.timers) if head.timers else None,
                    span.after_us,
                )
                if ttl is not None or head is not NO_HEAD:
                    head = self._alarms(key, (start, end), head, span, made)
                else:
                    self._doing, call.start, call.end, call.at_us = _PROCESS, start, end, None
                    if cell is None:
                        call.state = make()
                    returned = process(key, rows_of(rows, start, end), call.state, context)
                    if returned is not None:
                        out.extend(returned)
                    if call.timers is not None:
                        head = self._alarms(key, (end, end), head, span, made)
                counts.append(len(out) - before)
                if call.state is GONE:
                    after.append(None)
                    continue
                self._doing = _ENCODING
                state = encode(call.state)
                if state != old:
                    decode(state)  # fails now if the next step could not read it
                now = b"\0" + state if head is NO_HEAD else sealed_cell(head, state)
                after.append(cell if now == cell else now)
        except StepError:
            raise
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            self._failed(key, error)
        return made

    def _alarms(
        self, key: Any, rows: tuple[int, int], head: Head, span: Span, made: CallResults
    ) -> Head:
        """Makes the calls for a key with timers or a time to live. Returns its new head.

        Rows before a due timer come first, then the timer, then the rows after it.
        """
        call, (start, end) = self._call, rows
        expires = head.expires_us
        if expires is None and call.state is not GONE:  # the class had no `ttl` in an earlier run
            expires = self._expires([call.after_us])
        until = (
            call.times[end - 1] if span.finish and self._by_time and start < end else span.until_us
        )
        horizon = span.finish and start == end
        while True:
            if horizon:
                # The run finishes: call all timers, and those that they set before the last one.
                until, horizon = max((call.timers or {}).values(), default=span.until_us), False
            due = self._due(expires, until)
            split = end if due is None else self._split(due[0], expires, until, (start, end))
            if split > start:
                self._called(key, start, split, made.rows)
                expires = self._expires([call.after_us, *call.times[start:split]])
                start, horizon = split, span.finish and split == end
            elif due is None:
                break
            else:
                call.after_us, name = due
                if name == _EXPIRES:
                    call.state, call.timers, expires = GONE, None, None
                    continue
                self._fire(key, call.after_us, name, made)
                expires = self._expires([call.after_us])
        return renoted(head, expires, span.until_us)._replace(timers=call.timers or {})

    def _split(
        self, due_us: int, expires: int | None, until: int | None, rows: tuple[int, int]
    ) -> int:
        """The end of the rows that come before a due alarm.

        By event time these are the older rows. By arrival these are all rows, unless the key
        expires before them.
        """
        start, end = rows
        if self._by_time:
            return bisect_left(self._call.times, due_us, start, end)
        if start == end or expires is None or until is None:
            return end
        return start if due_us <= expires <= min(until, *self._call.times[start:end]) else end

    def _expires(self, touched: Sequence[int | None]) -> int | None:
        """When the time to live ends of a key that had rows or timers at these times."""
        if self._logic.ttl_us is None:
            return None
        return max(
            (
                each + self._logic.ttl_us
                for each in touched
                if each is not None and each != NO_TIME_US
            ),
            default=None,
        )

    def _due(self, expires: int | None, until: int | None) -> tuple[int, str] | None:
        """The next timer that is due, or the end of the time to live."""
        if until is None:
            return None
        alarms = [(at, name) for name, at in (self._call.timers or {}).items() if at <= until]
        if expires is not None and expires <= until:
            alarms.append((expires, _EXPIRES))
        return min(alarms, default=None)

    def _called(self, key: Any, start: int, end: int, out: list[Any]) -> None:
        """Calls the class with some rows of a key."""
        if start == end:
            return
        call, self._doing = self._call, _PROCESS
        call.start, call.end, call.at_us = start, end, None
        if call.state is GONE:
            call.state = self._make()
        returned = self._process(
            key, self._rows.rows_of(self._rows, start, end), call.state, self._context
        )
        if returned is not None:
            out.extend(returned)

    def _fire(self, key: Any, at: int, name: str, made: CallResults) -> None:
        """Calls the class for one timer of a key."""
        call, self._doing = self._call, _ON_TIMER
        assert call.timers is not None
        del call.timers[name]
        made.until_us = at if made.until_us is None else max(at, made.until_us)
        if self._on_timer is None:
            raise StepError(
                f"operator {self._operator!r}, key {key!r}: it has a timer, but {self._logic.name} "
                "has no on_timer() any more"
            )
        call.at_us, call.name = at, name
        if call.state is GONE:
            call.state = self._make()
        returned = self._on_timer(key, call.state, self._context)
        if returned is not None:
            made.rows.extend(returned)

    def _failed(self, key: Any, error: Exception) -> NoReturn:
        text = " ".join(str(error).split())
        what = {
            _ENCODING: f"its state does not fit the declared type {self._logic.state}: {text}",
            _DECODING: f"its stored state does not fit the type {self._logic.state}: {text}",
        }.get(self._doing, f"{self._doing} raised {type(error).__name__}: {text}{place_of(error)}")
        raise StepError(f"operator {self._operator!r}, key {key!r}: {what}") from error
