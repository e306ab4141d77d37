"""Rows of sources for operators of later levels: they pass the slot tasks before, wrapped by shard,
as the lift has combined them.

Between levels all rows share columns by type, and what the lift gives has columns of its own. So
the rows of one operator and shard travel as one row: which operator, which shard, and the rows
themselves as an Arrow stream in the column that reports have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from anabranch.types import to_array

REPORT = -1  # in the place of an operator's number: the row is a report
WRAPPED = "report"


def wrapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows that pass a level: combined ones as one row for each operator and shard, all others as
    they are.
    """
    combined: list[pa.RecordBatch] = []
    for batch in batches:
        if WRAPPED in batch.schema.names:
            yield pa.Table.from_batches([batch])
        else:
            combined.append(batch)
    if combined:
        yield _by_shard(pa.Table.from_batches(combined).combine_chunks())


def _by_shard(table: pa.Table) -> pa.Table:
    to, shards = (to_array(table.column(name), np.dtype(np.int64), 0) for name in ("to", "shard"))
    order = np.lexsort((shards, to))
    table, to, shards = table.take(pa.array(order)), to[order], shards[order]
    firsts = np.flatnonzero(
        np.diff(to, prepend=to[:1] - 1) | np.diff(shards, prepend=shards[:1] - 1)
    )
    ends = [*firsts[1:].tolist(), len(to)]
    blobs = [_stream(table.slice(a, b - a)) for a, b in zip(firsts.tolist(), ends, strict=True)]
    return pa.table(
        {
            "to": pa.array(to[firsts], pa.int32()),
            "shard": pa.array(shards[firsts], pa.int32()),
            WRAPPED: pa.array(blobs, pa.binary()),
        }
    )


def unwrapped(table: pa.Table) -> pa.Table:
    """The rows in what was wrapped; rows that were not are as they are."""
    if WRAPPED not in table.column_names or table.column(WRAPPED).null_count:
        return table
    return pa.concat_tables(
        [pa.ipc.open_stream(blob.as_buffer()).read_all() for blob in table.column(WRAPPED)]
    )


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
