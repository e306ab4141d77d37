"""State as tables for people: keys, panes and partials by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.plan.operators.joins import JoinContents, JoinSide
from anabranch.plan.operators.noted import AggregateContents
from anabranch.state.codec.blob import Entries
from anabranch.state.codec.joins import JoinEntries, SideRows
from anabranch.state.memory.shown import partials_table, waiting_table
from tests.plan.every_kind import nodes

KEYS = pa.table({"k0": pa.array([7, 8], pa.int64())})


def test_partials_have_the_names_of_their_kinds_and_inputs() -> None:
    node = nodes()["windows"]
    contents = node.contents()
    assert isinstance(contents, AggregateContents)
    columns = tuple(np.arange(2).astype(each.empty(0).dtype) for each in node.plan.columns)
    merged = Entries(KEYS, np.array([1, 0], np.int32), np.array([0, 60]), columns)
    found = partials_table(merged, contents, node.plan, lambda us: f"at {us}")
    assert found.column_names[:3] == ["k", "pane", "count(*)"]
    assert "total(v)" in found.column_names
    assert found.select(["k", "pane", "count(*)"]).to_pylist() == [
        {"k": 8, "pane": "at 0", "count(*)": 0},
        {"k": 7, "pane": "at 60", "count(*)": 1},
    ]


def test_rows_of_both_sides_of_a_join_are_in_one_table() -> None:
    node = nodes()["join"]
    plan, contents = node.plan, node.contents()
    assert isinstance(plan, JoinSide)
    assert isinstance(contents, JoinContents)

    def rows(side: str, payload: dict[str, list[object]]) -> SideRows:
        schema = plan.join.payload_schema(side)  # type: ignore[arg-type]
        return SideRows(
            np.zeros(1, np.int32), np.array([60]), np.array([2]), pa.table(payload, schema=schema)
        )

    left, right = rows("left", {"p0": [5], "p1": [1.5]}), rows("right", {"p0": [6], "p1": ["x"]})
    merged = JoinEntries(KEYS, {"left": left, "right": right})
    found = waiting_table(merged, contents, plan, str).to_pylist()
    assert [(each["side"], each["k"], each["pane"], each["times"]) for each in found] == [
        ("left", 7, "60", 2),
        ("right", 7, "60", 2),
    ]
    assert [(each["v"], each["w"]) for each in found] == [(1.5, None), (None, "x")]
