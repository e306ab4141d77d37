"""Where rows come from: the feed of an operator; and the applies between sources and the first level, stage by stage.

An apply reads a source or another apply, with maps on the way. What it makes is read like a source. Applies that are equally far from
their sources share a stage: rows go through one exchange to the slots of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.errors import NotYetError
from anabranch.plan.operators.base import Feed
from anabranch.plan.planners.solution import FusionPlan
from anabranch.topology.apply import ApplySpec
from anabranch.topology.graph import Apply, Field, Graph, Source

NOTHING_FUSED = FusionPlan(
    planner="none",
    components=(),
    communication=0.0,
    adaptation=0.0,
    communication_unfused=0.0,
    adaptation_unfused=0.0,
    reasons=(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An apply as it runs: what feeds it, what it makes, and in which stage."""

    name: str
    feed: Feed
    work: ApplySpec
    fields: tuple[Field, ...]
    stage: int  # 1: its rows come from a source


def applies_of(graph: Graph) -> tuple[Applied, ...]:
    """The applies that stand between sources and the first level."""
    found: dict[str, Applied] = {}
    for each in graph.operators:
        if not isinstance(each, Apply) or not isinstance(graph.root_of(each.input), Source):
            continue
        stream, maps = graph.stream_of(each.input)
        feed = Feed(
            stream=stream.name,
            maps=maps,
            clock=graph.clock_of(graph.root_of(each.input).name),
            fields=graph.fields_of(each.input),
        )
        stage = found[stream.name].stage + 1 if stream.name in found else 1
        found[each.name] = Applied(
            name=each.name, feed=feed, work=each.work, fields=each.fields, stage=stage
        )
    return tuple(found.values())


def stages_of(applies: Sequence[Applied]) -> list[tuple[Applied, ...]]:
    """The applies of each stage."""
    last = max((each.stage for each in applies), default=0)
    return [tuple(each for each in applies if each.stage == stage) for stage in range(1, last + 1)]


def refuse_behind_windows(graph: Graph, stream: str, reader: str) -> None:
    """An apply on results of windows feeds sinks only so far."""
    node, _ = graph.stream_of(stream)
    if isinstance(node, Apply) and not isinstance(graph.root_of(node.input), Source):
        raise NotYetError(
            f"operator {reader!r} reads apply {node.name!r}, which is applied to results of windows; such an apply can only go to "
            "sinks so far"
        )
