"""Values in the form that sketches take, the same in Spark SQL and in Python.

Two forms must be equal exactly if the values are equal, whether the JVM or Python made them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.types import (
    FLOATING,
    Array,
    decimal_of,
    dtype_of,
    integer_sql,
    ordered,
    to_array,
)

# The primes of XXH64.
_PRIMES = [
    np.uint64(each)
    for each in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
]


def item_sql(name: str) -> str:
    """SQL for a value of a type in a form that Spark's sketches take."""
    if (whole := integer_sql(name, "{x}")) is not None:
        return whole
    if name in {"float", "double"}:
        return "(cast({x} as double) + 0D)"
    return {"string": "{x}", "binary": "hex({x})"}.get(name, "cast({x} as string)")


def hash_input_sql(name: str) -> str:
    """SQL for what a sketch of distinct values hashes: a whole number or a string.

    The string of a float depends on the version of Java, and that of a small decimal on the
    session's ANSI mode. So neither is used. A sketch ignores empty strings, so every string begins
    with a letter.
    """
    if name in FLOATING:
        return f"if({{x}} is null, null, xxhash64({item_sql(name)}))"
    decimal = decimal_of(name)
    plain = (
        f"replace(format_number({{x}}, {decimal[1]}), ',', '')"
        if decimal is not None and decimal[1] > 6
        else item_sql(name)
    )
    return integer_sql(name, "{x}") or f"concat('v', {plain})"


def hash_inputs(values: pa.Array, name: str) -> list[Any]:
    """The same for values in Python, which have no nulls."""
    if integer_sql(name, "") is not None:
        return ordered(values, name)
    if name in FLOATING:
        return list(xxhash64(to_array(values, dtype_of(name), None)).tolist())
    items: list[Any] = values.to_pylist()
    if name == "binary":
        items = [each.hex().upper() for each in items]
    elif name != "string":
        items = [f"{each:f}" for each in items]
    return [f"v{each}" for each in items]


def xxhash64(values: Array) -> Array:
    """Spark's xxhash64 of doubles. It is equal for all NaN, and for 0.0 and -0.0."""
    one, two, three, four, five = _PRIMES
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)
    found = (np.uint64(42 + 8) + five) ^ (_rotated(bits * two, 31) * one)
    found = _rotated(found, 27) * one + four
    found = (found ^ (found >> np.uint64(33))) * two
    found = (found ^ (found >> np.uint64(29))) * three
    return (found ^ (found >> np.uint64(32))).view(np.int64)


def _rotated(bits: Array, by: int) -> Array:
    rotated: Array = (bits << np.uint64(by)) | (bits >> np.uint64(64 - by))
    return rotated
