"""What came of changes: each promises an effect, and the steps since show what it was. What had none is not done again soon."""

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
    """Compares the effect that changes promised with what the steps since show: effects, and notes for a person."""
    memory, effects, notes = _judged_plan(memory, guards, seen)
    waiting: list[Change] = []
    blocked = dict(memory.blocked)
    routes = {each.name: each.route for each in seen.components}
    for change in memory.pending:
        route = routes.get(change.component)  # None where the plan has changed
        version = route.version if route is not None else None
        if route != change.route:
            notes.append(
                f"{change.component}: route {change.route.version} was not applied, {version} is; decided anew"
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
            if (
                kind_of(change) != IN
                and effect.share is not None
                and effect.share < guards.without_effect
            ):
                blocked[change.component, kind_of(change)] = seen.now + guards.block_s
                notes.append(_no_effect_note(effect))
    return replace(memory, pending=tuple(waiting), blocked=blocked), tuple(effects), tuple(notes)


def _judged_plan(
    memory: Memory, guards: Guards, seen: Evaluation
) -> tuple[Memory, list[Effect], list[str]]:
    planned = memory.planned
    if planned is None:
        return memory, [], []
    wanted = {*planned.offer.after}
    now = {each.name for each in seen.components}
    if now != wanted:
        note = f"components {', '.join(planned.offer.after)} were not taken, there are {', '.join(sorted(now))}"
        return replace(memory, planned=None), [], [note]
    found = [
        fact.between
        for fact in memory.history.facts
        if {*fact.components} == wanted and fact.between is not None
    ]
    if len(found) < guards.steps(guards.judge_steps, seen.period_s):
        return memory, [], []
    rows = planned.offer
    expected = (
        planned.between * rows.rows_after / rows.rows_before
        if rows.rows_before
        else planned.between
    )
    effect = Effect(
        what=PLAN, unit=BETWEEN, before=planned.between, expected=expected, observed=median(found)
    )
    memory = replace(memory, planned=None)
    if effect.share is not None and effect.share < guards.without_effect:
        blocked = {
            **memory.blocked,
            ("", PLAN): seen.now + max(guards.block_s, guards.replan_s) * 4,
        }
        return replace(memory, blocked=blocked), [effect], [_no_effect_note(effect)]
    return memory, [effect], []


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
        f"{effect.what} had no effect: {effect.expected:.3g} {effect.unit} were expected, {effect.observed:.3g} found, "
        f"{effect.before:.3g} before"
    )


def predict_resize(memory: Memory, each: ComponentEvaluation, route: Route) -> Expected:
    """What another number of slots promises: the longest slot takes the share of its load; what it takes beside that stays."""
    known = [
        fact.longest_s[each.name]
        for fact in memory.history.facts[-3:]
        if each.name in fact.longest_s
    ]
    before = median(known) if known else 0.0
    now, then = each.slot_shares.max(), replace(each, route=route).slot_shares.max()
    return Expected(before=before, after=max(0.0, before - each.cost_s * float(now - then)))


def predict_reroute(memory: Memory, each: ComponentEvaluation, route: Route) -> Expected:
    """What other shards in the same slots promise: the same, over the mean of all slots, which stays."""
    facts = [
        fact
        for fact in memory.history.facts[-3:]
        if each.name in fact.uneven and each.name in fact.longest_s
    ]
    if not facts:
        return Expected(before=0.0, after=0.0)
    longest = predict_resize(memory, each, route)
    before = median(fact.uneven[each.name] for fact in facts)
    return Expected(
        before=before, after=before * longest.after / longest.before if longest.before else before
    )
