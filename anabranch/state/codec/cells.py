"""The bytes of `process` state: keys, cells, and blobs of both.

A cell is what `process` stores for one key: its timers, when it expires, and its state.

A blob is what a step adds to the durable log of a shard: the cells that it changed, and the next
slice of all others. After one pass of slices through all cells, the log has everything since the
step with the first slice. Older files can then be deleted. So no step ever writes all of the state,
and a restore reads a small multiple of it.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import StateError
from anabranch.topology.graph import Field
from anabranch.types import column_type

_MAGIC = b"abp1"
_LONG_HEAD = 255
_FIRST = operator.itemgetter(0)


class Head(NamedTuple):
    """The part of a cell before its state: timers by name, and when its time to live ends.

    At `noted_us` the cell is checked for expiry. That is never after `expires_us`, but may be
    before: most cells are touched again before they expire, and the note is not moved each time.
    """

    timers: Mapping[str, int]
    expires_us: int | None = None
    noted_us: int | None = None

    def alarms(self) -> set[int]:
        """The times at which the cell must be checked."""
        found = set(self.timers.values())
        return found if self.noted_us is None else {*found, self.noted_us}


NO_HEAD = Head({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The watermarks of a step. By the first, rows are late; by the second, timers are due.

    When a run finishes, all timers are due.
    """

    after_us: int | None
    until_us: int | None
    finish: bool = False


def renoted(head: Head | None, expires_us: int | None, until_us: int | None) -> Head:
    """A head without timers and with a new end of the time to live.

    The old note stays, unless it has passed or is later than the new end.
    """
    noted = None if head is None else head.noted_us
    if (
        noted is None
        or expires_us is None
        or noted > expires_us
        or (until_us is not None and noted <= until_us)
    ):
        noted = expires_us
    return Head({}, expires_us, noted)


_encode = msgspec.msgpack.Encoder().encode
_NULL = _encode((None,))  # two bytes; an integer has eight
_decode_head = msgspec.msgpack.Decoder(tuple[dict[str, int], int | None, int | None]).decode


def sealed_cell(head: Head, state: bytes) -> bytes:
    """A cell as bytes: the length of its head, the head, the state."""
    if not head.timers and head.noted_us is None:
        return b"\0" + state
    encoded = _encode(head)
    if len(encoded) < _LONG_HEAD:
        return bytes((len(encoded),)) + encoded + state
    return b"\xff" + len(encoded).to_bytes(4, "big") + encoded + state


def head_of(cell: bytes) -> tuple[Head, bytes]:
    """The head of a cell, and its state."""
    size, at = cell[0], 1
    if size == 0:
        return NO_HEAD, cell[1:]
    if size == _LONG_HEAD:
        size, at = int.from_bytes(cell[1:5], "big"), 5
    try:
        return Head(*_decode_head(cell[at : at + size])), cell[at + size :]
    except msgspec.DecodeError as error:
        raise StateError(f"a cell of state is damaged: {error}") from error


def has_heads(cells: Iterable[bytes | None]) -> bool:
    """Whether any cell has timers or a time to live.

    Usually none has. Then cells need not be checked one by one.
    """
    return any(map(_FIRST, filter(None, cells)))


def alarms_of(cell: bytes | None) -> set[int]:
    """The times at which a cell must be checked."""
    return set() if cell is None or cell[0] == 0 else head_of(cell)[0].alarms()


class Blob(msgspec.Struct, array_like=True, frozen=True):
    """What a step adds to the log of a shard. A cell that is None was deleted."""

    keys: list[bytes]
    cells: list[bytes | None]
    slice_keys: list[bytes]
    slice_cells: list[bytes]
    began: int  # the step in which this pass through all cells began
    at: bytes  # how far the pass has come; empty: at the beginning


_decode_blob = msgspec.msgpack.Decoder(Blob).decode


def sealed_blob(blob: Blob) -> bytes:
    """The bytes of a blob, with a checksum."""
    body = _encode(blob)
    return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body


def unsealed_blob(data: bytes) -> Blob:
    """Decodes a blob. Damaged bytes, or bytes of something else, are a StateError."""
    body = data[8:]
    if data[:4] != _MAGIC or zlib.crc32(body).to_bytes(4, "big") != data[4:8]:
        raise StateError("a state blob is damaged: its checksum does not match")
    return _decode_blob(body)


def replayed(blobs: Iterable[bytes]) -> tuple[dict[bytes, bytes], Blob | None]:
    """The cells after all blobs of a shard, given in the order of steps; and the last blob."""
    cells: dict[bytes, bytes] = {}
    last = None
    for data in blobs:
        last = unsealed_blob(data)
        cells.update(zip(last.slice_keys, last.slice_cells, strict=True))
        for key, cell in zip(last.keys, last.cells, strict=True):
            if cell is None:
                cells.pop(key, None)
            else:
                cells[key] = cell
    return cells, last


def encoded_keys(keys: pa.Table) -> list[bytes]:
    """Each row of key columns as bytes. They are equal exactly if the keys are equal to Spark.

    The bytes of a key do not depend on the other rows.
    """
    columns = [
        _plain(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
        for column in keys.columns
    ]
    if len(columns) == 1 and _is_number(keys.schema.field(0).type):
        numbers = (
            columns[0].cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(">i8")
        )
        found: list[bytes] = numbers.view("V8").tolist()
        if columns[0].null_count:
            for place in np.flatnonzero(
                columns[0].is_null().to_numpy(zero_copy_only=False)
            ).tolist():
                found[place] = _NULL
        return found
    return [_encode(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def decoded_keys(keys: Sequence[bytes], fields: Sequence[Field]) -> pa.Table:
    """The key columns that `encoded_keys` turned into these bytes."""
    kinds = [column_type(each.type) for each in fields]
    names = [f"k{i}" for i in range(len(fields))]
    if len(fields) == 1 and _is_number(kinds[0]):
        gone = np.fromiter((key == _NULL for key in keys), dtype=bool, count=len(keys))
        numbers = np.frombuffer(
            b"".join(bytes(8) if key == _NULL else key for key in keys), dtype=">i8"
        ).astype(np.int64)
        found = pa.array(numbers, mask=gone)
        return pa.table(
            [
                found.cast(pa.int32()).cast(kinds[0])
                if pa.types.is_date(kinds[0])
                else found.cast(kinds[0])
            ],
            names=names,
        )
    rows = [msgspec.msgpack.decode(key) for key in keys]
    columns = [_typed([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    return pa.table(columns, names=names)


def _is_number(kind: pa.DataType) -> bool:
    """Whether a key of this type is an integer, and so has eight bytes."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _plain(column: pa.Array) -> pa.Array:
    """A key column with values that MessagePack supports: times as numbers, decimals as strings.

    -0.0 becomes 0.0, and all NaN become one.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column).cast(
            pa.float64()
        )
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.int32())
    return column.cast(pa.string()) if pa.types.is_decimal(kind) else column


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return (
        pa.array(values, pa.string()).cast(kind)
        if pa.types.is_decimal(kind)
        else pa.array(values, kind)
    )


def to_micros(at: object) -> int:
    """A time as microseconds since 1970. A time without a zone is read as UTC."""
    if isinstance(at, datetime):
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        since = aware - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    raise TypeError(
        f"{at!r} is not a time; valid: a datetime, or microseconds since 1970 as an int"
    )


def to_time(us: int, *, zone: bool) -> datetime:
    """Microseconds since 1970 as a time, in UTC or without a zone."""
    seconds, rest = divmod(us, 1_000_000)
    found = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    return found if zone else found.replace(tzinfo=None)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
