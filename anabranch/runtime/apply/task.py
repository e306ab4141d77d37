"""The two tasks of a stage of applies: one assigns rows to slots, the other calls the functions.

The rows that the functions return go to the next stage or level. The report of each slot does too:
it is a row, and later stages pass it on to the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.elastic.grouping.osg import assign_rows, costs_of, measure_rows
from anabranch.elastic.grouping.sketches import Osg, Sketches
from anabranch.elastic.grouping.steps import (
    Grouping,
    TaskObservation,
    grouping_is_useless,
    partition_scheduler,
)
from anabranch.faults import Faults
from anabranch.runtime.apply.calls import ApplyCalls
from anabranch.runtime.passing import APPLY_REPORT, REPORT, by_operator, pieces, spread
from anabranch.runtime.reports import ApplyReport, Written, encoded
from anabranch.runtime.results import write_results
from anabranch.runtime.tasks import Emitted
from anabranch.runtime.worker import TaskId, received
from anabranch.state.checkpoint.files import Files
from anabranch.state.store.version import Fence
from anabranch.topology.apply import ERROR_COLUMN, HASH, OSG
from anabranch.types import Array

VALUE, SLOT, ORDER = "v", "slot", "h"
_TAKEN = 10_000  # rows that are handled together
# How many of these are timed by value. Timing must not cost more than a cheap function.
_MEASURED = 1_000
_WATCHED = 100  # the same, if it is known that grouping by cost does not pay


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTask:
    """Assigns each row for an apply to a slot, with one scheduler per apply and partition.

    Other rows go to the slot of their partition's number. Reports of earlier stages go to slot 0.
    """

    groupings: Mapping[int, tuple[Grouping, Osg]]  # by the number of the apply
    slots: int
    names: tuple[str, ...]  # of the columns that are passed on
    unordered: bool  # the order of rows may differ if the task runs again

    def run(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> Iterator[pa.RecordBatch]:
        """The rows, each with its slot."""
        partition = task.partition
        schedulers = {
            number: partition_scheduler(each, partition)
            for number, (each, _) in self.groupings.items()
        }
        coming = received(batches)
        for batch in _in_order(coming) if self.unordered else coming:
            if not batch.num_rows:
                continue
            to, values = _numbers(batch, "to"), _numbers(batch, VALUE)
            slots = np.full(len(to), partition % self.slots, dtype=np.int32)
            slots[to == REPORT] = 0
            for number, (grouping, settings) in self.groupings.items():
                mine = np.flatnonzero(to == number)
                if grouping.way == HASH:
                    slots[mine] = values[mine] % self.slots
                elif len(mine):
                    schedulers[number], given = assign_rows(
                        schedulers[number], values[mine], settings
                    )
                    slots[mine] = given.slots
            yield batch.select([*self.names, VALUE]).append_column(SLOT, pa.array(slots))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyWork:
    """One apply in a stage: its function, where its columns are, and where its rows go."""

    number: int
    calls: ApplyCalls
    places: Mapping[str, str]
    emits: tuple[Emitted, ...]
    written: bool  # some sink wants the results
    letters: bool  # some sink wants the rows that failed
    grouping: Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyTask:
    """The task of one stage of a step: calls the functions, and passes other rows through."""

    works: tuple[ApplyWork, ...]
    checkpoint: Files
    step: int
    epoch: int
    job: int
    schema: pa.Schema  # of the rows that are passed on
    faults: Faults = field(default_factory=Faults)

    def run(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> Iterator[pa.RecordBatch]:
        """The rows that the functions return, the rows that only pass through, and the reports."""
        slot = task.partition
        token = Fence(self.epoch, self.job, task.attempt).new_token()
        self.faults.at("apply.begin", self.step, slot)
        slots = {work.number: _Slot(self, work, slot, token) for work in self.works}
        for batch in received(batches):
            for number, rows in by_operator(batch):
                table = pa.Table.from_batches([rows])
                if number in slots:
                    for at in range(0, len(table), _TAKEN):
                        yield from slots[number].take(table.slice(at, _TAKEN))
                else:
                    yield from pieces(spread(table, self.schema))
        reports = [encoded(each.report()).decode() for each in slots.values()]
        self.faults.at("apply.written", self.step, slot)
        to_driver = pa.array([REPORT] * len(reports), pa.int32())
        yield spread(pa.table({"to": to_driver, APPLY_REPORT: pa.array(reports)}), self.schema)


class _Slot:
    """One apply in one slot of a step."""

    def __init__(self, task: ApplyTask, work: ApplyWork, slot: int, token: str) -> None:
        self.task, self.work, self.slot, self.token = task, work, slot, token
        self.started = time.time()
        self.machine = work.grouping.tasks[slot]
        self.sent: Sketches | None = None
        self.rows = self.rows_out = 0
        self.seconds = self.estimated_s = 0.0
        self.results: list[pa.Table] = []
        self.letters: list[pa.Table] = []
        self.failed = 0

    def take(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Calls the function with some rows. Returns its rows, one copy for each reader."""
        work, schema = self.work, self.work.calls.given
        given = (
            rows.select([work.places[name] for name in schema.names])
            .rename_columns(schema.names)
            .cast(schema)
        )
        values = _numbers(rows, VALUE) if work.calls.work.measured else None
        sample = (
            len(rows)
            if values is None
            else min(len(rows), _WATCHED if grouping_is_useless(work.grouping) else _MEASURED)
        )
        yield from self._call(given.slice(0, sample), values)
        yield from self._call(given.slice(sample), None)
        self.rows += len(rows)
        if values is not None and work.grouping.way == OSG:
            sketches = work.grouping.scheduler.sketches
            self.estimated_s += float(
                costs_of(sketches, values, work.calls.work.osg)[self.slot].sum()
            )

    def _call(self, given: pa.Table, values: Array | None) -> Iterator[pa.RecordBatch]:
        """Calls the function. If values are given, the rows are timed by value."""
        if not len(given):
            return
        work, known = self.work, None if values is None else values[: len(given)]
        called = work.calls(given, known)
        self.seconds += float(called.seconds.sum())
        if known is not None:
            self.machine, sent = measure_rows(
                self.machine, known, called.seconds, work.calls.work.osg
            )
            self.sent = self.sent if sent is None else sent
        self.failed += len(called.failed)
        if called.failed and work.letters:
            errors = pa.array(called.errors, pa.string())
            self.letters.append(
                given.take(pa.array(called.failed)).append_column(ERROR_COLUMN, errors)
            )
        for made in called.results:
            self.rows_out += len(made)
            if work.written:
                self.results.append(made)
            for each in work.emits if len(made) else ():
                columns = {place: made.column(name) for name, place in each.columns.items()}
                to = pa.array(np.full(len(made), each.number, dtype=np.int32))
                yield from pieces(spread(pa.table({"to": to, **columns}), self.task.schema))

    def report(self) -> ApplyReport:
        """Writes the files of the slot, and returns its report."""
        results = self._write("applied", self.results)
        letters = self._write("failed", self.letters)
        return ApplyReport(
            apply=self.work.calls.operator,
            slot=self.slot,
            seen=TaskObservation(
                task=self.machine,
                sent=self.sent,
                rows=self.rows,
                seconds=self.seconds,
                estimated_s=self.estimated_s if self.work.grouping.way == OSG else None,
            ),
            rows_out=self.rows_out,
            failed=self.failed,
            results=results,
            letters=letters,
            started=self.started,
            ended=time.time(),
        )

    def _write(self, kind: str, tables: list[pa.Table]) -> Written | None:
        if not sum(map(len, tables)):
            return None
        name = f"{kind}-{self.work.number}-{self.slot}-{self.token}"
        return write_results(pa.concat_tables(tables), self.task.checkpoint, self.task.step, name)


@dataclass(frozen=True, slots=True)
class ResultsTask:
    """The task of an apply on results of windows that go to a sink."""

    calls: ApplyCalls

    def run(self, batches: Iterable[pa.RecordBatch], _task: TaskId) -> Iterator[pa.RecordBatch]:
        """The rows that the function returns for the rows of a partition."""
        schema = self.calls.given
        for batch in batches:
            rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            for at in range(0, len(rows), _TAKEN):
                for made in self.calls(rows.slice(at, _TAKEN), None).results:
                    yield from made.to_batches()


def _in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, in an order that depends on the rows only."""
    found = [batch for batch in batches if batch.num_rows]
    if found:
        yield from (
            pa.Table.from_batches(found)
            .sort_by([("to", "ascending"), (ORDER, "ascending")])
            .to_batches()
        )


def _numbers(rows: pa.RecordBatch | pa.Table, name: str) -> Array:
    column: Any = rows.column(rows.schema.get_field_index(name))
    found: Array = (
        column.fill_null(0).to_numpy() if isinstance(column, pa.ChunkedArray) else _numpy(column)
    )
    return found


def _numpy(column: pa.Array) -> Array:
    found: Array = column.fill_null(0).to_numpy(zero_copy_only=False)
    return found
