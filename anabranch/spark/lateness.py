"""Which rows no open window takes, and why: told by their panes, in the slot task."""

from __future__ import annotations

import numpy as np

from anabranch.plan.panes import NEVER, Panes
from anabranch.topology.types import Array

# Instead of a pane, rows that are in no window have one of these numbers; no event time comes near them.
LEFT_OUT = -9_000_000_000_000_000_000
NO_TIME, OUTSIDE, LATE = "no event time", "outside", "late"
FARTHEST_US = 8_000_000_000_000_000_000
_FEW_PANES = 1 << 12


def all_taken(pane: Array, panes: Panes, watermark_us: int | None) -> bool:
    """True when open windows take all of these panes: by far the most common case, and told without looking at each."""
    first, last = int(pane.min(initial=FARTHEST_US)), int(pane.max(initial=-FARTHEST_US))
    if first < -FARTHEST_US or last - first > _FEW_PANES * panes.width_us:
        return False
    ends = panes.last_ends(np.arange(first, last + 1, panes.width_us))
    return bool((ends > (NEVER if watermark_us is None else watermark_us)).all())


def reasons(pane: Array, panes: Panes, watermark_us: int | None) -> Array:
    """Why no open window takes the rows of each of these panes; None where one does."""
    told, at = np.unique(pane, return_inverse=True)
    why = [
        NO_TIME if each == LEFT_OUT else OUTSIDE if each < -FARTHEST_US else LATE if panes.is_over(each, watermark_us) else None
        for each in told.tolist()
    ]
    return np.array([*why, None], dtype=object)[at]
