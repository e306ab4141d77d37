"""One operator in a slot task: opens its shards, loads their state, merges the rows of the step in and closes windows.

A shard that is not in the expected state is left alone and reported missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.errors import FencedError, StateError, StateFullError
from anabranch.plan.joins import JoinSide
from anabranch.plan.panes import NEVER, Panes
from anabranch.plan.slotted import Slotted, key_schema
from anabranch.spark.lateness import LEFT_OUT, TAKEN, all_taken, reasons
from anabranch.spark.results import late_table, result_table
from anabranch.state.commits import Stored, read_chain
from anabranch.state.files import Files
from anabranch.state.host import Host
from anabranch.state.keyed import KeyedState, NumberedState
from anabranch.state.opened import decoded, encoded, state_of
from anabranch.state.shard import Meta, Shard, Write
from anabranch.state.version import Fence, Version
from anabranch.topology.lift_rows import lift_rows
from anabranch.topology.types import Array, to_array

_CACHED_SLOTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """Where and how shards live on a host."""

    root: str | None
    wait_s: float
    limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Rows come as results of another operator of the same slot: the columns that are its keys, and the inputs of its partials."""

    operator: str
    keys: tuple[str, ...]
    inputs: tuple[str | tuple[str, ...] | None, ...]
    payload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """Rows come through the exchange: where their columns are; combined already, or one by one with their event time."""

    columns: Mapping[str, str]
    combined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """Results that go to an operator of a later level: its number, and the shared column for each of the results' columns."""

    number: int
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTask:
    """What a slot task needs to know of one of its operators in a step."""

    number: int
    operator: str
    plan: Slotted
    rows: Fused | Arriving
    emits: tuple[Emitted, ...] = ()
    written: bool = True  # some sink wants the results
    committed: Mapping[int, Version] = field(default_factory=dict)
    snapshot: frozenset[int] = frozenset()
    restore: Mapping[int, list[Stored]] = field(default_factory=dict)  # shards to take from the durable log
    others: tuple[Slotted, ...] = ()  # the other parts of the operator: what they take is not left out
    first: bool = True  # the part that tells what none takes
    early: bool = False  # also write windows that are still open, as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where the step is: by which watermark rows are late, and by which windows close."""

    after_us: int | None
    until_us: int | None
    finish: bool = False


