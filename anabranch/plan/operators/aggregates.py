"""Windows of any kind over aggregates: rows become partials per key and pane, then results."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from anabranch.aggregates.custom import Custom
from anabranch.aggregates.specs import text_of
from anabranch.plan.evolution import changed_aggregates, instant_text
from anabranch.plan.ids import PartId
from anabranch.plan.keeping import keep
from anabranch.plan.operators.base import (
    EVERYTHING,
    Contents,
    Evolved,
    Feed,
    KeptPartial,
    Node,
    OperatorPlan,
    PartialInput,
    Reached,
    ResultColumn,
)
from anabranch.plan.operators.fingerprint import differences
from anabranch.plan.operators.noted import (
    AggregateContents,
    NotedPartial,
    begun_partials,
    continued_partials,
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

if TYPE_CHECKING:
    from anabranch.plan.notes import OperatorNote


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatePlan(OperatorPlan):
    """What a slot task needs to know about windows over partials."""

    early: bool = False  # results have a column that marks those of open windows

    @property
    @abstractmethod
    def window_names(self) -> list[str]:
        """The names of its windows, by number."""

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
    """What all nodes of a consolidate have in common, whatever the kinds of its windows."""

    compute: Compute
    consolidate: Consolidate
    feed: Feed
    sharing: Sharing
    parts: int  # the number of its nodes
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
        """Its windows, as part of a fingerprint."""

    started: ClassVar[str] = "windows that started"  # where a new aggregate is null

    def fingerprint(self) -> dict[str, str]:
        named = self._aggregates().items()
        return {
            **self._read(),
            "windows": self.windows_text,
            "aggregates": "; ".join(f"{name} = {text}" for name, text in named),
        }

    def _aggregates(self) -> dict[str, str]:
        return {each.name: _aggregate_text(each) for each in self.of.compute.aggregates}

    def _noted(self) -> dict[str, Any]:
        """What the notes of all kinds of windows have in common."""
        partials = [self._noted_partial(number) for number in range(len(self.plan.kept))]
        return {
            "keys": self._noted_keys(),
            "partials": begun_partials(partials, 0),
            "aggregates": self._aggregates(),
        }

    def _noted_partial(self, number: int) -> NotedPartial:
        kept, texts = self.plan.kept[number], self._aggregates()
        given = self.inputs[kept.input]
        names = [each.named.name for each in self.plan.results if number in each.kept]
        opaque = not given.is_text or isinstance(kept.partial, Custom)
        return NotedPartial(
            kind=type(kept.partial).__name__,
            type=kept.partial.type,
            input=str(given),
            parameters=dict(kept.partial.parameters),
            only_of=tuple(f"{name} = {texts[name]}" for name in names) if opaque else (),
        )

    def _over_partials(self, contents: Contents) -> dict[str, Any]:
        """The partials under their ids in state, and from when each result is complete."""
        assert isinstance(contents, AggregateContents)
        pairs = zip(self.plan.kept, contents.partials, strict=True)
        complete = self._complete_from(contents)
        return {
            "kept": tuple(replace(kept, id=noted.id) for kept, noted in pairs),
            "results": tuple(
                replace(each, complete_from=complete.get(each.named.name))
                for each in self.plan.results
            ),
        }

    def _complete_from(self, contents: AggregateContents) -> dict[str, int]:
        """From when results are complete, for aggregates that began later."""
        found = {}
        for each in self.plan.results:
            known = [contents.partials[number].complete_from for number in each.kept]
            if since := [us for us in known if us is not None]:
                found[each.named.name] = max(since)
        return found

    def incomplete(self, note: OperatorNote) -> dict[str, int]:
        assert isinstance(note.contents, AggregateContents)
        return self._complete_from(note.contents)

    def _with_other_aggregates(
        self,
        note: OperatorNote,
        fresh: OperatorNote,
        at: Reached | None,
        besides: Collection[str] = (),
    ) -> Evolved:
        """New aggregates start empty, removed ones are dropped, all others continue.

        `besides`: parts of the fingerprint that may change too.
        """
        may = {"aggregates", *besides}
        fixed = [
            {part: text for part, text in each.fingerprint.items() if part not in may}
            for each in (note, fresh)
        ]
        old, new = note.contents, fresh.contents
        if fixed[0] != fixed[1] or not (
            isinstance(old, AggregateContents) and isinstance(new, AggregateContents)
        ):
            return Evolved(note=note, refused=tuple(differences(*fixed)))
        at = at or Reached(step=0, watermark_us=None, newest_us=None)
        numbers = range(len(new.partials))
        going_on = continued_partials(
            old.partials,
            new.partials,
            at.step,
            lambda number: self._begins(number, at),
            [number for number in numbers if self._reads(number, at.changed)],
        )
        begun = {
            each.named.name for each in self.plan.results if going_on.begun.intersection(each.kept)
        }
        contents = msgspec.structs.replace(new, partials=going_on.partials)
        complete = self._complete_from(contents)
        return Evolved(
            note=replace(note, fingerprint=fresh.fingerprint, contents=contents),
            changed=changed_aggregates(
                old.aggregates,
                new.aggregates,
                {name: complete.get(name) for name in begun},
                self.started,
            ),
            refused=self._unbounded(going_on.begun, at),
            columns=frozenset(
                name
                for name, text in new.aggregates.items()
                if name in old.aggregates and (old.aggregates[name] != text or name in begun)
            ),
        )

    def _reads(self, number: int, columns: Collection[str]) -> set[str]:
        """The columns among some that a partial may read. After maps it may read any."""
        given = self.inputs[self.plan.kept[number].input]
        if given.expression is None and given.where is None:
            return set()
        text = str(given).lower()
        words = {text[each.start() : each.end()] for each in re.finditer(r"\w+", text)}
        return {
            each
            for each in columns
            if self.feed.maps
            or each.lower() in words
            or (not each.isidentifier() and each.lower() in text)
        }

    def _unbounded(self, begun: Collection[int], at: Reached) -> tuple[str, ...]:
        """Aggregates that may never be complete.

        They read new columns of sessions. Open sessions lack these, and may be of any length.
        """
        found = []
        for each in self.plan.results:
            read = {
                column
                for number in begun
                if number in each.kept
                for column in self._reads(number, at.incomplete)
                if at.incomplete[column] is None
            }
            if read:
                found.append(
                    f"aggregate {each.named.name!r} reads {', '.join(map(repr, sorted(read)))} of "
                    f"{self.feed.stream!r}, which start empty, and sessions that are open lack "
                    "them for as long as they last"
                )
        return tuple(found)

    def _begins(self, number: int, at: Reached) -> int | None:
        """From when a partial that begins now has all rows, with all their values."""
        known = [at.incomplete[each] for each in self._reads(number, at.incomplete)]
        known += [] if at.newest_us is None else [at.newest_us + 1]
        return max((us for us in known if us is not None), default=None)

    @abstractmethod
    def formation(self) -> dict[str, Any]:
        """How its windows are formed, for explain."""

    @abstractmethod
    def window_lines(self, facts: Mapping[str, Any]) -> list[str]:
        """The same as lines of text."""

    def describe(self, inflow: str) -> dict[str, Any]:
        copies = sum(window.copies for window in self.of.consolidate.windows)
        times = "once" if self.of.parts == 1 else f"{self.of.parts} times"
        apart = f"; without shared panes {copies} times" if copies > self.of.parts else ""
        return {
            "name": str(self.name),
            "chain": self._chain(self.of.compute.name, str(self.name)),
            "keys": [each.name for each in self.by],
            "rows": inflow,
            "pane": str(self.plan.panes),
            **self.formation(),
            "shared": self.of.sharing.shared,
            "shared_because": self.of.sharing.reason,
            "early": self._early_text(),
            "incomplete": {
                each.named.name: f"null in {self.started} before {instant_text(each.complete_from)}"
                for each in self.plan.results
                if each.complete_from is not None
            },
            "partials": [self.partials_text([i]) for i in range(len(self.plan.kept))],
            "sharing": f"each row is aggregated {times}{apart}",
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
        for name, text in facts["incomplete"].items():
            lines.append(f"    new:       {name} is {text}")
        merges, naive = facts["merges"], facts["naive_merges"]
        return [
            *lines,
            f"    merges:    {merges:,g} partials per key and hour; naively {naive:,g}",
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


def _aggregate_text(named: Named) -> str:
    aggregate = named.aggregate
    text = f"{aggregate.kind}({text_of(aggregate.expression)}: {named.input_type}"
    text += "".join(f", {name}={value}" for name, value in aggregate.parameters.items())
    return f"{text})" if aggregate.where is None else f"{text}) where {aggregate.where}"
