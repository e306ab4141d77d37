"""Faults are dealt by the seed, each where it can happen."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import islice

import pytest

from anabranch.faults import parse
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.testing.chaos.dealing import plan_case, plan_cases
from anabranch.testing.chaos.plan import (
    APPLY_KILLS,
    KINDS,
    OTHER_AGGREGATES,
    OTHER_SLOTS,
    REPLAN,
    REROUTE,
    RESIZE,
    CasePlan,
)


@cache
def plans(seed: int, count: int = 15) -> list[CasePlan]:
    return list(islice(plan_cases(seed, 14), count))


def test_one_seed_gives_one_plan_and_another_seed_another() -> None:
    assert plans(1) == plans(1)
    assert plans(1) != plans(2)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_of_two_hundred_faults_plans_every_kind(seed: int) -> None:
    planned = Counter(fault.kind for plan in plans(seed, 16) for fault in plan.faults)
    assert set(planned) == set(KINDS)
    assert planned.total() >= 200


def test_a_fault_without_a_place_is_dealt_to_the_next_topology() -> None:
    case, left_out = plan_case(1, 1, ["worker killed: apply.begin"], dag=True)
    assert case.faults == []
    assert left_out == ["worker killed: apply.begin"]
    dealt = Counter(fault.kind for plan in plans(3, 40) for fault in plan.faults)
    assert max(dealt[kind] for kind in APPLY_KILLS) - min(dealt[kind] for kind in APPLY_KILLS) <= 1


@pytest.mark.parametrize("seed", range(10))
def test_no_two_faults_of_a_case_aim_at_one_step_unless_they_are_meant_to(seed: int) -> None:
    for plan in plans(seed):
        aimed = [{parse(point).step for point in each.points} for each in plan.faults]
        assert all(len(steps) <= 1 for steps in aimed)
        steps = [step for each in aimed for step in each]
        acts = [fault.act for fault in plan.faults if fault.act]
        steps += [act.after + 1 for act in acts if act.after is not None]
        assert len(steps) == len(set(steps))


@pytest.mark.parametrize("seed", range(10))
def test_faults_are_in_the_start_that_runs_their_step(seed: int) -> None:
    for plan in plans(seed):
        published = [start.published for start in plan.undisturbed()]
        for start in plan.starts:
            steps = plan.steps(published.index(start.published))
            points = [point for fault in start.faults for point in fault.points]
            assert all(parse(point).step in steps for point in points)


@pytest.mark.parametrize("seed", range(10))
def test_a_driver_dies_once_in_a_start_and_last(seed: int) -> None:
    for plan in plans(seed):
        for start in plan.starts:
            deaths = [fault.ends_driver for fault in start.faults]
            assert sum(deaths) <= 1
            assert not any(deaths[:-1])
        assert not plan.starts[-1].killed


def test_a_driver_that_shall_die_while_it_restores_finds_state_missing() -> None:
    plan, _ = plan_case(1, 1, ["driver killed: restore.before"])
    [start] = [start for start in plan.starts if start.killed]
    kinds = [fault.kind for fault in start.faults]
    assert kinds == ["state deleted", "driver killed: restore.before"]


def test_slots_change_only_by_what_is_counted() -> None:
    for plan in plans(3):
        slots = plan.slots
        for start in plan.starts:
            changes = any(fault.kind == OTHER_SLOTS for fault in start.faults)
            assert (start.slots != slots) == changes
            acts = [fault.act for fault in start.faults if fault.kind in {RESIZE, REROUTE}]
            slots = [start.slots, *(act.slots for act in acts if act)][-1]


def test_a_start_with_other_slots_begins_a_portion_and_commits_a_step() -> None:
    for plan in plans(6, 30):
        published = 0
        first_steps = {plan.steps(i)[0] for i in range(len(plan.portions))}
        for start in plan.starts:
            if any(fault.kind == OTHER_SLOTS for fault in start.faults):
                assert start.published > published
                deaths = [fault for fault in start.faults if fault.ends_driver]
                assert not {parse(p).step for each in deaths for p in each.points} & first_steps
            published = start.published


def test_a_reroute_has_slots_to_choose_from() -> None:
    acts = [f.act for plan in plans(7, 30) for f in plan.faults if f.kind == REROUTE]
    assert all(act is not None and act.slots > 1 for act in acts)


def test_topologies_that_change_before_every_step_get_no_change_that_could_not_be_noticed() -> None:
    cases = [plan for seed in range(4) for plan in plans(seed) if plan.restless]
    assert cases
    kinds = {fault.kind for plan in cases for fault in plan.faults}
    assert not kinds & {RESIZE, REROUTE, OTHER_SLOTS}


def test_topologies_are_of_all_kinds_and_have_what_their_faults_need() -> None:
    cases = [plan for seed in range(8) for plan in plans(seed)]
    dags = [plan for plan in cases if plan.dag is not None]
    assert 0.3 < len(dags) / len(cases) < 0.7
    assert {plan.planner for plan in dags} == {AUTO, *PLANNERS}
    assert {plan.compiled for plan in cases} == {True, False}
    for plan in cases:
        kinds = {fault.kind for fault in plan.faults}
        assert plan.has_other_plans or REPLAN not in kinds
        assert plan.has_apply or not kinds & set(APPLY_KILLS)


def test_aggregates_change_at_the_start_of_a_portion_and_never_in_one() -> None:
    changed = [plan for plan in plans(5, 30) if plan.topology.changes]
    assert changed
    for plan in changed:
        assert plan.dag is None
        portions = {portion for portion, _ in plan.topology.changes}
        first = {each.portion: each for each in reversed(plan.starts)}
        counted = {
            each.portion
            for each in plan.starts
            if any(fault.kind == OTHER_AGGREGATES for fault in each.faults)
        }
        assert counted == portions
        for portion in portions:
            assert OTHER_AGGREGATES in {fault.kind for fault in first[portion].faults}
