"""Rows as they arrive at an operator of a slot: from the exchange, or from another operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.plan.operators.base import OperatorPlan, key_schema
from anabranch.plan.panes import FARTHEST_US, LEFT_OUT, OUT_OF_RANGE, Panes
from anabranch.runtime.results import of_window
from anabranch.runtime.tasks import ArrivingRows, FusedRows, NodeOutcome
from anabranch.types import Array, to_array


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Rows that are not combined: shard, keys, inputs, event time, and the columns that are kept.

    An input that is None is a constant.
    """

    shards: Array
    keys: Sequence[pa.ChunkedArray | pa.Array]
    inputs: Sequence[pa.Array | None]
    t: Array
    payload: Sequence[pa.ChunkedArray | pa.Array] = ()

    def panes(self, panes: Panes) -> Array:
        """The pane of each row; a mark if it has no time, or a window that Python cannot show."""
        known = (self.t < -FARTHEST_US) | panes.can_show(self.t)
        return pane_starts(np.where(known, self.t, OUT_OF_RANGE), panes)[0]

    def only(self, at: Array) -> RowColumns:
        """The rows at some indices."""
        index = pa.array(at)
        keys, payload = (
            [each.take(index) for each in columns] for columns in (self.keys, self.payload)
        )
        return RowColumns(
            self.shards[at],
            keys,
            [None if x is None else x.take(index) for x in self.inputs],
            self.t[at],
            payload,
        )


def pane_starts(times: Array, panes: Panes) -> tuple[Array, Array | None]:
    """The panes of some times, and a number that differs between times of one pane.

    Marks stay as they are. Numbers are 0, 1, ...; they are None if each pane has one time only.
    If panes are cut, Spark passes a time inside the pane, and may pass several times of one pane.
    """
    if not panes.cuts and panes.width_us is not None:
        width, offset = panes.width_us, panes.offset_us
        return np.where(times < -FARTHEST_US, times, times - (times - offset) % width), None
    distinct, at = np.unique(times, return_inverse=True)
    starts = np.where(distinct < -FARTHEST_US, distinct, panes.starts(distinct))
    first = np.searchsorted(starts, starts)  # both are in order
    number = np.arange(len(starts)) - first
    return starts[at], number[at] if number.any() else None


def arrived_partials(
    incoming: pa.Table, plan: OperatorPlan, named: ArrivingRows
) -> Sequence[Array]:
    """The columns of all partials, from rows that were combined before they were sent."""
    return [
        column
        for kept in plan.kept
        for column in kept.partial.arrive(
            [incoming.column(named.columns[name]) for name in kept.lifted]
        )
    ]


def arrived_rows(
    incoming: pa.Table, shards: Array, plan: OperatorPlan, named: ArrivingRows
) -> RowColumns:
    """Rows of an earlier level, which are not combined."""
    keys = [incoming.column(named.columns[f"k{i}"]) for i in range(len(plan.keys))]
    count = 1 + max((kept.input for kept in plan.kept), default=0)
    inputs = [
        None,
        *(incoming.column(named.columns[f"x{i}"]).combine_chunks() for i in range(1, count)),
    ]
    payload = [incoming.column(named.columns[f"r{i}"]) for i in range(len(plan.payload))]
    return RowColumns(
        shards,
        keys,
        inputs,
        to_array(incoming.column(named.columns["t"]), np.dtype(np.int64), LEFT_OUT),
        payload,
    )


def rows_of_results(upstream: Sequence[NodeOutcome], fused: FusedRows) -> RowColumns | None:
    """The complete results of an operator, as rows of the next one."""
    given = [
        (each.results, each.shards)
        for each in upstream
        if each.results is not None and each.shards is not None
    ]
    if not given:
        return None
    table = pa.concat_tables(
        [decode_dictionaries(results.slice(0, len(shards))) for results, shards in given]
    )
    shards = np.concatenate([shards for _, shards in given])
    if fused.window is not None:
        mine = of_window(table, fused.window)
        table, shards = table.filter(pa.array(mine)), shards[mine]

    def column(name: str) -> pa.Array:
        return table.column(name).combine_chunks()

    def input_of(names: str | tuple[str, ...] | None) -> pa.Array | None:
        if names is None or isinstance(names, str):
            return None if names is None else column(names)
        return pa.StructArray.from_arrays(
            [column(name) for name in names], [f"a{i}" for i in range(len(names))]
        )

    t = _happened(column(fused.time))
    keys = [column(name) for name in fused.keys] or [
        pa.array(np.zeros(table.num_rows, dtype=np.int32))
    ]
    return RowColumns(
        shards,
        keys,
        [input_of(each) for each in fused.inputs],
        t,
        [column(name) for name in fused.payload],
    )


def _happened(time: pa.Array) -> Array:
    """The event time of results: just before the end of their window, or their own column."""
    if pa.types.is_struct(time.type):
        ends: Array = time.field("end").cast(pa.int64()).to_numpy()
        return ends - 1
    return to_array(time.cast(pa.int64()), np.dtype(np.int64), LEFT_OUT)


def decode_dictionaries(table: pa.Table) -> pa.Table:
    """The table, with dictionary columns as plain columns."""
    for i, each in enumerate(table.schema):
        if pa.types.is_dictionary(each.type):
            table = table.set_column(i, each.name, table.column(i).cast(each.type.value_type))
    return table


def by_shard(shards: Array, counts: Array) -> dict[int, int]:
    """How many rows each shard has."""
    if not len(shards):
        return {}
    sums = np.bincount(shards, weights=counts)
    return {int(shard): int(sums[shard]) for shard in np.flatnonzero(sums)}


def keys_of(columns: Sequence[pa.ChunkedArray | pa.Array], plan: OperatorPlan) -> pa.Table:
    """The keys of some rows as a table."""
    schema = key_schema(plan)
    return pa.Table.from_arrays(list(columns), names=schema.names).cast(schema)
