"""A join in a slot task: one state keeps the rows of both sides until their window closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from anabranch.plan.exchange import LATE_ROW, is_key
from anabranch.plan.operators.joins import JoinSide, Side
from anabranch.runtime.arrivals import (
    arrived_rows,
    by_shard,
    keys_of,
    pane_starts,
    rows_of_results,
)
from anabranch.runtime.lateness import all_taken, reasons
from anabranch.runtime.operator import StateWork, WorkPlace
from anabranch.runtime.results import late_table
from anabranch.runtime.tasks import (
    ArrivingRows,
    FusedRows,
    NodeOutcome,
    NodeTask,
    Upstream,
    Watermarks,
)
from anabranch.state.codec.joins import SideRows
from anabranch.state.memory.joins import JoinState
from anabranch.types import Array, column_type, to_array


class JoinWork(StateWork):
    """One attempt at a join in a slot. `task` is the task of its left side."""

    def __init__(self, task: NodeTask, place: WorkPlace) -> None:
        super().__init__(task, place)
        self._tasks = [task]

    @classmethod
    def of(cls, task: NodeTask, tasks: Sequence[NodeTask], place: WorkPlace) -> Self:
        """The work of both sides. It belongs to the left side."""
        work = cls(task, place)
        work._tasks += [
            each for each in tasks if each.operator == task.operator and each is not task
        ]
        return work

    @property
    def rows(self) -> JoinState:
        assert isinstance(self.state, JoinState)
        return self.state

    def merge(
        self, rows: Mapping[int, pa.Table], upstream: Upstream, marks: Watermarks
    ) -> NodeOutcome:
        outcome = NodeOutcome()
        late: list[pa.Table] = []
        arrived: dict[Side, SideRows] = {}
        for task in self._tasks:
            plan = task.plan
            assert isinstance(plan, JoinSide)
            found = self._arrived(task, plan, rows.get(task.number), upstream)
            if found is None:
                continue
            table, shards, pane, times = found
            for shard, count in by_shard(shards, times).items():
                outcome.rows_in[shard] = outcome.rows_in.get(shard, 0) + count
            if not all_taken(pane, plan.panes, marks.late_before_us):
                why = reasons(pane, plan.panes, marks.late_before_us)
                on_time = why == None  # noqa: E711 - element by element
                for each in set(why[~on_time]):
                    outcome.left_out[str(each)] = outcome.left_out.get(str(each), 0) + int(
                        times[why == each].sum()
                    )
                if LATE_ROW in table.column_names:
                    left_out = late_table(
                        table.column(LATE_ROW).filter(pa.array(~on_time)),
                        times[~on_time],
                        why[~on_time],
                    )
                    late.append(_of_side(left_out, plan))
                table, shards, pane, times = (
                    table.filter(pa.array(on_time)),
                    shards[on_time],
                    pane[on_time],
                    times[on_time],
                )
            keys = [table.column(f"k{i}") for i in range(len(plan.keys))]
            numbers = self.rows.number(keys_of(keys, plan), shards)
            payload = table.select([f"r{i}" for i in range(len(plan.payload))])
            arrived[plan.side] = SideRows(numbers, pane, times, payload)
            self.rows.add(plan.side, arrived[plan.side])
            outcome.arrived += len(numbers)
        outcome.distinct = outcome.arrived
        self._deltas = self.rows.entries(arrived)
        outcome.late = pa.concat_tables(late) if late else None
        return outcome

    def _arrived(
        self, task: NodeTask, plan: JoinSide, incoming: pa.Table | None, upstream: Upstream
    ) -> tuple[pa.Table, Array, Array, Array] | None:
        """The rows of a side: a table of keys and payload, shards, panes, and how often each row
        came.
        """
        given = task.rows
        if isinstance(given, ArrivingRows) and given.combined:
            if incoming is None:
                return None
            incoming, shards = self._mine(incoming)
            names = [name for name in given.columns if is_key(name) or name == LATE_ROW]
            table = pa.table({name: incoming.column(given.columns[name]) for name in names})
            pane, times = (
                to_array(incoming.column(name), np.dtype(np.int64), 0)
                for name in ("pane", given.columns["c0"])
            )
            return table, shards, pane_starts(pane, plan.panes)[0], times
        if isinstance(given, FusedRows):
            rows = rows_of_results(upstream(given.operator), given)
        else:
            rows = None if incoming is None else arrived_rows(*self._mine(incoming), plan, given)
        if rows is None:
            return None
        named = {f"k{i}": each for i, each in enumerate(rows.keys)} | {
            f"r{i}": each for i, each in enumerate(rows.payload)
        }
        return (
            pa.table(named),
            rows.shards,
            rows.panes(plan.panes),
            np.ones(len(rows.t), dtype=np.int64),
        )

    def close(self, outcome: NodeOutcome, marks: Watermarks) -> None:
        outcome.until_us = self._until(marks)
        table, outcome.shards = self.rows.close(marks.late_before_us, outcome.until_us)
        outcome.rows_out = by_shard(outcome.shards, np.ones(len(outcome.shards)))
        outcome.results = table if len(table) else None


def _of_side(left_out: pa.Table, plan: JoinSide) -> pa.Table:
    """The late rows of one side, in the columns of both sides."""
    rows = left_out.append_column("side", pa.array([plan.side] * len(left_out), pa.string()))
    columns = {
        each.name: rows.column(each.name)
        if each.name in rows.column_names
        else pa.nulls(len(rows), column_type(each.type, maps=True))
        for each in plan.join.late_fields
    }
    return pa.table(columns)
