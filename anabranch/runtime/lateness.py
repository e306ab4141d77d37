"""Which rows no open window takes, and why: told by their panes, in the slot task."""

from __future__ import annotations

import numpy as np

from anabranch.plan.panes import NEVER, Panes
from anabranch.runtime.process.ordered import NO_TIME_US
from anabranch.types import Array

# Instead of a pane, rows that are in no window have one of these numbers; no event time comes near them.
LEFT_OUT = NO_TIME_US
OUT, TOO_LATE, ELSEWHERE = LEFT_OUT + 1, LEFT_OUT + 2, LEFT_OUT + 3
NO_TIME, OUTSIDE, LATE = "no event time", "outside", "late"
TAKEN = "taken by another part"  # of the same operator: not left out
FARTHEST_US = 8_000_000_000_000_000_000
_FEW_PANES = 1 << 12


def all_taken(pane: Array, panes: Panes, watermark_us: int | None) -> bool:
    """True when open windows take all of these panes: by far the most common case, and told without looking at each."""
    first, last = int(pane.min(initial=FARTHEST_US)), int(pane.max(initial=-FARTHEST_US))
    if first < -FARTHEST_US:
        return False
    if not panes.windows:  # sessions: rows that are late have a pane that says so
        return True
    if last - first > _FEW_PANES * panes.width_us:
        return False
    ends = panes.last_ends(np.arange(first, last + 1, panes.width_us))
    return bool((ends > (NEVER if watermark_us is None else watermark_us)).all())


def reasons(pane: Array, panes: Panes, watermark_us: int | None) -> Array:
    """Why no open window takes the rows of each of these panes; None where one does."""
    told, at = np.unique(pane, return_inverse=True)
    marked = {LEFT_OUT: NO_TIME, OUT: OUTSIDE, TOO_LATE: LATE, ELSEWHERE: TAKEN}

    def why(each: int) -> str | None:
        if each < -FARTHEST_US:
            return marked[each]
        if not panes.windows:
            return None
        end = panes.last_end(each)
        return (
            OUTSIDE
            if end is None
            else LATE
            if watermark_us is not None and end <= watermark_us
            else None
        )

    return np.array([*map(why, told.tolist()), None], dtype=object)[at]
