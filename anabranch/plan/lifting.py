"""Lift first or route first: combine rows before the exchange, or after it.

Both take one exchange and give the same results. To lift first combines rows where they are read,
and sends the combined rows of each input partition. A key that every partition has arrives once
from each, and the slot task merges it. To route first sends every row, and combines rows in the
partition of their slot. Each key and pane then reaches Python once.

Which is cheaper depends on how much the lift reduces the rows. That is measured in every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LIFT_FIRST, ROUTE_FIRST, AUTO = "lift first", "route first", "auto"
WAYS = (AUTO, LIFT_FIRST, ROUTE_FIRST)

# Microseconds per row, measured on two cores with a key of 8 bytes and four partials. Only their
# ratios matter.
_EXCHANGE_US = 0.5
_PYTHON_US = 1.1
_WORTH = 0.8  # the other way must cost at most this part
_FEW_ROWS = 20_000  # smaller steps say little, and have little to gain
_TRY_AGAIN = 50  # after so many steps that route first, one lifts first, to measure again


@dataclass(frozen=True, slots=True)
class LiftCounts:
    """What a step measures: rows, combined rows that reached the slots, and keys and panes."""

    rows: int
    arrived: int
    distinct: int


@dataclass(frozen=True, slots=True)
class Lifting:
    """The way of the next step, and the figures it is based on.

    These are the parts of the rows that remain when combined by partition, and in all.
    """

    way: str = LIFT_FIRST
    by_partition: float | None = None
    in_all: float | None = None
    routed: int = 0  # steps since the last one that lifted first
    reason: str = "nothing is measured yet"

    def next(self, seen: LiftCounts) -> Lifting:
        """The way of the next step, after one with these counts."""
        if seen.rows < _FEW_ROWS:
            return self
        by_partition = self.by_partition if self.way == ROUTE_FIRST else seen.arrived / seen.rows
        in_all = seen.distinct / seen.rows
        assert by_partition is not None, "the first step that counts lifts first"
        routed = self.routed + 1 if self.way == ROUTE_FIRST else 0
        costs = {
            LIFT_FIRST: by_partition * (_EXCHANGE_US + _PYTHON_US),
            ROUTE_FIRST: _EXCHANGE_US + in_all * _PYTHON_US,
        }
        settled = ROUTE_FIRST if self.way == ROUTE_FIRST or self.routed else LIFT_FIRST
        other = _other(settled)
        way = other if costs[other] < _WORTH * costs[settled] else settled
        reason = (
            f"of 100 rows {100 * by_partition:.0f} remain where each partition combines its own, "
            f"{100 * in_all:.0f} in all: {costs[way]:.2f} us per row "
            f"against {costs[_other(way)]:.2f}"
        )
        if way == ROUTE_FIRST and routed >= _TRY_AGAIN:
            return replace(
                self,
                way=LIFT_FIRST,
                in_all=in_all,
                routed=routed,
                reason=f"to measure again after {routed} steps",
            )
        return Lifting(way, by_partition, in_all, routed, reason)


def _other(way: str) -> str:
    return LIFT_FIRST if way == ROUTE_FIRST else ROUTE_FIRST
