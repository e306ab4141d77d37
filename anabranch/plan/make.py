"""Makes the plan of a topology: which operators share a component, and what each of them stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from anabranch.errors import TopologyError
from anabranch.plan.ids import ComponentId
from anabranch.plan.keeping import each_of
from anabranch.plan.model import Component, Node, Plan
from anabranch.plan.operators.applies import NOTHING_FUSED, applies_of
from anabranch.plan.operators.kinds import nodes_for
from anabranch.plan.planners.cost import Adaptation
from anabranch.plan.planners.measured import Measures
from anabranch.plan.planners.problem import Hints, PlannerOperator, StreamEdge, StreamGraph
from anabranch.plan.planners.registry import AUTO, UNFUSED, plan_by
from anabranch.plan.planners.solution import FusionPlan
from anabranch.topology.graph import Field, Graph


def make_plan(
    graph: Graph,
    planner: str = AUTO,
    *,
    rates: Mapping[str, float] | None = None,
    measures: Measures | None = None,
    adaptation: Adaptation = Adaptation(),  # noqa: B008, it is frozen
    shared: Mapping[str, bool] | None = None,
) -> Plan:
    """The plan of a topology by one of the planners. Refuses what cannot run, with the name.

    `rates` are the rows per step that each operator takes. "auto" plans by them, or by attributes
    if there are none. `measures` have them too, with histograms of loads for the cost of
    `adaptation`. `shared` says whether windows share panes, for operators that have state already.
    """
    nodes = nodes_of(graph, shared or {})
    if not nodes:
        return plan_of(graph, (), NOTHING_FUSED)
    if measures is not None and measures.operators:
        rates = measures.rates()
    streams, hints = streams_of(nodes, rates)
    if measures is not None:
        streams = replace(streams, operators=measures.of(streams.operators))
    hints = Hints(fuse=graph.fuse, apart=(*hints.apart, *graph.apart))
    return plan_of(
        graph, nodes, plan_by(planner, streams, hints, adaptation, measured=rates is not None)
    )


def plan_again(
    graph: Graph, components: Iterable[frozenset[str]], *, shared: Mapping[str, bool]
) -> Plan:
    """The plan with the components of an earlier one, as far as its operators still exist.

    If they cannot share a component any more, everything is planned again.
    """
    known = {node.operator for node in nodes_of(graph, shared)}
    groups = tuple(group & known for group in components if len(group & known) > 1)
    try:
        return make_plan(replace(graph, fuse=(*graph.fuse, *groups)), UNFUSED, shared=shared)
    except TopologyError:
        return make_plan(graph, shared=shared)


def plan_of(graph: Graph, nodes: Sequence[Node], fusion: FusionPlan) -> Plan:
    """The plan with the components that a planner has chosen."""
    parts: dict[str, list[Node]] = {}
    for node in nodes:
        parts.setdefault(node.operator, []).append(node)
    order = list(parts)
    of = {
        name: sorted(each.operators, key=order.index)
        for each in fusion.components
        for name in each.operators
    }
    levels: dict[str, int] = {}

    def level(name: str) -> int:
        """One more than the highest level of the components that feed the operator's own."""
        first = of[name][0]
        if first not in levels:
            streams = {node.feed.stream for each in of[name] for node in parts[each]}
            levels[first] = 1 + max(
                (level(s) for s in streams if s in parts and s not in of[name]), default=0
            )
        return levels[first]

    components = [
        Component(
            name=ComponentId(tuple(group)),
            attributes=_common([parts[name][0] for name in group]),
            nodes=tuple(node for name in group for node in parts[name]),
            level=level(group[0]),
        )
        for group in {names[0]: names for name in order for names in (of[name],)}.values()
    ]
    applies = applies_of(graph)
    used = {*(node.feed.stream for node in nodes), *(each.feed.stream for each in applies)}
    sources = tuple(each for each in graph.sources if each.name in used)
    ordered = tuple(sorted(components, key=lambda each: each.level))
    return Plan(
        topology=graph.name,
        sources=sources,
        nodes=tuple(nodes),
        components=ordered,
        fusion=fusion,
        applies=applies,
    )


def nodes_of(graph: Graph, shared: Mapping[str, bool] = MappingProxyType({})) -> tuple[Node, ...]:
    """The stateful operators of a topology, each after those that feed it."""
    stateful = [each for each in graph.operators if each.stateful]
    if not stateful and not applies_of(graph):
        raise TopologyError(
            f"topology {graph.name!r} has nothing to do: add .aggregate(...), .process(...) or "
            ".to(...) to a stream"
        )
    graph.check()
    return tuple(
        node for each in stateful for node in nodes_for(graph, each, shared=shared.get(each.name))
    )


def streams_of(
    nodes: Sequence[Node], rates: Mapping[str, float] | None = None
) -> tuple[StreamGraph, Hints]:
    """The nodes and their streams for planners, and the pairs with Spark SQL between them."""
    first = {node.operator: node for node in reversed(nodes)}
    ordered = [first[name] for name in dict.fromkeys(node.operator for node in nodes)]
    streaming = {
        (node.feed.stream, node.operator): node for node in nodes if node.feed.stream in first
    }
    between = [(source, node) for (source, _), node in streaming.items()]
    operators = tuple(
        PlannerOperator(name=node.operator, attributes=node.attributes) for node in ordered
    )
    streams = tuple(
        StreamEdge(source, node.operator, (rates or {}).get(node.operator, 1.0))
        for source, node in between
    )
    # Both sides of a join may come from one operator, one of them after maps.
    apart = {
        frozenset({node.feed.stream, node.operator}): None
        for node in nodes
        if node.feed.stream in first and not is_plain(node)
    }
    return StreamGraph(operators, streams), Hints(apart=tuple(apart))


def is_plain(node: Node) -> bool:
    """Whether a node needs nothing but columns of the stream that feeds it, or of one window of it.

    Then it can run in the slot task that makes the rows.
    """
    return all(each.window for each in node.feed.maps) and all(
        given.where is None
        and all(
            plain_column(part, node.feed.fields)
            for part in each_of(given.expression)
            if part is not None
        )
        for given in node.inputs
    )


def plain_column(expression: object, fields: Sequence[Field]) -> str | None:
    """The column that an expression names; None if it is more than a column name."""
    known = isinstance(expression, str) and any(each.name == expression for each in fields)
    return str(expression) if known else None


def _common(nodes: Sequence[Node]) -> tuple[Field, ...]:
    return tuple(
        each for each in nodes[0].plan.keys if all(each in node.plan.keys for node in nodes)
    )
