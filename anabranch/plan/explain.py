"""A plan for people: text, JSON and a Mermaid graph, with the reason for each choice."""

from __future__ import annotations

import itertools
import json
from typing import Any

from anabranch.errors import TopologyError, unknown
from anabranch.plan.component import Component, Plan
from anabranch.plan.consolidation import PANE, Consolidation, Family, Part
from anabranch.plan.panes import Panes
from anabranch.topology.durations import format_duration
from anabranch.topology.graph import Graph

FORMATS = ("text", "json", "mermaid")


def explain(graph: Graph, plan: Plan, format: str = "text") -> str:
    """The plan of a topology in one of the formats."""
    if format not in FORMATS:
        raise TopologyError(unknown("format", format, FORMATS))
    if format == "mermaid":
        return _mermaid(graph, plan.component)
    facts = describe(graph, plan)
    return json.dumps(facts, indent=2) if format == "json" else _text(facts)


def describe(graph: Graph, plan: Plan) -> dict[str, Any]:
    """The plan as plain data."""
    component = plan.component
    panes = component.slotted.panes
    copies = sum(-(-w.length_us // w.every_us) for w in panes.windows)
    operators = [component.source.name, *(m.name for m in component.maps), component.compute.name, component.name]
    return {
        "topology": plan.topology,
        "components": [
            {
                "name": component.name,
                "operators": operators,
                "attributes": list(component.attributes),
                "reason": _reason(component),
                "delay": format_duration(component.source.delay_us),
                "pane": format_duration(panes.width_us),
                **_consolidation(panes, component.slotted.consolidation),
                "early": _early(component),
                "partials": [
                    f"{type(k.partial).__name__.lower()}({component.inputs[k.input]})" for k in component.slotted.kept
                ],
                "sharing": f"each row is aggregated once; window by window it would be {copies} times",
            }
        ],
        "exchanges": [
            f"rows to slots by ({', '.join(component.attributes)}), combined per key and pane before it, or after it if cheaper"
        ],
        "sinks": [f"{sink.name} <- {sink.input}{'.late' if sink.late else ''}: {sink.target}" for sink in graph.sinks],
    }


def _consolidation(panes: Panes, plan: Consolidation) -> dict[str, Any]:
    """How each window is formed (Enorm 6.1), and what that costs."""

    def length(family: Family) -> str:
        return format_duration(family.length * panes.width_us)

    def formula(way: tuple[Part, ...]) -> str:
        terms = [
            f"{part.count} pane{'s' if part.count > 1 else ''}" if part.family == PANE else length(plan.families[part.family])
            for part in way
        ]
        counted = [(term, len(list(group))) for term, group in itertools.groupby(terms)]
        return " + ".join(f"{count} x {term}" if count > 1 else term for term, count in counted)

    def formulas(family: Family) -> str:
        return " or ".join(dict.fromkeys(formula(way) for way in family.ways[:4])) + (" or ..." if len(family.ways) > 4 else "")

    of = dict(enumerate(plan.of_window))
    by_name: dict[str, list[int]] = {}
    for i, window in enumerate(panes.windows):
        by_name.setdefault(window.name, []).append(i)
    return {
        "windows": {
            name if (steps := len(group)) == 1 else f"{name} ({steps} steps, the last)": formulas(plan.families[of[group[-1]]])
            for name, group in by_name.items()
        },
        "helpers": {f"{length(f)} every {format_duration(f.every * panes.width_us)}": formulas(f) for f in plan.helpers},
        "merges": round(plan.merges_per_hour, 1),
        "naive_merges": round(plan.naive_per_hour, 1),
        "merges_chosen_by": "keys that were measured" if plan.measured else "number of merges, as nothing is measured yet",
    }


def _early(component: Component) -> str:
    early = component.consolidate.early
    if early is None:
        return "never"
    return f"every {early.steps} steps" if early.us is None else f"every {format_duration(early.us)}"


def _reason(component: Component) -> str:
    keys = ", ".join(component.attributes)
    if not keys:
        return "a global aggregate has no partition attributes: one shard does the work, whatever the number of slots"
    before = "maps accept any partitioning, so they run before the exchange; " if component.maps else ""
    return f"{before}{component.compute.name} and {component.name} have the attributes ({keys}) in common"


def _text(facts: dict[str, Any]) -> str:
    lines = [f"topology {facts['topology']}"]
    for component in facts["components"]:
        lines += [
            f"  component {component['name']}, partitioned by ({', '.join(component['attributes'])})",
            f"    operators: {' -> '.join(component['operators'])}",
            f"    reason:    {component['reason']}",
            f"    delay:     {component['delay']}",
            f"    pane:      {component['pane']}; {component['sharing']}",
            *(f"    window:    {name} = {formula}" for name, formula in component["windows"].items()),
            *(f"    helper:    {name} = {formula}" for name, formula in component["helpers"].items()),
            *([f"    early:     open windows {component['early']}, marked"] if component["early"] != "never" else []),
            f"    merges:    {component['merges']:,g} partials a key and hour; naively {component['naive_merges']:,g}",
            f"    partials:  {', '.join(component['partials'])}",
        ]
    lines += [f"  exchange {i}: {text}" for i, text in enumerate(facts["exchanges"], 1)]
    lines += [f"  sink {text}" for text in facts["sinks"]]
    return "\n".join(lines)


def _mermaid(graph: Graph, component: Component) -> str:
    names = {each.name: f"n{i}" for i, each in enumerate(graph.operators)}

    def box(name: str, text: str) -> str:
        return f'{names[name]}["{text}"]'.replace("\n", "<br/>")

    keys = ", ".join(component.attributes)
    lines = ["graph LR", f"  {box(component.source.name, component.source.name)}"]
    lines += [f"  {box(each.name, each.name)}" for each in component.maps]
    windows = "<br/>".join(each.name for each in component.consolidate.windows)
    lines += [
        f'  subgraph component["component {component.name} by ({keys})"]',
        f"    {box(component.compute.name, f'compute {component.compute.name}')}",
        f"    {box(component.name, f'consolidate {component.name}<br/>{windows}')}",
        "  end",
    ]
    chain = [component.source.name, *(each.name for each in component.maps), component.compute.name]
    edges = list(itertools.pairwise(chain))
    for left, right in edges:
        arrow = "== lift, route ==>" if right == component.compute.name else "-->"
        lines.append(f"  {names[left]} {arrow} {names[right]}")
    lines.append(f"  {names[component.compute.name]} --> {names[component.name]}")
    for i, sink in enumerate(graph.sinks):
        lines.append(f'  {names[sink.input]} -->{"|late|" if sink.late else ""} s{i}[/"{sink.name}"/]')
    return "\n".join(lines)
