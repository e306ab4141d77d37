"""Column types by their Spark SQL name ("bigint", "decimal(10,2)"), and their values in arrays.

Whole numbers, dates and times are int64 and floats are float64. Strings, binary, decimals and
nested values are objects. Types are names here so that nothing below the Spark layer needs Spark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    raise TopologyError(
        f"values of type {name} cannot be aggregated; valid: {', '.join(known)}, decimal(p,s)"
    )


def column_type(name: str, *, maps: bool = False) -> pa.DataType:
    """The Arrow type of a column that is a key or a result.

    It may be an array or a struct of such types. With `maps=True` it may be a map too.
    """
    if (inner := element_of(name)) is not None:
        return pa.list_(column_type(inner, maps=maps))
    if (fields := struct_fields(name)) is not None:
        return pa.struct([(field, column_type(kind, maps=maps)) for field, kind in fields.items()])
    if maps and (match := re.fullmatch(r"map<(.*)>", name)):
        return pa.map_(*(column_type(part, maps=maps) for part in split_fields(match[1])))
    return arrow_type(name)


def element_of(name: str) -> str | None:
    """The type of an array's elements, None for another type."""
    match = re.fullmatch(r"array<(.*)>", name)
    return match[1] if match else None


def struct_fields(name: str) -> dict[str, str] | None:
    """Names and types of a struct's fields, None for another type."""
    match = re.fullmatch(r"struct<(.*)>", name)
    return (
        {part.partition(":")[0]: part.partition(":")[2] for part in split_fields(match[1])}
        if match
        else None
    )


def split_fields(text: str) -> list[str]:
    """The parts of a list of columns. A comma inside a type does not separate parts."""
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
    """The type of an array of such values."""
    if name in FLOATING:
        return np.dtype(np.float64)
    if name in WHOLE or name in _TIMES:
        return np.dtype(np.int64)
    column_type(name)
    return np.dtype(object)


