"""The most slots that a component can use: as many as it has values of its attributes."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.plan.model import Component
from anabranch.plan.planners.measured import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsLimit:
    """How many slots of a component can have work at most, and why."""

    slots: int
    reason: str


def slots_limit(component: Component, measures: Measures) -> SlotsLimit:
    """The number of shards, or fewer if the attributes have too few values to fill them all."""
    by = tuple(each.name for each in component.attributes)
    names = ", ".join(filter(None, by))
    if not names:
        return SlotsLimit(
            slots=1, reason="one shard has all rows, as there are no attributes to partition by"
        )
    most = SlotsLimit(slots=measures.shards, reason=f"as many as shards ({measures.shards})")
    for node in component.nodes:
        known = measures.operators.get(node.operator)
        if known is None:
            continue
        loaded = known.loaded_shards if known.by == by else None
        if loaded is not None and loaded < most.slots:
            most = SlotsLimit(
                slots=loaded,
                reason=f"({names}) has values in {loaded} of {measures.shards} shards, as measured",
            )
        own = set(node.plan.keys) == set(component.attributes)
        if own and known.keys and (keys := max(1, round(known.keys))) < most.slots:
            most = SlotsLimit(slots=keys, reason=f"({names}) has about {keys} values, as measured")
    return most
