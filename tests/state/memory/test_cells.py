"""Cells as columns, and as text for people."""

from __future__ import annotations

import msgspec
import numpy as np

from anabranch.plan.operators.process import ProcessContents
from anabranch.state.codec.cells import NO_HEAD, Head, sealed_cell
from anabranch.state.memory.cells import shown_cell, state_record
from anabranch.topology.process import StateColumn, record_of

COLUMNS = (
    StateColumn(name="n", type="bigint", default=0),
    StateColumn(name="best", type="double", default=-1.0),
)


def row(n: int, best: float) -> bytes:
    return np.array([(0, n, best)], dtype=record_of(COLUMNS)).tobytes()


def contents(*names: tuple[str, str]) -> ProcessContents:
    fields = [{"name": name, "type": {"kind": kind}} for name, kind in names]
    state = {"kind": "columns", "fields": fields}
    return ProcessContents(keys=(("k", "bigint"),), state=state, vectorised=bool(names))


def test_new_keys_have_the_defaults_and_others_what_they_had() -> None:
    record, new = state_record(COLUMNS, [row(1, 2.5), None, row(3, 4.5)])
    assert new.tolist() == [False, True, False]
    assert record[["n", "best"]].tolist() == [(1, 2.5), (0, -1.0), (3, 4.5)]


def test_columns_that_came_later_have_their_defaults_in_older_cells() -> None:
    older = record_of(COLUMNS[:1]).itemsize
    record, new = state_record(COLUMNS, [row(7, 0.0)[:older], row(8, 9.0)])
    assert record[["n", "best"]].tolist() == [(7, -1.0), (8, 9.0)]
    assert not new.any()


def test_a_cell_is_shown_with_its_timers_and_when_it_expires() -> None:
    value = msgspec.msgpack.encode({"rows": 3})
    shown = shown_cell(sealed_cell(Head({"late": 5}, 9, 9), value), contents(), str)
    assert shown == {"state": {"rows": 3}, "timers": {"late": "5"}, "expires": "9"}
    assert shown_cell(sealed_cell(NO_HEAD, value), contents(), str) == {"state": {"rows": 3}}


def test_columns_are_shown_by_name_whether_the_cell_has_timers_or_not() -> None:
    given = contents(("n", "bigint"), ("best", "double"))
    values = {"n": 4, "best": 0.5}
    assert shown_cell(row(4, 0.5), given, str) == values
    timed = sealed_cell(Head({"": 5}), row(4, 0.5)[1:])
    assert shown_cell(timed, given, str) == {**values, "timers": {"": "5"}}
