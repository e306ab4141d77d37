"""A comparison is only worth something if it finds each kind of difference."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.testing import bag_differences, differences, flatten_window, read_results

if TYPE_CHECKING:
    from pathlib import Path

NAN, INF = math.nan, math.inf


def values(*each: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"k": list(range(len(each))), "value": pa.array(each, kind)})


def found(left: pa.Table, right: pa.Table) -> str:
    [message] = differences(left, right, ["k"])
    return message


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1.0, 1.0 + 1e-10),
        (1e300, 1e300 * (1 + 1e-10)),
        (0.0, 1e-13),
        (0.0, -0.0),
        (NAN, NAN),
        (INF, INF),
        (None, None),
    ],
)
def test_floats_that_are_nearly_equal_are_equal(left: float | None, right: float | None) -> None:
    assert (
        differences(values(left, kind=pa.float64()), values(right, kind=pa.float64()), ["k"]) == []
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1.0, 1.0 + 1e-8),
        (0.0, 1e-11),
        (NAN, 1.0),
        (NAN, None),
        (INF, -INF),
        (INF, 1e308),
        (0.0, None),
        (1.0, -1.0),
    ],
)
def test_floats_that_differ_are_found_on_both_sides(
    left: float | None, right: float | None
) -> None:
    ours, theirs = values(left, kind=pa.float64()), values(right, kind=pa.float64())
    assert (
        found(ours, theirs) == f"1 rows differ in 'value': k=0, l.value={left!r}, r.value={right!r}"
    )
    assert found(theirs, ours).startswith("1 rows differ in 'value'")


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        (1, 2, pa.int64()),
        (2**62, 2**62 + 1, pa.int64()),
        ("a", "a ", pa.string()),
        ("é", "e\u0301", pa.string()),
        ("", None, pa.string()),
        (0, None, pa.int32()),
        (Decimal("0.01"), Decimal("0.02"), pa.decimal128(10, 2)),
        (True, False, pa.bool_()),
        (0, 1, pa.date32()),
        (0, 1, pa.timestamp("us", tz="UTC")),
        ([1, 2], [2, 1], pa.list_(pa.int64())),
        (b"a", b"b", pa.binary()),
    ],
)
def test_everything_but_floats_is_compared_exactly(
    left: Any, right: Any, kind: pa.DataType
) -> None:
    ours, theirs = values(left, kind=kind), values(right, kind=kind)
    assert found(ours, theirs).startswith("1 rows differ in 'value'")
    assert differences(ours, ours, ["k"]) == []


def test_how_values_are_stored_is_no_difference() -> None:
    wide = pa.table(
        {"k": pa.array([1], pa.int64()), "d": pa.array([Decimal("1.50")], pa.decimal128(38, 2))}
    )
    narrow = pa.table(
        {"k": pa.array([1], pa.int16()), "d": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}
    )
    assert differences(wide, narrow, ["k"]) == []
    assert differences(values("a"), values("a", kind=pa.large_string()), ["k"]) == []
    assert (
        differences(
            values("a"),
            values("a").cast(pa.schema([("k", pa.int8()), ("value", pa.string_view())])),
            ["k"],
        )
        == []
    )


def test_another_kind_of_value_is_a_difference() -> None:
    assert found(values(1), values(1.0)) == "column 'value': left is integer, right is float"


def test_a_missing_column_is_found() -> None:
    wider = values(1).append_column("more", pa.array([1]))
    assert found(wider, values(1)) == "only left has the column 'more'"
    assert found(values(1), wider) == "only right has the column 'more'"


def test_a_missing_key_column_is_found() -> None:
    assert differences(values(1), values(1), ["key"]) == [
        "no column 'key', which is one of the keys"
    ]


def test_rows_on_one_side_only_are_found_and_shown() -> None:
    assert found(values(5, 6), values(5)) == "1 rows only in left: k=1, l.value=6"
    assert found(values(5), values(5, 6)) == "1 rows only in right: k=1, r.value=6"


def test_a_message_shows_the_first_few_rows_and_counts_all() -> None:
    message = found(values(*range(100)), values(*range(1, 101)))
    assert message.startswith("100 rows differ in 'value': k=0, l.value=0, r.value=1; k=1,")
    assert message.count("k=") == 3


def test_duplicates_are_found() -> None:
    twice = pa.concat_tables([values(1), values(1)])
    assert found(twice, values(1)) == "left has 1 keys more than once: k=0, times=2"
    assert found(values(1), twice) == "right has 1 keys more than once: k=0, times=2"
    assert len(differences(twice, twice, ["k"])) == 2


@pytest.mark.parametrize("key", [None, NAN, 0.0, INF])
def test_keys_that_group_together_are_the_same_row(key: float | None) -> None:
    left = pa.table({"k": pa.array([key], pa.float64()), "value": [1]})
    right = pa.table({"k": pa.array([-0.0 if key == 0 else key], pa.float64()), "value": [1]})
    assert differences(left, right, ["k"]) == []


def test_null_and_nan_are_different_keys() -> None:
    left, right = (pa.table({"k": pa.array([key], pa.float64())}) for key in (None, NAN))
    assert len(differences(left, right, ["k"])) == 2


def test_rows_without_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="bag_differences"):
        differences(values(1), values(1), [])


def test_a_bag_counts_how_often_a_row_comes() -> None:
    once, twice = values(1), pa.concat_tables([values(1), values(1)])
    assert bag_differences(twice, twice) == []
    [message] = bag_differences(once, twice)
    assert message == "1 rows differ in 'rows_alike': k=0, value=1, l.rows_alike=1, r.rows_alike=2"
    assert len(bag_differences(values(1), values(2))) == 2


def test_a_table_without_columns_equals_only_one_without_rows() -> None:
    nothing, no_rows = pa.table({}), values(kind=pa.int64())
    assert differences(nothing, no_rows, ["k"]) == bag_differences(no_rows, nothing) == []
    assert found(nothing, values(1, 2)) == "left has nothing; the other side has 2 rows"
    assert bag_differences(values(1), nothing) == ["right has nothing; the other side has 1 rows"]


def windowed(start: int, unit: str = "us") -> pa.Table:
    per_second = {"us": 1_000_000, "ns": 1_000_000_000}[unit]
    edge = pa.timestamp(unit, tz="UTC")
    window = pa.StructArray.from_arrays(
        [pa.array([start * per_second], edge), pa.array([(start + 60) * per_second], edge)],
        names=["start", "end"],
    )
    return pa.table({"k": [1], "window": window, "window_name": ["1 minute"], "n": [2]})


def test_a_window_is_flattened_to_microseconds() -> None:
    flat = flatten_window(windowed(-60, "ns"))
    assert flat.column_names == ["k", "window_start", "window_end", "window_name", "n"]
    assert flat.to_pylist()[0] == {
        "k": 1,
        "window_start": -60_000_000,
        "window_end": 0,
        "window_name": "1 minute",
        "n": 2,
    }
    assert flatten_window(flat) == flat


def test_nested_and_flat_windows_are_the_same() -> None:
    keys = ["k", "window_start", "window_end", "window_name"]
    assert differences(windowed(0, "ns"), flatten_window(windowed(0)), keys) == []
    assert len(differences(windowed(0), windowed(60), keys)) == 2


def test_results_are_read_from_all_visible_files_of_a_directory(tmp_path: Path) -> None:
    for name, start in {
        "step-1.parquet": 0,
        "part/step-2.parquet": 60,
        "_tmp/step-3.parquet": 0,
        ".step-4.parquet": 0,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(windowed(start), tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    assert sorted(read_results(tmp_path)["window_start"].to_pylist()) == [0, 60_000_000]


def test_a_directory_without_files_gives_nothing(tmp_path: Path) -> None:
    assert read_results(tmp_path).num_columns == 0
    assert read_results(tmp_path / "absent").num_rows == 0


def test_timestamps_are_compared_whatever_their_unit() -> None:
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    left = values(moment, kind=pa.timestamp("us", tz="UTC"))
    assert differences(left, values(moment, kind=pa.timestamp("ns", tz="UTC")), ["k"]) == []


def test_one_wrong_row_in_a_million_is_found() -> None:
    size = 1_000_000
    numbers = np.random.default_rng(7).random(size)
    right = numbers.copy()
    right[123_456] *= 1 + 1e-6
    tables = [pa.table({"k": np.arange(size), "x": each}) for each in (numbers, right)]
    assert found(tables[0], tables[1].take(pa.array(np.arange(size)[::-1]))).startswith(
        "1 rows differ in 'x': k=123456"
    )
