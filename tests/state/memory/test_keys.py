"""Numbers of keys: equal keys have one, as Spark takes them for equal."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from anabranch.state.memory.keys import KeyTable


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a", None, "ä", "", "a"]),
        (pa.float64(), [0.0, -0.0, float("nan"), float("nan"), None, 1.5]),
        (pa.list_(pa.int64()), [[1, 2], None, [], [1, 2]]),
        (
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            [{"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 1, "b": "x"}],
        ),
        (pa.decimal128(10, 2), [None, 1, 1]),
        (pa.binary(), [b"\xff", b"", b"\xff"]),
        (pa.timestamp("us", tz="UTC"), [0, None, 0]),
        (pa.bool_(), [True, False, None, True]),
    ],
)
def test_keys_of_every_type_get_one_number_each(kind: pa.DataType, values: list[object]) -> None:
    table = KeyTable(pa.schema([("k0", kind)]))
    numbers, _ = table.rows(pa.table({"k0": pa.array(values, kind)}))
    seen: dict[str, int] = {}
    expected = [
        seen.setdefault(
            "nan"
            if isinstance(v, float) and math.isnan(v)
            else str(0.0 if v == 0 and kind == pa.float64() else v),
            len(seen),
        )
        for v in values
    ]
    assert numbers.tolist() == expected
    assert table.rows(pa.table({"k0": pa.array(values, kind)}))[0].tolist() == expected


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("value", [float("nan"), -0.0, None], ids=str)
def test_an_odd_float_key_is_found_again_when_it_is_alone(
    kind: pa.DataType, value: float | None
) -> None:
    table = KeyTable(pa.schema([("k0", kind)]))
    alone = pa.table({"k0": pa.array([value], kind)})
    for _ in range(3):
        assert table.rows(alone)[0].tolist() == [0]
    zeros = pa.table({"k0": pa.array([0.0, value], kind)})
    assert table.rows(zeros)[0].tolist() == ([0, 0] if value == 0 else [1, 0])


def test_keys_that_stay_get_the_numbers_of_their_places() -> None:
    table = KeyTable(pa.schema([("k0", pa.string())]))
    keys = pa.table({"k0": ["a", "b", "c", None]})
    numbers, new = table.rows(keys)
    assert (numbers.tolist(), new.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])
    table.keep(np.array([3, 1]))
    assert len(table) == 2
    assert table.table().column("k0").to_pylist() == [None, "b"]
    numbers, new = table.rows(keys)
    assert numbers.tolist() == [2, 1, 3, 0], "those that were forgotten are new keys"
    assert new.tolist() == [0, 2]
