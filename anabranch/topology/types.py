"""Column types by their Spark SQL name ("bigint", "decimal(10,2)"), and how their values lie in NumPy arrays.

Whole numbers, dates and times are int64, floats are float64; text, binary and decimals are objects. Types are names here
so that nothing below the Spark layer needs Spark.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.errors import TopologyError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

WHOLE = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
FLOATING = {"float": pa.float32(), "double": pa.float64()}
_TIMES = {
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
}
_OBJECTS = {"string": pa.string(), "binary": pa.binary()}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a Spark type that aggregates can hold."""
    known = {**WHOLE, **FLOATING, **_TIMES, **_OBJECTS}
    if name in known:
        return known[name]
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise TopologyError(f"values of type {name} cannot be aggregated; valid: {', '.join(known)}, decimal(p,s)")


def key_type(name: str) -> pa.DataType:
    """The Arrow type of a key column; arrays and structs of such types can be keys too."""
    if (match := re.fullmatch(r"array<(.*)>", name)) is not None:
        return pa.list_(key_type(match[1]))
    if (match := re.fullmatch(r"struct<(.*)>", name)) is not None:
        return pa.struct([(part.partition(":")[0], key_type(part.partition(":")[2])) for part in _split_fields(match[1])])
    return arrow_type(name)


def _split_fields(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def decimal_of(name: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type, None for another type."""
    match = _DECIMAL.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def dtype_of(name: str) -> np.dtype[Any]:
    """How values of this type lie in an array."""
    if name in FLOATING:
        return np.dtype(np.float64)
    if name in WHOLE or name in _TIMES:
        return np.dtype(np.int64)
    arrow_type(name)
    return np.dtype(object)


def to_array(values: pa.Array | pa.ChunkedArray, dtype: np.dtype[Any], missing: object) -> Array:
    """An Arrow column as an array, with `missing` where it has null."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if dtype.kind == "O":
        return np.array([*values.to_pylist(), None], dtype=object)[:-1]
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    values = values.cast(pa.int64() if dtype == np.int64 else pa.float64())
    if values.null_count:
        values = values.fill_null(pa.scalar(missing, values.type))
    array: Array = values.to_numpy(zero_copy_only=False)
    return array


def to_arrow(values: Array, name: str, valid: Array | None = None) -> pa.Array:
    """An array as an Arrow column of a Spark type, null where `valid` is false."""
    target = arrow_type(name)
    if values.dtype.kind == "O":
        kept = values if valid is None else np.where(valid, values, np.array(None))
        return pa.array(kept.tolist(), type=target)
    mask = None if valid is None or valid.all() else ~valid
    if mask is not None:
        values = np.where(mask, values.dtype.type(0), values)
    column = pa.array(values, mask=mask)
    if name == "date":
        return column.cast(pa.int32()).cast(target)
    return column if column.type == target else column.cast(target)
