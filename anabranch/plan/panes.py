"""Panes: the smallest intervals that all windows of an operator consist of (Enorm 4.2, 6.1).

Every window starts and ends at the edge of a pane. So a row is aggregated once, into its pane,
whatever the number of windows. Panes are equally wide, and are also cut at the starts and ends of
windows that are not equally spaced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

import numpy as np

from anabranch.topology.durations import format_duration
from anabranch.topology.windows import NEVER, AlignedWindow, Grid
from anabranch.types import Array

HOUR_US = 3_600_000_000

# Rows that are in no window have one of these marks instead of a pane. No event time is as low.
LEFT_OUT = -9_000_000_000_000_000_000  # no event time
OUT, TOO_LATE, ELSEWHERE = LEFT_OUT + 1, LEFT_OUT + 2, LEFT_OUT + 3
# These two also replace an event time. They are so low that no maximum is ever one of them.
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
    """One complete window: the number of its definition, its start and its end."""

    window: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """The panes that a set of windows shares."""

    width_us: int | None  # None: panes are cut at the edges of windows only
    offset_us: int
    windows: tuple[AlignedWindow, ...]

    @property
    def grid(self) -> Grid | None:
        """Where panes are cut, whatever the windows."""
        return None if self.width_us is None else Grid(self.width_us, self.offset_us)

    @property
    def cuts(self) -> list[AlignedWindow]:
        """The windows at whose edges panes are cut in addition.

        A window is left out if another one has all of its edges.
        """
        found: list[AlignedWindow] = []
        for window in self.windows:
            if window.grid is None and not any(each.refines(window) for each in found):
                found = [each for each in found if not window.refines(each)] + [window]
        return found

    @property
    def per_hour(self) -> float:
        """The mean number of panes per hour."""
        cuts = sum(HOUR_US / each.mean_us for each in self.cuts)
        return cuts + (HOUR_US / self.width_us if self.width_us is not None else 0.0)

    def __str__(self) -> str:
        parts = [] if self.width_us is None else [format_duration(self.width_us)]
        return " cut by ".join([*parts, *(each.name for each in self.cuts)])

    def starts(self, times: Array) -> Array:
        """The start of the pane of each time."""
        found = (
            np.full(len(times), NEVER, dtype=np.int64)
            if self.width_us is None
            else times - (times - self.offset_us) % self.width_us
        )
        for window in self.cuts:
            found = np.maximum(found, window.starts(times))
        return found

    @property
    def reach_us(self) -> int:
        """How far a window may extend before and after the rows in it, at most."""
        return max((window.longest_us for window in self.windows), default=self.width_us or 0)

    def can_show(self, t: Array) -> Array:
        """Whether Python can show every window that may contain each of these times."""
        found: Array = (t >= FIRST_US + self.reach_us) & (t <= LAST_US - self.reach_us)
        return found

    def start_of(self, at_us: int) -> int:
        return int(self.starts(np.array([at_us], dtype=np.int64))[0])

    def end_of(self, pane_us: int) -> int:
        """The end of a pane that starts at a time."""
        ends = [each.first_end(pane_us) for each in self.cuts]
        return min([*ends, *([] if self.width_us is None else [pane_us + self.width_us])])

    def last_end(self, pane_us: int) -> int | None:
        """The end of the last window that contains a pane; None if there is none."""
        end = int(self.last_ends(np.array([pane_us], dtype=np.int64))[0])
        return None if end == NEVER else end

    def is_over(self, pane_us: int, watermark_us: int | None) -> bool:
        """True when every window that contains the pane is closed by the watermark."""
        end = self.last_end(pane_us)
        return end is None or (watermark_us is not None and end <= watermark_us)

    def last_ends(self, panes: Array) -> Array:
        """The end of the last window that contains each pane, NEVER if there is none."""
        found = np.full(len(panes), NEVER, dtype=np.int64)
        for window in self.windows:
            np.maximum(found, window.last_ends(panes), out=found)
        return found

    def takes_all_from(self, pane_us: int, watermark_us: int | None) -> bool:
        """True when a window contains a pane and all after it: it has no gaps, and is open."""
        at = np.array([pane_us], dtype=np.int64)
        return any(
            watermark_us is None or int(window.last_ends(at)[0]) > watermark_us
            for window in self.windows
            if window.gapless
        )

    def last_end_sql(self) -> str | None:
        """SQL for the end of the last window that contains a time t, null if there is none.

        Only windows count for which SQL can express it.
        """
        longest = {
            each.series: each for each in sorted(self.windows, key=lambda each: each.longest_us)
        }
        ends = [end for each in longest.values() if (end := each.last_end_sql()) is not None]
        return f"greatest({', '.join(ends)})" if len(ends) > 1 else next(iter(ends), None)

    def outside_sql(self) -> str:
        """SQL: whether no window contains a time t, whatever the watermark."""
        return "false" if self.cuts else f"{self.last_end_sql()} is null"

    def late_sql(self, watermark_us: int | None) -> str:
        """SQL: whether no open window contains a time t."""
        late = []
        if (end := self.last_end_sql()) is not None:
            over = "" if watermark_us is None else f" or {end} <= {data_sql(watermark_us)}"
            late.append(f"{end} is null{over}")
        if self.cuts:  # rows before the first open one of them
            first = None if watermark_us is None else self._first_open(watermark_us)
            late.append("false" if first is None else f"t < {data_sql(first)}")
        text = late[0] if len(late) == 1 else " and ".join(f"({each})" for each in late)
        return f"(t is null or {MARKED_SQL} or {text})"

    def _first_open(self, watermark_us: int) -> int:
        """The first start among windows that cut panes and are open at a watermark."""
        at = np.array([watermark_us], dtype=np.int64)
        return min(int(each.starts(at)[0]) for each in self.windows if each.grid is None)

    def pane_sql(self) -> str:
        """SQL for the pane of a time t, or a mark if t is null or no window contains it.

        A mark in place of t stays. If windows cut panes, it is some time in the pane; `starts` then
        gives its start.
        """
        width, offset = self.width_us, self.offset_us
        pane = None if width is None else f"t - pmod(t - {offset}L, {width}L)"
        for window in self.cuts:
            pane = window.cut_sql(pane, self.grid)
        if self.windows and not any(window.gapless for window in self.windows):
            pane = f"if({self.last_end_sql()} is null, {OUT}L, {pane})"
        return f"case when t is null then {LEFT_OUT}L when {MARKED_SQL} then t else {pane} end"

    def closings(
        self, panes: Iterable[int], after_us: int | None, until_us: int | None
    ) -> list[Closing]:
        """The windows that contain any of these panes and end in (after, until].

        They are sorted by end, start and definition.
        """
        ordered = sorted(panes)
        if until_us is None or not ordered:
            return []
        found: list[Closing] = []
        for index, window in enumerate(self.windows):
            found += [
                Closing(index, window.start_of(end), end)
                for end in ends_between(window, ordered, after_us, until_us)
            ]
        return sorted(found, key=lambda each: (each.end_us, each.start_us, each.window))

    def next_end(self, panes: Iterable[int], after_us: int | None) -> int | None:
        """The end of the first open window that contains any of these panes."""
        ordered = sorted(panes)
        first: list[int] = []
        for window in self.windows:
            at = 0
            while at < len(ordered):
                end = _first_end(window, ordered[at], after_us)
                at = bisect_left(ordered, window.start_of(end), at)
                if at < len(ordered) and ordered[at] < end:
                    first.append(end)
                    break
        return min(first, default=None)

    def final_end(self, panes: Iterable[int]) -> int | None:
        """The end of the last window that contains any of these panes."""
        ends = self.last_ends(np.fromiter(panes, dtype=np.int64))
        last = int(ends.max(initial=NEVER))
        return None if last == NEVER else last


def data_sql(number: int) -> str:
    """A number as data in SQL, not as code, so that a new number needs no new compilation.

    Spark cannot know which element of the array is taken.
    """
    return f"get(array({number}L), if(t is null, 1, 0))"


def _first_end(window: AlignedWindow, pane_us: int, after_us: int | None) -> int:
    """The first end of a window that is after a time and after the start of a pane."""
    return window.first_end(pane_us if after_us is None else max(pane_us, after_us))


def ends_between(
    window: AlignedWindow, ordered: Sequence[int], after_us: int | None, until_us: int
) -> list[int]:
    """The ends in (after, until] of windows that contain a pane. Long gaps are skipped."""
    ends: list[int] = []
    at, end = 0, _first_end(window, ordered[0], after_us)
    while end <= until_us:
        at = bisect_left(ordered, window.start_of(end), at)
        if at == len(ordered):
            break
        if ordered[at] < end:
            ends.append(end)
            end = window.first_end(end)
        else:
            end = max(window.first_end(end), _first_end(window, ordered[at], after_us))
    return ends


def panes_of(windows: Sequence[AlignedWindow]) -> Panes:
    """The widest equal panes whose edges include every start and end of every window.

    They are cut at the edges of windows that are not equally spaced.
    """
    grids = [window.grid for window in windows if window.grid is not None]
    if not grids:
        return Panes(width_us=None, offset_us=0, windows=tuple(windows))
    grid = reduce(Grid.meet, grids)
    return Panes(width_us=grid.width_us, offset_us=grid.offset_us, windows=tuple(windows))
