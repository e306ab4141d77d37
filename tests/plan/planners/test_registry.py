"""Planners by name."""

from __future__ import annotations

import pytest

from anabranch.errors import TopologyError
from anabranch.plan.planners.chooser import plan_components
from anabranch.plan.planners.cost import Adaptation
from anabranch.plan.planners.problem import Hints
from anabranch.plan.planners.registry import AUTO, PLANNERS, UNFUSED, plan_by
from tests.plan.planners.component_graphs import large, streams

CHAIN = streams({"a": "xy", "b": "x", "c": "z"}, ("a", "b", 5), ("b", "c", 3))


@pytest.mark.parametrize("name", PLANNERS)
def test_a_plan_carries_the_name_under_which_its_planner_is_found(name: str) -> None:
    assert plan_by(name, CHAIN, Hints(), Adaptation(), measured=True).planner == name


@pytest.mark.parametrize("measured", [True, False])
def test_what_auto_names_as_its_planner_is_a_valid_name(measured: bool) -> None:
    plan = plan_by(AUTO, CHAIN, Hints(), Adaptation(), measured=measured)
    assert plan.planner in PLANNERS
    assert plan.partition == {frozenset("ab"), frozenset("c")}


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_beyond_the_budget_names_a_valid_planner_too(seed: int) -> None:
    plan = plan_components(large(12, seed), Adaptation(), budget=5)
    assert plan.planner in {AUTO, *PLANNERS}


def test_unfused_fuses_only_what_a_hint_fuses() -> None:
    hints = Hints(fuse=(frozenset("ab"),))
    alone = plan_by(UNFUSED, CHAIN, Hints(), Adaptation(), measured=False)
    assert alone.partition == {frozenset("a"), frozenset("b"), frozenset("c")}
    hinted = plan_by(UNFUSED, CHAIN, hints, Adaptation(), measured=False)
    assert hinted.partition == {frozenset("ab"), frozenset("c")}


def test_an_unknown_planner_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(TopologyError, match=r"fusion by pa.*auto.*fusion by attributes"):
        plan_by("fusion by pa", CHAIN, Hints(), Adaptation(), measured=False)
