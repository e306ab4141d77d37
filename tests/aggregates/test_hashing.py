"""What sketches hash: hashes are equal exactly if values are, in SQL and in Python."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from anabranch.aggregates.hashing import hash_input_sql, hash_inputs, item_sql, xxhash64
from anabranch.types import arrow_type


def test_a_float_is_hashed_alone_and_as_equal_floats_are() -> None:
    odd = np.array([0.0, -0.0, math.nan, -math.nan, np.inf, -np.inf, 1.0, 0.1, 5e-324])
    hashes = xxhash64(odd).tolist()
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[3]
    assert len(set(hashes)) == 7


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int", [3, -3], [3, -3]),
        ("string", ["", "a"], ["v", "va"]),
        ("binary", [b"", b"\x0a\xff"], ["v", "v0AFF"]),
        ("decimal(10,2)", [Decimal("1.50"), Decimal("-0.01")], ["v1.50", "v-0.01"]),
    ],
)
def test_whole_numbers_are_hashed_as_they_are_and_the_rest_as_text_after_a_letter(
    kind: str, values: list[object], expected: list[object]
) -> None:
    assert hash_inputs(pa.array(values, arrow_type(kind)), kind) == expected


def test_the_sql_gives_a_text_after_a_letter_or_a_whole_number_too() -> None:
    assert hash_input_sql("string") == "concat('v', {x})"
    assert hash_input_sql("binary") == "concat('v', hex({x}))"
    assert "format_number({x}, 8)" in hash_input_sql("decimal(20,8)")
    assert hash_input_sql("double").startswith("if({x} is null, null, xxhash64(")
    assert hash_input_sql("bigint") == item_sql("bigint")
