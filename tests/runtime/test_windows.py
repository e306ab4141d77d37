"""Windows in a slot: rows are merged, late ones are left out, and closed windows are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.runtime.slot import SlotTask, _Attempt
from anabranch.runtime.tasks import ArrivingRows, Watermarks
from tests.runtime.one_slot import component

MINUTE = 60_000_000


def run(task: SlotTask, table: pa.Table | None, *, columns: dict[str, str], **marks: Any) -> Any:
    """The report of one step, and the rows of its results and of those that were left out."""
    node = component(rows=ArrivingRows(columns=columns, combined=True), late="row" in columns)
    task = replace(task, components=(node,), marks=Watermarks(**marks))
    [report] = _Attempt(task, node, 0, 0).run({} if table is None else {0: table}).nodes
    read = [
        [
            row
            for each in files
            for row in pq.read_table(task.checkpoint.path(each.path)).to_pylist()
        ]
        for files in (report.results, [report.late] if report.late else [])
    ]
    return report, *read


COLUMNS = {"k0": "k0", "c0": "c0"}


def table(*rows: tuple[int, int, int, int]) -> pa.Table:
    """Combined rows of (key, pane in minutes, source partition, count)."""
    keys, panes, parts, counts = zip(*rows, strict=True)
    return pa.table(
        {
            "k0": keys,
            "pane": [pane * MINUTE for pane in panes],
            "part": parts,
            "c0": counts,
            "shard": [key % 4 for key in keys],
        }
    )


def test_what_several_partitions_have_of_a_key_and_pane_is_one_partial(task: SlotTask) -> None:
    rows = table((1, 0, 0, 5), (1, 0, 1, 2), (2, 0, 1, 1), (1, 1, 0, 9))
    report, results, _ = run(
        task, rows, columns=COLUMNS, late_before_us=None, close_until_us=MINUTE
    )
    assert (report.arrived, report.distinct) == (4, 3)
    assert sorted((row["k"], row["n"]) for row in results) == [(1, 7), (2, 1)]
    assert report.next_end_us == 2 * MINUTE, "the second minute is still open"
    assert {shard: each.rows_in for shard, each in report.shards.items()} == {1: 16, 2: 1}


def test_rows_before_the_watermark_are_left_out_counted_and_written_whole(task: SlotTask) -> None:
    whole = pa.array([{"k": 1, "note": "early"}, {"k": 1, "note": "on time"}])
    rows = table((1, 0, 0, 3), (1, 5, 0, 1)).append_column("r", whole)
    report, results, late = run(
        task,
        rows,
        columns={**COLUMNS, "row": "r"},
        late_before_us=2 * MINUTE,
        close_until_us=2 * MINUTE,
    )
    assert results == []
    assert report.left_out == {"late": 3}
    assert late == [{"k": 1, "note": "early", "reason": "late"}] * 3
    assert report.next_end_us == 6 * MINUTE


def test_the_newest_event_time_is_reported(task: SlotTask) -> None:
    marks = {"late_before_us": 2 * MINUTE, "close_until_us": 2 * MINUTE}
    report, _, _ = run(task, table((1, 5, 0, 1), (1, 0, 0, 1)), columns=COLUMNS, **marks)
    assert report.newest_us == 6 * MINUTE - 1, "the end of the last pane"
    assert run(task, None, columns=COLUMNS, **marks)[0].newest_us is None
    # Rows of another operator count even if no window takes them.
    node = component(
        rows=ArrivingRows(columns={"k0": "k0", "t": "t"}, combined=False),
    )
    late = pa.table({"k0": [1, 2], "t": [MINUTE - 7, MINUTE - 9], "shard": [1, 2]})
    again = replace(task, components=(node,), marks=Watermarks(**marks))
    [found] = _Attempt(again, node, 0, 0).run({0: late}).nodes
    assert (found.newest_us, found.left_out) == (MINUTE - 7, {"late": 2})


def test_a_run_that_finishes_closes_all_windows(task: SlotTask) -> None:
    rows = table((1, 0, 0, 1), (1, 7, 0, 2))
    report, results, _ = run(
        task, rows, columns=COLUMNS, late_before_us=None, close_until_us=None, finish=True
    )
    assert [row["n"] for row in results] == [1, 2]
    assert (report.until_us, report.next_end_us) == (8 * MINUTE, None)


def test_a_step_without_rows_closes_what_an_earlier_one_left_open(task: SlotTask) -> None:
    first, _, _ = run(
        task, table((3, 0, 0, 4)), columns=COLUMNS, late_before_us=None, close_until_us=None
    )
    version = first.shards[3].stored.version
    node = component(committed={3: version})
    later = replace(
        task,
        step=2,
        job=2,
        components=(node,),
        marks=Watermarks(late_before_us=None, close_until_us=MINUTE),
    )
    [report] = _Attempt(later, node, 0, 0).run({}).nodes
    assert [each.rows for each in report.results] == [1]
    assert report.shards[3].rows_out == 1
