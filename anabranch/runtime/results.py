"""Results as Arrow tables and Parquet files. Slot tasks write them: they never become JVM rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.plan.evolution import names_of
from anabranch.plan.operators.aggregates import AggregatePlan
from anabranch.plan.operators.base import EVERYTHING
from anabranch.runtime.reports import Written
from anabranch.state.checkpoint.files import Files, disk_full_as_state_error
from anabranch.state.memory.keyed import Formed, KeyedState
from anabranch.topology.graph import RESULT_COLUMNS
from anabranch.topology.windows import NEVER
from anabranch.types import Array, arrow_type


def result_table(state: KeyedState, closed: Sequence[Formed]) -> tuple[pa.Table | None, Array]:
    """All rows of the windows that closed, as one table, and the shard of each."""
    plan = state.plan
    sizes = [len(each.rows) for each in closed]
    if not sum(sizes):
        return None, np.empty(0, dtype=np.int32)
    rows = np.concatenate([each.rows for each in closed])
    columns = [
        np.concatenate(group) for group in zip(*(each.columns for each in closed), strict=True)
    ]
    keys = state.keys.table()
    arrays: list[pa.Array] = []
    numbers = pa.array(rows, pa.int32())
    for i, given in enumerate(plan.keys):
        if given != EVERYTHING:
            column = keys.column(i).combine_chunks()
            # Strings become indices into the shard's keys: nothing is copied, and Parquet uses the
            # same dictionary.
            as_numbers = pa.types.is_string(column.type) and not column.null_count
            arrays.append(
                pa.DictionaryArray.from_arrays(numbers, column)
                if as_numbers
                else column.take(numbers)
            )
    moment = arrow_type(plan.time_type)
    edges = [
        np.concatenate(group) for group in zip(*(each.edges() for each in closed), strict=True)
    ]
    arrays.append(
        pa.StructArray.from_arrays(
            [pa.array(edge).cast(moment) for edge in edges], ["start", "end"]
        )
    )
    windows = np.repeat(np.array([each.window for each in closed], dtype=np.int32), sizes)
    arrays.append(_names(plan, windows, edges[0]))
    if plan.early:
        arrays.append(pa.array(np.repeat(np.array([each.early for each in closed]), sizes)))
    for result, values in zip(plan.results, plan.finished(columns), strict=True):
        arrays.append(_known(values, edges[0], result.complete_from))
    table = pa.Table.from_arrays(arrays, names=[each.name for each in plan.written_fields])
    return table, state.shard_of[rows]


def _names(plan: AggregatePlan, windows: Array, start_us: Array) -> pa.Array:
    """The name of each row's window: the plain one, or the one of a window that was added later
    and lacks earlier rows.
    """
    names = plan.window_names
    if plan.complete_from:
        since = np.array(
            [plan.complete_from.get(i, NEVER) for i in range(len(names))], dtype=np.int64
        )
        windows = np.where(start_us < since[windows], windows + np.int32(len(names)), windows)
    spelled = pa.array([*names, *(names_of(name)[1] for name in names)])
    return pa.DictionaryArray.from_arrays(pa.array(windows), spelled)


def _known(values: pa.Array, start_us: Array, complete_from: int | None) -> pa.Array:
    """The values of an aggregate; null in windows that started before it had all rows."""
    unknown = start_us < (NEVER if complete_from is None else complete_from)
    if not unknown.any():
        return values
    return values.take(pa.array(np.arange(len(values)), mask=unknown))


def late_table(left_out: pa.ChunkedArray, times: Array, why: Array) -> pa.Table:
    """The rows that no open window took, each as often as it came, with the reason."""
    index = pa.array(np.repeat(np.arange(len(times)), times))
    rows = left_out.combine_chunks().take(index)
    reasons = pa.array(why.tolist(), pa.string()).take(index)
    return pa.Table.from_arrays(
        [*rows.flatten(), reasons], names=[*(field.name for field in rows.type), "reason"]
    )


def of_window(table: pa.Table, window: str) -> Array:
    """Which results belong to a window, those that lack earlier rows included."""
    names = table.column(RESULT_COLUMNS[1]).combine_chunks()
    if not pa.types.is_dictionary(names.type):
        names = names.dictionary_encode()
    wanted = np.isin(names.dictionary.to_pylist(), names_of(window))
    mine: Array = wanted[names.indices.to_numpy()]
    return mine


def by_window(
    table: pa.Table, windows: Sequence[str], *, others: bool
) -> list[tuple[str | None, pa.Table]]:
    """The results of each of some windows; with `others`, also those of all others, under None."""
    if not windows:
        return [(None, table)] if others else []
    found: list[tuple[str | None, pa.Table]] = []
    left = np.full(table.num_rows, others)
    for window in windows:
        mine = of_window(table, window)
        left &= ~mine
        if mine.any():
            found.append((window, table.filter(pa.array(mine))))
    if left.any():
        found.append((None, table.filter(pa.array(left))))
    return found


def write_results(
    table: pa.Table, files: Files, step: int, name: str, window: str | None = None
) -> Written:
    """Writes rows of a step for sinks, under a name that is new in each attempt."""
    path = f"results/{step:08d}/{name}.parquet"
    with disk_full_as_state_error(files.location):
        write_table(table, files, path)
    return Written(path=path, rows=table.num_rows, window=window)


def write_table(table: pa.Table, files: Files, name: str) -> None:
    """Writes a Parquet file that Spark reads back with the same types. It is durable on return."""
    path = files.path(name)
    if files.local:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    # Dictionaries and statistics help readers for keys, windows and counts. For floats they cost
    # more time than the rest of the file.
    worth = [name for name, kind in _leaves(table.schema) if not pa.types.is_floating(kind)]
    pq.write_table(
        table,
        path,
        filesystem=None if files.local else files.filesystem,
        compression="snappy",
        store_schema=False,
        use_dictionary=worth,
        write_statistics=worth,
    )
    if files.local:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _leaves(fields: pa.Schema | pa.StructType, prefix: str = "") -> list[tuple[str, pa.DataType]]:
    """The columns of a Parquet file: path and type of everything that is not a struct."""
    found = []
    for field in fields:
        name = f"{prefix}{field.name}"
        found += (
            _leaves(field.type, f"{name}.")
            if pa.types.is_struct(field.type)
            else [(name, field.type)]
        )
    return found
