"""The reference of joins against results worked out by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from anabranch.testing import JoinQuery, expected_join

TEN = ("ten", 10, 10, 0)
FIVE = ("five", 5, 5, 0)


def left(*rows: tuple[float | None, int | None, str]) -> pa.Table:
    k, at, s = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "k": pa.array(k, pa.float64()),
            "at": pa.array(at, pa.int64()),
            "s": pa.array(s, pa.string()),
        }
    )


def right(*rows: tuple[float | None, int | None, int]) -> pa.Table:
    k, ts, v = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "k": pa.array(k, pa.float64()),
            "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
            "v": pa.array(v, pa.int64()),
        }
    )


def query(how: Any = "inner", *windows: tuple[str, int, int, int]) -> JoinQuery:
    return JoinQuery(
        keys=["k"], left_time="at", right_time="ts", windows=windows or (TEN,), how=how
    )


def found(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows as (key, window name, start, end, s, v), each with how often it is there."""
    names = ["k", "window_name", "window_start", "window_end", "s", "v"]
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())


def test_columns_are_keys_window_left_and_right() -> None:
    table = expected_join([left()], [right()], query(), [None])
    assert table.column_names == [
        "k",
        "window_start",
        "window_end",
        "window_name",
        "at",
        "s",
        "ts",
        "v",
    ]
    assert table.num_rows == 0


def test_pairs_are_of_one_key_and_one_window() -> None:
    lefts, rights = (
        [left((1, 0, "a"), (1, 9, "b"), (2, 3, "c"), (1, 10, "d"))],
        [right((1, 5, 7), (3, 5, 8), (1, None, 9))],
    )
    pairs = {(1.0, "ten", 0, 10, "a", 7): 1, (1.0, "ten", 0, 10, "b", 7): 1}
    only_left = {(2.0, "ten", 0, 10, "c", None): 1, (1.0, "ten", 10, 20, "d", None): 1}
    only_right = {(3.0, "ten", 0, 10, None, 8): 1}
    for how, expected in {
        "inner": pairs,
        "left": pairs | only_left,
        "right": pairs | only_right,
        "full": pairs | only_left | only_right,
    }.items():
        assert found(expected_join(lefts, rights, query(how), [20])) == expected


def test_rows_that_came_twice_count_twice() -> None:
    table = expected_join(
        [left((1, 0, "a")), left((1, 0, "a"))],
        [right((1, 1, 7), (1, 1, 7)), right()],
        query(),
        [None, 10],
    )
    assert found(table) == {(1.0, "ten", 0, 10, "a", 7): 4}


def test_null_keys_match_nothing_and_odd_floats_themselves() -> None:
    nan = float("nan")
    lefts, rights = (
        [left((None, 0, "a"), (-0.0, 0, "b"), (nan, 0, "c"))],
        [right((None, 0, 1), (0.0, 0, 2), (nan, 0, 3))],
    )
    assert sorted(
        (row["s"], row["v"]) for row in expected_join(lefts, rights, query(), [10]).to_pylist()
    ) == [
        ("b", 2),
        ("c", 3),
    ]
    full = expected_join(lefts, rights, query("full"), [10]).to_pylist()
    assert [(row["s"], row["v"]) for row in full if row["k"] is None] in (
        [("a", None), (None, 1)],
        [(None, 1), ("a", None)],
    )


def test_a_row_counts_in_the_windows_that_were_open_before_its_step() -> None:
    lefts, rights = [left(), left(), left((1, 1, "late"))], [right((1, 2, 7)), right(), right()]
    # The five has closed at the second watermark; the row of the third is in time for the ten.
    table = expected_join(lefts, rights, query("inner", FIVE, TEN), [None, 5, 10])
    assert found(table) == {(1.0, "ten", 0, 10, "late", 7): 1}
    # At a watermark of 4 both were open.
    table = expected_join(lefts, rights, query("inner", FIVE, TEN), [None, 4, 10])
    assert found(table) == {(1.0, "five", 0, 5, "late", 7): 1, (1.0, "ten", 0, 10, "late", 7): 1}


def test_open_windows_come_out_only_when_the_run_finishes() -> None:
    lefts, rights = [left((1, 1, "a"), (1, -1, "b"))], [right((1, 2, 7), (1, -10, 8))]
    assert found(expected_join(lefts, rights, query(), [None])) == {}
    assert found(expected_join(lefts, rights, query(), [0])) == {(1.0, "ten", -10, 0, "b", 8): 1}
    assert len(found(expected_join(lefts, rights, query(), [0], finish=True))) == 2


def test_sliding_windows_join_a_pair_in_each_window_that_has_both() -> None:
    table = expected_join(
        [left((1, 4, "a"))], [right((1, 9, 7))], query("inner", ("slide", 10, 2, 0)), [100]
    )
    assert sorted(row["window_start"] for row in table.to_pylist()) == [0, 2, 4]


def test_steps_without_a_watermark_and_watermarks_that_go_back_are_refused() -> None:
    with pytest.raises(ValueError, match="must be equal, and at least 1"):
        expected_join([left()], [right()], query(), [])
    with pytest.raises(ValueError, match="go back"):
        expected_join([left()] * 2, [right()] * 2, query(), [5, 4])