def to_array(values: pa.Array | pa.ChunkedArray, dtype: np.dtype[Any], missing: object) -> Array:
    """An Arrow column as an array, with `missing` instead of null.

    Numbers become floats in the same way as in Spark's cast.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if dtype.kind == "O":
        return np.array([*values.to_pylist(), None], dtype=object)[:-1]
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_decimal(values.type):
        # Arrow's own cast to a float is off by one bit in one of seven cases.
        values = values.cast(pa.string())
    values = values.cast(pa.int64()) if dtype == np.int64 else values.cast(pa.float64(), safe=False)
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


def exact_array(values: Any, kind: pa.DataType) -> pa.Array:
    """Python values as an Arrow column. Raises a ValueError if a value would change.

    As in pyarrow's safe casts, 2.0 is a whole number and 1.5 is not. pyarrow itself is less strict
    with Python values: it cuts off fractions, and turns numbers too large for a float into
    infinity.
    """
    made = pa.array(values, type=kind)
    if isinstance(made, pa.ChunkedArray):
        made = made.combine_chunks()
    _refuse_changed(values, kind)
    return made


def _refuse_changed(values: Iterable[Any], kind: pa.DataType) -> None:
    """Refuses values that lose something in a column of this type. All values can be converted."""
    if pa.types.is_list(kind):
        _refuse_changed(chain.from_iterable(_present(values)), kind.value_type)
    elif pa.types.is_map(kind):
        pairs = [pair for each in _present(values) for pair in dict(each).items()]
        _refuse_changed([key for key, _ in pairs], kind.key_type)
        _refuse_changed([value for _, value in pairs], kind.item_type)
    elif pa.types.is_struct(kind):
        rows = [each if isinstance(each, Mapping) else dict(each) for each in _present(values)]
        for field in kind:
            _refuse_changed([each.get(field.name) for each in rows], field.type)
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        values = values if isinstance(values, Sequence) else list(values)
        if any(map(_may_have_fraction, set(map(type, values)))):
            for value in values:
                if _may_have_fraction(type(value)) and abs(value) % 1 > 0:
                    raise ValueError(f"{value!r} is not a whole number")
    elif pa.types.is_float32(kind):
        largest = float(np.finfo(np.float32).max)
        for value in _present(values):
            if largest < abs(value) < float("inf"):
                raise ValueError(f"{value!r} is too large for a float")


def _present(values: Iterable[Any]) -> Iterator[Any]:
    return (each for each in values if each is not None)


def _may_have_fraction(kind: type) -> bool:
    return issubclass(kind, Real | Decimal) and not issubclass(kind, Integral)


def objects(values: Iterable[object]) -> Array:
    """Any values as an array of objects; tuples stay tuples."""
    return np.fromiter(values, dtype=object)


def ordered(values: pa.Array | pa.ChunkedArray, name: str) -> list[Any]:
    """The values of a column without nulls, as Python values that compare and sort as in Spark.

    Floats become whole numbers, in the order of their bits: -0.0 equals 0.0, and NaN equals NaN
    and is above all numbers. A struct becomes a tuple.
    """
    if (fields := struct_fields(name)) is not None:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        columns = [
            ordered(column, kind)
            for column, kind in zip(values.flatten(), fields.values(), strict=True)
        ]
        return list(zip(*columns, strict=True))
    array = to_array(values, dtype_of(name), None)
    if array.dtype.kind == "f":
        array = _by_bits(np.where(np.isnan(array), np.nan, array + 0.0).view(np.int64))
    found: list[Any] = array.tolist()
    return found


def from_ordered(values: Sequence[Any], name: str) -> pa.Array:
    """The column for values that `ordered` returned."""
    if (fields := struct_fields(name)) is not None:
        arrays = [
            from_ordered([each[i] for each in values], kind)
            for i, kind in enumerate(fields.values())
        ]
        return pa.StructArray.from_arrays(arrays, list(fields))
    dtype = dtype_of(name)
    if dtype.kind == "O":
        return pa.array(values, type=arrow_type(name))
    array = np.array(values, dtype=np.int64)
    return to_arrow(_by_bits(array).view(np.float64) if dtype.kind == "f" else array, name)


def _by_bits(bits: Array) -> Array:
    """The bits of a float as a whole number that sorts the same way, and back."""
    flipped: Array = bits ^ ((bits >> 63) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
    return flipped


def from_lists(column: pa.Array | pa.ChunkedArray, name: str) -> Iterator[list[Any]]:
    """The lists in a column of arrays, with values as in `ordered`; null becomes an empty list."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    flat = ordered(column.flatten(), name)
    end = 0
    for length in pc.fill_null(pc.list_value_length(column), 0).to_pylist():
        yield flat[end : end + length]
        end += length


def to_lists(
    values: Sequence[Collection[Any] | None], name: str, *, null: bool = False
) -> pa.Array:
    """A column of arrays, from lists of values as in `ordered`.

    None becomes an empty array, or null with `null=True`.
    """
    lengths = np.array([0 if each is None else len(each) for each in values], dtype=np.int32)
    flat = [value for each in values if each is not None for value in each]
    offsets = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)])
    mask = pa.array(np.array([each is None for each in values], dtype=bool)) if null else None
    return pa.ListArray.from_arrays(pa.array(offsets), from_ordered(flat, name), mask=mask)


def integer_sql(name: str, x: str) -> str | None:
    """Spark SQL that turns a value into a whole number. Equal values get equal numbers, and others
    do not.

    None if values of the type do not fit into an int64.
    """
    if name in WHOLE or name == "boolean":
        return f"cast({x} as bigint)"
    return {
        "date": f"cast(unix_date({x}) as bigint)",
        "timestamp": f"unix_micros({x})",
        "timestamp_ntz": micros_sql(x),
    }.get(name)


def micros_sql(x: str) -> str:
    """Spark SQL of a timestamp_ntz in microseconds since 1970, as if it were UTC."""
    hours, minutes = f"hour({x}) * 3600000000L", f"minute({x}) * 60000000L"
    seconds = f"cast(extract(second from {x}) * 1000000 as bigint)"
    return f"unix_date(cast({x} as date)) * 86400000000L + {hours} + {minutes} + {seconds}"
