"""Split or combine (Enorm 5.1): where partials are kept until their windows close.

Split: they stay where they arise, shards move without their state, and the partials meet at the
consolidate. Combined: they travel to their shard, each row is worked on once for every window that
it is in, and a shard that moves takes its state along. This module decides; nothing carries it out
yet.
"""

from __future__ import annotations

from dataclasses import dataclass

SPLIT, COMBINE = "split", "combine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What happens to a component within its longest window (the p of the paper)."""

    rows: float  # T_p
    row_cost_s: float  # E
    windows: float  # W, that overlap
    partials: float  # PW_p, partial windows
    shards: int  # key groups
    moved: float  # MK_p, shards that move
    state_cost_s: float  # K_1, to move or send the state of one shard once
    move_s: float  # L, the latency of moving one shard with its state


@dataclass(frozen=True, slots=True)
class PeriodCost:
    """Seconds of CPU and of latency in a period."""

    cpu_s: float
    latency_s: float


def split_cost(period: Period) -> PeriodCost:
    """T_p E + PW_p K_1 groups + MK_p K_1, and no latency."""
    sent = period.partials * period.state_cost_s * period.shards
    return PeriodCost(
        period.rows * period.row_cost_s + sent + period.moved * period.state_cost_s, 0.0
    )


def combine_cost(period: Period) -> PeriodCost:
    """T_p W E + MK_p K_1 PW_p, and MK_p L of latency."""
    computed = period.rows * period.windows * period.row_cost_s
    return PeriodCost(
        computed + period.moved * period.state_cost_s * period.partials,
        period.moved * period.move_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Split or combine, and why."""

    way: str
    reason: str
    split: PeriodCost
    combine: PeriodCost


def choose(period: Period, way: str, latency_s: float | None = None, worth: float = 0.9) -> Choice:
    """The way with less CPU whose latency is within the limit (Enorm 5.1.2).

    A change must bring the cost down to `worth` of it: to combine again is never instant.
    """
    split, combine = split_cost(period), combine_cost(period)
    if latency_s is not None and combine.latency_s > latency_s:
        reason = (
            f"{period.moved:g} moved shards would hold rows up for {combine.latency_s:.3g} s, "
            f"more than {latency_s:g} s"
        )
        return Choice(way=SPLIT, reason=reason, split=split, combine=combine)
    costs = {SPLIT: split.cpu_s, COMBINE: combine.cpu_s}
    other = COMBINE if way == SPLIT else SPLIT
    chosen = other if costs[other] < worth * costs[way] else way
    rejected = COMBINE if chosen == SPLIT else SPLIT
    reason = (
        f"{chosen} takes {costs[chosen]:.3g} s of CPU a window, {rejected} {costs[rejected]:.3g} s"
    )
    return Choice(way=chosen, reason=reason, split=split, combine=combine)
