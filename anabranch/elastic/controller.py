"""The controller: collect, evaluate, decide. One call after each step; what it decides is applied before the next.

A policy says how many slots it wants; `Guards` say whether now is the time to believe it. Each change promises an effect, and the
steps after it show what came of it: a change without effect is not made again for a while.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from statistics import median

from anabranch.elastic.balance import apply_moves, assign_anew, balance, flux, spread
from anabranch.elastic.effects import judge, predict_reroute, predict_resize
from anabranch.elastic.evaluation import evaluate
from anabranch.elastic.memory import IN, MOVE, OUT, PLAN, Asked, Memory, PendingReplan, kind_of
from anabranch.elastic.observation import (
    Change,
    ComponentEvaluation,
    Decision,
    Evaluation,
    Observation,
    Offer,
    PolicyRequest,
    Reroute,
    Resize,
)
from anabranch.elastic.policies.baselines import Centric
from anabranch.elastic.settings import ADVISE, OFF, Elastic, Guards, Learns, Policy
from anabranch.plan.route import Route

__all__ = ["Memory", "allowed", "control", "decide", "hot_shards", "kind_of"]

_MOST_PATIENCE = 8


def control(memory: Memory, seen: Observation, settings: Elastic) -> tuple[Memory, Decision]:
    """What is to change before the next step, and what to remember for the one after."""
    if settings.mode == OFF:
        return memory, Decision(step=seen.step, reason="elasticity is off")
    if seen.closing and not _long_idle(memory, seen, settings.guards):
        return memory, Decision(step=seen.step, reason="a closing step")
    history, evaluation = evaluate(memory.history, seen, settings.guards)
    memory, effects, notes = judge(replace(memory, history=history), evaluation, settings.guards)
    decision = Decision(step=seen.step, effects=effects, notes=notes)
    if evaluation.holds:
        return _told(memory, replace(decision, reason=evaluation.holds[0]), evaluation, settings)
    memory, policy = _policy(memory, evaluation, settings)
    wanted = policy.wanted(evaluation, settings.latency_s, settings.most(seen.cores))
    memory = _asked(memory, evaluation, wanted, settings)
    decision = replace(
        decision, figures=wanted.figures, notes=notes + hot_shards(evaluation, settings)
    )
    waiting = _waiting(memory, evaluation, settings.guards)
    if waiting is not None:
        return _told(memory, replace(decision, reason=waiting), evaluation, settings)
    changes, reason = decide(memory, evaluation, wanted, settings)
    offer = None if changes else _worth(memory, evaluation, seen.offer, settings)
    if offer is not None:
        reason = (
            f"components {', '.join(offer.before)} -> {', '.join(offer.after)} by {offer.planner}: {offer.rows_before:,.6g} -> "
            f"{offer.rows_after:,.6g} rows of a step between them"
        )
    pause_s = policy.pause_s(evaluation, changes) if isinstance(policy, Centric) else 0.0
    decision = replace(decision, changes=changes, replan=offer, reason=reason, pause_s=pause_s)
    return _told(memory, decision, evaluation, settings)


def _long_idle(memory: Memory, seen: Observation, guards: Guards) -> bool:
    """Steps without input tell nothing about costs; where nothing else comes for long, they tell that there is no input."""
    last = memory.history.last
    return last is not None and (last.closing or seen.at - last.at >= guards.stabilise_s)


def _policy(memory: Memory, seen: Evaluation, settings: Elastic) -> tuple[Memory, Policy]:
    """The policy, with what it has learnt where it is one that learns."""
    if not isinstance(settings.chosen, Learns):
        return memory, settings.chosen
    before = memory.policy if isinstance(memory.policy, Learns) else settings.chosen
    policy = before.learnt(seen)
    return replace(memory, policy=policy), policy


def decide(
    memory: Memory, seen: Evaluation, wanted: PolicyRequest, settings: Elastic
) -> tuple[tuple[Change, ...], str]:
    """All resizes that the guards let pass; where there are none, a reroute of what is out of balance."""
    changes: list[Change] = []
    reasons: list[str] = []
    careful = not isinstance(settings.chosen, Centric) or settings.chosen.careful
    for each in seen.components:
        slots, reason = allowed(memory, seen, each, settings)
        if slots != each.slots:
            changes.append(_resize(memory, each, slots, careful=careful))
            reasons.append(f"{each.name}: {each.slots} -> {slots} slots ({wanted.reason})")
        elif reason:
            reasons.append(f"{each.name}: {reason}")
    if changes:
        return tuple(changes), "; ".join(reasons)
    for each in seen.components:
        change = _reroute(memory, seen, each, settings)
        if change is not None:
            changes.append(change)
            better = (
                change.expected.after / change.expected.before if change.expected.before else 1.0
            )
            reasons.append(
                f"{each.name}: {change.moved} shards move, most loaded slot over mean {each.imbalance:.2f} -> "
                f"{each.imbalance * better:.2f}"
            )
    return tuple(changes), "; ".join(reasons) or "all is well"


def allowed(
    memory: Memory, seen: Evaluation, each: ComponentEvaluation, settings: Elastic
) -> tuple[int, str]:
    """The number of slots that the guards let a component have, and what kept it from what was wanted."""
    guards = settings.guards
    most = min(settings.most(seen.cores), len(each.share))
    if each.slots > most:
        return most, ""
    confirm = guards.steps(guards.confirm_steps, seen.period_s)
    latest = [one.slots[each.name] for one in memory.asked[-confirm:] if each.name in one.slots]
    if len(latest) == confirm and min(latest) > each.slots:
        slots, reason = _more(memory, seen, each, min(latest), guards)
    elif latest and latest[-1] < each.slots:
        slots, reason = _fewer(memory, seen, each, guards)
    else:
        return each.slots, ""
    return min(most, max(settings.min_slots, slots)), reason


def _more(
    memory: Memory, seen: Evaluation, each: ComponentEvaluation, wanted: int, guards: Guards
) -> tuple[int, str]:
    if seen.waits and seen.drains:
        return (
            each.slots,
            f"{wanted} slots wanted; what waits ({seen.backlog:,.0f} rows) gets less already",
        )
    if memory.blocked.get((each.name, OUT), 0.0) > seen.now:
        return each.slots, f"{wanted} slots wanted; more slots had no effect the last time"
    useful = max(each.slots, ceil(1 / each.hot_share - 1e-9))
    if wanted > useful == each.slots:
        return (
            each.slots,
            f"{wanted} slots wanted; shard {each.hottest} alone has {each.hot_share:.0%} of the load",
        )
    return min(wanted, useful, max(each.slots + 1, int(each.slots * guards.grow))), ""


def _fewer(
    memory: Memory, seen: Evaluation, each: ComponentEvaluation, guards: Guards
) -> tuple[int, str]:
    """As many as were wanted at most for some time; not while rows wait or slots are busy."""
    patience = guards.stabilise_s * memory.patience.get(each.name, 1)
    lately = [
        one for one in memory.asked if one.at >= seen.now - patience and each.name in one.slots
    ]
    covered = bool(memory.asked) and memory.asked[0].at <= seen.now - patience
    highest = max(one.slots[each.name] for one in lately)
    if seen.waits:
        return each.slots, "rows wait; no slot is given up"
    if not covered or len(lately) < guards.stabilise_steps or highest >= each.slots:
        return each.slots, ""
    slots = max(1, highest, ceil(each.slots * guards.shrink))
    while slots < each.slots and each.busy * each.slots / slots > guards.busy:
        slots += 1
    if slots == each.slots:
        return slots, f"slots work {each.busy:.0%} of the time; none is given up"
    return slots, ""


def hot_shards(seen: Evaluation, settings: Elastic) -> tuple[str, ...]:
    """What no number of slots can help: one shard with more load than a slot may have."""
    return tuple(
        f"{each.name}: shard {each.hottest} alone has {each.hot_share:.0%} of the load and takes "
        f"{each.hot_share * each.cost_s * each.rate:.2f} s of one slot for each second of input: a key in it is hot, "
        "more slots do not help"
        for each in seen.components
        if each.hot_share * each.cost_s * each.rate > settings.guards.busy and not seen.idle
    )


def _resize(memory: Memory, each: ComponentEvaluation, slots: int, *, careful: bool) -> Resize:
    route = (
        spread(each.share, each.route, slots)
        if careful
        else assign_anew(each.share, slots, each.route.version + 1)
    )
    return Resize(
        component=each.name,
        route=route,
        before=each.slots,
        expected=predict_resize(memory, each, route),
    )


def _reroute(
    memory: Memory, seen: Evaluation, each: ComponentEvaluation, settings: Elastic
) -> Reroute | None:
    """Other shards in the same slots, where that is wanted for some steps, is worth it and was not in vain the last time."""
    latest = memory.asked[-settings.guards.confirm_steps :]
    confirmed = len(latest) == settings.guards.confirm_steps and all(
        each.name in one.uneven for one in latest
    )
    if (
        settings.balancing == "none"
        or not confirmed
        or memory.blocked.get((each.name, MOVE), 0.0) > seen.now
    ):
        return None
    goal = (
        1 + settings.theta
    ) / 2  # not theta itself: what is just below it is above it again a step later, by chance
    if settings.balancing == "flux":
        moves = flux(each.share, each.route.slot_of, each.slots, goal)
    else:
        moves = balance(each.share, each.route.slot_of, each.slots, goal)
    route = Route(apply_moves(each.route.slot_of, moves), each.slots, each.route.version + 1)
    expected = predict_reroute(memory, each, route)
    if not moves or expected.after > (1 - settings.guards.worth) * expected.before:
        return None
    return Reroute(component=each.name, route=route, moved=len(moves), expected=expected)


def _worth(
    memory: Memory, seen: Evaluation, offer: Offer | None, settings: Elastic
) -> Offer | None:
    """Other components, where they save enough, nothing waits, and the last ones are old and were not in vain."""
    guards = settings.guards
    if (
        offer is None
        or not settings.replan
        or seen.waits
        or memory.blocked.get(("", PLAN), 0.0) > seen.now
    ):
        return None
    young = memory.planned_at is not None and seen.now - memory.planned_at < guards.replan_s
    saves = offer.rows_before - offer.rows_after
    worth = saves > 0 and saves >= guards.replan_worth * offer.rows_before
    return offer if worth and not young and {*offer.before} != {*offer.after} else None


def _asked(memory: Memory, seen: Evaluation, wanted: PolicyRequest, settings: Elastic) -> Memory:
    keep_s = settings.guards.stabilise_s * _MOST_PATIENCE
    uneven = frozenset(
        each.name for each in seen.components if not seen.idle and each.imbalance > settings.theta
    )
    asked = (*memory.asked, Asked(at=seen.now, slots=wanted.slots, uneven=uneven))
    return replace(
        memory, asked=tuple(one for one in asked if one.at >= seen.now - keep_s - seen.period_s)
    )


def _waiting(memory: Memory, seen: Evaluation, guards: Guards) -> str | None:
    """Why nothing is changed now: the last change is young, or its effect unknown."""
    if memory.pending or memory.planned is not None:
        return "the effect of the last change is not known yet"
    if memory.changed_at is not None and seen.now - memory.changed_at < guards.cool_down_s:
        return f"cooling down: the last change is {seen.now - memory.changed_at:.1f} s old"
    return None


def _told(
    memory: Memory, decision: Decision, seen: Evaluation, settings: Elastic
) -> tuple[Memory, Decision]:
    """What is remembered of a decision; what was said not long ago is not said again."""
    said = {text: at for text, at in memory.said.items() if seen.now - at < settings.guards.block_s}
    notes = tuple(note for note in decision.notes if _subject(note) not in said)
    said |= {_subject(note): seen.now for note in notes}
    decision = replace(decision, notes=notes)
    if settings.mode == ADVISE and decision:
        advice = " and ".join(
            f"{change.component} to {change.route.slots} by {kind_of(change)}"
            for change in decision.changes
        )
        advice = (
            advice or f"components {', '.join(decision.replan.after if decision.replan else ())}"
        )
        if advice in said:
            quiet = replace(
                decision, changes=(), replan=None, reason=f"advised already: {advice}", pause_s=0.0
            )
            return replace(memory, said=said), quiet
        return replace(memory, said={**said, advice: seen.now}), replace(decision, advice=True)
    memory = replace(memory, said=said)
    return (_changed(memory, decision, seen, settings.guards) if decision else memory), decision


def _changed(memory: Memory, decision: Decision, seen: Evaluation, guards: Guards) -> Memory:
    """The memory after a change. Slots that were given up and are needed again soon are given up less easily the next time."""
    shrunk, patience = dict(memory.shrunk_at), dict(memory.patience)
    for change in decision.changes:
        name = change.component
        if kind_of(change) == IN:
            shrunk[name] = seen.now
        elif kind_of(change) == OUT and name in shrunk:
            soon = seen.now - shrunk.pop(name) < 2 * guards.stabilise_s * patience.get(name, 1)
            patience[name] = min(_MOST_PATIENCE, 2 * patience.get(name, 1)) if soon else 1
    resized = (
        any(kind_of(change) != MOVE for change in decision.changes) or decision.replan is not None
    )
    if decision.replan is not None:
        known = [fact.between for fact in memory.history.facts[-3:] if fact.between is not None]
        planned = PendingReplan(offer=decision.replan, between=median(known) if known else 0.0)
        memory = replace(memory, planned=planned, planned_at=seen.now)
    return replace(
        memory,
        changed_at=seen.now,
        pending=decision.changes,
        shrunk_at=shrunk,
        patience=patience,
        asked=() if resized else tuple(replace(one, uneven=frozenset()) for one in memory.asked),
    )


def _subject(note: str) -> str:
    """A note without its figures, so that the same thing is not said again with other ones."""
    return "".join(letter for letter in note if not letter.isdigit())
