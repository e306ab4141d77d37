"""Changes between two steps: another plan, another number of slots, other shards in the slots.

A user asks for them at any time through `Requests`, and the controller decides them. They are
applied when the next step begins.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.elastic.grouping.steps import Grouping, new_grouping, with_slots
from anabranch.errors import TopologyError, unknown
from anabranch.plan.ids import APPLIES, ComponentId
from anabranch.plan.model import Plan
from anabranch.plan.route import Route, routes_for
from anabranch.spark.compile.levels import Levels
from anabranch.spark.driver.context import Notice, RunContext, RunState
from anabranch.spark.driver.resharding import reshard
from anabranch.spark.outlets import late_nodes
from anabranch.state.checkpoint.header import over_checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What shall change. A number of slots is for all components, and overrides routes."""

    plan: Plan | None = None
    slots: int | None = None
    routes: Mapping[ComponentId, Route] = field(default_factory=dict)

    def then(self, later: Changes) -> Changes:
        """Both changes. Where they contradict each other, the later one counts."""
        return Changes(
            plan=self.plan if later.plan is None else later.plan,
            slots=self.slots if later.slots is None else later.slots,
            routes={**self.routes, **later.routes},
        )


class Requests:
    """Changes that users ask for during a run, from any thread."""

    def __init__(self, shards: int) -> None:
        self._shards, self._changes, self._lock = shards, Changes(), threading.Lock()

    @property
    def waiting(self) -> Changes:
        """What was asked for since the last step began."""
        return self._changes

    def add(self, changes: Changes) -> None:
        with self._lock:
            self._changes = self._changes.then(changes)

    def take(self) -> Changes:
        """What was asked for since the last call."""
        with self._lock:
            found, self._changes = self._changes, Changes()
        return found

    def resize(self, slots: int) -> None:
        """Asks for another number of slots."""
        if not isinstance(slots, int) or not 1 <= slots <= self._shards:
            raise TopologyError(
                f"slots={slots!r}; valid: 1 to {self._shards}, the number of shards of this "
                "checkpoint"
            )
        self.add(Changes(slots=slots))

    def reroute(
        self, slot_of: Sequence[int], component: str | None, now: Mapping[ComponentId, Route]
    ) -> None:
        """Asks for other slots for the shards of one component, or of all components."""
        table, shards = tuple(slot_of), self._shards
        fits = all(isinstance(slot, int) and 0 <= slot < shards for slot in table)
        if len(table) != shards or not fits:
            raise TopologyError(
                f"slot_of={list(table)!r}; valid: a slot from 0 to {shards - 1} for each of the "
                f"{shards} shards"
            )
        named = {str(name): name for name in now}
        if component is not None and component not in named:
            raise TopologyError(unknown("component", component, named))
        wanted = Route(table, max(table) + 1, 0)
        names = now if component is None else [named[component]]
        self.add(Changes(routes=dict.fromkeys(names, wanted)))


def apply_changes(
    context: RunContext, state: RunState, changes: Changes
) -> tuple[RunState, list[Notice]]:
    """The state of a run with these changes, and the notices about them."""
    notices: list[Notice] = []
    if changes.plan is not None and _names(changes.plan) != _names(state.plan):
        state, notice = _replanned(context, state, changes.plan)
        notices.append(notice)
    routes = dict(state.routes)
    for name, after in changed_routes(state.routes, changes).items():
        notices.append(route_notice(name, routes[name], after, alone=len(routes) == 1))
        routes[name] = after
    groupings = groupings_for(state.plan, routes, state.groupings)
    return replace(state, routes=routes, groupings=groupings), notices


def changed_routes(now: Mapping[ComponentId, Route], changes: Changes) -> dict[ComponentId, Route]:
    """The components whose route changes, with the new route."""
    found = {}
    for name, before in now.items():
        after = changes.routes.get(name, before)
        if changes.slots is not None:
            after = before.resized(changes.slots)
        same = (after.slot_of, after.slots) == (before.slot_of, before.slots)
        if not same and len(after.slot_of) == len(before.slot_of):
            found[name] = replace(after, version=before.version + 1)
    return found


def route_notice(name: ComponentId, before: Route, after: Route, *, alone: bool) -> Notice:
    """The notice about a changed route. `alone`: it is the only component."""
    if name == APPLIES:
        return Notice("resize", f"slots of applies {before.slots} -> {after.slots}")
    of = "" if alone else f" of {f'{name}'!r}"
    moved = sum(a != b for a, b in zip(before.slot_of, after.slot_of, strict=True))
    shards = f"{moved} of {len(before.slot_of)} shards"
    if before.slots == after.slots:
        return Notice("reroute", f"{shards}{of} have another slot, no state moved")
    text = f"slots{of} {before.slots} -> {after.slots}: {shards} have another slot, no state moved"
    return Notice("resize", text)


def groupings_for(
    plan: Plan, routes: Mapping[ComponentId, Route], before: Mapping[str, Grouping] | None = None
) -> dict[str, Grouping]:
    """How each apply groups its rows: as before, with the current number of slots."""
    found = {}
    for each in plan.applies:
        slots, osg = routes[APPLIES].slots, each.work.osg
        known = (before or {}).get(each.name)
        if known is None:
            found[each.name] = new_grouping(each.work.grouping, slots, osg)
        else:
            found[each.name] = with_slots(known, slots, osg)
    return found


def _replanned(context: RunContext, state: RunState, plan: Plan) -> tuple[RunState, Notice]:
    """The state with other components. State that belongs in other shards is rewritten, in one
    commit.
    """
    checkpoint, shards = context.checkpoint, context.shards
    routes = routes_for(plan.routed, state.routes, shards, state.slots)
    plan = over_checkpoint(plan, checkpoint)
    moved = reshard(context.session, checkpoint, plan, routes)
    late = late_nodes(plan, context.outlets)
    levels = Levels(plan, shards, late, state.levels.lift)
    before, after = ", ".join(_names(state.plan)), ", ".join(_names(plan))
    text = (
        f"components {before} -> {after} by {plan.fusion.planner}, "
        f"{plan.fusion.communication:,.6g} rows per step between them; "
        f"state in other shards: {', '.join(map(str, moved)) or 'none'}"
    )
    return replace(state, plan=plan, routes=routes, levels=levels), Notice("plan", text)


def _names(plan: Plan) -> list[str]:
    return [f"{each.name}" for each in plan.components]
