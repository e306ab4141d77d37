"""Windows and sessions in a slot task: merges the rows of a step into the state of an operator, and closes windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.aggregates.lift_rows import lift_rows
from anabranch.plan.operators.base import OperatorPlan, key_schema
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.operators.process import ProcessPlan
from anabranch.plan.panes import NEVER, Panes
from anabranch.runtime.lateness import LEFT_OUT, TAKEN, all_taken, reasons
from anabranch.runtime.operator import Arriving, Fused, Moment, Outcome, StateWork, Upstream
from anabranch.runtime.results import late_table, result_table
from anabranch.state.memory.keyed import KeyedState
from anabranch.types import Array, to_array


class NodeWork(StateWork):
    """Windows or sessions: rows are partials of keys and panes, and results are formed of these."""

    @property
    def windows(self) -> KeyedState:
        assert isinstance(self.state, KeyedState)
        return self.state

    def merge(self, rows: Mapping[int, pa.Table], upstream: Upstream, moment: Moment) -> Outcome:
        outcome = Outcome()
        given, incoming = self.task.rows, rows.get(self.task.number)
        if isinstance(given, Fused):
            found = rows_of_results(upstream(given.operator), given)
            if found is not None:
                self._merge_rows(found, moment, outcome)
        elif incoming is not None and given.combined:
            self._merge_combined(incoming, moment, outcome)
        elif incoming is not None:
            self._merge_rows(arrived_rows(*self._mine(incoming), self.plan, given), moment, outcome)
        return outcome

    def _merge_combined(self, incoming: pa.Table, moment: Moment, outcome: Outcome) -> None:
        plan, state, named = self.plan, self.windows, self.task.rows
        assert isinstance(named, Arriving)
        incoming, shards = self._mine(incoming)
        pane = to_array(incoming.column("pane"), np.dtype(np.int64), 0)
        counts = to_array(incoming.column(named.columns["c0"]), np.dtype(np.int64), 0)
        outcome.rows_in = by_shard(shards, counts)
        why = (
            None
            if all_taken(pane, plan.panes, moment.after_us)
            else reasons(pane, plan.panes, moment.after_us)
        )
        if why is not None and not (on_time := why == None).all():  # noqa: E711 - element by element
            left_out = ~on_time & (why != TAKEN)
            outcome.left_out = {
                str(each): int(counts[why == each].sum()) for each in set(why[left_out])
            }
            if "row" in named.columns and left_out.any():
                out = incoming.filter(pa.array(left_out))
                outcome.late = late_table(
                    out.column(named.columns["row"]), counts[left_out], why[left_out]
                )
            incoming, shards, pane = (
                incoming.filter(pa.array(on_time)),
                shards[on_time],
                pane[on_time],
            )
        keys = [incoming.column(named.columns[f"k{i}"]) for i in range(len(plan.keys))]
        rows = state.number(keys_of(keys, plan), shards)
        columns = arrived_partials(incoming, plan, named)
        outcome.arrived = len(rows)
        if "part" in incoming.column_names:
            part = to_array(incoming.column("part"), np.dtype(np.int64), 0)
            rows, pane, columns = state.combine(rows, pane, part, columns)
        self._take(rows, pane, columns, outcome)

    def _merge_rows(self, given: Rows, moment: Moment, outcome: Outcome) -> None:
        """Rows of another operator are never late: what closed there in this step is open here."""
        plan, state = self.plan, self.windows
        outcome.rows_in = by_shard(given.shards, np.ones(len(given.shards)))
        panes = plan.panes
        pane = given.panes(panes)
        if not all_taken(pane, panes, moment.after_us):
            why = reasons(pane, panes, moment.after_us)
            on_time = why == None  # noqa: E711 - element by element
            nowhere = (
                ~on_time & ~self._taken_elsewhere(given.t)
                if self.task.first
                else np.zeros(len(why), dtype=bool)
            )
            outcome.left_out = {
                str(each): int((why[nowhere] == each).sum()) for each in set(why[nowhere])
            }
            given, pane = given.only(np.flatnonzero(on_time)), pane[on_time]
        numbers = state.number(keys_of(given.keys, plan), given.shards)
        first, last = int(pane.min(initial=0)), int(pane.max(initial=0))
        group = (
            numbers.astype(np.int64) * ((last - first) // panes.width_us + 1)
            + (pane - first) // panes.width_us
        )
        held, at = np.unique(group, return_inverse=True)
        one = np.empty(len(held), dtype=np.int64)
        one[at] = np.arange(len(at))
        constant = pa.array(np.ones(len(at), dtype=np.int32))
        inputs = [constant if each is None else each for each in given.inputs]
        columns = lift_rows(plan.kept, inputs, given.t, at, len(held))
        outcome.arrived = len(at)
        self._take(numbers[one], pane[one], columns, outcome)

    def _taken_elsewhere(self, t: Array) -> Array:
        """Which rows of another operator another part of this one takes."""
        taken = np.zeros(len(t), dtype=bool)
        for each in self.task.others:
            panes = each.panes
            taken |= (
                panes.last_ends(t - (t - panes.offset_us) % panes.width_us) > NEVER
                if panes.windows
                else True
            )
        return taken

    def _take(self, rows: Array, pane: Array, columns: Sequence[Array], outcome: Outcome) -> None:
        outcome.distinct = len(rows)
        self.windows.add(rows, pane, columns)
        self._deltas = self.windows.entries(rows, pane, columns)

    def close(self, outcome: Outcome, moment: Moment) -> None:
        state = self.windows
        outcome.until_us = until_us = self._until(moment)
        self._closed = list(state.close(moment.after_us, until_us))
        outcome.keys_in = state.keys_by_length(self._closed)
        self._early = list(state.open_windows(until_us)) if self.task.early else []

    def make_rows(self, outcome: Outcome) -> None:
        outcome.results, shards = result_table(
            self.plan, self.windows, [*self._closed, *self._early]
        )
        outcome.rows_out = by_shard(shards, np.ones(len(shards)))
        outcome.shards = shards[: sum(len(each.rows) for each in self._closed)]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows one by one: shard, keys, inputs (None: a constant), event time, and what a join keeps of them."""

    shards: Array
    keys: Sequence[pa.ChunkedArray | pa.Array]
    inputs: Sequence[pa.Array | None]
    t: Array
    payload: Sequence[pa.ChunkedArray | pa.Array] = ()

    def panes(self, panes: Panes) -> Array:
        """The pane of each row; of one without a time, what says so."""
        return np.where(
            self.t == LEFT_OUT, LEFT_OUT, self.t - (self.t - panes.offset_us) % panes.width_us
        )

    def only(self, at: Array) -> Rows:
        """The rows at some places."""
        index = pa.array(at)
        keys, payload = (
            [each.take(index) for each in columns] for columns in (self.keys, self.payload)
        )
        return Rows(
            self.shards[at],
            keys,
            [None if x is None else x.take(index) for x in self.inputs],
            self.t[at],
            payload,
        )


