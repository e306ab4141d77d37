"""Rows of a slot in order: by key, and those of a key by time, by arrival, or by their values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.runtime.process.ordered import (
    Incoming,
    key_codes,
    ordered,
    python_keys,
    python_values,
)

KEYS = ["b", "a", "b", "a", "b"]
TIMES = [5, 9, 3, 1, 5]


def incoming(arrival: list[int] | None, shards: dict[str, int] | None = None) -> Incoming:
    of = {"a": 1, "b": 0} if shards is None else shards
    return Incoming(
        pa.table({"k0": KEYS}),
        pa.table({"k": KEYS, "n": [4, 3, 2, 1, 0]}),
        np.array(TIMES),
        np.array([of[key] for key in KEYS]),
        None if arrival is None else np.array(arrival),
    )


def by_key(rows: Incoming, *, by_time: bool) -> list[tuple[str, int, list[int]]]:
    """Each key with its shard and the numbers of its rows."""
    found = ordered(rows, by_time=by_time)
    numbers = found.columns.column("n").to_pylist()
    starts = found.starts.tolist()
    return [
        (key, shard, numbers[starts[i] : starts[i + 1]])
        for i, (key, shard) in enumerate(
            zip(found.keys.column(0).to_pylist(), found.shards.tolist(), strict=True)
        )
    ]


def test_rows_of_a_key_are_side_by_side_and_keys_are_by_shard() -> None:
    assert by_key(incoming([0, 1, 2, 3, 4]), by_time=False) == [
        ("b", 0, [4, 2, 0]),
        ("a", 1, [3, 1]),
    ]
    other = by_key(incoming([0, 1, 2, 3, 4], {"a": 0, "b": 7}), by_time=False)
    assert other == [("a", 0, [3, 1]), ("b", 7, [4, 2, 0])]


def test_event_time_comes_first_and_arrival_decides_between_equal_times() -> None:
    assert by_key(incoming([0, 1, 2, 3, 4]), by_time=True) == [
        ("b", 0, [2, 4, 0]),
        ("a", 1, [1, 3]),
    ]
    assert by_key(incoming([4, 3, 2, 1, 0]), by_time=True) == [
        ("b", 0, [2, 0, 4]),
        ("a", 1, [1, 3]),
    ]


def test_where_arrival_is_unknown_the_order_does_not_depend_on_how_rows_came() -> None:
    rows = incoming(None)
    first = by_key(rows, by_time=False)
    back = np.arange(5)[::-1]
    mixed = Incoming(
        rows.keys.take(pa.array(back)),
        rows.columns.take(pa.array(back)),
        rows.t[back],
        rows.shards[back],
        None,
    )
    assert by_key(mixed, by_time=False) == first


def test_no_rows_are_no_keys() -> None:
    none = incoming([0, 1, 2, 3, 4]).only(np.zeros(5, dtype=bool))
    assert by_key(none, by_time=True) == []


def test_combined_rows_count_as_often_as_they_say_and_stay_one_per_key() -> None:
    rows = Incoming(
        pa.table({"k0": [9, 2, 5]}),
        pa.table({"k": [9, 2, 5], "n": [1, 2, 3]}),
        np.array([0, 0, 0]),
        np.array([1, 0, 1]),
        None,
        np.array([10, 20, 30]),
    )
    assert rows.by_shard() == {0: 20, 1: 40}
    found = ordered(rows, by_time=True)
    assert found.keys.column(0).to_pylist() == [2, 5, 9], "by shard, then in the order of cells"
    assert found.starts.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "keys",
    [
        {"k0": [1, 2, 1, None, None]},
        {"k0": [0.0, -0.0, float("nan"), float("nan"), 1.0]},
        {"k0": ["a", "a", "b", "b", "a"], "k1": [1, 2, 1, 1, 1]},
        {"k0": [[1], [2], [1], [], [2]]},
    ],
)
def test_rows_have_one_number_exactly_where_their_keys_are_equal(keys: dict[str, Any]) -> None:
    code = key_codes(pa.table(keys)).tolist()
    rows = [str(tuple(each)).replace("-0.0", "0.0") for each in zip(*keys.values(), strict=True)]
    for i, j in ((i, j) for i in range(5) for j in range(5)):
        assert (code[i] == code[j]) == (rows[i] == rows[j]), (rows[i], rows[j])


def test_times_are_python_times_with_a_zone_where_the_column_has_one() -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    for zone, expected in (("UTC", at), (None, at.replace(tzinfo=None))):
        for values in ([at], [at, None]):
            column = pa.array(values, pa.timestamp("us", tz="UTC")).cast(
                pa.timestamp("us", tz=zone)
            )
            assert python_values(column)[0] == expected
            assert python_values(column)[0].utcoffset() == expected.utcoffset()


def test_a_key_of_several_columns_is_a_tuple() -> None:
    assert python_keys(pa.table({"k0": [1, 2]})) == [1, 2]
    assert python_keys(pa.table({"k0": [1, 2], "k1": ["a", None]})) == [(1, "a"), (2, None)]
    text = pa.chunked_array([pa.array(["x", "x"]).dictionary_encode()])
    assert python_values(text) == ["x", "x"]
