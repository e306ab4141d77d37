"""The applies between sources and the first level, stage by stage.

An apply reads a source or another apply, with maps between them. Its results are read like a
source. Applies at the same distance from their sources share a stage: rows go through one exchange
to the slots of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.plan.operators.base import Feed
from anabranch.plan.planners.solution import FusionPlan
from anabranch.topology.apply import AUTO, HASH, OSG, ROUND_ROBIN, ApplySpec
from anabranch.topology.graph import Apply, Field, Graph

NOTHING_FUSED = FusionPlan(
    planner="unfused",
    components=(),
    communication=0.0,
    adaptation=0.0,
    communication_unfused=0.0,
    adaptation_unfused=0.0,
    reasons=(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """An apply as it runs: what feeds it, its results, and its stage."""

    name: str
    feed: Feed
    work: ApplySpec
    fields: tuple[Field, ...]
    stage: int  # 1 if its rows come from a source

    def describe(self, measured: str | None) -> dict[str, Any]:
        """What explain says about it. `measured` is how it groups rows, after measuring."""
        work = self.work
        by = ", ".join(work.cost_by)
        asked = {
            AUTO: "round robin until the time of rows is measured, then by cost (osg) where it "
            f"varies with ({by})",
            OSG: f"round robin until the time of rows by ({by}) is measured, then by cost",
            HASH: f"rows with equal ({by}) in one slot, as asked for",
            ROUND_ROBIN: "as asked for" if work.fn is not None else "rows only pass, to be written",
        }
        maps = (each.name for each in self.feed.maps)
        return {
            "name": self.name,
            "chain": [self.feed.stream, *maps, self.name],
            "stage": self.stage,
            "form": work.form if work.fn is not None else "none",
            "cost_by": list(work.cost_by),
            "grouping": work.grouping,
            "reason": measured or asked[work.grouping],
            "on_error": "failed rows are dead letters" if work.dead_letters else "the step fails",
        }

    @staticmethod
    def lines(facts: Mapping[str, Any]) -> list[str]:
        """The same as lines of text."""
        chain = " -> ".join(facts["chain"])
        return [
            f"  apply {chain}, form {facts['form']}, on error {facts['on_error']}",
            f"    grouping:  {facts['grouping']}: {facts['reason']}",
        ]


def applies_of(graph: Graph) -> tuple[ApplyPlan, ...]:
    """The applies between sources and the first level."""
    found: dict[str, ApplyPlan] = {}
    for each in graph.operators:
        if not isinstance(each, Apply) or each.root(graph).stateful:
            continue
        stream, maps = graph.stream_of(each.input)
        feed = Feed(
            stream=stream.name,
            maps=maps,
            clock=each.root(graph).clock_in(graph),
            fields=graph.fields_of(each.input),
        )
        stage = found[stream.name].stage + 1 if stream.name in found else 1
        found[each.name] = ApplyPlan(
            name=each.name, feed=feed, work=each.work, fields=each.fields, stage=stage
        )
    return tuple(found.values())


def stages_of(applies: Sequence[ApplyPlan]) -> list[tuple[ApplyPlan, ...]]:
    """The applies of each stage."""
    last = max((each.stage for each in applies), default=0)
    return [tuple(each for each in applies if each.stage == stage) for stage in range(1, last + 1)]
