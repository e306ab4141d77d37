"""Keys and cells as bytes: equal if Spark takes keys for equal, and read as written."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import StateError
from anabranch.state.codec.cells import (
    NO_HEAD,
    Blob,
    Head,
    alarms_of,
    decoded_keys,
    encoded_keys,
    head_of,
    renoted,
    replayed,
    sealed_blob,
    sealed_cell,
    to_micros,
    to_time,
    unsealed_blob,
)
from anabranch.topology.process import columns_of
from anabranch.types import column_type

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        ("k bigint", [(1,), (-5,), (None,), (2**62,)]),
        ("k string, g date", [("a", EPOCH.date()), (None, None), ("", EPOCH.date())]),
        ("k double", [(1.5,), (None,), (-2.25,)]),
        ("k timestamp", [(EPOCH,), (None,)]),
        ("k decimal(10,2)", [(None,)]),
        ("k int", [(5,), (None,), (-7,), (0,)]),
        ("k date", [(date(2026, 1, 1),), (None,), (date(1900, 1, 1),)]),
        ("k timestamp_ntz", [(datetime(2026, 1, 1),), (datetime(1969, 1, 1),)]),  # noqa: DTZ001
        ("k struct<a:int,b:string>", [({"a": 1, "b": "x"},), ({"a": None, "b": None},)]),
        ("k array<int>", [([1, 2],), ([],)]),
        ("k boolean, b binary", [(True, b"\0"), (None, b"")]),
    ],
)
def test_keys_of_any_type_become_bytes_and_come_back(
    schema: str, keys: list[tuple[Any, ...]]
) -> None:
    fields = columns_of(schema, "schema")
    kinds = [column_type(each.type) for each in fields]
    table = pa.table(
        [
            pa.array(list(values), kind)
            for values, kind in zip(zip(*keys, strict=True), kinds, strict=True)
        ],
        names=[f"k{i}" for i in range(len(kinds))],
    )
    encoded = encoded_keys(table)
    assert len(set(encoded)) == len(keys)
    assert decoded_keys(encoded, fields).to_pylist() == table.to_pylist()
    assert [encoded_keys(table.slice(i, 1))[0] for i in range(len(keys))] == encoded, (
        "whatever other keys there are"
    )
    assert [decoded_keys([each], fields).to_pylist()[0] for each in encoded] == table.to_pylist()


def test_floats_are_one_key_where_spark_takes_them_for_one() -> None:
    encoded = encoded_keys(pa.table({"k0": pa.array([0.0, -0.0, float("nan"), -float("nan")])}))
    assert len(set(encoded)) == 2


def test_a_cell_with_many_timers_is_read_as_it_was_written() -> None:
    head = Head({f"timer {i}": i for i in range(100)}, 7, 5)
    assert head_of(sealed_cell(head, b"state")) == (head, b"state")


def test_a_cell_without_timers_and_time_to_live_has_one_byte_before_its_state() -> None:
    assert sealed_cell(NO_HEAD, b"state") == b"\0state"
    assert head_of(b"\0state") == (NO_HEAD, b"state")
    assert alarms_of(b"\0state") == alarms_of(None) == set()
    assert alarms_of(sealed_cell(Head({"a": 5, "b": 7}, 9, 3), b"")) == {3, 5, 7}


def test_a_damaged_head_is_an_error() -> None:
    with pytest.raises(StateError, match="a cell of state is damaged"):
        head_of(b"\x03\xff\xff\xff")


@pytest.mark.parametrize(
    ("noted", "expires", "until", "expected"),
    [
        (None, 9, None, 9),
        (5, 9, None, 5),  # touched again before the noted time: looked at then, and noted again
        (5, 9, 5, 9),  # the noted time has passed
        (8, 3, None, 3),  # it expires before the noted time
        (5, None, None, None),
    ],
)
def test_a_later_expiry_is_noted_only_when_the_noted_one_has_passed(
    noted: int | None, expires: int | None, until: int | None, expected: int | None
) -> None:
    assert renoted(Head({}, 4, noted), expires, until) == Head({}, expires, expected)


def test_replaying_blobs_takes_the_last_of_each_cell_and_leaves_out_those_that_are_gone() -> None:
    blobs = [
        Blob([b"a", b"b"], [b"1", b"2"], [], [], 1, b"x"),
        Blob([b"a"], [None], [b"b", b"c"], [b"2", b"3"], 1, b"y"),
        Blob([b"c", b"gone"], [b"4", None], [], [], 1, b""),
    ]
    cells, last = replayed(map(sealed_blob, blobs))
    assert cells == {b"b": b"2", b"c": b"4"}
    assert last == blobs[-1]
    assert replayed([]) == ({}, None)


def test_a_damaged_blob_of_cells_is_an_error() -> None:
    blob = sealed_blob(Blob([b"a"], [b"1"], [], [], 1, b""))
    for bad in (blob[:-1], blob[:6], b"", blob[:-1] + bytes([blob[-1] ^ 1]), b"abr1" + blob[4:]):
        with pytest.raises(StateError, match="checksum"):
            unsealed_blob(bad)


def test_times_become_microseconds_and_come_back_also_before_1970() -> None:
    for at in (EPOCH, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)):
        assert to_time(to_micros(at), zone=True) == at
        assert to_time(to_micros(at), zone=False) == at.replace(tzinfo=None)
        assert to_micros(at.astimezone(timezone(timedelta(hours=5)))) == to_micros(at)
        assert to_micros(at.replace(tzinfo=None)) == to_micros(at)
    for bad in (True, 1.5, "soon"):
        with pytest.raises(TypeError, match="is not a time"):
            to_micros(bad)
