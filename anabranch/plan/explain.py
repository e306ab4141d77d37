"""A plan as people read it: text, JSON and a Mermaid graph, with the reason for each choice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from anabranch.errors import TopologyError, unknown
from anabranch.plan.limits import slots_limit
from anabranch.plan.make import is_plain
from anabranch.plan.model import Component, Node, Plan
from anabranch.plan.operators.applies import ApplyPlan, stages_of
from anabranch.plan.operators.base import Travel
from anabranch.plan.planners.measured import Measures
from anabranch.plan.planners.solution import FusionReason
from anabranch.topology.durations import format_duration
from anabranch.topology.graph import Graph, Sink

_NOTHING: Mapping[str, str] = MappingProxyType({})
FORMATS = ("text", "json", "mermaid")
UNMEASURED = Measures(shards=64)


def explain(
    graph: Graph,
    plan: Plan,
    format: str = "text",
    measures: Measures = UNMEASURED,
    groupings: Mapping[str, str] = _NOTHING,
) -> str:
    """The plan of a topology in one of the formats.

    `groupings` says how each apply groups rows, after measuring.
    """
    if format not in FORMATS:
        raise TopologyError(unknown("format", format, FORMATS))
    facts = describe(graph, plan, measures, groupings)
    if format == "mermaid":
        return _mermaid(graph, plan, facts)
    return json.dumps(facts, indent=2) if format == "json" else _text(plan, facts)


def describe(
    graph: Graph,
    plan: Plan,
    measures: Measures = UNMEASURED,
    groupings: Mapping[str, str] = _NOTHING,
) -> dict[str, Any]:
    """The plan as plain data."""
    fusion = plan.fusion
    costs = {
        "communication": fusion.communication,
        "adaptation": fusion.adaptation,
        "communication_unfused": fusion.communication_unfused,
        "adaptation_unfused": fusion.adaptation_unfused,
    }
    return {
        "topology": plan.topology,
        "sources": [
            {
                "name": s.name,
                "event_time": s.event_time,
                "delay": format_duration(s.delay_us),
                "ahead": None if s.ahead_us is None else format_duration(s.ahead_us),
            }
            for s in plan.sources
        ],
        "applies": [each.describe(groupings.get(each.name)) for each in plan.applies],
        "components": [_component(plan, component, measures) for component in plan.components],
        "fusion": {
            "planner": fusion.planner,
            "measured": bool(measures.operators),
            **{name: round(cost, 3) for name, cost in costs.items()},
            "streams": [
                {
                    "from": r.stream.source,
                    "to": r.stream.target,
                    "fused": r.fused,
                    "reason": _why(plan, r),
                }
                for r in fusion.reasons
            ],
        },
        "exchanges": [
            *(
                f"rows to slots for {', '.join(each.name for each in stage)}, whole"
                for stage in stages_of(plan.applies)
            ),
            *(_exchange(plan, level) for level in range(1, plan.levels + 1)),
        ],
        "sinks": [
            f"{sink.name} <- {sink.input}{_left_out(graph, sink)}: {sink.target}"
            for sink in graph.sinks
        ],
    }


def _left_out(graph: Graph, sink: Sink) -> str:
    return f".{graph.operator(sink.input).left_out}" if sink.late else ""


def _component(plan: Plan, component: Component, measures: Measures) -> dict[str, Any]:
    limit = slots_limit(component, measures)
    return {
        "name": str(component.name),
        "level": component.level,
        "attributes": [each.name for each in component.attributes if each.name],
        "reason": _reason(component),
        "most_slots": limit.slots,
        "most_slots_because": limit.reason,
        "operators": [node.describe(_inflow(plan, node)) for node in component.nodes],
    }


def _inflow(plan: Plan, node: Node) -> str:
    """How a node gets its rows."""
    if plan.is_fused(node):
        return "from its slot, no exchange"
    if plan.passes(node):
        return f"through the exchanges of {plan.component_of(node.name).level} levels"
    return "through the exchange"


def _exchange(plan: Plan, level: int) -> str:
    """What goes through the exchange before a level."""
    passing = [
        str(node.name)
        for node in plan.nodes
        if plan.passes(node) and plan.component_of(node.name).level > level
    ]
    behind = f"; rows for {', '.join(passing)} pass" if passing else ""
    routed = [
        f"{node.name} by ({', '.join(each.name for each in component.attributes)})"
        for component in plan.at(level)
        for node in component.nodes
        if not plan.is_fused(node)
    ]
    if level > 1:
        arrive = [
            str(node.name)
            for node in plan.nodes
            if plan.passes(node) and plan.component_of(node.name).level == level
        ]
        combined = f", those of sources for {', '.join(arrive)} combined" if arrive else ""
        return f"results to slots for {', '.join(routed)}, row by row{combined}{behind}"
    nodes = [
        node for component in plan.at(1) for node in component.nodes if not plan.is_fused(node)
    ]
    raw = [str(node.name) for node in nodes if node.plan.travel is Travel.ROW_BY_ROW]
    combined = (
        ", combined per key and pane before it, or after it if cheaper"
        if len(raw) < len(nodes)
        else ", row by row"
    )
    combined += f"; row by row for {', '.join(raw)}" if 0 < len(raw) < len(nodes) else ""
    if len(plan.nodes) == 1:
        names = ", ".join(each.name for each in plan.components[0].attributes if each.name)
        return f"rows to slots by ({names}){combined}"
    return f"rows to slots for {', '.join(routed)}{combined}{behind}"


def _why(plan: Plan, reason: FusionReason) -> str:
    nodes = [
        each
        for each in plan.parts_of(reason.stream.target)
        if each.feed.stream == reason.stream.source
    ]
    node = next((each for each in nodes if not is_plain(each)), nodes[0])
    if not reason.fused and not is_plain(node):
        maps = ", ".join(each.name for each in node.feed.maps if each.window is None)
        if maps:
            return f"maps run in Spark SQL, between two slot tasks: {maps}"
        inputs = ", ".join(str(each) for each in node.inputs[1:])
        return f"expressions and filters run in Spark SQL, between two slot tasks: {inputs}"
    return reason.text


def _reason(component: Component) -> str:
    keys = ", ".join(each.name for each in component.attributes)
    if not keys:
        return (
            "a global aggregate has no partition attributes: one shard does the work, "
            "whatever the number of slots"
        )
    maps = any(each.window is None for node in component.nodes for each in node.feed.maps)
    before = "maps accept any partitioning, so they run before the exchange; " if maps else ""
    names = list(dict.fromkeys(name for node in component.nodes for name in node.partitioned))
    if len(names) == 1:
        return f"{before}{names[0]} is partitioned by its keys ({keys})"
    return f"{before}{', '.join(names[:-1])} and {names[-1]} have the attributes ({keys}) in common"


def _text(plan: Plan, facts: dict[str, Any]) -> str:
    lines = [f"topology {facts['topology']}"]
    lines += [
        f"  source {each['name']}: event time {each['event_time']}, delay {each['delay']}"
        for each in facts["sources"]
    ]
    for apply in facts["applies"]:
        lines += ApplyPlan.lines(apply)
    for component, said in zip(plan.components, facts["components"], strict=True):
        level = f", level {component.level}" if plan.levels > 1 else ""
        by = ", ".join(said["attributes"])
        lines += [
            f"  component {component.name}, partitioned by ({by}){level}",
            f"    reason:    {said['reason']}",
            f"    slots:     at most {said['most_slots']}: {said['most_slots_because']}",
        ]
        for node, each in zip(component.nodes, said["operators"], strict=True):
            lines += node.lines(each)
    for stream in facts["fusion"]["streams"]:
        verb = "fused" if stream["fused"] else "not fused"
        lines.append(f"  {stream['from']} -> {stream['to']}: {verb}: {stream['reason']}")
    lines.append(f"  cost: {_cost(facts['fusion'])}")
    lines += [f"  exchange {i}: {text}" for i, text in enumerate(facts["exchanges"], 1)]
    lines += [f"  sink {text}" for text in facts["sinks"]]
    return "\n".join(lines)


def _cost(fusion: dict[str, Any]) -> str:
    """The cost of communication and of moving state, and the cost with nothing fused."""
    unit = (
        "rows per step between components"
        if fusion["measured"]
        else "between components, a stream counted as 1"
    )
    return (
        f"{fusion['communication']:,.6g} {unit} + {fusion['adaptation']:,.6g} for state that "
        f"moves; unfused {fusion['communication_unfused']:,.6g} + "
        f"{fusion['adaptation_unfused']:,.6g}; planned by {fusion['planner']}"
    )


def _mermaid(graph: Graph, plan: Plan, facts: dict[str, Any]) -> str:
    names = {each.name: f"n{i}" for i, each in enumerate(graph.operators)}

    def box(name: str, text: str) -> str:
        return f'{names[name]}["{text}"]'.replace("\n", "<br/>")

    inside = {name for node in plan.nodes for name in node.boxes}
    lines = ["graph LR", f"  %% cost: {_cost(facts['fusion'])}"]
    lines += [
        f"  %% {each['from']} to {each['to']} {'' if each['fused'] else 'not '}fused: "
        f"{each['reason']}"
        for each in facts["fusion"]["streams"]
    ]
    lines += [
        f"  {box(each.name, each.name)}" for each in graph.operators if each.name not in inside
    ]
    for i, component in enumerate(plan.components):
        keys = ", ".join(each.name for each in component.attributes)
        most = facts["components"][i]["most_slots"]
        limit = f"level {component.level}, at most {most} slot{'s' if most > 1 else ''}"
        lines.append(
            f'  subgraph component{i}["component {component.name} by ({keys})<br/>{limit}"]'
        )
        boxes = {name: text for node in component.nodes for name, text in node.boxes.items()}
        lines += [f"    {box(name, text)}" for name, text in boxes.items()]
        lines.append("  end")
    routed = {node.entry for node in plan.nodes if not plan.is_fused(node)}
    routed |= {(each.name, 0) for each in plan.applies}
    for each in graph.operators:
        for number, given in enumerate(each.inputs):
            arrow = "== route ==>" if (each.name, number) in routed else "-->"
            lines.append(f"  {names[given]} {arrow} {names[each.name]}")
    for i, sink in enumerate(graph.sinks):
        kind = _left_out(graph, sink)
        label = f"|{kind[1:]}|" if kind else ""
        lines.append(f'  {names[sink.input]} -->{label} s{i}[/"{sink.name}"/]')
    return "\n".join(lines)
