"""A join in a slot: rows of both sides wait in one state, and come out when their window closes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.plan.ids import ComponentId
from anabranch.plan.make import make_plan
from anabranch.runtime.slot import ComponentTask, SlotTask, _Attempt
from anabranch.runtime.tasks import ArrivingRows, NodeTask, Watermarks
from anabranch.topology import Field, Graph, Source, tumbling
from anabranch.topology.graph import Join

MINUTE = 60_000_000
LEFT = (Field("k", "bigint"), Field("at", "timestamp"), Field("x", "string"))
RIGHT = (Field("k", "bigint"), Field("ts", "timestamp"), Field("y", "string"))


def component(how: str, *, late: bool = False) -> ComponentTask:
    graph = (
        Graph(name="t")
        .add(Source(name="l", fields=LEFT, event_time="at", unit_us=None, delay_us=0))
        .add(Source(name="r", fields=RIGHT, event_time="ts", unit_us=None, delay_us=0))
        .add(
            Join(
                name="j",
                input="l",
                right="r",
                by=LEFT[:1],
                windows=(tumbling("1 minute"),),
                how=how,
                fields=(*LEFT, *RIGHT[1:]),
            )
        )
    )
    names = ["k0", "r0", "r1", "c0", *(["row"] if late else [])]
    rows = ArrivingRows(columns={name: name for name in names}, combined=True)
    nodes = tuple(
        NodeTask(number=number, operator="j", plan=node.plan, rows=rows, late=late)
        for number, node in enumerate(make_plan(graph).nodes)
    )
    return ComponentTask(name=ComponentId(("j",)), route=(0,) * 4, slots=1, nodes=nodes)


def side(names: tuple[str, ...], *rows: tuple[int, int, str, int]) -> pa.Table:
    """Combined rows of (key, minute, text, how often)."""
    keys, minutes, texts, counts = zip(*rows, strict=True)
    times = pa.array([each * MINUTE for each in minutes], pa.timestamp("us", tz="UTC"))
    whole = [
        dict(zip(names, each, strict=True))
        for each in zip(keys, times.to_pylist(), texts, strict=True)
    ]
    return pa.table(
        {
            "k0": keys,
            "r0": times,
            "r1": texts,
            "c0": counts,
            "pane": [each * MINUTE for each in minutes],
            "shard": [key % 4 for key in keys],
            "row": whole,
        }
    )


def run(task: SlotTask, made: ComponentTask, left: Any, right: Any, **marks: int | None) -> Any:
    task = replace(task, components=(made,), marks=Watermarks(**marks))  # type: ignore[arg-type]
    tables = {0: left, 1: right}
    given = {number: each for number, each in tables.items() if each is not None}
    [report] = _Attempt(task, made, 0, 0).run(given).nodes
    read = [
        [
            row
            for each in files
            for row in pq.read_table(task.checkpoint.path(each.path)).to_pylist()
        ]
        for files in (report.results, [report.late] if report.late else [])
    ]
    return report, *read


def pairs(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["x"] or "", row["y"] or "") for row in results)


@pytest.mark.parametrize(
    ("how", "alone"),
    [
        ("inner", []),
        ("left", [(2, "b", "")]),
        ("right", [(3, "", "q")]),
        ("full", [(2, "b", ""), (3, "", "q")]),
    ],
)
def test_rows_with_equal_keys_in_a_window_come_out_as_often_as_they_came(
    task: SlotTask, how: str, alone: list[tuple[Any, ...]]
) -> None:
    left = side(("k", "at", "x"), (1, 0, "a", 2), (2, 0, "b", 1), (1, 1, "later", 1))
    right = side(("k", "ts", "y"), (1, 0, "p", 3), (3, 0, "q", 1))
    report, results, _ = run(
        task, component(how), left, right, late_before_us=None, close_until_us=MINUTE
    )
    assert pairs(results) == sorted([(1, "a", "p")] * 6 + alone)
    assert sum(each.rows_in for each in report.shards.values()) == 8
    assert report.next_end_us == 2 * MINUTE


def test_rows_of_one_side_wait_for_those_of_the_other_in_a_later_step(task: SlotTask) -> None:
    made = component("inner")
    left = side(("k", "at", "x"), (1, 0, "a", 1))
    first, results, _ = run(task, made, left, None, late_before_us=None, close_until_us=None)
    assert results == []
    version = first.shards[1].stored.version
    nodes = (replace(made.nodes[0], committed={1: version}), *made.nodes[1:])
    later = replace(task, step=2, job=2)
    right = side(("k", "ts", "y"), (1, 0, "p", 1))
    _, results, _ = run(
        later, replace(made, nodes=nodes), None, right, late_before_us=None, close_until_us=MINUTE
    )
    assert pairs(results) == [(1, "a", "p")]


def test_late_rows_of_either_side_are_counted_and_written_with_their_side(task: SlotTask) -> None:
    left = side(("k", "at", "x"), (1, 0, "a", 2), (1, 5, "b", 1))
    right = side(("k", "ts", "y"), (2, 1, "p", 1))
    report, _, late = run(
        task,
        component("full", late=True),
        left,
        right,
        late_before_us=2 * MINUTE,
        close_until_us=2 * MINUTE,
    )
    assert report.left_out == {"late": 3}
    assert sorted((row["k"], row["x"], row["y"], row["side"], row["reason"]) for row in late) == [
        (1, "a", None, "left", "late"),
        (1, "a", None, "left", "late"),
        (2, None, "p", "right", "late"),
    ]
