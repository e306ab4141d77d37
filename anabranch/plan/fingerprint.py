"""What of a plan a checkpoint depends on, as readable text, and how two differ."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.plan.component import Component
from anabranch.topology.aggregates import text_of
from anabranch.topology.durations import format_duration


def fingerprint(component: Component, shards: int) -> dict[str, str]:
    """What must stay the same while a checkpoint lives; key types are part of it because they decide the hash."""
    time = next(field for field in component.source.fields if field.name == component.source.event_time)
    aggregates = [
        f"{named.name} = {named.aggregate.kind}({text_of(named.aggregate.expression)}: {named.input_type}"
        + "".join(f", {name}={value}" for name, value in named.aggregate.parameters.items())
        + (f") where {named.aggregate.where}" if named.aggregate.where is not None else ")")
        for named in component.compute.aggregates
    ]
    windows = [
        f"{w.name} ({format_duration(w.length_us)} every {format_duration(w.every_us)} from {format_duration(w.offset_us)})"
        for w in component.consolidate.windows
    ]
    unit = component.source.unit_us
    return {
        "operator": component.name,
        "source": component.source.name,
        "keys": ", ".join(f"{field.name}: {field.type}" for field in component.compute.by) or "none",
        "event time": f"{time.name}: {time.type}" + (f" in units of {unit} us" if unit is not None else ""),
        "windows": "; ".join(windows),
        "aggregates": "; ".join(aggregates),
        "shards": str(shards),
    }


def differences(stored: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """One line for each part in which two fingerprints differ."""
    return [
        f"{part}: the checkpoint has [{stored.get(part, 'nothing')}], the topology has [{wanted.get(part, 'nothing')}]"
        for part in {**wanted, **stored}
        if stored.get(part) != wanted.get(part)
    ]
