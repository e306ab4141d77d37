"""What came of changes: each promises an effect, and the steps since show what it was.

A kind of change that had no effect is not repeated for a while.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from anabranch.elastic.memory import IN, MOVE, PLAN, Memory, kind_of
from anabranch.elastic.observation import Change, ComponentEvaluation, Effect, Evaluation, Expected
from anabranch.elastic.settings import Guards
from anabranch.plan.route import Route

LONGEST = "us of the longest slot for a row"
UNEVEN = "times the mean in the longest slot"
BETWEEN = "rows between components for a row of the sources"


def judge(
    memory: Memory, seen: Evaluation, guards: Guards
) -> tuple[Memory, tuple[Effect, ...], tuple[str, ...]]:
    """Compares what changes promised with what the steps since show: effects, and notes."""
    memory, effects, notes = _judge_replan(memory, seen, guards)
    waiting: list[Change] = []
    blocked = dict(memory.blocked)
    routes = {each.name: each.route for each in seen.components}
    for change in memory.pending:
        route = routes.get(change.component)  # None where the plan has changed
        version = route.version if route is not None else None
        if route != change.route:
            notes.append(
                f"{change.component}: route {change.route.version} was not applied, "
                f"{version} is; decided again"
            )
            continue
        since = [
            fact for fact in memory.history.facts if fact.versions.get(change.component) == version
        ]
        figures = [fact.uneven if kind_of(change) == MOVE else fact.longest_s for fact in since]
        found = [each[change.component] for each in figures if change.component in each]
        if len(since) < guards.steps(guards.judge_steps, seen.period_s):
            waiting.append(change)
        elif found:
            effect = _effect(change, median(found))
            effects.append(effect)
            if kind_of(change) != IN and _had_none(effect, guards):
                blocked[change.component, kind_of(change)] = seen.now + guards.block_s
                notes.append(_no_effect_note(effect))
    return replace(memory, pending=tuple(waiting), blocked=blocked), tuple(effects), tuple(notes)


def _judge_replan(
    memory: Memory, seen: Evaluation, guards: Guards
) -> tuple[Memory, list[Effect], list[str]]:
    planned = memory.planned
    if planned is None:
        return memory, [], []
    wanted = {*planned.offer.after}
    now = {each.name for each in seen.components}
    if now != wanted:
        note = (
            f"components {', '.join(planned.offer.after)} were not taken, "
            f"there are {', '.join(sorted(now))}"
        )
        return replace(memory, planned=None), [], [note]
    found = [
        fact.between
        for fact in memory.history.facts
        if {*fact.components} == wanted and fact.between is not None
    ]
    if len(found) < guards.steps(guards.judge_steps, seen.period_s):
        return memory, [], []
    expected, rows = planned.between, planned.offer
    if rows.rows_before:
        expected = planned.between * rows.rows_after / rows.rows_before
    effect = Effect(
        what=PLAN, unit=BETWEEN, before=planned.between, expected=expected, observed=median(found)
    )
    memory = replace(memory, planned=None)
    if _had_none(effect, guards):
        until = seen.now + max(guards.block_s, guards.replan_s) * 4
        memory = replace(memory, blocked={**memory.blocked, ("", PLAN): until})
        return memory, [effect], [_no_effect_note(effect)]
    return memory, [effect], []


def _had_none(effect: Effect, guards: Guards) -> bool:
    return effect.share is not None and effect.share < guards.without_effect


def _effect(change: Change, found: float) -> Effect:
    unit, scale = (UNEVEN, 1.0) if kind_of(change) == MOVE else (LONGEST, 1e6)
    expected = change.expected
    return Effect(
        what=f"{change.component}: {kind_of(change)}",
        unit=unit,
        before=scale * expected.before,
        expected=scale * expected.after,
        observed=scale * found,
    )


def _no_effect_note(effect: Effect) -> str:
    return (
        f"{effect.what} had no effect: {effect.expected:.3g} {effect.unit} were expected, "
        f"{effect.observed:.3g} found, {effect.before:.3g} before"
    )


def predict_resize(memory: Memory, each: ComponentEvaluation, route: Route) -> Expected:
    """What another number of slots promises: seconds of the longest slot per row.

    They fall with the longest slot's share of the load; what it takes beside its load stays.
    """
    recent = memory.history.facts[-3:]
    known = [fact.longest_s[each.name] for fact in recent if each.name in fact.longest_s]
    before = median(known) if known else 0.0
    now, then = each.slot_shares.max(), replace(each, route=route).slot_shares.max()
    return Expected(before=before, after=max(0.0, before - each.cost_s * float(now - then)))


def predict_reroute(memory: Memory, each: ComponentEvaluation, route: Route) -> Expected:
    """What other shards in the same slots promise: the longest slot over the mean of all slots."""
    recent = memory.history.facts[-3:]
    known = [
        fact.uneven[each.name]
        for fact in recent
        if each.name in fact.uneven and each.name in fact.longest_s
    ]
    if not known:
        return Expected(before=0.0, after=0.0)
    before, longest = median(known), predict_resize(memory, each, route)
    after = before * longest.after / longest.before if longest.before else before
    return Expected(before=before, after=after)
