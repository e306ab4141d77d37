"""What a user's class is given: rows, columns, timers and state."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import StepError
from anabranch.runtime.process.handles import (
    GONE,
    Call,
    Columns,
    Context,
    SlotContext,
    SlotRows,
    SlotState,
)
from anabranch.runtime.process.ordered import NO_TIME_US
from anabranch.topology.graph import Field
from anabranch.topology.process import StateColumn, logic_of

TABLE = pa.table({"price": [1.5, 2.5, 3.5], "len": [1, 2, 3], "odd name": ["a", "b", "c"]})


def test_rows_of_a_key_are_read_by_row_and_by_column() -> None:
    columns = Columns(TABLE)
    rows = columns.rows_of(columns, 1, 3)
    assert len(rows) == 2
    assert [(row.price, row.len) for row in rows] == [(2.5, 2), (3.5, 3)]
    assert rows.price == rows["price"] == [2.5, 3.5]
    assert rows["odd name"] == ["b", "c"]
    assert rows[0].price == 2.5
    assert [row.price for row in rows[-1:]] == [3.5]


def test_a_column_that_rows_do_not_have_is_named_with_those_they_have() -> None:
    columns = Columns(TABLE)
    with pytest.raises(AttributeError, match="no column 'size'; they have price, len, odd name"):
        _ = columns.rows_of(columns, 0, 1).size


def context(
    times: list[int], *, has_timers: bool = True, after_us: int | None = 50
) -> tuple[Call, Context]:
    call = Call(np.array(times))
    call.end, call.after_us, call.state = len(times), after_us, "state"
    return call, Context(call, zone=True, has_timers=has_timers)


def test_the_time_of_a_call_is_that_of_its_newest_row_or_of_its_timer() -> None:
    call, ctx = context([7, 9, 8, 100])
    call.start, call.end = 0, 3
    assert (ctx.time_us, ctx.name) == (9, "")
    call.at_us, call.name = 60, "end"
    assert (ctx.time_us, ctx.name) == (60, "end")
    assert ctx.time == datetime(1970, 1, 1, 0, 0, 0, 60, tzinfo=UTC)
    _, without = context([NO_TIME_US])
    assert without.time_us is None
    assert without.time is None


def test_a_key_has_one_timer_of_each_name_and_none_in_the_past() -> None:
    call, ctx = context([60])
    ctx.timer(70)
    ctx.timer(80)
    ctx.timer(datetime(1970, 1, 1, 0, 0, 0, 90, tzinfo=UTC), "second")
    assert call.timers == {"": 80, "second": 90}
    assert list(ctx.timers) == ["", "second"]
    ctx.cancel()
    ctx.cancel("unknown")
    assert call.timers == {"second": 90}
    with pytest.raises(ValueError, match=r"a timer in the past: 1970-01-01 00:00:00.000050"):
        ctx.timer(50)
    with pytest.raises(TypeError, match="the name of a timer must be a string, got 5"):
        ctx.timer(60, 5)  # type: ignore[arg-type]


def test_a_class_without_on_timer_cannot_set_timers() -> None:
    _, ctx = context([60], has_timers=False)
    with pytest.raises(TypeError, match="has no method on_timer"):
        ctx.timer(70)


def test_a_key_that_is_forgotten_has_neither_state_nor_timers() -> None:
    call, ctx = context([60])
    ctx.timer(70)
    ctx.replace("other")
    assert call.state == "other"
    ctx.forget()
    assert call.state is GONE
    assert call.timers is None


def test_rows_of_a_slot_are_arrays_with_the_number_of_each_key() -> None:
    rows = SlotRows(pa.table({"k": ["a", "b"]}), np.array([0, 1, 3]), TABLE, np.array([1, 2, 3]))
    assert rows.key.tolist() == [0, 1, 1]
    assert np.add.reduceat(rows["price"], rows.starts).tolist() == [1.5, 6.0]
    assert rows["price"] is rows["price"], "converted once"
    with pytest.raises(KeyError, match="no column 'size'"):
        rows["size"]


def state() -> tuple[SlotState, np.ndarray]:
    class Counted:
        state = {"n": "int", "mean": "double"}
        output = "n int"

        def process(self, rows: object, state: object, ctx: object) -> None: ...

    logic = logic_of(Counted, "arrival", (Field("k", "string"),), (Field("k", "string"),))
    columns: tuple[StateColumn, ...] = logic.state
    record = np.zeros(2, dtype=[(each.name, each.dtype) for each in columns])
    return SlotState(columns, record, np.array([True, False])), record


def test_columns_of_state_are_written_back_changed_or_replaced() -> None:
    held, record = state()
    held.n += 5
    held.mean = [0.5, 1.5]
    held.into(record, "operator 'p'")
    assert record.tolist() == [(5, 0.5), (5, 1.5)]
    with pytest.raises(AttributeError, match="no column 'm'; it has new, n, mean"):
        _ = held.m


@pytest.mark.parametrize(
    ("value", "message"), [(np.zeros(3, int), r"shape is \(3,\)"), ([0.5, 1.5], "Cannot cast")]
)
def test_a_column_of_state_that_does_not_fit_is_named(value: object, message: str) -> None:
    held, record = state()
    held.n = value
    with pytest.raises(StepError, match=f"operator 'p': state column 'n' .*{message}"):
        held.into(record, "operator 'p'")


def test_keys_are_forgotten_by_number_or_by_mask_each_once() -> None:
    ctx = SlotContext(None)
    assert ctx.gone().tolist() == []
    ctx.forget(np.array([3, 1]))
    ctx.forget(np.array([True, True, False, False]))
    assert ctx.gone().tolist() == [0, 1, 3]
    assert ctx.watermark is None
