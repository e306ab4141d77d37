"""The slot task: merges a step's combined rows into its shards, closes windows, writes results and state, and reports.

It runs in a Python worker next to the state. Everything that it needs is in its arguments: the step, the route, the expected
version of each shard. A shard that is not in the expected state is left alone and reported missing.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from anabranch.errors import FencedError, StateError, StateFullError
from anabranch.faults import Faults
from anabranch.plan.component import Slotted
from anabranch.spark.lift import all_taken, reasons
from anabranch.spark.reports import Report, ShardReport, Written
from anabranch.spark.results import late_table, result_table, write_table
from anabranch.state.blob import Entries, decode, encode
from anabranch.state.commits import Stored, read_chain
from anabranch.state.files import Files
from anabranch.state.host import Host, open_host
from anabranch.state.keys import KeyTable
from anabranch.state.shard import Meta, Shard, Write
from anabranch.state.slot import SlotState
from anabranch.state.version import Fence, Version
from anabranch.topology.types import Array, column_type, to_array

REPORT_SCHEMA = "report binary"
_CACHED_SLOTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """Where and how shards live on a host."""

    root: str | None
    wait_s: float
    limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTask:
    """The function of a step's tasks, with all that they need to know."""

    plan: Slotted
    checkpoint: Files
    checkpoint_id: str
    state: StateSettings
    step: int
    epoch: int
    job: int
    route: tuple[int, ...]
    committed: Mapping[int, Version]
    snapshot: frozenset[int]
    after_us: int | None
    until_us: int | None
    finish: bool = False
    early: bool = False  # also write windows that are still open, as they are
    restore: Mapping[int, list[Stored]] | None = None  # only these shards, from the durable log
    distrust: bool = False  # node-local state crashed its readers: do not even open it
    faults: Faults = field(default_factory=Faults)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = _Attempt(self, context.partitionId(), context.attemptNumber())
        report = attempt.run(list(batches))
        yield pa.RecordBatch.from_pydict({"report": pa.array([msgspec.json.encode(report)], pa.binary())})


