"""The slot task: runs the operators of a component on the rows of a step, and reports.

It runs in a Python worker next to the state. Everything that it needs is in its arguments: the
step, the route, the expected version of each shard. If a shard is missing for one of its operators,
all of them leave it alone.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.faults import Faults
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.panes import FARTHEST_US
from anabranch.runtime.arrivals import decode_dictionaries
from anabranch.runtime.kinds import works_of
from anabranch.runtime.operator import ShardWork, WorkPlace
from anabranch.runtime.passing import (
    REPORT,
    by_operator,
    pieces,
    spread,
    unwrapped,
    with_reports,
    wrapped,
)
from anabranch.runtime.reports import NodeReport, ShardReport, SlotReport, Written, encoded
from anabranch.runtime.results import by_window, write_results
from anabranch.runtime.tasks import NodeOutcome, NodeTask, StateSettings, Watermarks
from anabranch.runtime.worker import TaskId, received
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.log import Stored, log_file
from anabranch.state.store.host import LEAST_BYTES, Host, open_host
from anabranch.state.store.local import Hold, make_room
from anabranch.state.store.version import Fence, Version
from anabranch.types import to_array

# The files of an operator: its results, and its late rows.
WrittenFiles: TypeAlias = tuple[tuple[Written, ...], Written | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentTask:
    """A component in a step: the slot of each shard, and its operators. One that feeds another
    comes before it.
    """

    name: ComponentId
    route: tuple[int, ...]
    slots: int
    nodes: tuple[NodeTask, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTask:
    """The task of one level of a step, with all that it needs to know."""

    components: tuple[ComponentTask, ...]
    checkpoint: Files
    checkpoint_id: str
    state: StateSettings
    step: int
    epoch: int
    job: int
    marks: Watermarks
    onward: Mapping[str, pa.DataType] | None = (
        None  # columns of rows for later levels; None if there are no later levels
    )
    distrust: bool = False  # node-local state may have crashed earlier attempts: do not open it
    faults: Faults = field(default_factory=Faults)

    def run(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> Iterator[pa.RecordBatch]:
        """The report of a slot, rows for later levels, and rows that only pass through."""
        slot = task.partition
        for component in self.components:
            if slot < component.slots:
                break
            slot -= component.slots
        rows, passing = _sorted_out(received(batches), {node.number for node in component.nodes})
        attempt = _Attempt(self, component, slot, task.attempt)
        report = attempt.run({number: unwrapped(each) for number, each in rows.items()})
        own = pa.array([encoded(report)], pa.binary())
        if self.onward is None:
            yield from (with_reports(batch).select(["report"]) for batch in passing)
            yield pa.RecordBatch.from_pydict({"report": own})
            return
        schema = pa.schema([("to", pa.int32()), ("report", pa.binary()), *self.onward.items()])
        for table in wrapped(passing):
            yield from pieces(spread(table, schema))
        yield spread(pa.table({"to": pa.array([REPORT], pa.int32()), "report": own}), schema)
        for table in attempt.onward:
            yield from pieces(spread(table, schema))


def _sorted_out(
    batches: Iterable[pa.RecordBatch], numbers: set[int]
) -> tuple[dict[int, pa.Table], list[pa.RecordBatch]]:
    """The rows for each of some operators, and those that only pass through: reports, and rows for
    later levels.
    """
    mine: dict[int, list[pa.RecordBatch]] = {}
    passing: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows or "shard" not in batch.schema.names:
            continue
        if "to" not in batch.schema.names:
            mine.setdefault(min(numbers), []).append(batch)
            continue
        for number, rows in by_operator(batch):
            mine.setdefault(number, []).append(rows) if number in numbers else passing.append(rows)
    return {number: pa.Table.from_batches(parts) for number, parts in mine.items()}, passing


class _Attempt:
    """One attempt at one slot of a component in a step."""

    def __init__(self, task: SlotTask, component: ComponentTask, slot: int, number: int) -> None:
        self.task, self.component, self.slot = task, component, slot
        self.fence = Fence(task.epoch, task.job, number)
        self.token = self.fence.new_token()
        self.version = Version(task.step, self.token)
        self.host: Host = open_host(task.state.root)
        place = WorkPlace(
            checkpoint_id=task.checkpoint_id,
            epoch=task.epoch,
            files=task.checkpoint,
            host=self.host,
            state=task.state,
        )
        self.nodes = works_of(component.nodes, place)
        self.shards: list[int] = []
        self.onward: list[pa.Table] = []
        self.phases: dict[str, float] = {}
        self._mark = time.perf_counter()

    def run(self, rows: Mapping[int, pa.Table]) -> SlotReport:
        task, nodes = self.task, self.nodes
        started, cpu = time.time(), time.process_time()
        self.shards = self._needed(rows)
        self._phase("read")
        self._fault("slot.begin")
        outcomes: dict[PartId, NodeOutcome] = {}
        files: dict[PartId, WrittenFiles] = {}
        with ExitStack() as stack:
            stack.enter_context(Hold(self.host, task.checkpoint_id, task.state.wait_s))
            for node in nodes.values():
                node.open(self.shards, stack, self.fence, task.step, distrust=task.distrust)
            self._fault("slot.held")
            self._phase("open")
            self._load()
            self._phase("load")
            for name, node in nodes.items():
                outcomes[name] = node.merge(
                    rows, functools.partial(self._given, outcomes), task.marks
                )
                self._phase("merge")
                node.close(outcomes[name], task.marks)
                self._phase("close")
                node.make_rows(outcomes[name])
                files[name] = self._results(node, outcomes[name])
                self._phase("results")
                node.written(outcomes[name], self.version)
                self._phase("encode")
            self._fault("slot.merged")
            stored = self._log(outcomes)
            self._fault("slot.logged")
            self._store(outcomes)
            self._fault("slot.stored")
            self._phase("store")
            sizes = {
                name: {s: node.opened[s].size_bytes() for s in node.versions}
                for name, node in nodes.items()
            }
        cpu_s = time.process_time() - cpu
        total = max(
            sum(count for outcome in outcomes.values() for count in outcome.rows_in.values()), 1
        )
        return SlotReport(
            component=self.component.name,
            slot=self.slot,
            host=self.host.id,
            pid=os.getpid(),
            started=started,
            ended=time.time(),
            cpu_s=cpu_s,
            nodes=tuple(
                self._report(
                    node, outcomes[name], files[name], stored[name], sizes[name], cpu_s / total
                )
                for name, node in nodes.items()
            ),
            phases=self.phases,
            seen_us=self._seen(rows),
        )

    def _report(
        self,
        node: ShardWork[Any, Any],
        outcome: NodeOutcome,
        files: WrittenFiles,
        stored: Mapping[int, Stored],
        sizes: Mapping[int, int],
        cpu_per_row_s: float,
    ) -> NodeReport:
        return NodeReport(
            part=node.plan.part,
            shards={
                shard: ShardReport(
                    rows_in=outcome.rows_in.get(shard, 0),
                    rows_out=outcome.rows_out.get(shard, 0),
                    cpu_s=cpu_per_row_s * outcome.rows_in.get(shard, 0),
                    state_bytes=size,
                    stored=stored.get(shard),
                )
                for shard, size in sizes.items()
            },
            missing=tuple(shard for shard in self.shards if shard not in node.metas),
            results=files[0],
            late=files[1],
            left_out=outcome.left_out,
            until_us=outcome.until_us,
            newest_us=outcome.newest_us,
            next_end_us=node.next_end(outcome.until_us),
            keys_in=outcome.keys_in,
            key_numbers=node.keys_held,
            arrived=outcome.arrived,
            distinct=outcome.distinct,
        )

    def _seen(self, rows: Mapping[int, pa.Table]) -> dict[int, int]:
        """The latest event time for each operator that reports it, missing shards included."""
        wanted = {node.number: node.seen for node in self.component.nodes if node.seen is not None}
        latest = {
            number: pc.max(rows[number].column(name)).as_py()
            for number, name in wanted.items()
            if number in rows
        }
        return {
            number: us for number, us in latest.items() if us is not None and us >= -FARTHEST_US
        }

    def _needed(self, rows: Mapping[int, pa.Table]) -> list[int]:
        """The shards of this slot that have state or get rows. The others stay closed."""
        needed: set[int] = set()
        for node in self.component.nodes:
            needed.update(node.committed, node.restore)
        for table in rows.values():
            needed.update(
                np.unique(to_array(table.column("shard"), np.dtype(np.int64), 0)).tolist()
            )
        return [
            shard
            for shard, slot in enumerate(self.component.route)
            if slot == self.slot and shard in needed
        ]

    def _load(self) -> None:
        """Loads the shards that all operators have. If one is damaged, no operator loads it."""
        while True:
            there = set(self.shards).intersection(*(node.metas for node in self.nodes.values()))
            for node in self.nodes.values():
                node.load(there, self.task.marks.late_before_us)
            if all(there == {*node.versions} for node in self.nodes.values()):
                return

    def _given(self, outcomes: Mapping[PartId, NodeOutcome], operator: str) -> list[NodeOutcome]:
        """The outcomes of an operator of this slot, one for each of its parts."""
        return [
            outcomes[name] for name, each in self.nodes.items() if each.task.operator == operator
        ]

    def _results(self, node: ShardWork[Any, Any], outcome: NodeOutcome) -> WrittenFiles:
        """Writes the files for sinks, and keeps the rows for later levels."""
        late = (
            None if outcome.late is None else self._write(f"late-{node.task.number}", outcome.late)
        )
        if outcome.results is None:
            return (), late
        apart = by_window(outcome.results, node.task.windows, others=node.task.written)
        results = tuple(
            self._write(f"results-{node.task.number}-{i}", table, window)
            for i, (window, table) in enumerate(apart)
        )
        if node.task.emits and outcome.shards is not None and len(outcome.shards):
            complete = decode_dictionaries(outcome.results.slice(0, len(outcome.shards)))
            for each in node.task.emits:
                columns = {place: complete.column(name) for name, place in each.columns.items()}
                to = pa.array(np.full(len(complete), each.number, dtype=np.int32))
                self.onward.append(pa.table({"to": to, **columns}))
        return results, late

    def _log(self, outcomes: Mapping[PartId, NodeOutcome]) -> dict[PartId, dict[int, Stored]]:
        """Writes the deltas and snapshots of all shards into one file of the durable log."""
        writer = f"{self.component.nodes[0].number}-{self.slot}"
        log = log_file(self.task.step, writer, self.token)
        stored = {
            operator: {shard: log.add(write) for shard, write in outcome.writes.items()}
            for operator, outcome in outcomes.items()
        }
        log.write(self.task.checkpoint)
        self._phase("log")
        return stored

    def _store(self, outcomes: Mapping[PartId, NodeOutcome]) -> None:
        """Writes the shards that changed, and keeps the decoded state for the next step."""
        writes = [
            (self.nodes[name], *each)
            for name, outcome in outcomes.items()
            for each in outcome.writes.items()
        ]
        size = sum(len(write.delta) + len(write.snapshot or b"") for _, _, write in writes)
        if not self.host.has_space(size):  # state of inactive runs is removed
            make_room(self.host, most_bytes=None, least_free=size + LEAST_BYTES)
        self.host.need(size)
        for i, (node, shard, write) in enumerate(writes):
            if i == len(writes) // 2:
                self._fault("slot.half")
            node.store(shard, write, self.fence)
        for node in self.nodes.values():
            node.keep()

    def _write(self, kind: str, table: pa.Table, window: str | None = None) -> Written:
        name = f"{kind}-{self.slot}-{self.token}"
        return write_results(table, self.task.checkpoint, self.task.step, name, window)

    def _fault(self, point: str) -> None:
        self.task.faults.at(point, self.task.step, self.slot)

    def _phase(self, name: str) -> None:
        now = time.perf_counter()
        self.phases[name] = self.phases.get(name, 0.0) + now - self._mark
        self._mark = now
