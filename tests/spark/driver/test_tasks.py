"""The tasks of a step as values: who must report, when early results are due, what is restored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from anabranch.plan.ids import PartId
from anabranch.spark.driver.tasks import early_results

A, B = PartId("a"), PartId("b")


def plan_with(**early: Any) -> Any:
    nodes = [SimpleNamespace(name=PartId(name), early=each) for name, each in early.items()]
    return SimpleNamespace(nodes=nodes)


def every(*, steps: int | None = None, us: int | None = None) -> Any:
    return SimpleNamespace(steps=steps, us=us)


def test_early_results_are_due_every_few_steps() -> None:
    plan = plan_with(a=every(steps=2), b=every(steps=3), never=None)
    due = [early_results(plan, step, {}, 0.0)[0] for step in range(1, 7)]
    assert due == [set(), {A}, {B}, {A}, set(), {A, B}]


def test_early_results_are_due_when_their_time_has_passed_since_the_last_ones() -> None:
    plan = plan_with(a=every(us=10_000_000))
    due, at = early_results(plan, 1, {}, 100.0)
    assert (due, at) == (set(), {A: 100.0}), "the time begins with the first step"
    assert early_results(plan, 2, at, 109.0) == (set(), {A: 100.0})
    due, at = early_results(plan, 3, at, 111.0)
    assert (due, at) == ({A}, {A: 111.0})
    assert early_results(plan, 4, at, 112.0) == (set(), {A: 111.0})
