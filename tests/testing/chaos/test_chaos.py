"""The plan of faults without Spark, and a short chaos run with it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.faults import APPLY_POINTS, DRIVER_POINTS, SLOT_POINTS, Faults, InjectedError, parse
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.testing.chaos.command import has_happened, run_chaos
from anabranch.testing.chaos.driver import Place, build, damage, delete_last_commit, publish
from anabranch.testing.chaos.gathered import sketch_errors
from anabranch.testing.chaos.plan import (
    APPLY_KILLS,
    COMMIT_LOST,
    DAMAGES,
    KINDS,
    OTHER_SLOTS,
    REPLAN,
    REROUTE,
    RESIZE,
    TWO,
    Act,
    Blow,
    TopologySpec,
    plan_case,
    plan_cases,
)
from anabranch.testing.compare import differences, read_results
from anabranch.testing.events import MINUTE_US, EventPlan, event_batches, write_batches
from anabranch.testing.processes import Tagged
from anabranch.testing.reference.windows import expected_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plans(seed: int, count: int = 15) -> list[Any]:
    return list(islice(plan_cases(seed, 14), count))


def test_one_seed_gives_one_plan_and_another_seed_another() -> None:
    assert plans(1) == plans(1)
    assert plans(1) != plans(2)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_of_two_hundred_faults_plans_every_kind(seed: int) -> None:
    planned = Counter(blow.kind for plan in plans(seed) for blow in plan.blows)
    assert set(planned) == set(KINDS)
    assert planned.total() >= 200


def test_every_point_of_the_protocol_is_a_kind_of_its_own() -> None:
    assert {f"driver killed: {point}" for point in DRIVER_POINTS} < set(KINDS)
    assert {f"worker killed: {point}" for point in (*SLOT_POINTS, *APPLY_POINTS)} < set(KINDS)


@pytest.mark.parametrize("seed", range(10))
def test_no_two_faults_of_a_case_aim_at_one_step_unless_they_are_meant_to(seed: int) -> None:
    for plan in plans(seed):
        aimed = [{parse(point).step for point in blow.points} for blow in plan.blows if blow.points]
        assert all(len(steps) == 1 for steps in aimed)
        steps = [step for (step,) in aimed]
        steps += [
            blow.act.after + 1 for blow in plan.blows if blow.act and blow.act.after is not None
        ]
        assert len(steps) == len(set(steps))


@pytest.mark.parametrize("seed", range(10))
def test_faults_lie_in_the_start_that_runs_their_step(seed: int) -> None:
    for plan in plans(seed):
        published = [start.published for start in plan.undisturbed()]
        for start in plan.starts:
            steps = plan.steps(published.index(start.published))
            assert all(parse(point).step in steps for blow in start.blows for point in blow.points)


@pytest.mark.parametrize("seed", range(10))
def test_a_driver_dies_once_in_a_start_and_last(seed: int) -> None:
    for plan in plans(seed):
        for start in plan.starts:
            deaths = [blow.ends_driver for blow in start.blows]
            assert sum(deaths) <= 1
            assert not any(deaths[:-1])
        assert not plan.starts[-1].killed


def test_a_driver_that_shall_die_while_it_restores_finds_state_missing() -> None:
    plan = plan_case(1, 1, ["driver killed: restore.before"])
    [start] = [start for start in plan.starts if start.killed]
    assert [blow.kind for blow in start.blows] == ["state deleted", "driver killed: restore.before"]


def test_slots_change_only_by_a_resize_or_a_restart_that_is_counted() -> None:
    for plan in plans(3):
        slots = plan.slots
        for start in plan.starts:
            if any(blow.kind == OTHER_SLOTS for blow in start.blows):
                assert start.slots != slots
            else:
                assert start.slots == slots
            sizes = [blow.act.slots for blow in start.blows if blow.kind == RESIZE and blow.act]
            slots = [start.slots, *sizes][-1]


def test_the_undisturbed_run_sees_the_same_portions() -> None:
    for plan in plans(4):
        assert list(dict.fromkeys(start.published for start in plan.starts)) == [
            start.published for start in plan.undisturbed()
        ]
        assert [batch for batch in plan.batches() if batch is not None] == list(
            range(plan.events.batches)
        )


def test_a_fault_counts_only_when_it_is_known_to_have_happened() -> None:
    kill = Blow(kind="driver killed: job.after", points=("job.after@3=kill",))
    assert has_happened(kill, [], {"job.after@3=kill"}, died=True)
    assert not has_happened(kill, [], {"job.after@3=kill"}, died=False)
    assert not has_happened(kill, [], set(), died=True)
    two = Blow(kind="two in one step", points=("slot.held@3/1=kill", "slot.stored@3/0=fail"))
    assert has_happened(two, [], {"slot.held@3_1=kill", "slot.stored@3_0=fail"}, died=False)
    assert not has_happened(two, [], {"slot.held@3_1=kill"}, died=False)
    lost = Blow(kind=COMMIT_LOST, act=Act(kind=COMMIT_LOST))
    act = {"record": "act", "kind": COMMIT_LOST, "files": 1}
    again = {"record": "event", "kind": "batch again"}
    assert has_happened(lost, [act, again], set(), died=False)
    assert not has_happened(lost, [act], set(), died=False)
    assert not has_happened(lost, [{**act, "files": 0}, again], set(), died=False)
    again = Blow(kind=REPLAN, act=Act(kind=REPLAN, after=3, planner="unfused"))
    assert has_happened(again, [{"record": "event", "kind": "plan"}], set(), died=False)
    assert not has_happened(again, [{"record": "event", "kind": "resize"}], set(), died=False)
    other = Blow(kind=OTHER_SLOTS, act=Act(kind=OTHER_SLOTS))
    start = {"record": "start", "slots": 3, "slots_before": 2}
    assert has_happened(other, [start, {"record": "step", "slots": 3}], set(), died=False)
    assert not has_happened(other, [start], set(), died=False)


def test_every_other_topology_is_a_dag_and_only_those_with_several_operators_are_planned_anew() -> (
    None
):
    cases = [plan for seed in range(4) for plan in plans(seed)]
    dags = [plan for plan in cases if plan.dag is not None]
    assert 0.3 < len(dags) / len(cases) < 0.7
    assert {plan.planner for plan in dags} == {AUTO, *PLANNERS}
    for plan in cases:
        several = plan.dag is not None or plan.topology.then is not None
        assert several or not any(blow.kind == REPLAN for blow in plan.blows)
        applies = plan.dag is None and plan.topology.grouping is not None
        assert applies or not any(blow.kind in APPLY_KILLS for blow in plan.blows)
        # Whether a planner has another plan is known to the driver, which asks the next one where it has not.
        assert all(
            blow.act.planner in PLANNERS for blow in plan.blows if blow.kind == REPLAN and blow.act
        )


def test_steps_that_only_write_state_anew_do_not_count_for_faults(tmp_path: Path) -> None:
    faults = Faults((parse("slot.begin@3=fail"),), str(tmp_path)).not_counting(2)
    faults.at("slot.begin", 3, 0)
    with pytest.raises(InjectedError):
        faults.at("slot.begin", 5, 0)
    assert [file.name for file in tmp_path.iterdir()] == ["slot.begin@3=fail"]


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_changes_a_file(kind: str, tmp_path: Path) -> None:
    file, copies = tmp_path / "operator" / "00001" / "data.mdb", tmp_path / "copies"
    file.parent.mkdir(parents=True)
    copies.mkdir()
    (copies / "operator 00001").write_bytes(b"older")
    content = bytes(20_000)
    file.write_bytes(content)
    assert damage(kind, file, copies, Random(1))
    assert not file.exists() or file.read_bytes() != content


def test_sparks_last_commit_is_deleted_only_where_it_is_the_last_word(tmp_path: Path) -> None:
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
        for batch in range(3):
            (tmp_path / name / str(batch)).touch()
            (tmp_path / name / f".{batch}.crc").touch()
    (tmp_path / "offsets" / "3").touch()
    assert delete_last_commit(tmp_path) == 0
    (tmp_path / "offsets" / "3").unlink()
    assert delete_last_commit(tmp_path) == 1
    assert sorted(file.name for file in (tmp_path / "commits").glob("*")) == [
        ".0.crc",
        ".1.crc",
        "0",
        "1",
    ]


def sketched(**other: Any) -> tuple[pa.Table, pa.Table]:
    """A result of forty values, with sketches as they may be, or as given; and the values."""
    values = [each % 25 for each in range(40)]
    often = [{"value": value, "count": 2} for value in range(4)]
    row = {"k": float("nan"), "about": 25, "shares": [2.0, 11.0, 21.0], "often": often, **other}
    return pa.Table.from_pylist([row]), pa.Table.from_pylist(
        [{"k": float("nan"), "values": values}]
    )


def test_sketches_of_a_chaos_run_may_be_off_by_their_stated_error_and_no_more() -> None:
    assert sketch_errors(*sketched(), ["k"]) == []
    assert sketch_errors(*sketched(about=24), ["k"]) == []
    for name, bad in (
        ("about", 50),
        ("shares", [2.0, 11.0, 1.0]),
        ("often", [{"value": 0, "count": 3}]),
        ("often", [{"value": 90, "count": 1}]),
    ):
        told = sketch_errors(*sketched(**{name: bad}), ["k"])
        assert any(text.startswith(f"{name} of") for text in told), (name, bad, told)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")
def test_no_process_is_left_behind_however_it_detaches_itself(tmp_path: Path) -> None:
    stop = "import os, signal, sys; os.setsid(); print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    start = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {stop!r}]); time.sleep(60)"
    with Tagged() as processes, (tmp_path / "log").open("wb") as log:
        processes.start([sys.executable, "-c", start], log)
        deadline = time.monotonic() + 20
        while not processes.stopped() and time.monotonic() < deadline:
            time.sleep(0.01)
        [pid] = processes.stopped()
    assert not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_the_command_says_what_it_does() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "anabranch.testing.chaos.command", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--case-faults" in said.stdout


def start(spark: SparkSession, place: Place, spec: TopologySpec, slots: int) -> ab.Run:
    run = build(spark, spec, place).start(
        checkpoint=place.of("checkpoint"),
        slots=slots,
        shards=8,
        trigger="availableNow",
        state_root=place.of("state"),
    )
    assert run.wait(120)
    return run


@pytest.mark.parametrize("point", ["slot.merged", "slot.stored"])
def test_a_closing_step_that_fails_in_one_slot_loses_nothing_of_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The workers of slots that were done have closed windows already and must not go on with what they hold."""
    spec = TopologySpec(
        keys=("k",),
        windows=(("sliding", 2 * MINUTE_US, MINUTE_US, 0),),
        aggregates=(("n", "count", "*", None), ("total", "sum", "v", None)),
        delay_us=0,
        shards=8,
        chain=16,
        lift="auto",
        late_sink=True,
        spark_sink=False,
    )
    batches = list(event_batches(EventPlan(seed=3, batches=3, rows=400, keys=40)))
    write_batches(batches, tmp_path / "files")
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("ANABRANCH_FAULTS", f"{point}@4/3=fail")
    monkeypatch.setenv("ANABRANCH_FAULTS_FIRED", str(tmp_path / "marks"))
    place = Place(root=str(tmp_path), files=str(tmp_path / "files"))
    publish(place, 3)
    run = start(spark, place, spec, slots=4)
    assert [progress.attempts for progress in run.progress] == [1, 1, 1, 2]
    found, wanted = read_results(place.of("out")), expected_results(batches, spec.query())
    assert differences(found, wanted, ["k", "window_start", "window_end", "window_name"]) == []


@pytest.mark.spark
def test_faults_do_not_change_results(tmp_path: Path) -> None:
    kinds = [
        "driver killed: commit.before",
        "worker killed: slot.half",
        "job failed: slot.stored",
        "state truncated",
        COMMIT_LOST,
        RESIZE,
        REROUTE,
        REPLAN,
        OTHER_SLOTS,
        TWO,
    ]
    cases = [plan_case(5, 1, kinds[:2], dag=False), plan_case(5, 2, kinds[2:], dag=True)]
    cases[0] = replace(cases[0], topology=replace(cases[0].topology, gathered=True))
    result = run_chaos(5, len(kinds), tmp_path, plans=iter(cases), case_faults=5)
    figures = result.as_dict()
    assert figures["differences"] == 0, "\n".join(result.differences)
    happened = {REPLAN: 1, **figures["kinds"]}  # a planner may give the plan that runs already
    assert happened == dict.fromkeys(sorted(kinds), 1)
    assert figures["rows_compared"] > 0
    assert figures["steps_redone"] >= 4
