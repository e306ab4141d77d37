"""What is to change before the next step: another plan, other slots, other shards in them.

It is asked for at any time, by a person or by the controller, and applied between two steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import TopologyError, unknown
from anabranch.plan.ids import ComponentId
from anabranch.plan.model import Plan
from anabranch.plan.route import Route


@dataclass(slots=True)
class Pending:
    """Wishes for the next step. A number of slots is for all components, and goes before routes."""

    plan: Plan | None = None
    slots: int | None = None
    routes: dict[ComponentId, Route] = field(default_factory=dict)

    def resize(self, slots: int, shards: int) -> None:
        """Asks for another number of slots."""
        if not isinstance(slots, int) or not 1 <= slots <= shards:
            raise TopologyError(
                f"slots={slots!r}; valid: 1 to {shards}, the number of shards of this checkpoint"
            )
        self.slots = slots

    def reroute(
        self,
        slot_of: Sequence[int],
        component: str | None,
        now: Mapping[ComponentId, Route],
        shards: int,
    ) -> None:
        """Asks for another slot of each shard of a component, or of all."""
        table = tuple(slot_of)
        if len(table) != shards or not all(
            isinstance(slot, int) and 0 <= slot < shards for slot in table
        ):
            raise TopologyError(
                f"slot_of={list(table)!r}; valid: a slot from 0 to {shards - 1} for each of the {shards} shards"
            )
        named = {str(each): each for each in now}
        if component is not None and component not in named:
            raise TopologyError(unknown("component", component, named))
        wanted = Route(table, max(table) + 1, 0)
        self.routes.update(dict.fromkeys(now if component is None else [named[component]], wanted))

    def take_plan(self, now: Plan) -> Plan | None:
        """The plan that is wanted, where it is another one."""
        plan, self.plan = self.plan, None
        return (
            None
            if plan is None or [c.name for c in plan.components] == [c.name for c in now.components]
            else plan
        )

    def take_routes(
        self, now: Mapping[ComponentId, Route]
    ) -> Iterator[tuple[ComponentId, Route, Route]]:
        """The components whose route changes, with the route before and after."""
        slots, self.slots = self.slots, None
        routes, self.routes = self.routes, {}
        for name, before in now.items():
            after = routes.get(name, before) if slots is None else before.resized(slots)
            if len(after.slot_of) == len(before.slot_of) and (after.slot_of, after.slots) != (
                before.slot_of,
                before.slots,
            ):
                yield name, before, replace(after, version=before.version + 1)


def told_of(before: Route, after: Route, of: str) -> tuple[str, str]:
    """The event of another route."""
    moved = sum(a != b for a, b in zip(before.slot_of, after.slot_of, strict=True))
    shards = f"{moved} of {len(before.slot_of)} shards"
    if before.slots != after.slots:
        return (
            "resize",
            f"slots{of} {before.slots} -> {after.slots}: {shards} have another slot, no state moved",
        )
    return "reroute", f"{shards}{of} have another slot, no state moved"
