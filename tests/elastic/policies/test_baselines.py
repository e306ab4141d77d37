"""The papers' rivals: what they ask for, and what their changes cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.elastic import (
    Elastic,
)
from anabranch.elastic.observation import Expected, Resize
from anabranch.elastic.policies.baselines import (
    EXECUTOR_CENTRIC,
    NAIVE,
    RESOURCE_CENTRIC,
    Centric,
    Flux,
    Incremental,
    Knowledge,
    Learning,
    Static,
)
from anabranch.elastic.replay import replay, totals
from anabranch.elastic.settings import BALANCES
from anabranch.plan.route import Route, even_route
from tests.elastic.loop import COST_S, Loop, erratic
from tests.elastic.policies.evaluations import evaluation, loaded
from tests.elastic.recorded import RECORDED, SETTINGS, step, surge


def test_incremental_follows_usage_alone_and_static_never_changes() -> None:
    assert Incremental().wanted(evaluation(loaded(busy=0.9)), None, 32).slots == {"a": 5}
    assert Incremental().wanted(evaluation(loaded(busy=0.9)), None, 4).slots == {"a": 4}
    assert Incremental().wanted(evaluation(loaded(busy=0.2)), None, 32).slots == {"a": 3}
    assert Incremental().wanted(evaluation(loaded(busy=0.6)), None, 32).slots == {"a": 4}
    assert Incremental().wanted(evaluation(loaded(busy=0.6, pending=500.0)), None, 32).slots == {
        "a": 4
    }  # usage alone counts
    assert Static().wanted(evaluation(loaded(busy=2.0)), None, 32).slots == {"a": 4}


def test_a_global_route_costs_more_the_more_is_upstream() -> None:
    assert EXECUTOR_CENTRIC.pause_s(1, 1, 0) == EXECUTOR_CENTRIC.pause_s(1, 256, 0) == 0.002
    assert RESOURCE_CENTRIC.pause_s(1, 1, 0) >= 100 * EXECUTOR_CENTRIC.pause_s(1, 1, 0)
    assert RESOURCE_CENTRIC.pause_s(1, 256, 0) > RESOURCE_CENTRIC.pause_s(1, 1, 0)
    assert EXECUTOR_CENTRIC.pause_s(1, 1, 125e6) == pytest.approx(1.002)
    assert RESOURCE_CENTRIC.pause_s(0, 9, 0) == 0


def test_learning_repeats_what_it_has_seen() -> None:
    knowledge = Knowledge()
    for rate in (8_000, 30_000, 60_000, 70_000, 90_000):
        for slots in range(1, 13):
            knowledge = knowledge.learnt(rate, slots, rate * COST_S / slots)
    assert (knowledge.best(8_000), knowledge.best(60_000), knowledge.best(1)) == (1, 9, None)
    policy = Learning(knowledge=knowledge)
    loop = Loop(erratic, Elastic(policy=policy)).run(900)
    again = Loop(erratic, Elastic(policy=policy)).run(900)
    assert loop.resizes == again.resizes
    assert loop.resizes
    explored = Loop(erratic, Elastic(policy=replace(policy, explore=0.5, seed=3))).run(300)
    same = Loop(erratic, Elastic(policy=replace(policy, explore=0.5, seed=3))).run(300)
    assert explored.resizes == same.resizes


def test_the_rivals_differ_in_what_a_change_costs() -> None:
    rivals = ("resource-centric", "naive executor-centric", "latency")
    found = {name: totals(replay(RECORDED, replace(SETTINGS, policy=name))) for name in rivals}
    resource, naive = found["resource-centric"], found["naive executor-centric"]
    assert resource.resizes == naive.resizes > 0
    assert resource.pause_s > 50 * naive.pause_s > 0
    assert naive.pause_s == pytest.approx(naive.resizes * EXECUTOR_CENTRIC.agree_s)
    assert resource.pause_s > resource.resizes * RESOURCE_CENTRIC.agree_s
    assert found["latency"].pause_s == 0


def test_the_naive_way_moves_more_shards() -> None:
    def moved(name: str) -> int:
        found = replay(RECORDED, replace(SETTINGS, policy=name))
        before = {each.seen.step: {c.name: c.route for c in each.seen.components} for each in found}
        sizes = [
            (each.seen.step, change)
            for each in found
            for change in each.decision.changes
            if isinstance(change, Resize)
        ]
        return sum(
            sum(
                a != b
                for a, b in zip(
                    before[at][change.component].slot_of, change.route.slot_of, strict=True
                )
            )
            for at, change in sizes
        )

    assert moved("naive executor-centric") > 1.3 * moved("resource-centric")


def test_learning_comes_to_know_rates_that_come_again() -> None:
    again = [step(i, surge(i % 240), even_route(64, 2)) for i in range(1, 500)]
    found = replay(again, replace(SETTINGS, policy="learning"))
    assert any("learnt from" in each.decision.reason for each in found)
    reasons = [each.decision.reason for each in found if each.decision]
    assert reasons


def test_flux_ignores_the_setting_of_balancing() -> None:
    assert [Flux().balancing(setting) for setting in BALANCES] == ["flux"] * len(BALANCES)
    assert Flux().wanted(evaluation(loaded()), None, 32).slots == {"a": 4}


def test_the_naive_way_assigns_all_shards_again_and_the_careful_one_leaves_them() -> None:
    each = loaded(route=Route((0,) * 32 + (1,) * 32, 2, 5))
    careful = Centric(paradigm=NAIVE).resized(each, 3)
    anew = Centric(paradigm=NAIVE, careful=False).resized(each, 3)

    def moved(route: Route) -> int:
        return sum(a != b for a, b in zip(each.route.slot_of, route.slot_of, strict=True))

    assert (careful.slots, careful.version) == (anew.slots, anew.version) == (3, 6)
    assert moved(careful) < 25 < moved(anew)


def test_a_pause_grows_with_what_is_upstream_and_is_none_without_moved_shards() -> None:
    seen = evaluation(loaded("a"), loaded("b", parents=("a",)), cores=10)
    policy, none = Centric(paradigm=RESOURCE_CENTRIC), Expected(before=0.0, after=0.0)
    route = even_route(64, 5)

    def pause_s(name: str, after: Route) -> float:
        change = Resize(component=name, route=after, before=4, expected=none)
        return policy.pause_s(seen, (change,))

    assert pause_s("a", route) == pytest.approx(0.2 + 10 * 0.005), "sources run on all cores"
    assert pause_s("b", route) == pytest.approx(0.2 + 4 * 0.005)
    assert pause_s("b", even_route(64, 4)) == 0.0
