"""The controller: evaluate, ask the policy, decide. One call after each step.

A policy says how many slots it wants; `Guards` say whether now is the time to believe it. What is
decided is applied before the next step. Each change promises an effect, and the steps after it show
what came of it: a kind of change without effect is not repeated for a while.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from statistics import median

from anabranch.elastic.balance import apply_moves, balance, flux
from anabranch.elastic.effects import judge, predict_reroute, predict_resize
from anabranch.elastic.evaluation import evaluate
from anabranch.elastic.memory import (
    IN,
    MOVE,
    OUT,
    PLAN,
    LoggedRequest,
    Memory,
    PendingReplan,
    RequestLog,
    kind_of,
)
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
from anabranch.elastic.policies.base import BasePolicy
from anabranch.elastic.settings import ADVISE, OFF, Elastic, Guards
from anabranch.plan.route import Route

__all__ = ["Memory", "allowed", "control", "decide", "hot_shards", "kind_of"]

_MOST_PATIENCE = 8
_BALANCERS = {"shards": balance, "flux": flux}


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
        return _remember(
            memory, replace(decision, reason=evaluation.holds[0]), evaluation, settings
        )
    memory, policy = _policy(memory, evaluation, settings)
    request = policy.wanted(evaluation, settings.latency_s, settings.most(seen.cores))
    memory = _log_request(memory, evaluation, request, settings)
    notes += hot_shards(evaluation, settings)
    decision = replace(decision, figures=request.figures, notes=notes)
    waiting = _waiting(memory, evaluation, settings.guards)
    if waiting is not None:
        return _remember(memory, replace(decision, reason=waiting), evaluation, settings)
    changes, reason = decide(memory, evaluation, request, settings, policy)
    offer = None if changes else _accepted(memory, evaluation, seen.offer, settings)
    if offer is not None:
        reason = (
            f"components {', '.join(offer.before)} -> {', '.join(offer.after)} by {offer.planner}: "
            f"{offer.rows_before:,.6g} -> {offer.rows_after:,.6g} rows of a step between them"
        )
    pause_s = policy.pause_s(evaluation, changes)
    decision = replace(decision, changes=changes, replan=offer, reason=reason, pause_s=pause_s)
    return _remember(memory, decision, evaluation, settings)


def _long_idle(memory: Memory, seen: Observation, guards: Guards) -> bool:
    """True if only closing steps arrive for `stabilise_s`: the input is idle.

    Otherwise closing steps are left out, because they say nothing about cost.
    """
    last = memory.history.last
    return last is not None and (last.closing or seen.at - last.at >= guards.stabilise_s)


def _policy(memory: Memory, seen: Evaluation, settings: Elastic) -> tuple[Memory, BasePolicy]:
    """The policy with what it has learnt; only a policy that learns is remembered."""
    chosen = settings.chosen
    policy = (memory.policy or chosen).learnt(seen)
    return (memory if policy is chosen else replace(memory, policy=policy)), policy


def decide(
    memory: Memory,
    seen: Evaluation,
    request: PolicyRequest,
    settings: Elastic,
    policy: BasePolicy,
) -> tuple[tuple[Change, ...], str]:
    """All resizes that the guards allow; if there are none, reroutes of what is out of balance."""
    changes: list[Change] = []
    reasons: list[str] = []
    for each in seen.components:
        slots, reason = allowed(memory, seen, each, settings)
        if slots != each.slots:
            changes.append(_resize(memory, each, policy.resized(each, slots)))
            reasons.append(f"{each.name}: {each.slots} -> {slots} slots ({request.reason})")
        elif reason:
            reasons.append(f"{each.name}: {reason}")
    if changes:
        return tuple(changes), "; ".join(reasons)
    balancing = policy.balancing(settings.balance)
    for each in seen.components:
        change = _reroute(memory, seen, each, settings, balancing)
        if change is not None:
            changes.append(change)
            reasons.append(_reroute_reason(each, change))
    return tuple(changes), "; ".join(reasons) or "all is well"


def allowed(
    memory: Memory, seen: Evaluation, each: ComponentEvaluation, settings: Elastic
) -> tuple[int, str]:
    """The slots that the guards allow a component, and what kept it from what was wanted."""
    guards = settings.guards
    most = min(settings.most(seen.cores), len(each.share))
    if each.slots > most:
        return most, ""
    confirm = guards.steps(guards.confirm_steps, seen.period_s)
    latest = memory.requests.latest_slots(each.name, confirm)
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
    kept = f"{wanted} slots wanted; "
    if seen.waits and seen.drains:
        return each.slots, kept + f"what waits ({seen.backlog:,.0f} rows) gets less already"
    if memory.is_blocked(each.name, OUT, seen.now):
        return each.slots, kept + "more slots had no effect the last time"
    useful = max(each.slots, ceil(1 / each.hot_share - 1e-9))
    if wanted > useful == each.slots:
        hot = f"shard {each.hottest} alone has {each.hot_share:.0%} of the load"
        return each.slots, kept + hot
    return min(wanted, useful, max(each.slots + 1, int(each.slots * guards.grow))), ""


def _fewer(
    memory: Memory, seen: Evaluation, each: ComponentEvaluation, guards: Guards
) -> tuple[int, str]:
    """The most slots that were wanted for some time; not while rows wait or slots are busy."""
    since = seen.now - guards.stabilise_s * memory.patience.get(each.name, 1)
    lately = memory.requests.slots_since(each.name, since)
    covered = memory.requests.reaches_back_to(since)
    highest = max(lately)
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
    """Notes on what no number of slots can help: a shard with more load than a slot may have."""
    notes = []
    for each in seen.components:
        load = each.hot_share * each.cost_s * each.rate
        if load > settings.guards.busy and not seen.idle:
            notes.append(
                f"{each.name}: shard {each.hottest} alone has {each.hot_share:.0%} of the load "
                f"and takes {load:.2f} s of one slot for each second of input: a key in it is hot, "
                "more slots do not help"
            )
    return tuple(notes)


def _resize(memory: Memory, each: ComponentEvaluation, route: Route) -> Resize:
    expected = predict_resize(memory, each, route)
    return Resize(component=each.name, route=route, before=each.slots, expected=expected)


def _reroute(
    memory: Memory, seen: Evaluation, each: ComponentEvaluation, settings: Elastic, balancing: str
) -> Reroute | None:
    """Other shards in the same slots.

    None unless that was wanted for some steps, is worth it, and had an effect the last time.
    """
    guards, balancer = settings.guards, _BALANCERS.get(balancing)
    confirmed = memory.requests.stays_uneven(each.name, guards.confirm_steps)
    if balancer is None or not confirmed or memory.is_blocked(each.name, MOVE, seen.now):
        return None
    # Not theta itself: what is just below it is above it again a step later, by chance.
    goal = (1 + settings.theta) / 2
    moves = balancer(each.share, each.route.slot_of, each.slots, goal)
    table = apply_moves(each.route.slot_of, moves)
    route = Route(table, each.slots, each.route.version + 1)
    expected = predict_reroute(memory, each, route)
    if not moves or expected.after > (1 - guards.worth) * expected.before:
        return None
    return Reroute(component=each.name, route=route, moved=len(moves), expected=expected)


def _reroute_reason(each: ComponentEvaluation, change: Reroute) -> str:
    expected = change.expected
    better = expected.after / expected.before if expected.before else 1.0
    return (
        f"{each.name}: {change.moved} shards move, most loaded slot over mean "
        f"{each.imbalance:.2f} -> {each.imbalance * better:.2f}"
    )


def _accepted(
    memory: Memory, seen: Evaluation, offer: Offer | None, settings: Elastic
) -> Offer | None:
    """Other components, if they save enough, nothing waits, and the last replan is not recent.

    A replan that had no effect is not repeated for a while.
    """
    guards = settings.guards
    blocked = seen.waits or memory.is_blocked("", PLAN, seen.now)
    if offer is None or not settings.replan or blocked:
        return None
    recent = memory.planned_at is not None and seen.now - memory.planned_at < guards.replan_s
    saves = offer.rows_before - offer.rows_after
    enough = saves > 0 and saves >= guards.replan_worth * offer.rows_before
    return offer if enough and not recent and {*offer.before} != {*offer.after} else None


def _log_request(
    memory: Memory, seen: Evaluation, request: PolicyRequest, settings: Elastic
) -> Memory:
    keep_s = settings.guards.stabilise_s * _MOST_PATIENCE + seen.period_s
    uneven = frozenset(
        each.name for each in seen.components if not seen.idle and each.imbalance > settings.theta
    )
    entry = LoggedRequest(at=seen.now, slots=request.slots, uneven=uneven)
    return replace(memory, requests=memory.requests.add(entry, keep_from=seen.now - keep_s))


def _waiting(memory: Memory, seen: Evaluation, guards: Guards) -> str | None:
    """Why nothing is changed now: the last change is recent, or its effect is unknown."""
    if memory.pending or memory.planned is not None:
        return "the effect of the last change is not known yet"
    if memory.changed_at is not None and seen.now - memory.changed_at < guards.cool_down_s:
        return f"cooling down: the last change is {seen.now - memory.changed_at:.1f} s old"
    return None


def _remember(
    memory: Memory, decision: Decision, seen: Evaluation, settings: Elastic
) -> tuple[Memory, Decision]:
    """The memory after a decision; notes and advice that were reported lately are left out."""
    block_s = settings.guards.block_s
    reported = {text: at for text, at in memory.reported.items() if seen.now - at < block_s}
    notes = tuple(note for note in decision.notes if _subject(note) not in reported)
    reported |= {_subject(note): seen.now for note in notes}
    decision = replace(decision, notes=notes)
    if settings.mode != ADVISE or not decision:
        memory = replace(memory, reported=reported)
        return (_changed(memory, decision, seen, settings.guards) if decision else memory), decision
    advice = _advice(decision)
    if advice not in reported:
        memory = replace(memory, reported={**reported, advice: seen.now})
        return memory, replace(decision, advice=True)
    reason = f"advised already: {advice}"
    decision = replace(decision, changes=(), replan=None, reason=reason, pause_s=0.0)
    return replace(memory, reported=reported), decision


def _advice(decision: Decision) -> str:
    """A decision in a few words, to compare it with what was advised before."""
    if decision.changes:
        return " and ".join(
            f"{change.component} to {change.route.slots} by {kind_of(change)}"
            for change in decision.changes
        )
    return f"components {', '.join(decision.replan.after if decision.replan else ())}"


def _changed(memory: Memory, decision: Decision, seen: Evaluation, guards: Guards) -> Memory:
    """The memory after a change.

    Slots that were given up and are soon needed again are given up less easily the next time.
    """
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
        replan = PendingReplan(offer=decision.replan, between=median(known) if known else 0.0)
        memory = replace(memory, planned=replan, planned_at=seen.now)
    return replace(
        memory,
        changed_at=seen.now,
        pending=decision.changes,
        shrunk_at=shrunk,
        patience=patience,
        requests=RequestLog() if resized else memory.requests.without_uneven(),
    )


def _subject(note: str) -> str:
    """A note without its figures, so that it is not reported again with other ones."""
    return "".join(letter for letter in note if not letter.isdigit())
