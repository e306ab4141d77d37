"""Windows of any kind over aggregates: rows become partials of keys and panes, results are formed
of these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.aggregates.custom import Custom
from anabranch.aggregates.partials import Partial
from anabranch.aggregates.specs import text_of
from anabranch.errors import CheckpointError
from anabranch.plan.ids import PartId
from anabranch.plan.keeping import keep
from anabranch.plan.operators.base import (
    EVERYTHING,
    Contents,
    Feed,
    KeptPartial,
    Node,
    NotedPartial,
    OperatorPlan,
    PartialInput,
    ResultColumn,
)
from anabranch.plan.sharing import Sharing
from anabranch.topology.durations import format_duration
from anabranch.topology.graph import (
    EARLY_COLUMN,
    Compute,
    Consolidate,
    Field,
    Graph,
    Named,
    window_fields,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatePlan(OperatorPlan):
    """What a slot task needs to know of windows over partials."""

    early: bool = False  # results have a column that marks those of windows that are still open

    @property
    @abstractmethod
    def window_names(self) -> list[str]:
        """The names of its windows, by their numbers."""

    @property
    def result_fields(self) -> tuple[Field, ...]:
        return self._fields()

    @property
    def written_fields(self) -> tuple[Field, ...]:
        return self._fields(*([Field(EARLY_COLUMN, "boolean")] if self.early else []))

    def _fields(self, *marks: Field) -> tuple[Field, ...]:
        return (
            *(each for each in self.keys if each != EVERYTHING),
            *window_fields(self.time_type),
            *marks,
            *(Field(each.named.name, each.type) for each in self.results),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidated:
    """What all nodes of a consolidate have in common, whatever kinds of windows it has."""

    compute: Compute
    consolidate: Consolidate
    feed: Feed
    sharing: Sharing
    parts: int  # how many nodes it becomes
    inputs: tuple[PartialInput, ...]
    kept: tuple[KeptPartial, ...]
    results: tuple[ResultColumn, ...]

    @property
    def keys(self) -> tuple[Field, ...]:
        return self.compute.by or (EVERYTHING,)

    def part(self, name: str = "") -> PartId:
        return PartId(self.consolidate.name, name)

    def planned(self) -> dict[str, Any]:
        """What the plans of all parts have in common."""
        return {
            "keys": self.keys,
            "results": self.results,
            "time_type": self.feed.clock.moment,
            "early": self.consolidate.early is not None,
        }

    def run(self) -> dict[str, Any]:
        """What the nodes of all parts have in common."""
        return {
            "feed": self.feed,
            "inputs": self.inputs,
            "entry": (self.compute.name, 0),
            "early": self.consolidate.early,
            "of": self,
        }


def consolidated(
    graph: Graph, consolidate: Consolidate, sharing: Sharing, parts: int
) -> Consolidated:
    """What all nodes of a consolidate have in common."""
    compute = consolidate.compute_in(graph)
    stream, maps = graph.stream_of(compute.input)
    inputs, kept, results = keep(compute.aggregates)
    return Consolidated(
        compute=compute,
        consolidate=consolidate,
        feed=Feed(
            stream=stream.name,
            maps=maps,
            clock=graph.clock_of(compute.input),
            fields=graph.fields_of(compute.input),
        ),
        sharing=sharing,
        parts=parts,
        inputs=inputs,
        kept=kept,
        results=results,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateNode(Node):
    """Windows over partials as they run."""

    plan: AggregatePlan
    of: Consolidated

    @property
    @abstractmethod
    def windows_text(self) -> str:
        """Its windows in a fingerprint."""

    def fingerprint(self) -> dict[str, str]:
        return {
            **self._read(),
            "windows": self.windows_text,
            "aggregates": "; ".join(map(_aggregate_text, self.of.compute.aggregates)),
        }

    @abstractmethod
    def formation(self) -> dict[str, Any]:
        """How its windows are formed, for explain."""

    @abstractmethod
    def window_lines(self, facts: Mapping[str, Any]) -> list[str]:
        """The same as lines of text."""

    def describe(self, inflow: str) -> dict[str, Any]:
        copies = sum(window.copies for window in self.of.consolidate.windows)
        times = "once" if self.of.parts == 1 else f"{self.of.parts} times"
        return {
            "name": str(self.name),
            "chain": self._chain(self.of.compute.name, str(self.name)),
            "keys": [each.name for each in self.by],
            "rows": inflow,
            "pane": format_duration(self.plan.panes.width_us),
            **self.formation(),
            "shared": self.of.sharing.shared,
            "shared_because": self.of.sharing.reason,
            "early": self._early_text(),
            "partials": [self.partials_text([i]) for i in range(len(self.plan.kept))],
            "sharing": f"each row is aggregated {times}; window by window it would be "
            f"{copies} times",
        }

    def _early_text(self) -> str:
        early = self.early
        if early is None:
            return "never"
        every = f"{early.steps} steps" if early.us is None else format_duration(early.us)
        return f"every {every}"

    def lines(self, facts: Mapping[str, Any]) -> list[str]:
        inflow = f" ({facts['rows']})" if "no exchange" in facts["rows"] else ""
        lines = [
            f"    operators: {' -> '.join(facts['chain'])}{inflow}",
            f"    pane:      {facts['pane']}; {facts['sharing']}",
            *self.window_lines(facts),
        ]
        if len(facts["windows"]) > 1 or not facts["shared"]:
            lines.append(f"    sharing:   {facts['shared_because']}")
        if facts["early"] != "never":
            lines.append(f"    early:     open windows {facts['early']}, marked")
        merges, naive = facts["merges"], facts["naive_merges"]
        return [
            *lines,
            f"    merges:    {merges:,g} partials a key and hour; naively {naive:,g}",
            f"    partials:  {', '.join(facts['partials'])}",
        ]

    @property
    def boxes(self) -> dict[str, str]:
        compute, consolidate = self.of.compute.name, self.of.consolidate
        names = dict.fromkeys(each.name for each in consolidate.windows)
        return {
            compute: f"compute {compute}",
            consolidate.name: f"consolidate {consolidate.name}<br/>{'<br/>'.join(names)}",
        }

    @property
    def partitioned(self) -> tuple[str, ...]:
        return self.of.compute.name, str(self.name)


class AggregateContents(Contents, frozen=True, kw_only=True):
    """What windows over partials keep."""

    partials: tuple[NotedPartial, ...]

    def kept(self) -> tuple[KeptPartial, ...]:
        """The partials, as a plan has them; refused where only the topology's code knows them."""
        classes = _subclasses(Partial)  # type: ignore[type-abstract]
        kinds = {kind.__name__: kind for kind in classes}
        kept: list[KeptPartial] = []
        for each in self.partials:
            if each.kind not in kinds:
                raise CheckpointError(
                    f"the checkpoint holds partials of kind {each.kind}, "
                    "which this version does not know"
                )
            if issubclass(kinds[each.kind], Custom):
                raise CheckpointError(
                    "no rows can be shown: only the topology's own code can merge the state of "
                    f"udaf({each.input})"
                )
            first = kept[-1].columns.stop if kept else 0
            partial = kinds[each.kind](each.type, **each.parameters)
            columns = slice(first, first + len(partial.columns))
            kept.append(KeptPartial(partial=partial, input=0, columns=columns))
        return tuple(kept)


def _subclasses(kind: type[Partial]) -> list[type[Partial]]:
    found = []
    for each in kind.__subclasses__():
        found += [each, *_subclasses(each)]
    return found


def _aggregate_text(named: Named) -> str:
    aggregate = named.aggregate
    text = f"{named.name} = {aggregate.kind}({text_of(aggregate.expression)}: {named.input_type}"
    text += "".join(f", {name}={value}" for name, value in aggregate.parameters.items())
    return f"{text})" if aggregate.where is None else f"{text}) where {aggregate.where}"
