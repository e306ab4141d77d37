"""`process` as a node: what a slot task needs to know about it.

Rows come one by one, with the columns that the class reads. If it reads aggregates, there is one
combined row per key and step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anabranch.aggregates.partials import LastTime
from anabranch.errors import TopologyError
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
    Reached,
    Travel,
)
from anabranch.plan.operators.fingerprint import differences
from anabranch.plan.panes import MARKED_SQL, Panes
from anabranch.topology.durations import format_duration
from anabranch.topology.graph import Clock, Field, Graph, Named, Process
from anabranch.topology.process import Logic
from anabranch.topology.state_types import incompatibilities, new_fields, spell_type
from anabranch.types import column_type

if TYPE_CHECKING:
    from anabranch.plan.notes import OperatorNote


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan(OperatorPlan):
    """What a slot task needs to know about a `process`.

    Its panes are one microsecond wide: the pane of a row is its event time.
    """

    kind = "process"
    sends_late_rows = False  # rows are sent whole anyway
    needs_snapshots = False  # each delta has a slice of all cells

    logic: Logic
    fields: tuple[Field, ...]  # of the rows that the user's class sees, including keys

    @property
    def travel(self) -> Travel:
        return Travel.PER_KEY if self.kept else Travel.ROW_BY_ROW

    @property
    def payload(self) -> tuple[Field, ...]:
        return () if self.kept else tuple(each for each in self.fields if each not in self.keys)

    @property
    def result_fields(self) -> tuple[Field, ...]:
        """The keys, and the columns that the class declares."""
        return (*(each for each in self.keys if each != EVERYTHING), *self.logic.output)

    def pane_sql(self) -> str:
        """If rows are combined, one pane for all: one row per key and step, whatever the times.

        Rows that are left out are combined separately.
        """
        return f"if({MARKED_SQL}, t, 0L)" if self.kept else self.panes.pane_sql()


class ProcessContents(Contents, frozen=True, kw_only=True, tag="process"):
    """What a user's class stores: one value per key."""

    state: dict[str, Any]  # its type, as plain data
    vectorised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNode(Node):
    """A user's class with state per key, as it runs."""

    plan: ProcessPlan

    added = "it sees rows from now on"

    @property
    def late_fields(self) -> tuple[Field, ...]:
        return (*self.plan.fields, Field("reason", "string"))

    def fingerprint(self) -> dict[str, str]:
        return {**self._read(), "state": spell_type(self.plan.logic.described())}

    def contents(self) -> ProcessContents:
        logic = self.plan.logic
        return ProcessContents(
            keys=self._noted_keys(), state=logic.described(), vectorised=logic.vectorised
        )

    def continued(
        self,
        note: OperatorNote,  # noqa: ARG002
        keys_in: Mapping[int, float],  # noqa: ARG002
    ) -> ProcessNode:
        return self

    def evolved(
        self,
        note: OperatorNote,
        fresh: OperatorNote,
        at: Reached | None,  # noqa: ARG002
    ) -> Evolved:
        """Fields with a default may be added, and types may become wider."""
        unlike = differences(note.fingerprint, fresh.fingerprint)
        old, new = note.contents, fresh.contents
        if not isinstance(old, ProcessContents) or not isinstance(new, ProcessContents):
            return Evolved(note=note, refused=tuple(unlike))
        fixed = {part for part in fresh.fingerprint if part != "state"}
        same = all(note.fingerprint.get(part) == fresh.fingerprint[part] for part in fixed)
        wrong = incompatibilities(old.state, new.state) if same else unlike
        if old.vectorised != new.vectorised:
            form = "as columns" if old.vectorised else "per key"
            wrong = [f"state: the checkpoint has it {form}"]
        if wrong and same:
            readable = "new fields that have a default, and wider types"
            wrong = [f"{'; '.join(wrong)}. What is stored can be read with {readable}"]
        if wrong:
            return Evolved(note=note, refused=tuple(wrong))
        note = replace(note, fingerprint=fresh.fingerprint, contents=new)
        added = ", ".join(new_fields(old.state, new.state))
        return Evolved(note=note, changed=(f"state has {added} new",))

    def describe(self, inflow: str) -> dict[str, Any]:
        """What it reads, what it stores, and its results."""
        plan, logic = self.plan, self.plan.logic
        form = "vectorised: all rows of a slot at once" if logic.vectorised else "key by key"
        order = "event time" if logic.order == "event_time" else "arrival"
        ttl = f", kept for {format_duration(logic.ttl_us)}" if logic.ttl_us else ""
        return {
            "name": str(self.name),
            "chain": self._chain(str(self.name)),
            "keys": [each.name for each in self.by],
            "rows": inflow,
            "combined": [
                f"{each.named.name} = {self.partials_text(each.kept)}" for each in plan.results
            ],
            "process": f"{logic.name}, {form}, by {order}",
            "state": f"{spell_type(logic.described())}{ttl}",
            "output": ", ".join(f"{each.name}: {each.type}" for each in plan.result_fields),
            "event_time": logic.event_time,
        }

    def lines(self, facts: Mapping[str, Any]) -> list[str]:
        inflow = f" ({facts['rows']})" if "no exchange" in facts["rows"] else ""
        time = ", for sinks: no column has their event time"
        if facts["event_time"]:
            time = f", at {facts['event_time']}"
        lines = [
            f"    operators: {' -> '.join(facts['chain'])}{inflow}",
            f"    process:   {facts['process']}",
        ]
        if facts["combined"]:
            lines.append(f"    reads:     one row per key and step: {', '.join(facts['combined'])}")
        return [
            *lines,
            f"    state:     {facts['state']}, one value per key",
            f"    results:   ({facts['output']}){time}",
        ]

    @property
    def boxes(self) -> dict[str, str]:
        return {self.operator: f"process {self.operator}<br/>{self.plan.logic.name}"}


