"""The component plan: which operators run fused in one slot task, and what that task keeps and emits.

This version plans topologies of one component: one source, any chain of maps, one compute with its consolidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import NotYetError, TopologyError
from anabranch.plan.consolidation import Consolidation, plan_consolidation
from anabranch.plan.panes import Panes, panes_of
from anabranch.topology.aggregates import text_of
from anabranch.topology.graph import Compute, Consolidate, Field, Graph, Map, Named, Source
from anabranch.topology.partials import Count, Partial, PartialColumn
from anabranch.topology.types import column_type

# The key of a global aggregate, which has no key columns: the same for every row, and not part of the results.
EVERYTHING = Field("", "int")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An expression over the rows, restricted by a condition, that partials are lifted from."""

    expression: object | None  # several in a tuple are lifted together, as a struct of a0, a1, ...
    where: object | None

    def __str__(self) -> str:
        return text_of(self.expression) + (f" where {self.where}" if self.where is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A partial that is kept per key and pane, and the input that it is lifted from."""

    partial: Partial
    input: int
    columns: slice  # of all partial columns of the operator

    @property
    def lifted(self) -> list[str]:
        """The names of the lift's columns."""
        return [f"c{self.columns.start + i}" for i in range(len(self.partial.lift))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result column: its aggregate, and which of the kept partials it is finished from."""

    named: Named
    kept: tuple[int, ...]

    @property
    def type(self) -> str:
        return self.named.aggregate.result_type(self.named.input_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    """What a slot task needs to know of its operator: keys, panes, partials, results. Plain values, safe to ship."""

    operator: str
    keys: tuple[Field, ...]
    panes: Panes
    consolidation: Consolidation
    kept: tuple[Kept, ...]
    results: tuple[Result, ...]
    columns: tuple[PartialColumn, ...]  # of all kept partials, one after another
    time_type: str
    complete_from: Mapping[int, int] = field(default_factory=dict)  # windows that came later: what starts before is incomplete
    forgotten_us: int | None = None  # panes before were forgotten when windows were added, even where the log still has rows
    early: bool = False  # results have a column that marks those of windows that are still open


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Operators that run in one task, partitioned by the attributes they have in common."""

    name: str
    attributes: tuple[str, ...]
    source: Source
    maps: tuple[Map, ...]
    compute: Compute
    consolidate: Consolidate
    inputs: tuple[Input, ...]
    slotted: Slotted


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The topology cut into components. This version: exactly one."""

    topology: str
    components: tuple[Component, ...]

    @property
    def component(self) -> Component:
        return self.components[0]


def make_plan(graph: Graph) -> Plan:
    """The plan of a topology; refuses by name what cannot run."""
    consolidates = [each for each in graph.operators if isinstance(each, Consolidate)]
    computes = [each for each in graph.operators if isinstance(each, Compute)]
    sources = [each for each in graph.operators if isinstance(each, Source)]
    if not consolidates:
        raise TopologyError(f"topology {graph.name!r} has no windows: add .compute(...).consolidate(...) to a stream")
    for each in computes:
        if not graph.users_of(each.name):
            raise TopologyError(f"compute {each.name!r} is not consolidated: add .consolidate(ab.tumbling(...))")
    _refuse_several("source", [each.name for each in sources])
    _refuse_several("aggregation", [each.name for each in consolidates])
    consolidate = consolidates[0]
    compute = graph.operator(consolidate.input)
    if not isinstance(compute, Compute):
        raise NotYetError(f"consolidate {consolidate.name!r} reads {compute.name!r}; it can only follow a compute so far")
    return Plan(topology=graph.name, components=(_component(graph, compute, consolidate),))


def _refuse_several(what: str, names: list[str]) -> None:
    if len(names) > 1:
        raise NotYetError(
            f"the topology has {len(names)} {what}s ({', '.join(names)}); this version runs topologies of one component: "
            f"one source and one aggregation with any number of windows"
        )


def _component(graph: Graph, compute: Compute, consolidate: Consolidate) -> Component:
    maps: list[Map] = []
    node = graph.operator(compute.input)
    while isinstance(node, Map):
        maps.insert(0, node)
        node = graph.operator(node.input)
    if not isinstance(node, Source):
        raise NotYetError(f"compute {compute.name!r} reads {node.name!r}; it can only follow a source or a map so far")
    inputs, kept, results = _keep(compute.aggregates)
    time_type = next(field.type for field in node.fields if field.name == node.event_time)
    panes = panes_of(consolidate.windows)
    slotted = Slotted(
        operator=consolidate.name,
        keys=compute.by or (EVERYTHING,),
        panes=panes,
        consolidation=plan_consolidation(panes),
        kept=kept,
        results=results,
        columns=tuple(column for each in kept for column in each.partial.columns),
        time_type="timestamp_ntz" if time_type in {"timestamp_ntz", "date"} else "timestamp",
        early=consolidate.early is not None,
    )
    return Component(
        name=consolidate.name,
        attributes=tuple(field.name for field in compute.by),
        source=node,
        maps=tuple(maps),
        compute=compute,
        consolidate=consolidate,
        inputs=inputs,
        slotted=slotted,
    )


def _keep(aggregates: Sequence[Named]) -> tuple[tuple[Input, ...], tuple[Kept, ...], tuple[Result, ...]]:
    """Each distinct input and each distinct partial once; the first partial counts all rows and so tells presence."""
    inputs = [Input(expression=None, where=None)]
    kept = [Kept(partial=Count("bigint"), input=0, columns=slice(0, 1))]
    results = []
    for named in aggregates:
        wanted = Input(expression=named.aggregate.expression, where=named.aggregate.where)
        index = next((i for i, each in enumerate(inputs) if _same(each, wanted)), len(inputs))
        inputs += [wanted] if index == len(inputs) else []
        numbers = []
        for partial in named.aggregate.partials(named.input_type):
            number = next((i for i, k in enumerate(kept) if k.partial == partial and k.input == index), len(kept))
            if number == len(kept):
                start = kept[-1].columns.stop
                kept.append(Kept(partial=partial, input=index, columns=slice(start, start + len(partial.columns))))
            numbers.append(number)
        column_type(named.aggregate.result_type(named.input_type))
        # The expression stays behind: a Spark Column cannot travel to a task.
        bare = replace(named, aggregate=replace(named.aggregate, expression=None, where=None))
        results.append(Result(named=bare, kept=tuple(numbers)))
    return tuple(inputs), tuple(kept), tuple(results)


def _same(left: Input, right: Input) -> bool:
    """Equal texts are one input; of Spark Columns only the very same object is (== of a Column is no comparison)."""
    mine, other = ((*_each(given.expression), given.where) for given in (left, right))
    return len(mine) == len(other) and all(
        a is b or (isinstance(a, str) and isinstance(b, str) and a == b) for a, b in zip(mine, other, strict=True)
    )


def _each(expression: object) -> tuple[object, ...]:
    return expression if isinstance(expression, tuple) else (expression,)