def arrived_partials(incoming: pa.Table, plan: OperatorPlan, named: Arriving) -> Sequence[Array]:
    """The columns of all partials of rows that were combined on their way."""
    return [
        column
        for kept in plan.kept
        for column in kept.partial.arrive(
            [incoming.column(named.columns[name]) for name in kept.lifted]
        )
    ]


def arrived_rows(incoming: pa.Table, shards: Array, plan: OperatorPlan, named: Arriving) -> Rows:
    """Rows of an earlier level, one by one."""
    keys = [incoming.column(named.columns[f"k{i}"]) for i in range(len(plan.keys))]
    count = 1 + max((kept.input for kept in plan.kept), default=0)
    inputs = [
        None,
        *(incoming.column(named.columns[f"x{i}"]).combine_chunks() for i in range(1, count)),
    ]
    whole = plan.payload if isinstance(plan, JoinSide | ProcessPlan) else ()
    payload = [incoming.column(named.columns[f"r{i}"]) for i in range(len(whole))]
    return Rows(
        shards,
        keys,
        inputs,
        to_array(incoming.column(named.columns["t"]), np.dtype(np.int64), LEFT_OUT),
        payload,
    )


def rows_of_results(upstream: Sequence[Outcome], fused: Fused) -> Rows | None:
    """Complete results of an operator as rows of the next: they happened just before the end of their window."""
    given = [
        (each.results, each.shards)
        for each in upstream
        if each.results is not None and each.shards is not None
    ]
    if not given:
        return None
    table = pa.concat_tables(
        [undictionaried(results.slice(0, len(shards))) for results, shards in given]
    )
    shards = np.concatenate([shards for _, shards in given])

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
    return Rows(
        shards,
        keys,
        [input_of(each) for each in fused.inputs],
        t,
        [column(name) for name in fused.payload],
    )


def _happened(time: pa.Array) -> Array:
    """When results happened: just before the end of their window, or as they say themselves."""
    if pa.types.is_struct(time.type):
        ends: Array = time.field("end").cast(pa.int64()).to_numpy()
        return ends - 1
    return to_array(time.cast(pa.int64()), np.dtype(np.int64), LEFT_OUT)


def undictionaried(table: pa.Table) -> pa.Table:
    """The table with text as text, where it is numbers of texts."""
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
