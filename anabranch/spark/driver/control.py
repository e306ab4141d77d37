"""The controller of a run: it gets the observation of the last step, and returns a decision.

It decides when the next step begins, not when the last one ends. Only then has Spark reported how
long the whole batch took and what waits at the sources. If the controller fails, it turns itself
off, and the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from anabranch.elastic.controller import control
from anabranch.elastic.memory import Memory
from anabranch.elastic.observation import Decision, Effect, Observation, Offer
from anabranch.elastic.replay import figures_of
from anabranch.elastic.settings import OFF, Elastic
from anabranch.plan.model import Plan
from anabranch.plan.planners.registry import AUTO
from anabranch.spark.driver.changes import Changes
from anabranch.spark.driver.context import Notice

Rates: TypeAlias = Mapping[str, float]  # rows per step, by operator
Planning: TypeAlias = Callable[[str, Rates | None], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The changes of a decision, and the notices about it."""

    changes: Changes = field(default_factory=Changes)
    notices: tuple[Notice, ...] = ()
    pause_s: float = 0.0


class Controller:
    """Decides between two steps, unless its mode is "off"."""

    def __init__(self, elastic: Elastic, make_plan: Planning | None = None) -> None:
        self._elastic, self._make_plan = elastic, make_plan
        self.decision: Decision | None = None  # the last one
        self._memory = Memory()
        self._planned_at = time.monotonic()
        self._off = elastic.mode == OFF

    def decide(self, seen: Observation, plan: Plan, rates: Rates | None) -> Verdict:
        """What to change before the next step, given the last one."""
        if self._off:
            return Verdict()
        try:
            offered = self._better_plan(seen, plan, rates)
            if offered is not None:
                seen = replace(seen, offer=offer_of(plan, offered))
            self._memory, self.decision = control(self._memory, seen, self._elastic)
            return verdict_of(self.decision, plan, offered)
        except Exception as error:  # noqa: BLE001 - a policy may be the user's own
            self._off = True
            text = f"the controller failed and is off from now on: {type(error).__name__}: {error}"
            return Verdict(notices=(Notice("elastic", text),))

    def _better_plan(self, seen: Observation, plan: Plan, rates: Rates | None) -> Plan | None:
        """A plan by what was measured, if it is time to look for one; else None."""
        now = time.monotonic()
        due = now - self._planned_at >= self._elastic.guards.replan_s and not seen.closing
        wanted = self._elastic.replan and len(plan.nodes) > 1
        if not due or not wanted or self._make_plan is None:
            return None
        self._planned_at = now
        return self._make_plan(AUTO, rates) if rates else None


def verdict_of(decision: Decision, plan: Plan, offered: Plan | None) -> Verdict:
    """What a decision changes and reports. Advice changes nothing. `offered` is the other plan."""
    notices = [_effect_notice(each) for each in decision.effects]
    notices += [Notice("note", each) for each in decision.notes]
    if decision:
        kind = "advice" if decision.advice else "decision"
        notices.append(Notice(kind, decision.reason, figures_of(decision)))
    if not decision or decision.advice:
        return Verdict(notices=tuple(notices))
    named = {
        str(name): name for name in plan.routed
    }  # the controller knows components by their names as text
    changes = Changes(
        plan=None if decision.replan is None else offered,
        routes={named[each.component]: each.route for each in decision.changes},
    )
    return Verdict(changes=changes, notices=tuple(notices), pause_s=decision.pause_s)


def _effect_notice(effect: Effect) -> Notice:
    kept = "" if effect.share is None else f", {effect.share:.0%} of what was promised"
    text = (
        f"{effect.what}: {effect.observed:.4g} {effect.unit}, expected {effect.expected:.4g}, "
        f"before {effect.before:.4g}{kept}"
    )
    figures = {
        "before": effect.before,
        "expected": effect.expected,
        "observed": effect.observed,
    }
    return Notice("effect", text, figures)


def offer_of(now: Plan, offered: Plan) -> Offer | None:
    """What another plan would save; None if its components are the same."""
    before, after = (tuple(str(each.name) for each in plan.components) for plan in (now, offered))
    if {*before} == {*after}:
        return None
    of = {node.operator: each.name for each in now.components for node in each.nodes}
    streams = [reason.stream for reason in offered.fusion.reasons]
    return Offer(
        planner=offered.fusion.planner,
        before=before,
        after=after,
        rows_before=sum(each.rate for each in streams if of[each.source] != of[each.target]),
        rows_after=offered.fusion.communication,
    )