@dataclass(slots=True)
class Outcome:
    """What the rows and the watermark of a step made of one operator in a slot."""

    rows_in: dict[int, int] = field(default_factory=dict)
    rows_out: dict[int, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    late: pa.Table | None = None
    results: pa.Table | None = None
    shards: Array | None = None  # of the results that are complete: their shards
    until_us: int | None = None
    keys_in: dict[int, float] = field(default_factory=dict)
    arrived: int = 0
    distinct: int = 0
    writes: dict[int, Write] = field(default_factory=dict)


Upstream: TypeAlias = Callable[[str], Sequence[Outcome]]  # what an operator of the same slot has given, of all its parts


class StateWork(ABC):
    """One attempt at the state of one operator of a slot: opened, loaded, changed, written."""

    state: NumberedState[Any, Any]

    def __init__(self, task: NodeTask, where: tuple[str, int], files: Files, host: Host, state: StateSettings) -> None:
        checkpoint, epoch = where
        self.task, self.plan = task, task.plan
        self._files, self._host, self._settings = files, host, state
        self._path = host.component(checkpoint, task.plan.operator)
        self._cached_as = f"{checkpoint}/{task.plan.operator}/{epoch}"  # a later run may have another plan
        self.opened: dict[int, Shard] = {}
        self.metas: dict[int, Meta] = {}
        self._deltas: dict[int, Any] = {}

    def open(self, shards: Sequence[int], stack: ExitStack, fence: Fence, step: int, *, distrust: bool) -> None:
        """Holds the shards, and finds out which of them are in the committed state, or are now: undone, or restored."""
        self.opened = {shard: stack.enter_context(self._shard(shard).held(self._settings.wait_s)) for shard in shards}
        for shard, store in self.opened.items():
            try:
                if distrust:
                    store.wipe()
                if shard in self.task.restore:
                    self.metas[shard] = self._restored(store, self.task.restore[shard], fence)
                    continue
                meta = store.meta()
                store.check(meta, fence)
                if (at := meta.rewound(self.task.committed.get(shard), step)) is not None:
                    self.metas[shard] = at
            except FencedError:
                raise
            except StateFullError:
                raise
            except StateError:
                store.wipe()

    def _restored(self, store: Shard, chain: list[Stored], fence: Fence) -> Meta:
        """A shard from the durable log, in a new file: what is there may be damaged where one does not see it before one writes."""
        try:
            store.check(store.meta(), fence)
        except FencedError:
            raise
        except StateError:
            pass
        store.wipe()
        return store.restore(read_chain(self._files, chain), fence)

    def load(self, shards: Collection[int], after_us: int | None) -> None:
        """The decoded state of these shards: kept from an earlier step and caught up, or read anew.

        A shard whose blobs are damaged is wiped and taken out of `metas`.
        """
        metas = {shard: meta for shard, meta in self.metas.items() if shard in shards}
        kept = _cache.take(self._cached_as, frozenset(metas))
        if kept is not None and kept.reaches(after_us):
            later = {shard: meta.since(kept.versions.get(shard)) for shard, meta in metas.items()}
            if all(links is not None for links in later.values()):
                steps: dict[int, list[tuple[int, bytes]]] = {}
                with suppress(StateError):
                    for shard, links in later.items():
                        for link in links or ():
                            blob = self.opened[shard].read(link.version, snapshot=False)
                            steps.setdefault(link.version.step, []).append((shard, blob))
                    for step in sorted(steps):
                        kept.absorb([(shard, decoded(self.plan, blob)) for shard, blob in steps[step]])
                    kept.versions = {shard: meta.version for shard, meta in metas.items()}
                    if kept.dropped_us != after_us:
                        kept.drop(after_us)
                    self.state = kept
                    return
        self.state = self._read(metas, after_us)

    def _read(self, metas: dict[int, Meta], after_us: int | None) -> NumberedState[Any, Any]:
        state = state_of(self.plan)
        layers: list[list[tuple[int, Any]]] = []
        for shard, meta in list(metas.items()):
            base, links = meta.base()
            try:
                parts = [] if base is None else [self.opened[shard].read(base.version, snapshot=True)]
                parts += [self.opened[shard].read(link.version, snapshot=False) for link in links]
                held = [decoded(self.plan, blob) for blob in parts]
            except StateError:
                self.opened[shard].wipe()
                del metas[shard], self.metas[shard]
                continue
            layers += [[] for _ in range(len(held) - len(layers))]
            for layer, entries in zip(layers, held, strict=False):
                layer.append((shard, entries))
        for layer in layers:
            state.absorb(layer)
        state.forget(self.plan.forgotten_us)
        state.drop(after_us)
        state.versions = {shard: meta.version for shard, meta in metas.items()}
        return state

    @abstractmethod
    def merge(self, rows: Mapping[int, pa.Table], upstream: Upstream, moment: Moment) -> Outcome:
        """Merges the rows of a step in, those of the exchange or those of the operator before."""

    @abstractmethod
    def close(self, outcome: Outcome, moment: Moment) -> None:
        """Closes what the watermark closes."""

    def _until(self, moment: Moment) -> int | None:
        """By which time windows close: the watermark, or the end of all that there is."""
        until_us = self.state.final_end() if moment.finish else moment.until_us
        return moment.after_us if until_us is None else until_us

    def written(self, outcome: Outcome, version: Version) -> None:
        """Forgets what is over, and encodes what the step changed."""
        plan, state = self.plan, self.state
        state.drop(outcome.until_us)
        due = [shard for shard in self.task.snapshot if shard in state.versions]
        snapshots = state.snapshot(due) if due else {}
        outcome.writes = {
            shard: Write(
                version,
                encoded(plan, self._deltas.get(shard) or state.nothing()),
                encoded(plan, snapshots[shard]) if shard in snapshots else None,
            )
            for shard in sorted({*self._deltas, *snapshots})
        }

    def store(self, shard: int, write: Write, fence: Fence) -> None:
        """Writes a shard that changed, in one transaction."""
        self.opened[shard].write(self.metas[shard], write, fence)
        self.state.versions[shard] = write.version

    def keep(self) -> None:
        """Keeps the decoded state for the next step."""
        _cache.put(self._cached_as, self.state)

    def _shard(self, shard: int) -> Shard:
        path = self._path / f"{shard:05d}"
        limit = self._settings.limit_bytes
        found = _shards.get(path)
        if found is None or found.limit_bytes != limit:
            if found is not None:
                found.close()
            found = _shards[path] = Shard(path, limit_bytes=limit)
        return found

    def _mine(self, incoming: pa.Table) -> tuple[pa.Table, Array]:
        """The rows of shards that are there, and their shards."""
        shards = to_array(incoming.column("shard"), np.dtype(np.int64), 0)
        mine = np.isin(shards, np.fromiter(self.state.versions, dtype=np.int64))
        return (incoming, shards) if mine.all() else (incoming.filter(pa.array(mine)), shards[mine])


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
        why = None if all_taken(pane, plan.panes, moment.after_us) else reasons(pane, plan.panes, moment.after_us)
        if why is not None and not (on_time := why == None).all():  # noqa: E711 - element by element
            left_out = ~on_time & (why != TAKEN)
            outcome.left_out = {str(each): int(counts[why == each].sum()) for each in set(why[left_out])}
            if "row" in named.columns and left_out.any():
                out = incoming.filter(pa.array(left_out))
                outcome.late = late_table(out.column(named.columns["row"]), counts[left_out], why[left_out])
            incoming, shards, pane = incoming.filter(pa.array(on_time)), shards[on_time], pane[on_time]
        keys = [incoming.column(named.columns[f"k{i}"]) for i in range(len(plan.keys))]
        rows = state.number(keys_of(keys, plan), shards)
        columns: Sequence[Array] = [
            column
            for kept in plan.kept
            for column in kept.partial.arrive([incoming.column(named.columns[name]) for name in kept.lifted])
        ]
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
            nowhere = ~on_time & ~self._taken_elsewhere(given.t) if self.task.first else np.zeros(len(why), dtype=bool)
            outcome.left_out = {str(each): int((why[nowhere] == each).sum()) for each in set(why[nowhere])}
            given, pane = given.only(np.flatnonzero(on_time)), pane[on_time]
        numbers = state.number(keys_of(given.keys, plan), given.shards)
        first, last = int(pane.min(initial=0)), int(pane.max(initial=0))
        group = numbers.astype(np.int64) * ((last - first) // panes.width_us + 1) + (pane - first) // panes.width_us
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
            taken |= panes.last_ends(t - (t - panes.offset_us) % panes.width_us) > NEVER if panes.windows else True
        return taken

    def _take(self, rows: Array, pane: Array, columns: Sequence[Array], outcome: Outcome) -> None:
        outcome.distinct = len(rows)
        self.windows.add(rows, pane, columns)
        self._deltas = self.windows.entries(rows, pane, columns)

    def close(self, outcome: Outcome, moment: Moment) -> None:
        state = self.windows
        outcome.until_us = until_us = self._until(moment)
        closed = list(state.close(moment.after_us, until_us))
        outcome.keys_in = state.keys_by_length(closed)
        complete = sum(len(each.rows) for each in closed)
        if self.task.early:
            closed = [*closed, *state.open_windows(until_us)]
        outcome.results, shards = result_table(self.plan, state, closed)
        outcome.rows_out = by_shard(shards, np.ones(len(shards)))
        outcome.shards = shards[:complete]


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
        return np.where(self.t == LEFT_OUT, LEFT_OUT, self.t - (self.t - panes.offset_us) % panes.width_us)

    def only(self, at: Array) -> Rows:
        """The rows at some places."""
        index = pa.array(at)
        keys, payload = ([each.take(index) for each in columns] for columns in (self.keys, self.payload))
        return Rows(self.shards[at], keys, [None if x is None else x.take(index) for x in self.inputs], self.t[at], payload)


def arrived_rows(incoming: pa.Table, shards: Array, plan: Slotted, named: Arriving) -> Rows:
    """Rows of an earlier level, one by one."""
    keys = [incoming.column(named.columns[f"k{i}"]) for i in range(len(plan.keys))]
    count = 1 + max((kept.input for kept in plan.kept), default=0)
    inputs = [None, *(incoming.column(named.columns[f"x{i}"]).combine_chunks() for i in range(1, count))]
    payload = [incoming.column(named.columns[f"r{i}"]) for i in range(len(plan.payload))] if isinstance(plan, JoinSide) else []
    return Rows(shards, keys, inputs, to_array(incoming.column(named.columns["t"]), np.dtype(np.int64), LEFT_OUT), payload)


def rows_of_results(upstream: Sequence[Outcome], fused: Fused) -> Rows | None:
    """Complete results of an operator as rows of the next: they happened just before the end of their window."""
    given = [(each.results, each.shards) for each in upstream if each.results is not None and each.shards is not None]
    if not given:
        return None
    table = pa.concat_tables([undictionaried(results.slice(0, len(shards))) for results, shards in given])
    shards = np.concatenate([shards for _, shards in given])

    def column(name: str) -> pa.Array:
        return table.column(name).combine_chunks()

    def input_of(names: str | tuple[str, ...] | None) -> pa.Array | None:
        if names is None or isinstance(names, str):
            return None if names is None else column(names)
        return pa.StructArray.from_arrays([column(name) for name in names], [f"a{i}" for i in range(len(names))])

    ends = table.column("window").combine_chunks().field("end").cast(pa.int64()).to_numpy()
    keys = [column(name) for name in fused.keys] or [pa.array(np.zeros(table.num_rows, dtype=np.int32))]
    return Rows(shards, keys, [input_of(each) for each in fused.inputs], ends - 1, [column(name) for name in fused.payload])


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


def keys_of(columns: Sequence[pa.ChunkedArray | pa.Array], plan: Slotted) -> pa.Table:
    """The keys of some rows as a table."""
    schema = key_schema(plan)
    return pa.Table.from_arrays(list(columns), names=schema.names).cast(schema)


class _Cache:
    """Decoded slots of this process, least recently used out first. One that is being changed is not in it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: OrderedDict[tuple[str, frozenset[int]], NumberedState[Any, Any]] = OrderedDict()

    def take(self, operator: str, shards: frozenset[int]) -> NumberedState[Any, Any] | None:
        return self._slots.pop((operator, shards), None)

    def put(self, operator: str, state: NumberedState[Any, Any]) -> None:
        """Keeps a slot; others that share shards with it are of an older route and go."""
        shards = frozenset(state.versions)
        for key in [key for key in self._slots if key[0] == operator and not shards.isdisjoint(key[1])]:
            del self._slots[key]
        self._slots[operator, shards] = state
        while len(self._slots) > self._size:
            self._slots.popitem(last=False)


_cache = _Cache(_CACHED_SLOTS)
_shards: dict[Path, Shard] = {}
