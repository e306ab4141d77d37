"""A plan for people: text, JSON and a Mermaid graph, with the reason for each choice."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from anabranch.errors import TopologyError, unknown
from anabranch.plan.consolidation import PANE, Consolidation, Family, Part
from anabranch.plan.limits import slots_limit
from anabranch.plan.make import is_plain
from anabranch.plan.model import Component, Node, Plan
from anabranch.plan.operators.applies import Applied, stages_of
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.operators.process import ProcessPlan
from anabranch.plan.panes import Panes
from anabranch.plan.planners.measured import Measures
from anabranch.plan.planners.solution import FusionReason
from anabranch.topology.apply import AUTO, HASH, OSG, ROUND_ROBIN
from anabranch.topology.durations import format_duration
from anabranch.topology.graph import Apply, Compute, Graph, Join, Process, Sink, inputs_of
from anabranch.topology.state_types import spell_type

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
    """The plan of a topology in one of the formats; `groupings` tells how applies group rows by what was measured."""
    if format not in FORMATS:
        raise TopologyError(unknown("format", format, FORMATS))
    facts = describe(graph, plan, measures, groupings)
    if format == "mermaid":
        return _mermaid(graph, plan, facts)
    return json.dumps(facts, indent=2) if format == "json" else _text(facts)


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
            {"name": s.name, "event_time": s.event_time, "delay": format_duration(s.delay_us)}
            for s in plan.sources
        ],
        "applies": [_apply(each, groupings.get(each.name)) for each in plan.applies],
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


def _apply(applied: Applied, measured: str | None) -> dict[str, Any]:
    work = applied.work
    by = ", ".join(work.cost_by)
    asked = {
        AUTO: f"round robin until the time of rows is measured, then by cost (osg) where it varies with ({by})",
        OSG: f"round robin until the time of rows by ({by}) is measured, then by cost",
        HASH: f"rows with equal ({by}) in one slot, as asked for",
        ROUND_ROBIN: "as asked for" if work.fn is not None else "rows only pass, to be written",
    }
    return {
        "name": applied.name,
        "chain": [applied.feed.stream, *(each.name for each in applied.feed.maps), applied.name],
        "stage": applied.stage,
        "form": work.form if work.fn is not None else "none",
        "cost_by": list(work.cost_by),
        "grouping": work.grouping,
        "reason": measured or asked[work.grouping],
        "on_error": "failed rows are dead letters" if work.dead_letters else "the step fails",
    }


def _left_out(graph: Graph, sink: Sink) -> str:
    if not sink.late:
        return ""
    return ".failed" if isinstance(graph.operator(sink.input), Apply) else ".late"


def _component(plan: Plan, component: Component, measures: Measures) -> dict[str, Any]:
    limit = slots_limit(component, measures)
    return {
        "name": component.name,
        "level": component.level,
        "attributes": [each.name for each in component.attributes if each.name],
        "reason": _reason(component),
        "most_slots": limit.slots,
        "most_slots_because": limit.reason,
        "operators": [_node(plan, node) for node in component.nodes],
    }


def _process(plan: Plan, node: Node, process: ProcessPlan) -> dict[str, Any]:
    """A user's class: what it is given, what it keeps, what it gives."""
    logic = process.logic
    form = "vectorised: all rows of a slot at once" if logic.vectorised else "key by key"
    read = [f"{each.named.name} = {_partials(node, each.kept)}" for each in process.results]
    return {
        "name": node.name,
        "chain": [node.feed.stream, *(each.name for each in node.feed.maps), node.name],
        "keys": [each.name for each in node.compute.by],
        "rows": _inflow(plan, node),
        "combined": read,
        "process": f"{logic.name}, {form}, by {'event time' if logic.order == 'event_time' else 'arrival'}",
        "state": spell_type(logic.described())
        + (f", kept for {format_duration(logic.ttl_us)}" if logic.ttl_us else ""),
        "output": ", ".join(f"{each.name}: {each.type}" for each in process.result_fields),
        "event_time": logic.event_time,
    }


def _partials(node: Node, numbers: Sequence[int]) -> str:
    """Partials of a node by their numbers, as text."""
    kept = [node.slotted.kept[number] for number in numbers]
    return ", ".join(
        f"{type(each.partial).__name__.lower()}({node.inputs[each.input]})" for each in kept
    )


