"""Fusion by score (Enorm 4.4.1, Algorithm 1), and the paper's baseline (7.6)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import StrEnum

from anabranch.errors import TopologyError
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import ANY, Hints, Space, StreamGraph
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

BY_RATES, BY_ATTRIBUTES = "fusion by rates", "fusion by attributes"
BASELINE = "fusion baseline"
NO_HINTS = Hints()
UNADAPTED = Adaptation()


class Score(StrEnum):
    """What makes a pair of operators worth fusing, in the words of the paper."""

    COMM = "comm"  # the rate on the stream between them, as measured
    PA = "pa"  # the attributes that their components have in common: needs no run

    @property
    def planner(self) -> str:
        """The name of the planner that fuses by this score."""
        return BY_RATES if self is Score.COMM else BY_ATTRIBUTES


def fuse(
    streams: StreamGraph,
    score: Score = Score.COMM,
    hints: Hints = NO_HINTS,
    *,
    ordered: bool = True,
) -> FusionPlan:
    """Algorithm 1: fuse the adjacent pair with the largest score, as long as there is one."""
    costs = Costs(Space(streams, hints, ordered=ordered), UNADAPTED)
    return fusion_plan(costs, fuse_by_score(costs, score), score.planner)


def fuse_by_score(costs: Costs, score: Score) -> list[int]:
    """Algorithm 1 on units. Components stay within the bound of adaptation.

    Among equal scores, the first stream counts.
    """
    space = costs.space
    # For each pair of components with streams between them: minus their largest rate (0 for PA),
    # and the first such stream.
    joined: dict[int, dict[int, tuple[float, int]]] = {1 << i: {} for i in range(len(space.units))}
    for number, stream in enumerate(space.streams.streams):
        a, b = 1 << space.unit_of[stream.source], 1 << space.unit_of[stream.target]
        if a != b:
            ranked = (-stream.rate if score is Score.COMM else 0.0, number)
            joined[a][b] = joined[b][a] = min(joined[a].get(b, ranked), ranked)
    heap: list[tuple[float, int, int, int]] = []

    def rank(a: int, b: int) -> None:
        rate, number = joined[a][b]
        value = rate if score is Score.COMM else -_count(space, space.attributes(a | b))
        if value < 0 and costs.is_feasible(a | b):
            heapq.heappush(heap, (value, number, a, b))

    for a, b in [(a, b) for a, others in joined.items() for b in others if a < b]:
        rank(a, b)
    waiting = []
    while heap:
        _, _, a, b = best = heapq.heappop(heap)
        if a not in joined or b not in joined:
            continue
        if not space.is_ordered({a | b, *(c for c in joined if c not in (a, b))}):
            waiting.append(best)  # other fusions may make it possible
            continue
        _join(joined, a, b)
        for c in joined[a | b]:
            rank(a | b, c)
        for again in waiting:
            heapq.heappush(heap, again)
        waiting = []
    return sorted(joined)


def _join(joined: dict[int, dict[int, tuple[float, int]]], a: int, b: int) -> None:
    """Two components become one, with the streams of both."""
    ours, theirs = joined.pop(a), joined.pop(b)
    both = {
        c: min(each[c] for each in (ours, theirs) if c in each)
        for c in {**ours, **theirs}
        if c not in (a, b)
    }
    for c, stream in both.items():
        joined[c].pop(a, None)
        joined[c].pop(b, None)
        joined[c][a | b] = stream
    joined[a | b] = both


def _count(space: Space, common: int) -> int:
    return len(space.attribute_names) + 1 if common == ANY else common.bit_count()


def fuse_baseline(
    streams: StreamGraph,
    order: Sequence[str] | None = None,
    hints: Hints = NO_HINTS,
    *,
    whole: bool = True,
    ordered: bool = True,
) -> FusionPlan:
    """The paper's baseline: starts from one operator, then from another.

    Each time it adds the downstream operator with the most attributes in common.

    `order` gives the next operator, which the paper draws at random. The paper does not say what
    happens to a downstream operator that is already fused. With `whole`, its component joins as a
    whole; otherwise it stays where it is.
    """
    names = [operator.name for operator in streams.operators]
    order = names if order is None else order
    if sorted(order) != sorted(names):
        raise TopologyError("the order must name every operator once")
    space = Space(streams, hints, ordered=ordered)
    of = [1 << i for i in range(len(space.units))]
    done = 0
    for first in (space.unit_of[name] for name in order):
        if not done >> first & 1:
            while (
                both := _best_downstream(space, of, of[first], 0 if whole else done)
            ) is not None:
                of = [both if one & both else one for one in of]
            done |= of[first]
    return fusion_plan(Costs(space, UNADAPTED), set(of), BASELINE)


def _best_downstream(space: Space, of: list[int], component: int, without: int) -> int | None:
    """The component with the downstream operator that leaves it the most attributes."""
    grown = {
        component | c: i
        for i, c in reversed(list(enumerate(of)))
        if space.into[i] & component & ~c and not c & without
    }
    counts = {both: _count(space, space.attributes(both)) for both in grown}
    for both in sorted(counts, key=lambda both: (-counts[both], grown[both])):
        if (
            counts[both]
            and not space.are_apart(both)
            and space.is_ordered({both, *(c for c in of if not c & both)})
        ):
            return both
    return None
