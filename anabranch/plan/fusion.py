"""Fusion by score (Enorm 4.4.1, Algorithm 1), and the baseline that the paper compares it with (7.6)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from anabranch.errors import TopologyError
from anabranch.plan.adaptation import Adaptation, Costs
from anabranch.plan.components import ComponentPlan, component_plan
from anabranch.plan.streams import ANY, Hints, Space, Stream, Streams

NO_HINTS = Hints()
UNADAPTED = Adaptation()


class Score(StrEnum):
    """What makes a pair of operators worth fusing."""

    COMM = "comm"  # the rate on the stream between them, as measured
    PA = "pa"  # the attributes that their components have in common: needs no run


def fuse(streams: Streams, score: Score = Score.COMM, hints: Hints = NO_HINTS, *, ordered: bool = True) -> ComponentPlan:
    """Algorithm 1: fuse the adjacent pair with the largest score, as long as there is a pair that can be fused."""
    costs = Costs(Space(streams, hints, ordered=ordered), UNADAPTED)
    return component_plan(costs, fused_by_score(costs, score), f"fusion by {score}")


def fused_by_score(costs: Costs, score: Score) -> list[int]:
    """Algorithm 1 on units. Of equal scores the first stream counts; components within the bound of adaptation only."""
    space = costs.space
    of = [1 << i for i in range(len(space.units))]
    left = list(space.streams.streams)
    while True:
        ranked: list[tuple[float, Stream]] = []
        keep = []
        for stream in left:
            a, b = of[space.unit_of[stream.source]], of[space.unit_of[stream.target]]
            if a != b and (common := space.attributes(a | b)) and costs.is_feasible(a | b):
                keep.append(stream)
                if (value := stream.rate if score is Score.COMM else _count(space, common)) > 0:
                    ranked.append((value, stream))
        left = keep  # what cannot be fused now is not tried again: attributes only get fewer
        best = _first_ordered(space, of, ranked)
        if best is None:
            return sorted(set(of))
        of = [best if one & best else one for one in of]


def _count(space: Space, common: int) -> int:
    return len(space.attribute_names) + 1 if common == ANY else common.bit_count()


def _first_ordered(space: Space, of: list[int], ranked: list[tuple[float, Stream]]) -> int | None:
    """The component of the pair with the largest score that leaves a plan which can run level by level."""
    for _, stream in sorted(ranked, key=lambda pair: -pair[0]) if space.ordered else _largest(ranked):
        both = of[space.unit_of[stream.source]] | of[space.unit_of[stream.target]]
        if space.is_ordered({both, *(c for c in of if not c & both)}):
            return both
    return None


def _largest(ranked: list[tuple[float, Stream]]) -> list[tuple[float, Stream]]:
    return [max(ranked, key=lambda pair: pair[0])] if ranked else []


def fuse_baseline(
    streams: Streams, order: Sequence[str] | None = None, *, whole: bool = True, ordered: bool = True
) -> ComponentPlan:
    """The paper's baseline: from one operator on, add the downstream operator with the most attributes in common; then from another.

    `order` says which operator is next where the paper draws one at random. The paper does not say what becomes of a downstream
    operator that is fused already: with `whole` its component joins whole, otherwise it stays where it is.
    """
    names = [operator.name for operator in streams.operators]
    order = names if order is None else order
    if sorted(order) != sorted(names):
        raise TopologyError("the order must name every operator once")
    space = Space(streams, ordered=ordered)
    of = [1 << i for i in range(len(space.units))]
    done = 0
    for first in (space.unit_of[name] for name in order):
        if not done >> first & 1:
            while (both := _best_downstream(space, of, of[first], 0 if whole else done)) is not None:
                of = [both if one & both else one for one in of]
            done |= of[first]
    return component_plan(Costs(space, UNADAPTED), set(of), "fusion, baseline")


def _best_downstream(space: Space, of: list[int], component: int, without: int) -> int | None:
    """The component with the downstream operator that leaves it the most attributes."""
    grown = {component | c: i for i, c in reversed(list(enumerate(of))) if space.into[i] & component & ~c and not c & without}
    counts = {both: _count(space, space.attributes(both)) for both in grown}
    for both in sorted(counts, key=lambda both: (-counts[both], grown[both])):
        if counts[both] and space.is_ordered({both, *(c for c in of if not c & both)}):
            return both
    return None
