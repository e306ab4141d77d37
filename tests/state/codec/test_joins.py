"""Blobs of a join: rows of both sides come back; damaged and foreign blobs are refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import StateError
from anabranch.plan.operators.joins import SIDES, JoinInput, JoinPlan, join_plan
from anabranch.state.codec.joins import JoinEntries, SideRows, decode_join, encode_join, no_rows
from anabranch.topology import Field, tumbling
from anabranch.topology.graph import Clock

AT, AMOUNT, ITEM = Field("at", "timestamp"), Field("amount", "double"), Field("item", "string")


def plan_of(
    key: str = "bigint", right: tuple[Field, ...] = (Field("ts", "timestamp"), ITEM)
) -> JoinPlan:
    inputs = [
        JoinInput(stream=name, fields=(Field("k", key), *fields), clock=Clock(time, "timestamp"))
        for name, fields, time in (("l", (AT, AMOUNT), "at"), ("r", right, "ts"))
    ]
    return join_plan("j", *inputs, ["k"], (tumbling("4s"),), "inner")


def held(plan: JoinPlan) -> JoinEntries:
    """Two rows on the left, none on the right."""
    payload = pa.table([[0, 5], [1.5, None]], names=["p0", "p1"]).cast(plan.payload_schema("left"))
    left = SideRows(np.array([1, 0], np.int32), np.array([0, 4]), np.array([1, 3]), payload)
    keys = pa.table({"k0": pa.array([7, None], pa.int64())})
    return JoinEntries(keys, {"left": left, "right": no_rows(plan, "right")})


def test_rows_of_both_sides_come_back_as_often_as_they_came() -> None:
    plan = plan_of()
    made, found = held(plan), decode_join(encode_join(held(plan), plan), plan)
    assert len(found) == 2
    assert found.keys == made.keys
    for side in SIDES:
        mine, theirs = found.rows[side], made.rows[side]
        assert mine.payload == theirs.payload
        assert [mine.key.tolist(), mine.pane.tolist(), mine.times.tolist()] == [
            theirs.key.tolist(),
            theirs.pane.tolist(),
            theirs.times.tolist(),
        ]


def test_some_rows_of_a_side_keep_their_columns_together() -> None:
    chosen = held(plan_of()).rows["left"].only(np.array([1]))
    assert (chosen.key.tolist(), chosen.pane.tolist(), chosen.times.tolist()) == ([0], [4], [3])
    assert chosen.payload.column("p1").to_pylist() == [None]


def test_a_damaged_blob_is_an_error() -> None:
    plan = plan_of()
    blob = encode_join(held(plan), plan)
    for bad in (blob[:-1], blob[:10], b"", blob[:-1] + bytes([blob[-1] ^ 1]), b"abr1" + blob[4:]):
        with pytest.raises(StateError):
            decode_join(bad, plan)


def test_a_blob_with_other_keys_or_columns_is_refused_with_what_it_has() -> None:
    blob = encode_join(held(plan_of()), plan_of())
    with pytest.raises(StateError, match="'j' has different keys: k0 int64"):
        decode_join(blob, plan_of("string"))
    with pytest.raises(StateError, match=r"different columns on the right: .* row.item string"):
        decode_join(blob, plan_of(right=(Field("ts", "timestamp"), Field("item", "bigint"))))


def test_a_column_that_came_later_is_null_in_rows_from_before_and_one_that_went_is_left_out() -> (
    None
):
    made = held(plan_of())
    rows = SideRows(
        np.array([0], np.int32),
        np.array([8]),
        np.array([2]),
        pa.table([[3], ["book"]], names=["p0", "p1"]).cast(plan_of().payload_schema("right")),
    )
    blob = encode_join(JoinEntries(made.keys, {**made.rows, "right": rows}), plan_of())
    later = plan_of(right=(Field("price", "double"), ITEM, Field("ts", "timestamp")))
    found = decode_join(blob, later).rows["right"]
    assert found.payload.schema == later.payload_schema("right")
    [row] = found.payload.to_pylist()
    assert (row["p0"], row["p1"], row["p2"].microsecond) == (None, "book", 3)
    assert (found.key.tolist(), found.pane.tolist(), found.times.tolist()) == ([0], [8], [2])
    alone = plan_of(right=(Field("ts", "timestamp"),))
    assert decode_join(blob, alone).rows["right"].payload.num_columns == 1