def _inflow(plan: Plan, node: Node) -> str:
    return "from its slot, no exchange" if plan.is_fused(node) else "through the exchange"


def _node(plan: Plan, node: Node) -> dict[str, Any]:
    if node.process is not None:
        return _process(plan, node, node.process)
    panes = node.slotted.panes
    copies = sum(-(-w.length_us // w.every_us) for w in node.consolidate.windows) + len(
        node.consolidate.sessions
    )
    chain = [
        node.feed.stream,
        *(each.name for each in node.feed.maps),
        node.compute.name,
        node.name,
    ]
    rows = len(node.sharing.groups) + len(node.consolidate.sessions)
    how = "through the exchange"
    if plan.is_fused(node):
        how = "from its slot, no exchange"
    elif plan.passes(node):
        how = f"through the exchanges of {plan.component_of(node.name).level} levels"
    if isinstance(node.slotted, JoinSide):
        return _side(node, node.slotted, how)
    return {
        "name": node.name,
        "chain": chain,
        "keys": [each.name for each in node.compute.by],
        "rows": how,
        "pane": format_duration(panes.width_us),
        **_consolidation(panes, node.slotted.consolidation),
        "session": None if node.session is None else node.session.name,
        "shared": node.sharing.shared,
        "shared_because": node.sharing.reason,
        "early": _early(node),
        "partials": [_partials(node, [i]) for i in range(len(node.slotted.kept))],
        "sharing": f"each row is aggregated {'once' if rows == 1 else f'{rows} times'}; window by window it would be {copies} times",
    }


def _side(node: Node, side: JoinSide, how: str) -> dict[str, Any]:
    """A side of a join: its rows wait as they are, so there are neither partials nor merges."""
    return {
        "name": node.name,
        "chain": [
            node.feed.stream,
            *(each.name for each in node.feed.maps),
            f"{node.operator} ({side.side})",
        ],
        "keys": [each.name for each in side.keys],
        "rows": how,
        "join": side.join.how,
        "side": side.side,
        "pane": format_duration(side.panes.width_us),
        "windows": dict.fromkeys(
            dict.fromkeys(window.name for window in side.panes.windows), "rows of its panes"
        ),
        "kept": [each.name for each in side.payload],
    }


def _exchange(plan: Plan, level: int) -> str:
    """What goes through the exchange before a level."""
    passing = [
        node.name
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
            node.name
            for node in plan.nodes
            if plan.passes(node) and plan.component_of(node.name).level == level
        ]
        combined = f", those of sources for {', '.join(arrive)} combined" if arrive else ""
        return f"results to slots for {', '.join(routed)}, row by row{combined}{behind}"
    nodes = [
        node for component in plan.at(1) for node in component.nodes if not plan.is_fused(node)
    ]
    raw = [node.name for node in nodes if node.row_by_row]
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
        if node.feed.maps:
            return f"maps run in Spark SQL, between two slot tasks: {', '.join(each.name for each in node.feed.maps)}"
        inputs = ", ".join(str(each) for each in node.inputs[1:])
        return f"expressions and filters run in Spark SQL, between two slot tasks: {inputs}"
    return reason.text


def _consolidation(panes: Panes, plan: Consolidation) -> dict[str, Any]:
    """How each window is formed (Enorm 6.1), and what that costs."""

    def length(family: Family) -> str:
        return format_duration(family.length * panes.width_us)

    def formula(way: tuple[Part, ...]) -> str:
        terms = [
            f"{part.count} pane{'s' if part.count > 1 else ''}"
            if part.family == PANE
            else length(plan.families[part.family])
            for part in way
        ]
        counted = [(term, len(list(group))) for term, group in itertools.groupby(terms)]
        return " + ".join(f"{count} x {term}" if count > 1 else term for term, count in counted)

    def formulas(family: Family) -> str:
        return " or ".join(dict.fromkeys(formula(way) for way in family.ways[:4])) + (
            " or ..." if len(family.ways) > 4 else ""
        )

    if not plan.families:
        names = dict.fromkeys(window.name for window in panes.windows)
        return {
            "windows": dict.fromkeys(names, "rows of its panes"),
            "helpers": {},
            "merges": 0,
            "naive_merges": 0,
        }
    of = dict(enumerate(plan.of_window))
    by_name: dict[str, list[int]] = {}
    for i, window in enumerate(panes.windows):
        by_name.setdefault(window.name, []).append(i)
    return {
        "windows": {
            name if (steps := len(group)) == 1 else f"{name} ({steps} steps, the last)": formulas(
                plan.families[of[group[-1]]]
            )
            for name, group in by_name.items()
        },
        "helpers": {
            f"{length(f)} every {format_duration(f.every * panes.width_us)}": formulas(f)
            for f in plan.helpers
        },
        "merges": round(plan.merges_per_hour, 1),
        "naive_merges": round(plan.naive_per_hour, 1),
        "merges_chosen_by": "keys that were measured"
        if plan.measured
        else "number of merges, as nothing is measured yet",
    }


def _early(node: Node) -> str:
    early = node.consolidate.early
    if early is None:
        return "never"
    return (
        f"every {early.steps} steps" if early.us is None else f"every {format_duration(early.us)}"
    )


def _reason(component: Component) -> str:
    keys = ", ".join(each.name for each in component.attributes)
    if not keys:
        return "a global aggregate has no partition attributes: one shard does the work, whatever the number of slots"
    maps = any(node.feed.maps for node in component.nodes)
    before = "maps accept any partitioning, so they run before the exchange; " if maps else ""
    names = [
        name
        for node in component.nodes
        for name in (
            [node.operator] if node.side or node.process else [node.compute.name, node.name]
        )
    ]
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return f"{before}{names[0]} is partitioned by its keys ({keys})"
    return f"{before}{', '.join(names[:-1])} and {names[-1]} have the attributes ({keys}) in common"


def _text(facts: dict[str, Any]) -> str:
    lines = [f"topology {facts['topology']}"]
    lines += [
        f"  source {each['name']}: event time {each['event_time']}, delay {each['delay']}"
        for each in facts["sources"]
    ]
    for each in facts["applies"]:
        lines += [
            f"  apply {' -> '.join(each['chain'])}, form {each['form']}, on error {each['on_error']}",
            f"    grouping:  {each['grouping']}: {each['reason']}",
        ]
    for component in facts["components"]:
        level = (
            f", level {component['level']}"
            if max(c["level"] for c in facts["components"]) > 1
            else ""
        )
        lines += [
            f"  component {component['name']}, partitioned by ({', '.join(component['attributes'])}){level}",
            f"    reason:    {component['reason']}",
            f"    slots:     at most {component['most_slots']}: {component['most_slots_because']}",
        ]
        for node in component["operators"]:
            if "process" in node:
                lines += _process_text(node)
                continue
            if "side" in node:
                lines += _side_lines(node)
                continue
            lines += [
                f"    operators: {' -> '.join(node['chain'])}"
                + (f" ({node['rows']})" if "no exchange" in node["rows"] else ""),
                f"    pane:      {node['pane']}; {node['sharing']}",
                *(
                    f"    window:    {name} = {formula}"
                    for name, formula in node["windows"].items()
                ),
                *(
                    f"    helper:    {name} = {formula}"
                    for name, formula in node["helpers"].items()
                ),
                *(
                    [f"    window:    {node['session']}, merged from panes as long as they touch"]
                    if node["session"]
                    else []
                ),
                *(
                    [f"    sharing:   {node['shared_because']}"]
                    if len(node["windows"]) > 1 or not node["shared"]
                    else []
                ),
                *(
                    [f"    early:     open windows {node['early']}, marked"]
                    if node["early"] != "never"
                    else []
                ),
                f"    merges:    {node['merges']:,g} partials a key and hour; naively {node['naive_merges']:,g}",
                f"    partials:  {', '.join(node['partials'])}",
            ]
    for stream in facts["fusion"]["streams"]:
        verb = "fused" if stream["fused"] else "not fused"
        lines.append(f"  {stream['from']} -> {stream['to']}: {verb}: {stream['reason']}")
    lines.append(f"  cost: {_cost(facts['fusion'])}")
    lines += [f"  exchange {i}: {text}" for i, text in enumerate(facts["exchanges"], 1)]
    lines += [f"  sink {text}" for text in facts["sinks"]]
    return "\n".join(lines)


def _process_text(node: dict[str, Any]) -> list[str]:
    time = (
        f", at {node['event_time']}"
        if node["event_time"]
        else ", for sinks: no column tells their event time"
    )
    return [
        f"    operators: {' -> '.join(node['chain'])}"
        + (f" ({node['rows']})" if "no exchange" in node["rows"] else ""),
        f"    process:   {node['process']}",
        *(
            [f"    reads:     a row a key and step: {', '.join(node['combined'])}"]
            if node["combined"]
            else []
        ),
        f"    state:     {node['state']}, a value a key",
        f"    results:   ({node['output']}){time}",
    ]


def _side_lines(node: dict[str, Any]) -> list[str]:
    lines = [
        f"    operators: {' -> '.join(node['chain'])}"
        + (f" ({node['rows']})" if node["rows"] != "through the exchange" else "")
    ]
    if node["side"] == "left":
        lines.append(
            f"    join:      {node['join']}, by {', '.join(node['keys'])}, in {', '.join(node['windows'])}; pane {node['pane']}"
        )
    return [
        *lines,
        f"    kept:      {', '.join(node['kept']) or 'keys alone'}, with how often each row came",
    ]


def _cost(fusion: dict[str, Any]) -> str:
    """What is communicated and moved, and what it would be with every operator by itself."""
    unit = (
        "rows a step between components"
        if fusion["measured"]
        else "between components, a stream counted as 1"
    )
    return (
        f"{fusion['communication']:,.6g} {unit} + {fusion['adaptation']:,.6g} for state that moves; unfused "
        f"{fusion['communication_unfused']:,.6g} + {fusion['adaptation_unfused']:,.6g}; planned by {fusion['planner']}"
    )


def _mermaid(graph: Graph, plan: Plan, facts: dict[str, Any]) -> str:
    names = {each.name: f"n{i}" for i, each in enumerate(graph.operators)}

    def box(name: str, text: str) -> str:
        return f'{names[name]}["{text}"]'.replace("\n", "<br/>")

    inside = {name for node in plan.nodes for name in (node.compute.name, node.operator)}
    lines = ["graph LR", f"  %% cost: {_cost(facts['fusion'])}"]
    lines += [
        f"  %% {each['from']} to {each['to']} {'fused' if each['fused'] else 'not fused'}: {each['reason']}"
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
        for node in component.nodes:
            if node.name != plan.parts_of(node.operator)[0].name:
                continue
            windows = "<br/>".join(dict.fromkeys(each.name for each in node.consolidate.windows))
            if node.process is not None:
                lines.append(
                    f"    {box(node.operator, f'process {node.operator}<br/>{node.process.logic.name}')}"
                )
                continue
            if node.side:
                lines.append(f"    {box(node.operator, f'join {node.operator}<br/>{windows}')}")
                continue
            lines.append(f"    {box(node.compute.name, f'compute {node.compute.name}')}")
            lines.append(f"    {box(node.operator, f'consolidate {node.operator}<br/>{windows}')}")
        lines.append("  end")
    fused = {node.compute.name for node in plan.nodes if plan.is_fused(node)}
    fused |= {
        f"{node.operator} {node.side}" for node in plan.nodes if plan.is_fused(node) and node.side
    }
    for each in graph.operators:
        for side, given in zip(("left", "right"), inputs_of(each), strict=False):
            routed = (isinstance(each, Compute | Process) and each.name not in fused) or (
                isinstance(each, Join) and f"{each.name} {side}" not in fused
            )
            routed = routed or plan.applied(each.name) is not None
            lines.append(
                f"  {names[given]} {'== route ==>' if routed else '-->'} {names[each.name]}"
            )
    for i, sink in enumerate(graph.sinks):
        lines.append(
            f'  {names[sink.input]} -->{f"|{kind[1:]}|" if (kind := _left_out(graph, sink)) else ""} s{i}[/"{sink.name}"/]'
        )
    return "\n".join(lines)
