"""The slot task as Spark calls it: which rows are its own, what passes, and what it reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from anabranch.errors import StateError
from anabranch.faults import Faults, InjectedError, parse
from anabranch.plan.ids import ComponentId
from anabranch.runtime.reports import SlotReport
from anabranch.runtime.slot import SlotTask
from anabranch.runtime.tasks import Emitted, Watermarks
from anabranch.runtime.worker import TaskId
from tests.runtime.one_slot import attempt, component, lifted


def batch(to: int, *keys: int) -> pa.RecordBatch:
    rows = lifted(*keys).append_column("to", pa.array([to] * len(keys), pa.int32()))
    return rows.combine_chunks().to_batches()[0]


def reports(batches: list[pa.RecordBatch]) -> list[SlotReport]:
    encoded = [each for one in batches for each in one.column("report").to_pylist() if each]
    return [msgspec.json.decode(each, type=SlotReport) for each in encoded]


def test_a_task_runs_the_component_and_the_slot_that_its_partition_stands_for(
    task: SlotTask,
) -> None:
    names = ComponentId(("first",)), ComponentId(("second",))
    first = replace(component(), name=names[0], slots=2, route=(0, 1, 0, 1))
    second = replace(component(), name=names[1], slots=1)
    both = replace(task, components=(first, second))
    found = [reports(list(both.run([], TaskId(partition))))[0] for partition in range(3)]
    assert [(each.component, each.slot) for each in found] == [
        (names[0], 0),
        (names[0], 1),
        (names[1], 0),
    ]


def test_rows_of_its_operators_are_taken_and_those_of_others_pass_with_the_report(
    task: SlotTask,
) -> None:
    more = pa.record_batch({"to": pa.array([0], pa.int32()), "shard": pa.array([2], pa.int32())})
    later = replace(task, onward={"x": pa.int64()})
    empty = more.slice(0, 0)
    made = list(later.run([batch(0, 1, 2), empty, batch(7, 1, 3), batch(7, 2)], TaskId(0)))
    [report] = reports([each for each in made if each.column("to").to_pylist() == [-1]])
    rows_in = {shard: each.rows_in for shard, each in report.nodes[0].shards.items()}
    assert rows_in == {1: 1, 2: 1}
    wrapped = [each for each in made if each.column("to").to_pylist() != [-1]]
    assert [each.column("to").to_pylist() for each in wrapped] == [[7, 7, 7]], "one per shard"
    assert all(each.schema.names == ["to", "report", "x"] for each in made)


def test_results_for_a_later_level_go_on_in_its_columns(task: SlotTask) -> None:
    sent = Emitted(number=9, columns={"n": "x"})
    later = replace(
        task,
        components=(component(emits=(sent,), written=False),),
        onward={"x": pa.int64()},
        marks=Watermarks(late_before_us=None, close_until_us=60_000_000),
    )
    made = list(later.run([batch(0, 1, 2)], TaskId(0)))
    rows = [each for each in made if each.column("to").to_pylist()[0] == 9]
    assert [each.column("x").to_pylist() for each in rows] == [[1, 1]]
    [report] = reports(made)
    assert report.nodes[0].results == (), "no sink wants them"


def test_the_report_has_the_files_the_times_and_when_the_next_window_ends(
    task: SlotTask, tmp_path: Path
) -> None:
    report, node = attempt(task, 1, 2)
    assert node.next_end_us == 60_000_000
    assert (node.arrived, node.distinct, node.key_numbers) == (2, 2, 2)
    assert set(report.phases) >= {"read", "open", "load", "merge", "close", "log", "store"}
    stored = [each.stored for each in node.shards.values()]
    assert len({each.file for each in stored if each}) == 1, "all shards are in one file of the log"
    assert (tmp_path / "chk" / stored[0].file).is_file()  # type: ignore[union-attr]


def test_a_fault_in_the_middle_leaves_a_step_that_can_run_again(task: SlotTask) -> None:
    broken = replace(task, faults=Faults((parse("slot.half@1=fail"),)))
    with pytest.raises(InjectedError):
        attempt(broken, 0, 1, 2, 3)
    _, again = attempt(replace(task, job=2), 0, 1, 2, 3)
    assert again.missing == ()
    assert sorted(again.shards) == [0, 1, 2, 3]


def test_state_that_is_not_trusted_is_not_opened(task: SlotTask) -> None:
    _, first = attempt(task, 1)
    version = first.shards[1].stored.version  # type: ignore[union-attr]
    later = replace(
        task, step=2, job=2, distrust=True, components=(component(committed={1: version}),)
    )
    _, found = attempt(later, 1)
    assert found.missing == (1,)


def test_a_host_without_space_is_an_error_before_anything_is_stored(
    task: SlotTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.state.store.host import Host

    monkeypatch.setattr(Host, "free_bytes", lambda _: 0)
    with pytest.raises(StateError, match="nothing is lost"):
        attempt(task, 1)
    monkeypatch.undo()
    _, found = attempt(replace(task, job=2), 1)
    assert found.missing == ()
