"""Windows and sessions in a slot task: merges the rows of a step into the state, closes windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from anabranch.aggregates.lift_rows import lift_rows
from anabranch.runtime.arrivals import (
    RowColumns,
    arrived_partials,
    arrived_rows,
    by_shard,
    keys_of,
    pane_starts,
    rows_of_results,
)
from anabranch.runtime.lateness import TAKEN, all_taken, reasons
from anabranch.runtime.operator import StateWork
from anabranch.runtime.results import late_table, result_table
from anabranch.runtime.tasks import ArrivingRows, FusedRows, NodeOutcome, Upstream, Watermarks
from anabranch.state.memory.keyed import KeyedState, numbered
from anabranch.topology.windows import NEVER
from anabranch.types import Array, to_array


class WindowsWork(StateWork):
    """Windows or sessions: rows are partials of keys and panes, from which results are made."""

    @property
    def windows(self) -> KeyedState:
        assert isinstance(self.state, KeyedState)
        return self.state

    def merge(
        self, rows: Mapping[int, pa.Table], upstream: Upstream, marks: Watermarks
    ) -> NodeOutcome:
        outcome = NodeOutcome()
        given, incoming = self.task.rows, rows.get(self.task.number)
        if isinstance(given, FusedRows):
            found = rows_of_results(upstream(given.operator), given)
            if found is not None:
                self._merge_rows(found, marks, outcome)
        elif incoming is not None and given.combined:
            self._merge_combined(incoming, marks, outcome)
        elif incoming is not None:
            self._merge_rows(arrived_rows(*self._mine(incoming), self.plan, given), marks, outcome)
        return outcome

    def _merge_combined(self, incoming: pa.Table, marks: Watermarks, outcome: NodeOutcome) -> None:
        plan, state, named = self.plan, self.windows, self.task.rows
        assert isinstance(named, ArrivingRows)
        incoming, shards = self._mine(incoming)
        pane = to_array(incoming.column("pane"), np.dtype(np.int64), 0)
        counts = to_array(incoming.column(named.columns["c0"]), np.dtype(np.int64), 0)
        outcome.rows_in = by_shard(shards, counts)
        if not all_taken(pane, plan.panes, marks.late_before_us):
            why = reasons(pane, plan.panes, marks.late_before_us)
            on_time = why == None  # noqa: E711 - element by element
            if not on_time.all():
                self._leave_out(incoming, counts, why, outcome)
                incoming = incoming.filter(pa.array(on_time))
                shards, pane = shards[on_time], pane[on_time]
        keys = [incoming.column(named.columns[f"k{i}"]) for i in range(len(plan.keys))]
        rows = state.number(keys_of(keys, plan), shards)
        columns = arrived_partials(incoming, plan, named)
        outcome.arrived = len(rows)
        part = (
            to_array(incoming.column("part"), np.dtype(np.int64), 0)
            if "part" in incoming.column_names
            else np.zeros(len(rows), dtype=np.int64)
        )
        if plan.panes.cuts:
            pane, piece = pane_starts(pane, plan.panes)
            part = part if piece is None else part * (piece.max() + 1) + piece
        rows, pane, columns = state.combine(rows, pane, part, columns)
        self._take(rows, pane, columns, outcome)

    def _leave_out(
        self, incoming: pa.Table, counts: Array, why: Array, outcome: NodeOutcome
    ) -> None:
        """Counts combined rows that no part of the operator takes, and keeps them for sinks."""
        named = self.task.rows
        assert isinstance(named, ArrivingRows)
        left_out = (why != None) & (why != TAKEN)  # noqa: E711 - element by element
        outcome.left_out = {
            str(each): int(counts[why == each].sum()) for each in set(why[left_out])
        }
        if "row" in named.columns and left_out.any():
            rows = incoming.filter(pa.array(left_out)).column(named.columns["row"])
            outcome.late = late_table(rows, counts[left_out], why[left_out])

    def _merge_rows(self, given: RowColumns, marks: Watermarks, outcome: NodeOutcome) -> None:
        """Merges rows of another operator. They are never late: a window that closed there in this
        step is still open here.
        """
        plan, state = self.plan, self.windows
        outcome.rows_in = by_shard(given.shards, np.ones(len(given.shards)))
        # Rows that no window takes count too: a window that is added later would lack them.
        outcome.newest_us = int(given.t.max()) if len(given.t) else None
        panes = plan.panes
        pane = given.panes(panes)
        if not all_taken(pane, panes, marks.late_before_us):
            why = reasons(pane, panes, marks.late_before_us)
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
        distinct, number = numbered(pane, panes.width_us)
        group = numbers.astype(np.int64) * len(distinct) + number
        held, at = np.unique(group, return_inverse=True)
        one = np.empty(len(held), dtype=np.int64)
        one[at] = np.arange(len(at))
        constant = pa.array(np.ones(len(at), dtype=np.int32))
        inputs = [constant if each is None else each for each in given.inputs]
        columns = lift_rows(plan.kept, inputs, given.t, at, len(held))
        outcome.arrived = len(at)
        self._take(numbers[one], pane[one], columns, outcome)

    def _taken_elsewhere(self, t: Array) -> Array:
        """Which rows another part of this operator takes."""
        taken = np.zeros(len(t), dtype=bool)
        for each in self.task.others:
            panes = each.panes
            inside = panes.last_ends(panes.starts(t)) > NEVER if panes.windows else True
            taken |= inside & panes.can_show(t)
        return taken

    def _take(
        self, rows: Array, pane: Array, columns: Sequence[Array], outcome: NodeOutcome
    ) -> None:
        outcome.distinct = len(rows)
        if len(rows):
            known = (self.windows.newest(pane, columns), outcome.newest_us)
            outcome.newest_us = max(us for us in known if us is not None)
        self.windows.add(rows, pane, columns)
        self._deltas = self.windows.entries(rows, pane, columns)

    def close(self, outcome: NodeOutcome, marks: Watermarks) -> None:
        state = self.windows
        outcome.until_us = until_us = self._until(marks)
        self._closed = list(state.close(marks.late_before_us, until_us))
        outcome.keys_in = state.keys_by_length(self._closed)
        self._early = list(state.open_windows(until_us)) if self.task.early else []

    def make_rows(self, outcome: NodeOutcome) -> None:
        outcome.results, shards = result_table(self.windows, [*self._closed, *self._early])
        outcome.rows_out = by_shard(shards, np.ones(len(shards)))
        outcome.shards = shards[: sum(len(each.rows) for each in self._closed)]
