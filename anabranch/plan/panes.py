"""Panes: the smallest intervals that all windows of an operator are unions of (Enorm 4.2, 6.1).

Every window starts and ends at a pane's edge, so a row is aggregated once, into its pane, whatever the number of windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from anabranch.topology.types import Array
from anabranch.topology.windows import Window


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

    def closings(self, panes: Iterable[int], after_us: int | None, until_us: int | None) -> list[Closing]:
        """The windows over any of these panes that end in (after, until], by end, start and definition."""
        if until_us is None:
            return []
        held = np.fromiter(panes, dtype=np.int64)
        found: list[Closing] = []
        for index, window in enumerate(self.windows):
            found += [Closing(index, end - window.length_us, end) for end in _ends(window, held, after_us, until_us)]
        return sorted(found, key=lambda each: (each.end_us, each.start_us, each.window))

    def next_end(self, panes: Iterable[int], after_us: int | None) -> int | None:
        """The end of the first window over any of these panes that is not closed."""
        held = np.fromiter(panes, dtype=np.int64)
        low = held if after_us is None else np.maximum(held, after_us)
        first: list[int] = []
        for window in self.windows if len(held) else ():
            end = low + window.every_us - (low - window.offset_us - window.length_us) % window.every_us
            first += end[end - window.length_us <= held].min(initial=np.iinfo(np.int64).max, keepdims=True).tolist()
        return min((end for end in first if end != np.iinfo(np.int64).max), default=None)

    def final_end(self, panes: Iterable[int]) -> int | None:
        """The end of the last window over any of these panes."""
        return max((end for pane in panes if (end := self.last_end(pane)) is not None), default=None)


def _ends(window: Window, panes: Array, after_us: int | None, until_us: int) -> list[int]:
    last = panes - (panes - window.offset_us) % window.every_us + window.length_us
    ends: set[int] = set()
    for back in range(-(-window.length_us // window.every_us)):
        end = last - back * window.every_us
        taken = (end > panes) & (end <= until_us)
        if after_us is not None:
            taken &= end > after_us
        ends.update(np.unique(end[taken]).tolist())
    return sorted(ends)


def panes_of(windows: Sequence[Window]) -> Panes:
    """The widest equal panes whose edges include every start and end of every window."""
    offset = windows[0].offset_us
    width = 0
    for window in windows:
        width = gcd(width, window.every_us, window.length_us, abs(window.offset_us - offset))
    return Panes(width_us=width, offset_us=offset % width, windows=tuple(windows))
