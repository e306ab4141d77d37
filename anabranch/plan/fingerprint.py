"""What of an operator a checkpoint depends on, as readable text, and how two differ."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.aggregates.specs import text_of
from anabranch.plan.model import Node
from anabranch.plan.operators.joins import JoinSide
from anabranch.topology.durations import format_duration
from anabranch.topology.state_types import spell_type


def fingerprint(node: Node) -> dict[str, str]:
    """What must stay the same while an operator's state lives; key types are part of it because they decide the hash."""
    aggregates = [
        f"{named.name} = {named.aggregate.kind}({text_of(named.aggregate.expression)}: {named.input_type}"
        + "".join(f", {name}={value}" for name, value in named.aggregate.parameters.items())
        + (f") where {named.aggregate.where}" if named.aggregate.where is not None else ")")
        for named in node.compute.aggregates
    ]
    windows = [
        f"{w.name} ({format_duration(w.length_us)} every {format_duration(w.every_us)} from {format_duration(w.offset_us)})"
        for w in node.windows
    ]
    if node.session is not None:
        windows.append(f"{node.session.name} (a gap of {format_duration(node.session.gap_us)})")
    clock = node.feed.clock
    event_time = f"{clock.column}: {clock.type}" + (
        f" in units of {clock.unit_us} us" if clock.unit_us is not None else ""
    )
    if isinstance(node.slotted, JoinSide):
        columns = ", ".join(f"{each.name}: {each.type}" for each in node.slotted.payload)
        aggregates.append(f"{node.slotted.join.how} join, {node.side}: {columns}")
    if node.process is not None:
        return {
            "stream": node.feed.stream,
            "keys": ", ".join(f"{field.name}: {field.type}" for field in node.compute.by) or "none",
            "event time": event_time,
            "state": spell_type(node.process.logic.described()),
        }
    return {
        "stream": node.feed.stream,
        "keys": ", ".join(f"{field.name}: {field.type}" for field in node.compute.by) or "none",
        "event time": event_time,
        "windows": "; ".join(windows),
        "aggregates": "; ".join(aggregates),
    }


def differences(stored: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """One line for each part in which two fingerprints differ."""
    return [
        f"{part}: the checkpoint has [{stored.get(part, 'nothing')}], the topology has [{wanted.get(part, 'nothing')}]"
        for part in {**wanted, **stored}
        if stored.get(part) != wanted.get(part)
    ]
