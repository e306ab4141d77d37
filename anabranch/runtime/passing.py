"""Rows that only pass through a slot task: reports, and source rows for later levels.

Between levels all rows share columns by type, but rows from the lift have columns of their own. So
these are wrapped, one row per operator and shard. It has the operator, the shard, and the rows
themselves as an Arrow stream, in the column of reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from anabranch.types import to_array

REPORT = -1  # instead of an operator's number: the row is a report
WRAPPED = "report"
_PIECE_BYTES = 32 << 20
APPLY_REPORT = "apply_report"  # the column of an apply's report, among rows from the lift


def wrapped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows that pass through a level. Combined rows become one row per operator and shard.

    Each batch has rows for one operator, or reports.
    """
    combined: list[pa.RecordBatch] = []
    for batch in batches:
        names = batch.schema.names
        if WRAPPED in names or _reports_of_applies(batch):
            yield pa.Table.from_batches([with_reports(batch)])
        else:
            combined.append(batch.drop_columns([APPLY_REPORT]) if APPLY_REPORT in names else batch)
    if combined:
        yield _by_shard(pa.Table.from_batches(combined).combine_chunks())


def with_reports(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, with its reports in the column that they have after the first level."""
    if WRAPPED in batch.schema.names:
        return batch
    to, text = (batch.column(batch.schema.get_field_index(name)) for name in ("to", APPLY_REPORT))
    return pa.RecordBatch.from_pydict({"to": to, WRAPPED: text.cast(pa.binary())})


def _reports_of_applies(batch: pa.RecordBatch) -> bool:
    at = batch.schema.get_field_index(APPLY_REPORT)
    return at >= 0 and not batch.column(at).null_count


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


def by_operator(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The numbers in the column `to` of a batch, ascending, each with its rows."""
    column = batch.column(batch.schema.get_field_index("to"))
    to = column.fill_null(0).to_numpy(zero_copy_only=False)
    for number in np.unique(to).tolist():
        mine = to == number
        yield number, batch if mine.all() else batch.filter(pa.array(mine))


def spread(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the columns of a schema. Columns that they do not have are null."""
    arrays = [
        table.column(each.name).combine_chunks().cast(each.type)
        if each.name in table.column_names
        else pa.nulls(len(table), each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that the JVM can hold in memory. A small batch stays as it is."""
    if batch.nbytes <= _PIECE_BYTES or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half))
    yield from pieces(batch.slice(half))


def unwrapped(table: pa.Table) -> pa.Table:
    """The rows that `wrapped` has wrapped. Other rows stay as they are."""
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