class _Attempt:
    """One attempt at one slot of a step."""

    def __init__(self, task: SlotTask, slot: int, number: int) -> None:
        self.task, self.slot = task, slot
        self.fence = Fence(task.epoch, task.job, number)
        self.token = f"{task.epoch}.{task.job}.{number}.{uuid.uuid4().hex[:8]}"
        self.version = Version(task.step, self.token)
        self.host: Host = open_host(task.state.root)
        self._operator = f"{task.checkpoint_id}/{task.plan.operator}/{task.epoch}"  # a later run may have another plan
        self.phases: dict[str, float] = {}
        self._mark = time.perf_counter()
        mine = [shard for shard, slot_of in enumerate(task.route) if slot_of == slot]
        self.shards = [shard for shard in mine if task.restore is None or shard in task.restore]

    def run(self, batches: list[pa.RecordBatch]) -> Report:
        started, cpu = time.time(), time.process_time()
        self._phase("read")
        self._fault("slot.begin")
        rows = [batch for batch in batches if batch.num_rows and "shard" in batch.schema.names]
        incoming = pa.Table.from_batches(rows) if rows else None
        with ExitStack() as stack:
            opened = {shard: stack.enter_context(self._shard(shard).held(self.task.state.wait_s)) for shard in self.shards}
            self._fault("slot.held")
            metas = self._metas(opened)
            self._phase("open")
            state = self._state(opened, metas)
            self._phase("load")
            outcome = self._work(state, incoming)
            self._fault("slot.merged")
            stored = self._log(outcome)
            self._fault("slot.logged")
            self._store(opened, metas, outcome, state)
            self._fault("slot.stored")
            self._phase("store")
            sizes = {shard: opened[shard].size_bytes() for shard in state.versions}
        cpu_s = time.process_time() - cpu
        total = max(sum(outcome.rows_in.values()), 1)
        return Report(
            slot=self.slot,
            host=self.host.id,
            pid=os.getpid(),
            started=started,
            ended=time.time(),
            cpu_s=cpu_s,
            shards={
                shard: ShardReport(
                    rows_in=outcome.rows_in.get(shard, 0),
                    rows_out=outcome.rows_out.get(shard, 0),
                    cpu_s=cpu_s * outcome.rows_in.get(shard, 0) / total,
                    state_bytes=size,
                    stored=stored.get(shard),
                )
                for shard, size in sizes.items()
            },
            missing=tuple(shard for shard in self.shards if shard not in sizes),
            results=outcome.results,
            late=outcome.late,
            left_out=outcome.left_out,
            until_us=outcome.until_us,
            next_end_us=self.task.plan.panes.next_end(state.panes, outcome.until_us),
            keys_in=outcome.keys_in,
            key_numbers=len(state.keys),
            arrived=outcome.lifted[0],
            distinct=outcome.lifted[1],
            phases=self.phases,
        )

    def _metas(self, opened: Mapping[int, Shard]) -> dict[int, Meta]:
        """The shards that are in the committed state, or are now: undone, or restored from the durable log."""
        metas = {}
        for shard, store in opened.items():
            try:
                if self.task.distrust:
                    store.wipe()
                if self.task.restore is not None:
                    metas[shard] = self._restored(store, self.task.restore[shard])
                    continue
                meta = store.meta()
                store.check(meta, self.fence)
                if (at := meta.rewound(self.task.committed.get(shard), self.task.step)) is not None:
                    metas[shard] = at
            except FencedError:
                raise
            except StateFullError:
                raise
            except StateError:
                store.wipe()
        return metas

    def _restored(self, store: Shard, chain: list[Stored]) -> Meta:
        """A shard from the durable log, in a new file: what is there may be damaged where one does not see it before one writes."""
        try:
            store.check(store.meta(), self.fence)
        except FencedError:
            raise
        except StateError:
            pass
        store.wipe()
        return store.restore(read_chain(self.task.checkpoint, chain), self.fence)

    def _state(self, opened: Mapping[int, Shard], metas: dict[int, Meta]) -> SlotState:
        """The decoded state of all shards that are there: kept from an earlier step and caught up, or read anew.

        A shard whose blobs are damaged is wiped and taken out of `metas`.
        """
        kept = _cache.take(self._operator, frozenset(metas))
        if kept is not None and kept.reaches(self.task.after_us):
            later = {shard: meta.since(kept.versions.get(shard)) for shard, meta in metas.items()}
            if all(links is not None for links in later.values()):
                steps: dict[int, list[tuple[int, bytes]]] = {}
                with suppress(StateError):
                    for shard, links in later.items():
                        for link in links or ():
                            blob = opened[shard].read(link.version, snapshot=False)
                            steps.setdefault(link.version.step, []).append((shard, blob))
                    for step in sorted(steps):
                        kept.absorb([(shard, self._decode(blob)) for shard, blob in steps[step]])
                    kept.versions = {shard: meta.version for shard, meta in metas.items()}
                    return kept
        return self._read(opened, metas)

    def _read(self, opened: Mapping[int, Shard], metas: dict[int, Meta]) -> SlotState:
        state = SlotState(self.task.plan, KeyTable(key_schema(self.task.plan)))
        layers: list[list[tuple[int, Entries]]] = []
        for shard, meta in list(metas.items()):
            base, links = meta.base()
            try:
                parts = [] if base is None else [opened[shard].read(base.version, snapshot=True)]
                parts += [opened[shard].read(link.version, snapshot=False) for link in links]
                decoded = [self._decode(blob) for blob in parts]
            except StateError:
                opened[shard].wipe()
                del metas[shard]
                continue
            layers += [[] for _ in range(len(decoded) - len(layers))]
            for layer, entries in zip(layers, decoded, strict=False):
                layer.append((shard, entries))
        for layer in layers:
            state.absorb(layer)
        state.forget(self.task.plan.forgotten_us)
        state.drop(self.task.after_us)
        state.versions = {shard: meta.version for shard, meta in metas.items()}
        return state

    def _decode(self, blob: bytes) -> Entries:
        return decode(blob, self.task.plan.columns)

    def _work(self, state: SlotState, incoming: pa.Table | None) -> _Outcome:
        """Merges the rows in, closes what the watermark closes, and makes files of results."""
        task, plan = self.task, self.task.plan
        present = np.fromiter(state.versions, dtype=np.int64)
        deltas: dict[int, Entries] = {}
        rows_in: dict[int, int] = {}
        late, left_out = None, {}
        arrived = distinct = 0
        if incoming is not None:
            shards = to_array(incoming.column("shard"), np.dtype(np.int64), 0)
            mine = np.isin(shards, present)
            if not mine.all():
                incoming, shards = incoming.filter(pa.array(mine)), shards[mine]
            pane = to_array(incoming.column("pane"), np.dtype(np.int64), 0)
            counts = to_array(incoming.column("c0"), np.dtype(np.int64), 0)
            sums = np.bincount(shards, weights=counts, minlength=1) if len(shards) else np.zeros(1)
            rows_in = {int(shard): int(sums[shard]) for shard in np.flatnonzero(sums)}
            why = None if all_taken(pane, plan.panes, task.after_us) else reasons(pane, plan.panes, task.after_us)
            if why is not None and not (on_time := why == None).all():  # noqa: E711 - element by element
                left_out = {str(each): int(counts[why == each].sum()) for each in set(why[~on_time])}
                if "row" in incoming.column_names:
                    late = self._write("late", late_table(incoming.filter(pa.array(~on_time)), why[~on_time]))
                incoming, shards, pane = incoming.filter(pa.array(on_time)), shards[on_time], pane[on_time]
            keys = incoming.select([f"k{i}" for i in range(len(plan.keys))]).cast(key_schema(plan))
            rows = state.number(keys, shards)
            columns: Sequence[Array] = [
                column for kept in plan.kept for column in kept.partial.arrive([incoming.column(name) for name in kept.lifted])
            ]
            arrived = len(rows)
            if "part" in incoming.column_names:
                part = to_array(incoming.column("part"), np.dtype(np.int64), 0)
                rows, pane, columns = state.combine(rows, pane, part, columns)
            distinct = len(rows)
            state.add(rows, pane, columns)
            deltas = state.entries(rows, pane, columns)
        self._phase("merge")
        until_us = plan.panes.final_end(state.panes) if task.finish else task.until_us
        until_us = task.after_us if until_us is None else until_us
        closed = state.close(task.after_us, until_us)
        keys_in = state.keys_by_length(closed)
        if task.early:
            closed = [*closed, *state.open_windows(until_us)]
        self._phase("close")
        table, rows_out = result_table(plan, state, closed)
        results = self._write("results", table) if table is not None else None
        self._phase("results")
        state.drop(until_us)
        due = [shard for shard in task.snapshot if shard in state.versions]
        snapshots = state.snapshot(due) if due else {}
        writes = {
            shard: Write(
                self.version,
                encode(deltas.get(shard) or state.nothing(), plan.columns),
                encode(snapshots[shard], plan.columns) if shard in snapshots else None,
            )
            for shard in sorted({*deltas, *snapshots})
        }
        self._phase("encode")
        return _Outcome(writes, rows_in, rows_out, results, late, left_out, until_us, keys_in, (arrived, distinct))

    def _log(self, outcome: _Outcome) -> dict[int, Stored]:
        """Writes the deltas and snapshots of all shards into one file of the durable log."""
        name = f"state/{self.task.step:08d}/{self.slot}-{self.token}.bin"
        parts: list[bytes] = []
        stored, at = {}, 0
        for shard, write in outcome.writes.items():
            places = []
            for blob in (write.delta, write.snapshot):
                places.append(None if blob is None else (at, len(blob)))
                if blob is not None:
                    parts.append(blob)
                    at += len(blob)
            assert places[0] is not None
            stored[shard] = Stored(version=self.version, file=name, delta=places[0], snapshot=places[1])
        if parts:
            with _room(self.task.checkpoint.location):
                self.task.checkpoint.write(name, parts)
        self._phase("log")
        return stored

    def _store(self, opened: Mapping[int, Shard], metas: Mapping[int, Meta], outcome: _Outcome, state: SlotState) -> None:
        """Writes the shards that changed, each in one transaction, and keeps the decoded state for the next step."""
        self.host.need(sum(len(w.delta) + len(w.snapshot or b"") for w in outcome.writes.values()))
        for i, (shard, write) in enumerate(outcome.writes.items()):
            if i == len(outcome.writes) // 2:
                self._fault("slot.half")
            opened[shard].write(metas[shard], write, self.fence)
            state.versions[shard] = write.version
        _cache.put(self._operator, state)

    def _write(self, kind: str, table: pa.Table) -> Written:
        name = f"results/{self.task.step:08d}/{kind}-{self.slot}-{self.token}.parquet"
        with _room(self.task.checkpoint.location):
            write_table(table, self.task.checkpoint, name)
        return Written(path=name, rows=table.num_rows)

    def _shard(self, shard: int) -> Shard:
        path = self.host.component(self.task.checkpoint_id, self.task.plan.operator) / f"{shard:05d}"
        limit = self.task.state.limit_bytes
        found = _shards.get(path)
        if found is None or found.limit_bytes != limit:
            if found is not None:
                found.close()
            found = _shards[path] = Shard(path, limit_bytes=limit)
        return found

    def _fault(self, point: str) -> None:
        self.task.faults.at(point, self.task.step, self.slot)

    def _phase(self, name: str) -> None:
        now = time.perf_counter()
        self.phases[name] = self.phases.get(name, 0.0) + now - self._mark
        self._mark = now


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the rows and the watermark of a step made of a slot."""

    writes: dict[int, Write]
    rows_in: dict[int, int]
    rows_out: dict[int, int]
    results: Written | None
    late: Written | None
    left_out: dict[str, int]
    until_us: int | None
    keys_in: dict[int, float]
    lifted: tuple[int, int]


class _Cache:
    """Decoded slots of this process, least recently used out first. One that is being changed is not in it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: OrderedDict[tuple[str, frozenset[int]], SlotState] = OrderedDict()

    def take(self, operator: str, shards: frozenset[int]) -> SlotState | None:
        return self._slots.pop((operator, shards), None)

    def put(self, operator: str, state: SlotState) -> None:
        """Keeps a slot; others that share shards with it are of an older route and go."""
        shards = frozenset(state.versions)
        for key in [key for key in self._slots if key[0] == operator and not shards.isdisjoint(key[1])]:
            del self._slots[key]
        self._slots[operator, shards] = state
        while len(self._slots) > self._size:
            self._slots.popitem(last=False)


_cache = _Cache(_CACHED_SLOTS)
_shards: dict[Path, Shard] = {}


def key_schema(plan: Slotted) -> pa.Schema:
    """The key columns of a slot as Arrow has them."""
    return pa.schema([(f"k{i}", column_type(field.type)) for i, field in enumerate(plan.keys)])


@contextmanager
def _room(location: str) -> Iterator[None]:
    """A full disk under the checkpoint is an error that says so."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StateFullError(
                f"checkpoint {location} has no space left; the step was not committed and nothing is lost: free space "
                "and start again"
            ) from error
        raise
