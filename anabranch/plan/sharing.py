"""Whether the windows of an operator share panes, or each has panes of its own.

Shared panes are as wide as all windows allow, and a row is lifted once. If the windows fit each
other, there are few wide panes. If not, there are many narrow ones: windows of 7 and 11 minutes
share panes of one minute. Without sharing, each window has panes as wide as it allows, and every
row is lifted once for each window. The costs are per key and hour of event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.plan.consolidation import plan_consolidation
from anabranch.plan.panes import panes_of
from anabranch.topology.windows import AlignedWindow

# Microseconds, measured on two cores with four partials. Only their ratios matter. See
# docs/research/performance.md.
_LIFT_US = 0.2  # to combine a row in the JVM
_PARTIAL_US = 1.6  # to send a partial through the exchange into its pane
_MERGE_US = 0.03  # to merge a partial into a window
ROWS_PER_KEY_AND_HOUR = 600.0  # as long as nothing is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The windows in groups, each with panes of its own, and the reason."""

    groups: tuple[tuple[AlignedWindow, ...], ...]
    shared: bool
    reason: str


def share_or_not(
    windows: Sequence[AlignedWindow],
    *,
    wanted: bool | None = None,
    rows: float = ROWS_PER_KEY_AND_HOUR,
) -> Sharing:
    """The cheaper way for `rows` per key and hour, or the one that is wanted."""
    apart = _by_name(windows)
    if len(apart) <= 1:
        return Sharing(
            groups=tuple(apart), shared=wanted is not False, reason="there is one window"
        )
    costs = {True: _cost([tuple(windows)], rows), False: _cost(apart, rows)}
    shared = costs[True] <= costs[False] if wanted is None else wanted
    texts = {
        True: f"shared panes take {costs[True]:,.0f} us",
        False: f"panes of their own {costs[False]:,.0f} us",
    }
    reason = f"{texts[shared]} per key and hour of {rows:,.0f} rows, {texts[not shared]}"
    if wanted is not None:
        reason = f"as asked for, or as the checkpoint has it ({reason})"
    return Sharing(
        groups=(tuple(windows),) if shared else tuple(apart), shared=shared, reason=reason
    )


def _by_name(windows: Sequence[AlignedWindow]) -> list[tuple[AlignedWindow, ...]]:
    """Each window by itself. The steps of a cumulative window stay together."""
    found: dict[str, tuple[AlignedWindow, ...]] = {}
    for window in windows:
        found[window.name] = (*found.get(window.name, ()), window)
    return list(found.values())


def _cost(groups: Sequence[tuple[AlignedWindow, ...]], rows: float) -> float:
    """The cost of a key in an hour: rows for each group, their partials, and merging these."""
    total = 0.0
    for group in groups:
        panes = panes_of(group)
        full = panes.per_hour
        partials = min(rows, full)
        merges = plan_consolidation(panes).merges_per_hour * partials / full
        total += rows * _LIFT_US + partials * _PARTIAL_US + merges * _MERGE_US
    return total
