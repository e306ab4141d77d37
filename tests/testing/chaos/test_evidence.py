"""A fault counts only when it is known to have happened."""

from __future__ import annotations

from pathlib import Path

from anabranch.testing.chaos.evidence import Journal, has_happened, read_journal
from anabranch.testing.chaos.plan import (
    COMMIT_LOST,
    OTHER_SLOTS,
    REPLAN,
    REROUTE,
    Act,
    PlannedFault,
)


def test_a_driver_that_was_killed_left_a_mark_and_died() -> None:
    kill = PlannedFault(kind="driver killed: job.after", points=("job.after@3=kill",))
    assert has_happened(kill, [], {"job.after@3=kill"}, died=True)
    assert not has_happened(kill, [], {"job.after@3=kill"}, died=False)
    assert not has_happened(kill, [], set(), died=True)


def test_two_in_one_step_left_two_marks() -> None:
    two = PlannedFault(
        kind="two in one step", points=("slot.held@3/1=kill", "slot.stored@3/0=fail")
    )
    assert has_happened(two, [], {"slot.held@3_1=kill", "slot.stored@3_0=fail"}, died=False)
    assert not has_happened(two, [], {"slot.held@3_1=kill"}, died=False)


def test_a_lost_commit_was_deleted_and_spark_called_the_batch_again() -> None:
    lost = PlannedFault(kind=COMMIT_LOST, act=Act(kind=COMMIT_LOST))
    act = {"record": "act", "kind": COMMIT_LOST, "files": 1}
    again = {"record": "event", "kind": "batch again"}
    assert has_happened(lost, [act, again], set(), died=False)
    assert not has_happened(lost, [act], set(), died=False)
    assert not has_happened(lost, [{**act, "files": 0}, again], set(), died=False)


def test_a_change_in_the_running_query_is_an_event() -> None:
    events = {kind: [{"record": "event", "kind": kind}] for kind in ("plan", "resize", "reroute")}
    replan = PlannedFault(kind=REPLAN, act=Act(kind=REPLAN, after=3, planner="unfused"))
    assert has_happened(replan, events["plan"], set(), died=False)
    assert not has_happened(replan, events["resize"], set(), died=False)
    reroute = PlannedFault(kind=REROUTE, act=Act(kind=REROUTE, after=3, slots=2))
    assert has_happened(reroute, events["reroute"], set(), died=False)
    assert has_happened(reroute, events["resize"], set(), died=False)


def test_a_restart_with_other_slots_ran_a_step_with_them() -> None:
    other = PlannedFault(kind=OTHER_SLOTS, act=Act(kind=OTHER_SLOTS))
    start = {"record": "start", "slots": 3, "slots_before": 2}
    assert has_happened(other, [start, {"record": "step", "slots": 3}], set(), died=False)
    assert not has_happened(other, [start], set(), died=False)
    same = {**start, "slots_before": 3}
    assert not has_happened(other, [same, {"record": "step", "slots": 3}], set(), died=False)


def test_a_journal_that_was_cut_off_has_all_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert read_journal(path) == []
    Journal(path, 2).note("step", step=7)
    with path.open("ab") as file:
        file.write(b'{"start":2,"rec')
    assert read_journal(path) == [{"start": 2, "record": "step", "step": 7}]
