"""`process` in a slot task. It keeps one cell per key, and reads and writes only those it uses."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.errors import StateError, StateFullError
from anabranch.plan.exchange import ARRIVAL
from anabranch.plan.operators.process import ProcessPlan
from anabranch.runtime.arrivals import (
    RowColumns,
    arrived_partials,
    arrived_rows,
    by_shard,
    keys_of,
    rows_of_results,
)
from anabranch.runtime.operator import ShardWork, WorkPlace
from anabranch.runtime.process.combined import lifted_rows, merged_rows
from anabranch.runtime.process.ordered import NO_TIME_US, Incoming
from anabranch.runtime.process.step import ProcessOutcome, process_step
from anabranch.runtime.tasks import FusedRows, NodeOutcome, NodeTask, Upstream, Watermarks
from anabranch.state.codec.cells import Span
from anabranch.state.store.cell_shard import CellMeta, CellShard, CellWrite
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Fence, Version
from anabranch.types import Array, to_array


class ProcessWork(ShardWork[CellShard, CellMeta]):
    """One attempt at a user's class in a slot."""

    def __init__(self, task: NodeTask, place: WorkPlace) -> None:
        super().__init__(task, place)
        assert isinstance(self.plan, ProcessPlan)
        self._process = self.plan
        self._loaded: dict[int, CellMeta] = {}
        self._made = ProcessOutcome()
        self._next_us: int | None = None

    @property
    def versions(self) -> Mapping[int, Version | None]:
        return {shard: meta.version for shard, meta in self._loaded.items()}

    @property
    def keys_held(self) -> int:
        return sum(meta.cells for meta in self._loaded.values())

    def next_end(self, after_us: int | None) -> int | None:  # noqa: ARG002
        """When the next alarm is due. Alarms up to the watermark are handled already."""
        return self._next_us

    def _meta(self, store: CellShard) -> CellMeta:
        return store.meta()

    def _rewound(
        self, store: CellShard, meta: CellMeta, committed: Version | None, step: int, fence: Fence
    ) -> CellMeta | None:
        return store.rewound(meta, committed, step, fence)

    def _restore(self, store: CellShard, writes: Sequence[Write], fence: Fence) -> CellMeta:
        return store.restore(writes, fence)

    def _new_shard(self, path: Path, limit_bytes: int | None) -> CellShard:
        return CellShard(path, limit_bytes=limit_bytes)

    def load(self, shards: Collection[int], after_us: int | None) -> None:  # noqa: ARG002
        """Reads no cells: they are read when they are needed."""
        self._loaded = {shard: meta for shard, meta in self.metas.items() if shard in shards}

    def get(self, shard: int, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The cells of some keys.

        A damaged shard is wiped, and the attempt fails. The next attempt reports it missing.
        """
        try:
            return self.opened[shard].get(keys)
        except StateFullError:
            raise
        except StateError:
            self.opened[shard].wipe()
            raise

    def due(self, until_us: int | None) -> list[tuple[int, bytes]]:
        """Shard and key of the cells with alarms up to a time; None: with any alarm."""
        return [(shard, key) for shard in self._loaded for key in self.opened[shard].due(until_us)]

    def merge(
        self, rows: Mapping[int, pa.Table], upstream: Upstream, marks: Watermarks
    ) -> NodeOutcome:
        span = Span(
            after_us=marks.late_before_us, until_us=marks.close_until_us, finish=marks.finish
        )
        incoming = self._incoming(rows.get(self.task.number), upstream)
        with _no_collection():
            self._made = made = process_step(self._process, incoming, self, span)
        here = rows.get(self.task.number)
        return NodeOutcome(
            rows_in=made.rows_in,
            rows_out=by_shard(made.shards, np.ones(len(made.shards))),
            left_out=made.left_out,
            late=made.late if self.task.late else None,
            results=made.results,
            shards=made.shards,
            until_us=made.until_us if made.until_us is not None else marks.late_before_us,
            arrived=0 if incoming is None else len(incoming if here is None else here),
            distinct=0 if incoming is None else len(incoming),
        )

    def close(self, outcome: NodeOutcome, marks: Watermarks) -> None:
        """Does nothing: `merge` calls the timers that are due."""

    def _incoming(self, incoming: pa.Table | None, upstream: Upstream) -> Incoming | None:
        """The rows of a step. Rows of a source have their order of arrival, results of another
        operator do not. Either may be combined.
        """
        given = self.task.rows
        if isinstance(given, FusedRows):
            found = rows_of_results(upstream(given.operator), given)
            return None if found is None else self._seen(found, None)
        if incoming is None:
            return None
        if not given.combined:
            return self._seen(arrived_rows(*self._mine(incoming), self._process, given), None)
        table, shards = self._mine(incoming)
        keys = [table.column(given.columns[f"k{i}"]) for i in range(len(self._process.keys))]
        if self._process.kept:
            columns = arrived_partials(table, self._process, given)
            part = np.zeros(len(table), dtype=np.int64)  # rows combined in their slot have no part
            if "part" in table.column_names:
                part = to_array(table.column("part"), np.dtype(np.int64), 0)
            return merged_rows(self._process, keys_of(keys, self._process), shards, columns, part)
        payload = [table.column(given.columns[f"r{i}"]) for i in range(len(self._process.payload))]
        t, arrival = (
            to_array(table.column(name), np.dtype(np.int64), NO_TIME_US)
            for name in ("pane", ARRIVAL)
        )
        return self._seen(RowColumns(shards, keys, [], t, payload), arrival)

    def _seen(self, rows: RowColumns, arrival: Array | None) -> Incoming:
        """Rows with the columns that the user's class sees."""
        plan = self._process
        keys = keys_of(rows.keys, plan)
        if plan.kept:
            return lifted_rows(plan, keys, rows.shards, rows.inputs, rows.t)
        columns = {each.name: rows.keys[i] for i, each in enumerate(plan.keys)}
        columns |= {each.name: rows.payload[i] for i, each in enumerate(plan.payload)}
        return Incoming(
            keys,
            pa.table({each.name: columns[each.name] for each in plan.fields}),
            rows.t,
            rows.shards,
            arrival,
        )

    def written(self, outcome: NodeOutcome, version: Version) -> None:
        """Encodes the cells that have changed, and a slice of the others for the log."""
        made = self._made
        outcome.writes = {
            shard: self.opened[shard].prepared(
                self._loaded[shard], version, made.before[shard], after
            )
            for shard, after in sorted(made.after.items())
        }

    def store(self, shard: int, write: Write, fence: Fence) -> None:
        if not isinstance(write, CellWrite):
            raise StateError(
                f"shard {shard} of {self.task.operator!r} got a write of another kind of state"
            )
        self._loaded[shard] = self.opened[shard].write(self.metas[shard], write, fence)

    def keep(self) -> None:
        """Nothing is cached. Remember the next alarm now: the shards are released before the
        report is built.
        """
        found = [self.opened[shard].next_alarm() for shard in self._loaded]
        self._next_us = min((each for each in found if each is not None), default=None)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turns garbage collection off: with many new objects Python would scan them repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
