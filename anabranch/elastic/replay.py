"""What a policy would have decided: a recorded run, as if its decisions had been carried out.

What arrives and what each shard takes is as it was recorded. Where the policy would have had other
routes by then, the seconds of slots and the duration of the step are those that the recorded work
gives on them. The backlog at the sources stays as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from anabranch.elastic.controller import control
from anabranch.elastic.evaluation import levels_s
from anabranch.elastic.memory import Memory, kind_of
from anabranch.elastic.observation import (
    ComponentObservation,
    Decision,
    Observation,
    Resize,
    by_slot,
)
from anabranch.elastic.settings import Elastic
from anabranch.plan.route import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One recorded step, as it would have been, and what would have been decided after it."""

    seen: Observation
    recorded: Observation
    decision: Decision


def replay(recorded: Iterable[Observation], settings: Elastic) -> list[Replayed]:
    """All decisions of a policy over a history.

    "advise" decides as "on" does, because nothing is carried out here.
    """
    settings = replace(settings, mode="on")
    memory, routes, found = Memory(), dict[str, Route](), list[Replayed]()
    for each in recorded:
        seen = on_routes(each, routes)
        memory, decision = control(memory, seen, settings)
        found.append(Replayed(seen=seen, recorded=each, decision=decision))
        routes.update({change.component: change.route for change in decision.changes})
    return found


def on_routes(seen: Observation, routes: Mapping[str, Route]) -> Observation:
    """The step as it would have been on other routes; what they do not fit stays as it was."""
    components = tuple(_on_route(each, routes.get(each.name)) for each in seen.components)
    if all(a is b for a, b in zip(components, seen.components, strict=True)):
        return seen
    gained_s = levels_s(components, seen.cores) - levels_s(seen.components, seen.cores)
    return replace(seen, components=components, duration_s=max(0.0, seen.duration_s + gained_s))


def _on_route(each: ComponentObservation, route: Route | None) -> ComponentObservation:
    if route is None or len(route.slot_of) != len(each.rows):
        return each
    beside = np.maximum(0.0, each.slot_s - by_slot(each.work_s, each.route))
    overhead_s = float(np.median(beside)) if beside.size else 0.0
    return replace(each, route=route, slot_s=by_slot(each.work_s, route) + overhead_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTotals:
    """A replay in figures; "recorded" is what the run did."""

    steps: int
    seconds: float
    resizes: int
    reroutes: int
    reversals: int  # a component went up and then down, or down and then up
    notes: int
    slot_seconds: float
    slot_seconds_recorded: float
    step_s: float  # the mean
    step_s_recorded: float
    pause_s: float


def totals(replayed: Sequence[Replayed]) -> ReplayTotals:
    """The figures of a replay."""
    changes = [change for each in replayed for change in each.decision.changes]
    sizes = [change for change in changes if isinstance(change, Resize)]
    ways: dict[str, list[bool]] = {}
    for change in sizes:
        ways.setdefault(change.component, []).append(change.route.slots > change.before)
    count = max(1, len(replayed))
    return ReplayTotals(
        steps=len(replayed),
        seconds=replayed[-1].recorded.at - replayed[0].recorded.at if replayed else 0.0,
        resizes=len(sizes),
        reroutes=len(changes) - len(sizes),
        reversals=sum(a != b for each in ways.values() for a, b in pairwise(each)),
        notes=sum(len(each.decision.notes) for each in replayed),
        slot_seconds=_slot_seconds([each.seen for each in replayed]),
        slot_seconds_recorded=_slot_seconds([each.recorded for each in replayed]),
        step_s=sum(each.seen.duration_s for each in replayed) / count,
        step_s_recorded=sum(each.recorded.duration_s for each in replayed) / count,
        pause_s=sum(each.decision.pause_s for each in replayed),
    )


def _slot_seconds(steps: Sequence[Observation]) -> float:
    """Slots times the time from step to step."""
    return sum(
        (b.at - a.at) * sum(each.route.slots for each in b.components) for a, b in pairwise(steps)
    )


def figures_of(decision: Decision) -> dict[str, float]:
    """All figures of a decision: those of the policy, and what each change does and promises."""
    found = dict(decision.figures)
    for change in decision.changes:
        name, expected = change.component, change.expected
        if isinstance(change, Resize):
            found |= {
                f"{name}: slots before": change.before,
                f"{name}: slots after": change.route.slots,
            }
            what, scale = "longest slot us per row", 1e6
        else:
            found[f"{name}: shards moved"] = change.moved
            what, scale = "longest slot over mean", 1.0
        found |= {
            f"{name}: {what}, before": scale * expected.before,
            f"{name}: {what}, expected": scale * expected.after,
        }
    if decision.replan is not None:
        found |= {"rows between components, before": decision.replan.rows_before}
        found |= {"rows between components, expected": decision.replan.rows_after}
    if decision.pause_s:
        found["pause s"] = decision.pause_s
    return found


def kinds_of(decision: Decision) -> list[str]:
    """What a decision changes, in words."""
    return [f"{change.component}: {kind_of(change)}" for change in decision.changes]