def process_nodes(
    graph: Graph,
    process: Process,
    *,
    shared: bool | None,  # noqa: ARG001 - it has no windows
) -> list[Node]:
    """The node of a user's class. It gets rows, or one combined row per key."""
    stream, maps = graph.stream_of(process.input)
    fields, clock = graph.fields_of(process.input), graph.clock_of(process.input)
    return [
        ProcessNode(
            plan=process_plan(
                process.name, process.by, process.logic, fields, clock, process.combined
            ),
            feed=Feed(stream=stream.name, maps=maps, clock=clock, fields=fields),
            inputs=keep(process.combined)[0],
            entry=(process.name, 0),
        )
    ]


def process_plan(
    operator: str,
    by: Sequence[Field],
    logic: Logic,
    fields: Sequence[Field],
    clock: Clock,
    combined: Sequence[Named] = (),
) -> ProcessPlan:
    """The plan over a stream with some columns. Columns that cannot be sent are refused by name.

    Combined rows also have the newest event time, as their last partial.
    """
    keys = tuple(by) or (EVERYTHING,)
    _, kept, results = keep(combined) if combined else ((), (), ())
    if kept:
        at = kept[-1].columns.stop
        last = KeptPartial(partial=LastTime("bigint"), input=0, columns=slice(at, at + 1))
        kept = (*kept, last)
    seen = tuple(
        each
        for each in fields
        if logic.columns is None or each.name in logic.columns or each in keys
    )
    for each in seen:
        if "map<" in each.type or "variant" in each.type:
            raise TopologyError(
                f"process {operator!r} cannot be given column {each.name!r} of type {each.type}; "
                "drop it in a map(), or name the columns that the class reads: columns = (...)"
            )
        column_type(each.type)
    if results:
        seen = (
            *(each for each in seen if each in keys),
            *(Field(each.named.name, each.type) for each in results),
        )
    return ProcessPlan(
        part=PartId(operator),
        keys=keys,
        panes=Panes(width_us=1, offset_us=0, windows=()),
        kept=kept,
        results=results,
        columns=tuple(column for each in kept for column in each.partial.columns),
        time_type=clock.moment,
        logic=logic,
        fields=seen,
    )
