"""Which rows no open window takes, and why, by their panes. Slot tasks use it."""

from __future__ import annotations

import numpy as np

from anabranch.plan.panes import (
    AHEAD,
    ELSEWHERE,
    FARTHEST_US,
    LEFT_OUT,
    OUT,
    OUT_OF_RANGE,
    TOO_LATE,
    Panes,
)
from anabranch.topology.windows import NEVER
from anabranch.types import Array

NO_TIME, OUTSIDE, LATE = "no event time", "outside", "late"
TOO_FAR_AHEAD = "ahead"  # of the clock
NOT_SHOWN = "out of range"  # its windows would begin before year 1 or end after year 9999
TAKEN = "taken by another part"  # of the same operator: not left out
REASON_OF = {
    LEFT_OUT: NO_TIME,
    OUT: OUTSIDE,
    TOO_LATE: LATE,
    ELSEWHERE: TAKEN,
    AHEAD: TOO_FAR_AHEAD,
    OUT_OF_RANGE: NOT_SHOWN,
}
_FEW_PANES = 1 << 12


def all_taken(pane: Array, panes: Panes, watermark_us: int | None) -> bool:
    """True if open windows take all of these panes. This is the usual case, and the check does
    not look at each pane.
    """
    first, last = int(pane.min(initial=FARTHEST_US)), int(pane.max(initial=-FARTHEST_US))
    if first < -FARTHEST_US:
        return False
    if not panes.windows:  # rows that are late have a mark instead of a pane
        return True
    if panes.takes_all_from(first, watermark_us):
        return True
    if panes.width_us is None or last - first > _FEW_PANES * panes.width_us:
        return False
    ends = panes.last_ends(np.arange(first, last + 1, panes.width_us))
    return bool((ends > (NEVER if watermark_us is None else watermark_us)).all())


def reasons(pane: Array, panes: Panes, watermark_us: int | None) -> Array:
    """For each pane, why no open window takes its rows; None if one does."""
    distinct, at = np.unique(pane, return_inverse=True)

    def why(each: int) -> str | None:
        if each < -FARTHEST_US:
            return REASON_OF[each]
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

    return np.array([*map(why, distinct.tolist()), None], dtype=object)[at]
