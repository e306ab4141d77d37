"""The bytes of a delta or a snapshot of a shard: its keys, and (key, pane, partials) in Arrow.

Both have the same form, self-contained and with a checksum, so state is the merge of a snapshot and
the deltas after it, in node-local state and in the durable log alike. Columns have names: one that
a reader wants and a blob lacks is empty, and one that it does not want is left out. Nothing in it
can run code when it is read.
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
    """Partials of a shard: `key` numbers rows of `keys`; no (key, pane) twice.

    Sessions that have closed must not merge with what comes later. There `after_us` is the
    watermark before these partials came: what was over then was forgotten before they were added.
    """

    keys: pa.Table
    key: Array
    pane: Array
    columns: tuple[Array, ...]
    after_us: int | None = None

    def __len__(self) -> int:
        return len(self.key)


def encode(entries: Entries, columns: Mapping[str, PartialColumn]) -> bytes:
    """The bytes of some entries, whose columns have these names."""
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
    """The entries in a blob, with these columns; a damaged one is a StateError.

    Columns that the blob lacks are empty. It never lacks the first, which tells presence.
    """
    keys, table = unsealed(_MAGIC, blob, 2)
    places = {name: i for i, name in enumerate(table.column_names)}
    if (first := next(iter(columns))) not in places:
        raise StateError(f"a state blob has no column {first}: {', '.join(places)}")
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
    """Tables as bytes: what they are, a checksum, the size of each, and each as an Arrow stream."""
    parts = [_ipc(table) for table in tables]
    return b"".join((_header(len(parts)).pack(magic, _checksum(parts), *map(len, parts)), *parts))


def unsealed(magic: bytes, blob: bytes, count: int) -> list[pa.Table]:
    """The `count` tables in a blob; a damaged blob, or one of another kind, is a StateError."""
    header = _header(count)
    try:
        found, crc, *sizes = header.unpack_from(blob)
    except struct.error as error:
        raise StateError("a state blob is cut short") from error
    edges = itertools.accumulate(sizes, initial=header.size)
    parts = [blob[start:end] for start, end in itertools.pairwise(edges)]
    if found != magic or len(blob) != header.size + sum(sizes) or _checksum(parts) != crc:
        raise StateError("a state blob is damaged: its checksum does not fit")
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
