"""Calls of a user's function: three forms, rows that fail, and time by value."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ApplyError
from anabranch.runtime.apply.calls import ApplyCalls
from anabranch.topology.apply import FORMS, ApplySpec

if TYPE_CHECKING:
    from collections.abc import Callable

GIVEN = pa.schema([("id", pa.int64()), ("x", pa.float64())])
MADE = pa.schema([("id", pa.int64()), ("root", pa.float64())])


def by_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    if (pc.min(batch.column("x")).as_py() or 0.0) < 0:
        raise ValueError("negative")
    return pa.record_batch({"root": pc.sqrt(batch.column("x")), "id": batch.column("id")})


def by_pandas(frame: Any) -> Any:
    if (frame["x"] < 0).any():
        raise ValueError("negative")
    return frame.assign(root=frame["x"] ** 0.5)[["id", "root"]]


def by_row(row: dict[str, Any]) -> dict[str, Any]:
    if row["x"] is not None and row["x"] < 0:
        raise ValueError("negative")
    return {"id": row["id"], "root": None if row["x"] is None else math.sqrt(row["x"])}


FUNCTIONS: dict[str, Callable[[Any], Any]] = dict(
    zip(FORMS, (by_arrow, by_pandas, by_row), strict=True)
)


def calls(form: str, fn: Callable[[Any], Any] | None = None, **options: Any) -> ApplyCalls:
    return ApplyCalls(
        "roots", ApplySpec(fn=fn or FUNCTIONS[form], form=form, **options), GIVEN, MADE
    )


def table(xs: list[float | None]) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(len(xs)), pa.int64()), "x": pa.array(xs, pa.float64())}, schema=GIVEN
    )


numbers = st.lists(st.sampled_from([0.0, 1.0, 2.25, 4.0, -1.0, None]), min_size=1, max_size=60)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("measured", [False, True])
@given(xs=numbers, batch_rows=st.sampled_from([1, 3, 7, 1024]))
def test_every_row_that_can_be_done_is_done_once_and_the_others_are_dead_letters(
    form: str, measured: bool, xs: list[float | None], batch_rows: int
) -> None:
    rows = table(xs)
    values = np.array([hash(x) for x in xs]) if measured else None
    called = calls(form, dead_letters=True, batch_rows=batch_rows)(rows, values)
    made = [row for each in called.results for row in each.to_pylist()]
    assert all(each.schema.equals(MADE) for each in called.results)
    expected = [by_row(row) for row in rows.to_pylist() if row["x"] is None or row["x"] >= 0]
    assert sorted(made, key=lambda row: row["id"]) == expected
    assert sorted(called.failed) == [i for i, x in enumerate(xs) if x is not None and x < 0]
    assert set(called.errors) <= {"ValueError: negative"}
    assert called.seconds.shape == (len(xs),)
    assert (called.seconds >= 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_failing_row_is_named_with_its_values_the_operator_and_the_cause(form: str) -> None:
    rows = table([1.0] * 40 + [-9.0] + [1.0] * 40)
    with pytest.raises(ApplyError) as caught:
        calls(form)(rows, None)
    failed = "apply 'roots' failed on row {'id': 40, 'x': -9.0}: ValueError: negative (at "
    assert str(caught.value).startswith(failed)
    assert "test_calls.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("form", "fn", "message"),
    [
        ("arrow", lambda _: 5, "returned int; valid: a pyarrow RecordBatch or Table"),
        ("arrow", lambda b: b, "returned columns (id, x); its schema has (id, root)"),
        ("pandas", lambda _: [1], "returned list; valid: a pandas DataFrame"),
        ("pandas", lambda f: f, "returned columns (id, x); its schema has (id, root)"),
        ("rows", lambda _: 7, "returned 7; valid: a dict, a list of dicts, or None"),
        ("rows", lambda r: {"id": r["id"]}, "returned columns (id); its schema has (id, root)"),
    ],
)
def test_what_the_schema_does_not_say_is_an_error_even_with_dead_letters(
    form: str, fn: Any, message: str
) -> None:
    with pytest.raises(ApplyError) as caught:
        calls(form, fn, dead_letters=True)(table([1.0, 2.0]), None)
    assert str(caught.value) == f"apply 'roots' {message}"


def text_for(form: str) -> Callable[[Any], Any]:
    """A function that returns a text where a number is declared, for one row."""
    if form == "rows":
        return lambda row: {"id": row["id"], "root": "many" if row["id"] == 3 else 1.0}
    if form == "pandas":
        return lambda f: f.assign(root=["many" if i == 3 else 1.0 for i in f["id"]])[["id", "root"]]
    return lambda b: pa.record_batch(
        {
            "id": b.column("id"),
            "root": pa.array(["many" if i == 3 else "1.0" for i in b.column("id").to_pylist()]),
        }
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_value_that_does_not_fit_its_declared_type_fails_its_row_only(form: str) -> None:
    called = calls(form, text_for(form), dead_letters=True)(table([1.0] * 6), None)
    assert called.failed == [3]
    assert "many" in called.errors[0]
    assert sorted(i for each in called.results for i in each["id"].to_pylist()) == [0, 1, 2, 4, 5]
    with pytest.raises(
        ApplyError, match=r"apply 'roots' failed on row \{'id': 3, 'x': 1.0\}: .*many"
    ):
        calls(form, text_for(form))(table([1.0] * 6), None)


def test_a_fraction_is_not_cut_off_in_a_column_of_whole_numbers() -> None:
    def fn(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"] / 2, "root": None}

    called = calls("rows", fn, dead_letters=True)(table([1.0] * 4), None)
    assert [i for each in called.results for i in each["id"].to_pylist()] == [0, 1]
    assert called.failed == [1, 3]
    assert called.errors[0] == "it returned 0.5 for column 'id' of type int64"


def test_a_row_may_become_none_or_several() -> None:
    def fn(row: dict[str, Any]) -> Any:
        made = {"id": row["id"], "root": 0.0}
        return [None, made, [made, made], (made for _ in range(3))][row["id"] % 4]

    called = calls("rows", fn)(table([0.0] * 8), None)
    assert Counter(i for each in called.results for i in each["id"].to_pylist()) == {
        1: 1,
        2: 2,
        3: 3,
        5: 1,
        6: 2,
        7: 3,
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_time_of_a_row_goes_by_its_value(form: str) -> None:
    """A frequent value is called by itself, so a slow one does not make others look slow."""

    def fn(given: Any) -> Any:
        xs = (
            [given["x"]]
            if form == "rows"
            else list(given["x"])
            if form == "pandas"
            else given.column("x").to_pylist()
        )
        time.sleep(5e-3 * sum(x == 4.0 for x in xs))
        return FUNCTIONS[form](given)

    xs = [4.0, 1.0, 1.0, 1.0] * 40
    called = calls(form, fn)(table(xs), np.array([int(x) for x in xs]))
    slow, fast = called.seconds[np.array(xs) == 4.0], called.seconds[np.array(xs) == 1.0]
    assert np.median(slow) >= 5e-3
    assert np.median(fast) < np.median(slow) / 2


def test_rows_pass_as_they_are_where_there_is_no_function() -> None:
    rows = table([1.0, None])
    assert ApplyCalls("pass", ApplySpec(fn=None), GIVEN, GIVEN)(rows, None).results == [rows]
