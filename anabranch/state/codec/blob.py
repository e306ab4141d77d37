"""The bytes of a delta or a snapshot of a shard: its keys, and (key, pane, partials) in Arrow.

A delta and a snapshot have the same form. Both are self-contained and have a checksum. So state is
the merge of a snapshot and the deltas after it, in node-local state and in the durable log alike.

Columns have names. A column that the reader wants and the blob lacks is empty. A column that the
reader does not want is left out. Reading a blob never runs code from it.
"""

from __future__ import annotations

import functools
import itertools
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.aggregates.partials import PartialColumn
from anabranch.errors import StateError
from anabranch.types import Array

_MAGIC = b"abr2"
_AFTER = b"after_us"


@dataclass(frozen=True, slots=True)
class Entries:
    """Partials of a shard. `key` is a row number of `keys`; no (key, pane) occurs twice.

    Closed sessions must not merge with later rows. So entries of sessions have `after_us`, the
    watermark before these partials came. Sessions that were over by then were dropped first.
    """

    keys: pa.Table
    key: Array
    pane: Array
    columns: tuple[Array, ...]
    after_us: int | None = None

    def __len__(self) -> int:
        return len(self.key)


def encode(entries: Entries, columns: Mapping[str, PartialColumn]) -> bytes:
    """Encodes entries, whose columns have these names."""
    arrays = [pa.array(entries.key, pa.int32()), pa.array(entries.pane, pa.int64())]
    arrays += [
        column.to_arrow(values)
        for values, column in zip(entries.columns, columns.values(), strict=True)
    ]
    names = ["key", "pane", *columns]
    after = None if entries.after_us is None else {_AFTER: str(entries.after_us)}
    table = pa.Table.from_arrays(arrays, names=names, metadata=after)
    return sealed(_MAGIC, [entries.keys, table])


def decode(blob: bytes, columns: Mapping[str, PartialColumn]) -> Entries:
    """Decodes the entries in a blob. A damaged blob is a StateError.

    Columns that the blob lacks are empty. It never lacks the first one, which says whether a key
    has rows.
    """
    keys, table = unsealed(_MAGIC, blob, 2)
    places = {name: i for i, name in enumerate(table.column_names)}
    if (first := next(iter(columns))) not in places:
        raise StateError(f"a state blob has no column {first}; it has {', '.join(places)}")
    arrays = tuple(
        column.from_arrow(table.column(places[name]))
        if name in places
        else column.empty(table.num_rows)
        for name, column in columns.items()
    )
    key, pane = (table.column(i).combine_chunks().to_numpy() for i in range(2))
    after = (table.schema.metadata or {}).get(_AFTER)
    return Entries(keys, key, pane, arrays, None if after is None else int(after))


def sealed(magic: bytes, tables: Sequence[pa.Table]) -> bytes:
    """Tables as bytes: a magic number, a checksum, their sizes, and each as an Arrow stream."""
    parts = [_ipc(table) for table in tables]
    return b"".join((_header(len(parts)).pack(magic, _checksum(parts), *map(len, parts)), *parts))


def unsealed(magic: bytes, blob: bytes, count: int) -> list[pa.Table]:
    """The `count` tables in a blob. A damaged blob, or one of another kind, is a StateError."""
    header = _header(count)
    try:
        found, crc, *sizes = header.unpack_from(blob)
    except struct.error as error:
        raise StateError("a state blob is cut short") from error
    edges = itertools.accumulate(sizes, initial=header.size)
    parts = [blob[start:end] for start, end in itertools.pairwise(edges)]
    if found != magic or len(blob) != header.size + sum(sizes) or _checksum(parts) != crc:
        raise StateError("a state blob is damaged: its checksum does not match")
    return [_read(part) for part in parts]


def _header(count: int) -> struct.Struct:
    return struct.Struct(f"<4sI{count}Q")


def _checksum(parts: Sequence[bytes]) -> int:
    return functools.reduce(lambda crc, part: zlib.crc32(part, crc), parts, 0)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _read(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
