"""Panes: the smallest intervals that all windows of an operator are unions of (Enorm 4.2, 6.1).

Every window starts and ends at a pane's edge, so a row is aggregated once, into its pane, whatever
the number of windows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from math import gcd

import numpy as np

from anabranch.topology.windows import Window
from anabranch.types import Array

NEVER = np.iinfo(np.int64).min

# Instead of a pane, rows that are in no window have one of these marks; no event time comes near.
LEFT_OUT = -9_000_000_000_000_000_000  # no event time
OUT, TOO_LATE, ELSEWHERE = LEFT_OUT + 1, LEFT_OUT + 2, LEFT_OUT + 3
# These two also stand in the place of an event time: no maximum is ever one of them.
AHEAD, OUT_OF_RANGE = LEFT_OUT + 4, LEFT_OUT + 5
FARTHEST_US = 8_000_000_000_000_000_000

# The times that Python and Spark's `collect` can show in every time zone: the years 1 to 9999,
# without their first and last day.
_DAY_US = 86_400_000_000
FIRST_US, LAST_US = (
    (day.toordinal() - date(1970, 1, 1).toordinal()) * _DAY_US
    for day in (date(1, 1, 2), date(9999, 12, 31))
)


MARKED_SQL = f"t < {-FARTHEST_US}L"  # whether t is a mark


@dataclass(frozen=True, slots=True)
class Closing:
    """One window instance that is complete: which definition, and when it starts and ends."""

    window: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """The panes that a set of windows shares."""

    width_us: int
    offset_us: int
    windows: tuple[Window, ...]

    @property
    def reach_us(self) -> int:
        """How far a window may reach before and after the rows in it, at most."""
        return max((window.length_us for window in self.windows), default=self.width_us)

    def can_show(self, t: Array) -> Array:
        """Whether Python can show every window that may contain each of these times."""
        found: Array = (t >= FIRST_US + self.reach_us) & (t <= LAST_US - self.reach_us)
        return found

    def start_of(self, at_us: int) -> int:
        return at_us - (at_us - self.offset_us) % self.width_us

    def last_end(self, pane_us: int) -> int | None:
        """The end of the last window that contains a pane; None where no window does."""
        ends = [
            start + window.length_us
            for window in self.windows
            if pane_us < (start := window.last_start(pane_us)) + window.length_us
        ]
        return max(ends, default=None)

    def is_over(self, pane_us: int, watermark_us: int | None) -> bool:
        """True when every window that contains the pane is closed by the watermark."""
        end = self.last_end(pane_us)
        return end is None or (watermark_us is not None and end <= watermark_us)

    def last_ends(self, panes: Array) -> Array:
        """The end of the last window that contains each pane; where no window does, the least
        number there is.
        """
        found = np.full(len(panes), NEVER, dtype=np.int64)
        for window in self.windows:
            end = panes - (panes - window.offset_us) % window.every_us + window.length_us
            np.maximum(found, end, out=found, where=end > panes)
        return found

    def last_end_sql(self) -> str:
        """The end of the last window that contains a time t; null where none does."""
        longest = {
            (each.every_us, each.offset_us): each
            for each in sorted(self.windows, key=lambda each: each.length_us)
        }
        ends = [_last_end_sql(window) for window in longest.values()]
        return ends[0] if len(ends) == 1 else f"greatest({', '.join(ends)})"

    def pane_sql(self) -> str:
        """The pane of a time t, or a mark where there is none or no window takes it.

        A mark in the place of t stays as it is.
        """
        pane = f"t - pmod(t - {self.offset_us}L, {self.width_us}L)"
        if self.windows and not any(window.gapless for window in self.windows):
            pane = f"if({self.last_end_sql()} is null, {OUT}L, {pane})"
        return f"case when t is null then {LEFT_OUT}L when {MARKED_SQL} then t else {pane} end"

    def closings(
        self, panes: Iterable[int], after_us: int | None, until_us: int | None
    ) -> list[Closing]:
        """The windows over any of these panes that end in (after, until], by end, start and
        definition.
        """
        ordered = sorted(panes)
        if until_us is None or not ordered:
            return []
        found: list[Closing] = []
        for index, window in enumerate(self.windows):
            found += [
                Closing(index, end - window.length_us, end)
                for end in _ends(window, ordered, after_us, until_us)
            ]
        return sorted(found, key=lambda each: (each.end_us, each.start_us, each.window))

    def next_end(self, panes: Iterable[int], after_us: int | None) -> int | None:
        """The end of the first window over any of these panes that is not closed."""
        ordered = sorted(panes)
        first: list[int] = []
        for window in self.windows:
            at = 0
            while at < len(ordered):
                end = _first_end(window, ordered[at], after_us)
                at = bisect_left(ordered, end - window.length_us, at)
                if at < len(ordered) and ordered[at] < end:
                    first.append(end)
                    break
        return min(first, default=None)

    def final_end(self, panes: Iterable[int]) -> int | None:
        """The end of the last window over any of these panes."""
        return max(
            (end for pane in panes if (end := self.last_end(pane)) is not None), default=None
        )


def first_end(window: Window, after_us: int) -> int:
    """The first end of a window after a time."""
    return (
        after_us
        + window.every_us
        - (after_us - window.offset_us - window.length_us) % window.every_us
    )


def _first_end(window: Window, pane_us: int, after_us: int | None) -> int:
    """The first end of a window, after a time, that lies behind the start of a pane."""
    return first_end(window, pane_us if after_us is None else max(pane_us, after_us))


def _ends(window: Window, ordered: Sequence[int], after_us: int | None, until_us: int) -> list[int]:
    """The ends in (after, until] of windows that hold a pane; over long times without panes it
    leaps.
    """
    ends: list[int] = []
    at, end = 0, _first_end(window, ordered[0], after_us)
    while end <= until_us:
        at = bisect_left(ordered, end - window.length_us, at)
        if at == len(ordered):
            break
        if ordered[at] < end:
            ends.append(end)
            end += window.every_us
        else:
            end = max(end + window.every_us, _first_end(window, ordered[at], after_us))
    return ends


def _last_end_sql(window: Window) -> str:
    into = f"pmod(t - {window.offset_us}L, {window.every_us}L)"
    end = f"t - {into} + {window.length_us}L"
    return f"({end})" if window.gapless else f"if({into} < {window.length_us}L, {end}, null)"


def panes_of(windows: Sequence[Window]) -> Panes:
    """The widest equal panes whose edges include every start and end of every window."""
    offset = windows[0].offset_us
    width = 0
    for window in windows:
        width = gcd(width, window.every_us, window.length_us, abs(window.offset_us - offset))
    return Panes(width_us=width, offset_us=offset % width, windows=tuple(windows))
