"""Event-time windows, and sessions, whose windows depend on the rows of each key.

A window of fixed length is [start, start + length). One begins every `every`, shifted by `offset`
from 1970-01-01 UTC. Calendar windows are in `anabranch.topology.calendar`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar

import numpy as np

from anabranch.errors import TopologyError
from anabranch.topology.durations import Duration, duration_us, format_duration, written_duration
from anabranch.types import Array

NEVER = np.iinfo(np.int64).min  # earlier than all times

INCOMPLETE = " (incomplete)"  # the end of the window name of results that lack earlier rows
_MOST_STEPS = 300  # of a cumulative window; each is a window of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDefinition(ABC):
    """A named window. `kind` selects the plan that forms windows of this kind."""

    kind: ClassVar[str]
    name: str

    @property
    @abstractmethod
    def key(self) -> str:
        """The identity of the window in a checkpoint. It does not depend on its name."""

    @property
    def described(self) -> str:
        """Everything that results depend on, as text for a fingerprint."""
        return self.name if self.name == self.key else f"{self.name} ({self.key})"

    @property
    @abstractmethod
    def copies(self) -> int:
        """How many of its windows contain a row."""

    def check_moment(self, moment: str) -> None:  # noqa: B027
        """Refuses event times of a type that the window does not support."""

    def shares_name(self, other: WindowDefinition) -> bool:  # noqa: ARG002
        """Whether both may have the same name. Only steps of one cumulative window may."""
        return False


@dataclass(frozen=True, slots=True)
class Grid:
    """Equally spaced times, `width_us` apart; one of them is `offset_us`."""

    width_us: int
    offset_us: int

    def meet(self, other: Grid) -> Grid:
        """The widest grid that contains the times of both."""
        width = gcd(self.width_us, other.width_us, abs(self.offset_us - other.offset_us))
        return Grid(width, self.offset_us % width)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedWindow(WindowDefinition):
    """A window whose starts and ends are the same for all keys, so panes can be shared."""

    kind = "windows"

    @property
    @abstractmethod
    def gapless(self) -> bool:
        """Whether every time is in one of its windows."""

    @property
    @abstractmethod
    def longest_us(self) -> int:
        """The length of the longest window."""

    @property
    @abstractmethod
    def mean_us(self) -> float:
        """The mean time from one end to the next."""

    @property
    @abstractmethod
    def grid(self) -> Grid | None:
        """The widest grid that contains all starts and ends.

        None if they are not equally spaced; panes are then cut at them.
        """

    @property
    @abstractmethod
    def series(self) -> tuple[object, ...]:
        """Windows with an equal series have the same starts, so the longest of them ends last."""

    @abstractmethod
    def in_panes(self, grid: Grid) -> tuple[int, int, int] | None:
        """Its length, the distance of its ends, and its first end from 0 on, in panes of a grid.

        None if it is not equally spaced.
        """

    @abstractmethod
    def last_end_sql(self) -> str | None:
        """SQL for the end of the last window that contains a time t, null if there is none.

        None if SQL cannot express it.
        """

    @abstractmethod
    def last_ends(self, times: Array) -> Array:
        """The end of the last window that contains each time, NEVER if there is none."""

    @abstractmethod
    def first_end(self, after_us: int) -> int:
        """The first end after a time."""

    @abstractmethod
    def start_of(self, end_us: int) -> int:
        """The start of the window that ends at a time."""

    def starts(self, times: Array) -> Array:
        """The last start or end at or before each time, for windows at which panes are cut."""
        raise NotImplementedError

    def cut_sql(self, pane: str | None, grid: Grid | None) -> str:
        """SQL for a time in the same pane as a time t.

        No start or end of the window is between the two, and no edge of the given pane, whose edges
        are on a grid.
        """
        raise NotImplementedError

    def since(self, old: AlignedWindow, at_us: int) -> AlignedWindow:  # noqa: ARG002
        """The window with what an older definition says up to a time."""
        return self

    @property
    def helper(self) -> AlignedWindow | None:
        """Shorter windows that a long one consists of, from which it can be formed."""
        return None

    def refines(self, other: AlignedWindow) -> bool:  # noqa: ARG002
        """Whether its starts and ends include all of another window at which panes are cut."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(AlignedWindow):
    """Windows of one length. They overlap if `every` is shorter, and leave gaps if it is longer."""

    length_us: int
    every_us: int
    offset_us: int = 0

    @property
    def gapless(self) -> bool:
        return self.every_us <= self.length_us

    @property
    def longest_us(self) -> int:
        return self.length_us

    @property
    def mean_us(self) -> float:
        return self.every_us

    @property
    def grid(self) -> Grid:
        width = gcd(self.length_us, self.every_us)
        return Grid(width, self.offset_us % width)

    @property
    def series(self) -> tuple[object, ...]:
        return self.every_us, self.offset_us

    def in_panes(self, grid: Grid) -> tuple[int, int, int]:
        length, every = self.length_us // grid.width_us, self.every_us // grid.width_us
        phase = (self.offset_us - grid.offset_us) // grid.width_us + length
        return length, every, phase % every

    def last_end_sql(self) -> str:
        into = f"pmod(t - {self.offset_us}L, {self.every_us}L)"
        end = f"t - {into} + {self.length_us}L"
        return f"({end})" if self.gapless else f"if({into} < {self.length_us}L, {end}, null)"

    def last_ends(self, times: Array) -> Array:
        ends = times - (times - self.offset_us) % self.every_us + self.length_us
        found: Array = np.where(ends > times, ends, NEVER)
        return found

    def first_end(self, after_us: int) -> int:
        return (
            after_us + self.every_us - (after_us - self.offset_us - self.length_us) % self.every_us
        )

    def start_of(self, end_us: int) -> int:
        return end_us - self.length_us

    @property
    def key(self) -> str:
        text = format_duration(self.length_us)
        if self.every_us != self.length_us:
            text += f" every {format_duration(self.every_us)}"
        return text + (f" starting {format_duration(self.offset_us)}" if self.offset_us else "")

    @property
    def copies(self) -> int:
        return -(-self.length_us // self.every_us)

    def shares_name(self, other: WindowDefinition) -> bool:
        """Whether both can be steps of one cumulative window: only their lengths differ."""
        return (
            isinstance(other, Window)
            and (self.every_us, self.offset_us) == (other.every_us, other.offset_us)
            and self.length_us != other.length_us
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(WindowDefinition):
    """Rows of a key, each at most a gap after the one before.

    The window of a session is [first row, last row + gap). As in Spark, a row exactly a gap after
    another belongs to its session. The session closes when the watermark reaches its end. A row
    that comes later, and is not late itself, begins a new session.
    """

    kind = "sessions"

    gap_us: int

    @property
    def key(self) -> str:
        return f"session {format_duration(self.gap_us)}"

    @property
    def copies(self) -> int:
        return 1


# The name of a window is the one given by the user, else what the user wrote: "24 hours" stays
# "24 hours". Only results and messages depend on it; state depends on `key`.


def tumbling(length: Duration, *, start: Duration = "0s", name: str | None = None) -> Window:
    """Windows of one length, one after the other. Each row is in exactly one.

    - `length`: such as "10 minutes", "24h", "1h 30m" or a timedelta.
    - `start`: shifts the windows, one of which by default starts at 1970-01-01 00:00 UTC.
    - `name`: what results have in column `window_name`; by default the length as written.

    A value that is not a duration, or a length of zero, is a TopologyError.
    """
    duration_us(length, "window length")
    return _window(length, length, start, name)


def sliding(
    length: Duration, *, every: Duration, start: Duration = "0s", name: str | None = None
) -> Window:
    """Overlapping windows. Each row is in `length / every` of them.

    - `length`: how long each window is, such as "1 hour" or a timedelta.
    - `every`: the time from one start to the next. It must not be longer than `length`.
    - `start`: shifts the windows, one of which by default starts at 1970-01-01 00:00 UTC.
    - `name`: what results have in column `window_name`; by default "1 hour every 5 minutes".
    """
    length_us, every_us = duration_us(length, "window length"), duration_us(every, "window slide")
    if every_us > length_us:
        raise TopologyError(
            f"sliding window: every {format_duration(every_us)} is longer than its length "
            f"{format_duration(length_us)}; "
            "rows between two windows would be in none (hopping() allows that)"
        )
    return _window(length, every, start, name)


def hopping(
    length: Duration, *, every: Duration, start: Duration = "0s", name: str | None = None
) -> Window:
    """A window of `length` every `every`, overlapping or with gaps.

    The arguments are those of `sliding`, but `every` may be longer than `length`. Rows in a gap
    are in no window and are left out.
    """
    duration_us(length, "window length")
    duration_us(every, "window hop")
    return _window(length, every, start, name)


def cumulative(
    period: Duration, *, every: Duration, start: Duration = "0s", name: str | None = None
) -> tuple[Window, ...]:
    """A period so far, in steps: windows from the start of a period to every `every` after it.

    For example, everything since midnight, every 10 minutes.

    - `period`: such as "1 day". The last window of a period is the whole of it.
    - `every`: the step. `period` must be a multiple of it, of at most 300 steps.
    - `start`: shifts the periods from 1970-01-01 00:00 UTC. With "-2 hours", days begin at midnight
      in UTC+2.
    - `name`: what results have in column `window_name`; by default "1 day so far every 10 minutes".

    Returns one window per step. Give all of them to `consolidate` or `aggregate`.
    """
    period_us, every_us = duration_us(period, "period"), duration_us(every, "step of a period")
    if period_us % every_us:
        raise TopologyError(
            f"cumulative window: {format_duration(period_us)} is not a multiple of "
            f"{format_duration(every_us)}"
        )
    steps = period_us // every_us
    if steps > _MOST_STEPS:
        least = format_duration(-(-period_us // _MOST_STEPS))
        raise TopologyError(
            f"cumulative window: {steps:,} steps per period; valid: "
            f"up to {_MOST_STEPS}, so every={least!r} or more"
        )
    whole = _window(period, period, start, name)
    if name is None:
        text = f"{written_duration(period)} so far every {written_duration(every)}"
        whole = replace(whole, name=f"{text}{_starting(start, whole)}")
    return tuple(replace(whole, length_us=(i + 1) * every_us) for i in range(steps))


def session(gap: Duration, *, name: str | None = None) -> Session:
    """Sessions: rows of a key that follow each other by at most `gap`.

    - `gap`: such as "30 minutes" or a timedelta.
    - `name`: what results have in column `window_name`; by default "session 30 minutes".
    """
    gap_us = duration_us(gap, "session gap")
    return Session(name=check_name(name, f"session {written_duration(gap)}"), gap_us=gap_us)


def _window(length: Duration, every: Duration, start: Duration, name: str | None) -> Window:
    length_us, every_us = duration_us(length), duration_us(every)
    offset_us = duration_us(start, "window start", zero=True, negative=True) % every_us
    window = Window(name="", length_us=length_us, every_us=every_us, offset_us=offset_us)
    text = written_duration(length)
    text += f" every {written_duration(every)}" if every_us != length_us else ""
    return replace(window, name=check_name(name, f"{text}{_starting(start, window)}"))


def _starting(start: Duration, window: Window) -> str:
    return f" starting {written_duration(start)}" if window.offset_us else ""


def check_name(name: object, default: str) -> str:
    """The name that the user gave a window, or the default."""
    if name is None:
        return default
    if not isinstance(name, str) or not name.strip():
        raise TopologyError(f"window name {name!r} must be a non-empty string")
    if name.endswith(INCOMPLETE):
        raise TopologyError(
            f"window name {name!r} must not end with {INCOMPLETE!r}, which marks missing rows"
        )
    return name


def parse_windows(text: str) -> tuple[Window, ...]:
    """Windows from text: '7m/3m,5m' is 7 minutes every 3 minutes, and tumbling 5 minutes."""
    parsed = [_parse_window(part.strip()) for part in text.split(",")]
    windows = tuple(replace(window, name=window.key) for window in parsed)
    if len({window.key for window in windows}) < len(windows):
        raise TopologyError(f"--windows {text!r} has a duplicate window")
    return windows


def _parse_window(text: str) -> Window:
    length, slash, every = text.partition("/")
    try:
        return sliding(length, every=every) if slash else tumbling(length)
    except TopologyError as error:
        raise TopologyError(
            f"--windows: {text!r} is not LENGTH or LENGTH/SLIDE, such as 5m or 10m/1m: {error}"
        ) from None
