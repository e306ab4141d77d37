"""From observations to decisions to the next step's routes, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.elastic import Elastic, Evaluation, Guards, PolicyRequest
from anabranch.plan.make import make_plan
from anabranch.plan.model import Plan
from anabranch.plan.route import Route, even_route
from anabranch.spark.driver.changes import changed_routes
from anabranch.spark.driver.context import Notice
from anabranch.spark.driver.control import Controller, Verdict, offer_of
from anabranch.spark.driver.observe import Conditions, completed, observe
from anabranch.spark.driver.source_progress import BatchProgress
from tests.spark.driver.reports_by_hand import (
    FIRST,
    FUSED,
    SECOND,
    SHARDS,
    W0,
    W1,
    commit,
    graph,
    progress,
    report,
)

HASTY = Guards(
    warm_up_steps=1, settle_steps=0, judge_steps=1, confirm_steps=1, cool_down_s=0.0, pause=1e9
)


class More:
    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        return PolicyRequest(
            slots=dict.fromkeys((each.name for each in seen.components), 2), reason="more"
        )


def fused() -> Plan:
    return make_plan(graph(), "fusion by attributes")


def run(controller: Controller, steps: int) -> tuple[Route, list[Notice]]:
    """Steps of one component with as many rows in each shard, decided on after each."""
    plan = fused()
    name = plan.components[0].name
    routes, notices, before = {name: even_route(SHARDS, 1)}, list[Notice](), None
    for number in range(1, steps + 1):
        route, made = routes[name], commit(number, dict(routes))
        reports = []
        for slot in range(route.slots):
            rows = {shard: (100, 1) for shard in range(SHARDS) if route.slot_of[shard] == slot}
            reports.append(report(name, slot, {W0: rows, W1: {}}))
        conditions = Conditions(cores=4)
        seen = observe(plan, made, progress(made, reports), reports, conditions)
        spark = BatchProgress(batch_id=number - 1, seconds=2.5, rows=(400.0,), backlog=(None,))
        before = seen = completed(seen, spark, before)
        verdict = controller.decide(seen, plan, None)
        notices += verdict.notices
        routes.update(changed_routes(routes, verdict.changes))
    return routes[name], notices


def test_a_decision_becomes_another_route_and_its_effect_is_reported() -> None:
    elastic = Elastic(policy=More(), max_slots=4, guards=HASTY, replan=False)
    route, notices = run(Controller(elastic), 8)
    assert (route.slots, route.version) == (2, 2)
    assert [each.kind for each in notices] == ["decision", "effect"]
    decision, effect = notices
    assert decision.text == "w0 + w1: 1 -> 2 slots (more)"
    assert decision.figures["w0 + w1: slots after"] == 2
    assert effect.figures["observed"] < effect.figures["before"]
    assert effect.figures["observed"] == pytest.approx(effect.figures["expected"], rel=0.05)


def test_advice_changes_nothing() -> None:
    elastic = Elastic(policy=More(), max_slots=4, guards=HASTY, mode="advise")
    route, notices = run(Controller(elastic), 8)
    assert route.version == 1
    assert [each.kind for each in notices] == ["advice"]


def test_without_elasticity_nothing_is_decided() -> None:
    controller = Controller(Elastic(policy=More(), mode="off"))
    route, notices = run(controller, 3)
    assert (route.version, notices, controller.decision) == (1, [], None)


def test_a_policy_that_fails_is_off_and_that_is_reported_once() -> None:
    class Broken:
        def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
            raise ZeroDivisionError("of the user")

    _, notices = run(Controller(Elastic(policy=Broken(), guards=HASTY)), 8)
    assert [each.text for each in notices] == [
        "the controller failed and is off from now on: ZeroDivisionError: of the user"
    ]


def test_a_plan_is_offered_with_the_rows_that_it_saves() -> None:
    unfused = make_plan(graph(), "unfused")
    better = make_plan(graph(), "auto", rates={"w0": 1000.0, "w1": 40.0})
    offer = offer_of(unfused, better)
    assert offer is not None
    assert (offer.before, offer.after) == (("w0", "w1"), ("w0 + w1",))
    assert (offer.rows_before, offer.rows_after) == (40.0, 0.0)
    assert offer_of(better, better) is None


def test_a_better_plan_is_looked_for_now_and_then_and_becomes_a_change() -> None:
    unfused, asked = make_plan(graph(), "unfused"), list[Any]()
    routes = {FIRST: even_route(SHARDS, 1), SECOND: even_route(SHARDS, 1)}
    guards = Guards(
        warm_up_steps=1,
        settle_steps=0,
        judge_steps=1,
        confirm_steps=1,
        cool_down_s=0.0,
        pause=1e9,
        replan_s=0.0,
    )

    def planning(by: str, rates: Any) -> Plan:
        asked.append((by, rates))
        return make_plan(graph(), by, rates=rates)

    controller = Controller(Elastic(policy="static", balance="none", guards=guards), planning)
    verdict, notices, number = Verdict(), list[Notice](), 0
    while verdict.changes.plan is None and number < 8:
        number += 1
        made = commit(number, dict(routes))
        reports = [
            report(FIRST, 0, {W0: dict.fromkeys(range(SHARDS), (100, 10))}),
            report(SECOND, 0, {W1: dict.fromkeys(range(SHARDS), (10, 1))}),
        ]
        seen = observe(unfused, made, progress(made, reports), reports, Conditions(cores=4))
        verdict = controller.decide(seen, unfused, {"w0": 400.0, "w1": 40.0})
        notices += verdict.notices
    assert verdict.changes.plan is not None
    assert [each.name for each in verdict.changes.plan.components] == [FUSED]
    assert asked[-1] == ("auto", {"w0": 400.0, "w1": 40.0})
    assert [each.kind for each in notices] == ["decision"]
