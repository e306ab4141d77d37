"""The values of a case: its steps, its batches, and what its topology allows."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from anabranch.faults import APPLY_POINTS, DRIVER_POINTS, SLOT_POINTS
from anabranch.testing.chaos.dealing import plan_cases
from anabranch.testing.chaos.plan import KINDS, ZOMBIE, CasePlan, PlannedFault


def cases() -> list[CasePlan]:
    return list(islice(plan_cases(4, 14), 15))


def test_every_point_of_the_protocol_is_a_kind_of_its_own() -> None:
    assert {f"driver killed: {point}" for point in DRIVER_POINTS} < set(KINDS)
    assert {f"worker killed: {point}" for point in (*SLOT_POINTS, *APPLY_POINTS)} < set(KINDS)


def test_the_undisturbed_run_sees_the_same_portions() -> None:
    for case in cases():
        published = [start.published for start in case.undisturbed()]
        assert list(dict.fromkeys(start.published for start in case.starts)) == published
        batches = [batch for batch in case.batches() if batch is not None]
        assert batches == list(range(case.events.batches))


def test_the_steps_of_all_portions_are_those_of_all_batches() -> None:
    for case in cases():
        steps = [step for i in range(len(case.portions)) for step in case.steps(i)]
        assert steps == list(range(1, len(case.batches()) + (2 if case.finish else 1)))


def test_a_driver_dies_by_a_fault_at_one_of_its_points_or_with_a_stopped_worker() -> None:
    assert PlannedFault(kind="", points=("job.after@3=kill",)).ends_driver
    assert PlannedFault(kind=ZOMBIE, points=("slot.held@3=stop600",)).ends_driver
    assert not PlannedFault(kind="", points=("slot.held@3=kill",)).ends_driver


def test_a_step_is_redone_only_where_its_job_has_run_and_it_is_not_committed() -> None:
    undoes = {
        point: PlannedFault(kind="", points=(f"{point}@1=kill",)).undoes for point in DRIVER_POINTS
    }
    assert not any(undoes[point] for point in ("step.begin", "job.before", "commit.after"))
    assert all(undoes[point] for point in ("job.after", "sinks.half", "commit.before"))


def test_only_operators_that_feed_each_other_by_a_common_key_have_other_plans() -> None:
    windows = next(case for case in cases() if case.dag is None and case.has_other_plans)
    then = windows.topology.then
    assert then is not None
    other = replace(windows.topology, then=replace(then, keys=()))
    assert not replace(windows, topology=other).has_other_plans
