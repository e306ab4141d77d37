"""Rows of a class that reads aggregates: one per key, whether combined before or here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.aggregates import functions as f
from anabranch.aggregates.lift_rows import lift_rows
from anabranch.plan.operators.process import ProcessPlan, process_plan
from anabranch.plan.panes import AHEAD, OUT_OF_RANGE
from anabranch.runtime.process.combined import lifted_rows, merged_rows
from anabranch.runtime.process.ordered import NO_TIME_US, Incoming
from anabranch.topology.graph import Clock, Field, Named
from anabranch.topology.process import logic_of

FIELDS = (Field("k", "string"), Field("at", "timestamp"), Field("v", "bigint"))


class Reads:
    state = int
    output = "n bigint"

    def process(self, key: Any, rows: Any, state: Any, ctx: Any) -> None: ...


def plan() -> ProcessPlan:
    named = (
        Named(name="n", aggregate=f.count(), input_type="int"),
        Named(name="total", aggregate=f.sum("v"), input_type="bigint"),
    )
    logic = logic_of(Reads, "arrival", FIELDS[:1], FIELDS)
    return process_plan("p", FIELDS[:1], logic, FIELDS, Clock("at", "timestamp"), named)


def seen(rows: Incoming) -> dict[str | None, dict[str, Any]]:
    """What the class sees of each key, with its shard, time and number of rows."""
    assert rows.counts is not None
    more = zip(rows.shards.tolist(), rows.t.tolist(), rows.counts.tolist(), strict=True)
    return {
        row.pop("k"): {**row, "shard": shard, "t": t, "rows": count}
        for row, (shard, t, count) in zip(rows.columns.to_pylist(), more, strict=True)
    }


EXPECTED = {
    "a": {"n": 3, "total": 6, "shard": 1, "t": 30, "rows": 3},
    None: {"n": 1, "total": None, "shard": 0, "t": NO_TIME_US, "rows": 1},
}


def test_rows_that_are_here_become_one_per_key_with_the_newest_time() -> None:
    keys = pa.table({"k0": ["a", "a", None, "a"]})
    inputs = [None, pa.array([1, 2, None, 3])]
    t = np.array([10, 30, NO_TIME_US, 20])
    rows = lifted_rows(plan(), keys, np.array([1, 1, 0, 1]), inputs, t)
    assert seen(rows) == EXPECTED
    assert rows.by_shard() == {0: 1, 1: 3}


def test_partials_of_several_partitions_are_merged_to_the_same_rows() -> None:
    made = plan()
    parts = []
    for rows in ((["a"], [1], [10]), (["a", None, "a"], [2, None, 3], [30, NO_TIME_US, 20])):
        keys = pa.table({"k0": pa.array(rows[0], pa.string())})
        code = pa.array(rows[0], pa.string()).dictionary_encode(null_encoding="encode")
        inputs = [pa.array(np.ones(len(rows[0]), dtype=np.int32)), pa.array(rows[1], pa.int64())]
        numbers = code.indices.to_numpy()
        columns = lift_rows(made.kept, inputs, np.array(rows[2]), numbers, len(code.dictionary))
        parts.append((code.dictionary.to_pylist(), columns))
    keys = pa.table({"k0": pa.array([key for each, _ in parts for key in each], pa.string())})
    part = np.repeat(np.arange(2), [len(each) for each, _ in parts])
    columns = [np.concatenate(group) for group in zip(*(c for _, c in parts), strict=True)]
    shards = np.array([1 if key else 0 for key in keys.column(0).to_pylist()])
    assert seen(merged_rows(made, keys, shards, columns, part)) == EXPECTED


def test_rows_that_are_left_out_are_merged_apart_from_the_others_of_their_key() -> None:
    made = plan()
    keys = pa.table({"k0": pa.array(["a", "a", "b", "a", "a"], pa.string())})
    inputs = [pa.array(np.ones(5, dtype=np.int32)), pa.array([1, 2, 4, 8, 16], pa.int64())]
    t = np.array([10, AHEAD, 30, AHEAD, OUT_OF_RANGE])
    columns = lift_rows(made.kept, inputs, t, np.arange(5), 5)
    part = np.array([0, 0, 0, 1, 1])
    rows = merged_rows(made, keys, np.zeros(5, np.int64), columns, part)
    found = zip(rows.columns.to_pylist(), rows.t.tolist(), strict=True)
    assert {(row["k"], us): row["total"] for row, us in found} == {
        ("a", 10): 1,
        ("a", AHEAD): 10,
        ("a", OUT_OF_RANGE): 16,
        ("b", 30): 4,
    }
