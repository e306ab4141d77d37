"""The state of one operator in a slot task: what the task is told of it, its shards opened, loaded, written, and kept decoded.

A shard that is not in the expected state is left alone and reported missing. What rows make of the state is for those who know
its kind: `node_task` for windows and sessions, `join_task` for joins, `process_task` for users' classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.errors import FencedError, StateError, StateFullError
from anabranch.plan.operators.base import OperatorPlan
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.log import Stored, read_chain
from anabranch.state.memory.keyed import NumberedState
from anabranch.state.memory.kinds import decoded, encoded, state_of
from anabranch.state.store.cell_shard import CellMeta, CellShard
from anabranch.state.store.host import Host
from anabranch.state.store.shard import Meta, Shard, Write
from anabranch.state.store.version import Fence, Version
from anabranch.types import Array, to_array

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
    time: str = "window"  # the column that says when a row happened


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
    plan: OperatorPlan
    rows: Fused | Arriving
    emits: tuple[Emitted, ...] = ()
    written: bool = True  # some sink wants the results
    committed: Mapping[int, Version] = field(default_factory=dict)
    snapshot: frozenset[int] = frozenset()
    restore: Mapping[int, list[Stored]] = field(
        default_factory=dict
    )  # shards to take from the durable log
    others: tuple[
        OperatorPlan, ...
    ] = ()  # the other parts of the operator: what they take is not left out
    first: bool = True  # the part that tells what none takes
    early: bool = False  # also write windows that are still open, as they are
    late: bool = False  # some sink wants the rows that are left out
    seen: str | None = (
        None  # the column with the latest event times, where this operator tells them for its source
    )


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


Upstream: TypeAlias = Callable[
    [str], Sequence[Outcome]
]  # what an operator of the same slot has given, of all its parts


StoreT = TypeVar("StoreT", Shard, CellShard)
MetaT = TypeVar("MetaT", Meta, CellMeta)


class ShardWork(ABC, Generic[StoreT, MetaT]):
    """One attempt at the shards of one operator of a slot: opened, loaded, changed, written."""

    def __init__(
        self, task: NodeTask, where: tuple[str, int], files: Files, host: Host, state: StateSettings
    ) -> None:
        checkpoint, epoch = where
        self.task, self.plan = task, task.plan
        self._files, self._host, self._settings = files, host, state
        self._path = host.component(checkpoint, task.plan.operator)
        self._cached_as = (
            f"{checkpoint}/{task.plan.operator}/{epoch}"  # a later run may have another plan
        )
        self.opened: dict[int, StoreT] = {}
        self.metas: dict[int, MetaT] = {}

    def open(
        self, shards: Sequence[int], stack: ExitStack, fence: Fence, step: int, *, distrust: bool
    ) -> None:
        """Holds the shards, and finds out which of them are in the committed state, or are now: undone, or restored."""
        self.opened = {
            shard: stack.enter_context(self._shard(shard).held(self._settings.wait_s))
            for shard in shards
        }
        for shard, store in self.opened.items():
            try:
                if distrust:
                    store.wipe()
                if shard in self.task.restore:
                    self.metas[shard] = self._restored(store, self.task.restore[shard], fence)
                    continue
                meta = self._meta(store)
                store.check(meta.fence, fence)
                if (
                    at := self._rewound(store, meta, self.task.committed.get(shard), step, fence)
                ) is not None:
                    self.metas[shard] = at
            except FencedError:
                raise
            except StateFullError:
                raise
            except StateError:
                store.wipe()

    def _restored(self, store: StoreT, chain: list[Stored], fence: Fence) -> MetaT:
        """A shard from the durable log, in a new file: what is there may be damaged where one does not see it before one writes."""
        try:
            store.check(self._meta(store).fence, fence)
        except FencedError:
            raise
        except StateError:
            pass
        store.wipe()
        return self._restore(store, read_chain(self._files, chain), fence)

    @abstractmethod
    def _meta(self, store: StoreT) -> MetaT:
        """What a shard holds."""

    @abstractmethod
    def _rewound(
        self, store: StoreT, meta: MetaT, committed: Version | None, step: int, fence: Fence
    ) -> MetaT | None:
        """What a shard holds at the committed version, with another attempt at this step undone; None where that cannot be."""

    @abstractmethod
    def _restore(self, store: StoreT, writes: Sequence[Write], fence: Fence) -> MetaT:
        """Fills an empty shard with what the log has of it."""

    @abstractmethod
    def _new_shard(self, path: Path, limit_bytes: int | None) -> StoreT:
        """A shard at a place."""

    @property
    @abstractmethod
    def versions(self) -> Mapping[int, Version | None]:
        """The shards that are loaded, and their versions."""

    @property
    @abstractmethod
    def keys_held(self) -> int:
        """How many keys the slot knows."""

    @abstractmethod
    def next_end(self, after_us: int | None) -> int | None:
        """When something may close or come due next; None where nothing waits."""

    @abstractmethod
    def load(self, shards: Collection[int], after_us: int | None) -> None:
        """Makes the state of these shards ready; a damaged shard is wiped and taken out of `metas`."""

    @abstractmethod
    def merge(self, rows: Mapping[int, pa.Table], upstream: Upstream, moment: Moment) -> Outcome:
        """Merges the rows of a step in, those of the exchange or those of the operator before."""

    @abstractmethod
    def close(self, outcome: Outcome, moment: Moment) -> None:
        """Closes what the watermark closes."""

    def make_rows(self, outcome: Outcome) -> None:
        """Makes the result rows of what was closed."""

    @abstractmethod
    def written(self, outcome: Outcome, version: Version) -> None:
        """Encodes what the step changed."""

    @abstractmethod
    def store(self, shard: int, write: Write, fence: Fence) -> None:
        """Writes a shard that changed, in one transaction."""

    @abstractmethod
    def keep(self) -> None:
        """Keeps what is decoded for the next step."""

    def _shard(self, shard: int) -> StoreT:
        path = self._path / f"{shard:05d}"
        limit = self._settings.limit_bytes
        found = _shards.get(path)
        if found is None or found.limit_bytes != limit:
            if found is not None:
                found.close()
            found = _shards[path] = self._new_shard(path, limit)
        return found

    def _mine(self, incoming: pa.Table) -> tuple[pa.Table, Array]:
        """The rows of shards that are there, and their shards."""
        shards = to_array(incoming.column("shard"), np.dtype(np.int64), 0)
        mine = np.isin(shards, np.fromiter(self.versions, dtype=np.int64))
        return (incoming, shards) if mine.all() else (incoming.filter(pa.array(mine)), shards[mine])


class StateWork(ShardWork[Shard, Meta]):
    """An operator whose state is decoded as a whole: windows, sessions, joins."""

    state: NumberedState[Any, Any]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._deltas: dict[int, Any] = {}

    @property
    def versions(self) -> Mapping[int, Version | None]:
        return self.state.versions

    @property
    def keys_held(self) -> int:
        return len(self.state.keys)

    def next_end(self, after_us: int | None) -> int | None:
        return self.state.next_end(after_us)

    def _meta(self, store: Shard) -> Meta:
        return store.meta()

    def _rewound(  # every argument is part of the interface
        self,
        store: Shard,  # noqa: ARG002
        meta: Meta,
        committed: Version | None,
        step: int,
        fence: Fence,  # noqa: ARG002
    ) -> Meta | None:
        return meta.rewound(committed, step)

    def _restore(self, store: Shard, writes: Sequence[Write], fence: Fence) -> Meta:
        return store.restore(writes, fence)

    def _new_shard(self, path: Path, limit_bytes: int | None) -> Shard:
        return Shard(path, limit_bytes=limit_bytes)

    def load(self, shards: Collection[int], after_us: int | None) -> None:
        """The decoded state of these shards: kept from an earlier step and caught up, or read anew.

        A shard whose blobs are damaged is wiped and taken out of `metas`.
        """
        metas = {shard: meta for shard, meta in self.metas.items() if shard in shards}
        kept = _cache.take(self._cached_as, frozenset(metas)) or self._adapted(metas, after_us)
        if kept is not None and kept.reaches(after_us):
            later = {shard: meta.since(kept.versions.get(shard)) for shard, meta in metas.items()}
            if all(links is not None for links in later.values()):
                steps: dict[int, list[tuple[int, bytes]]] = {}
                with suppress(StateError):
                    for shard, links in later.items():
                        for link in links or ():
                            blob = self.opened[shard].read(link.version, snapshot=False)
                            steps.setdefault(link.version.step, []).append((shard, blob))
                    blobs = [steps[step] for step in sorted(steps)]
                    kept.absorb_all(
                        [
                            [(shard, decoded(self.plan, blob)) for shard, blob in step]
                            for step in blobs
                        ]
                    )
                    kept.versions = {shard: meta.version for shard, meta in metas.items()}
                    if kept.dropped_us != after_us:
                        kept.drop(after_us)
                    self.state = kept
                    return
        self.state = self._read(metas, after_us)

    def _adapted(
        self, metas: dict[int, Meta], after_us: int | None
    ) -> NumberedState[Any, Any] | None:
        """A slot that was kept under another route: shards that left it are forgotten, those that came are read; None where most did.

        So another route costs what it moves and not what the slot holds.
        """
        kept = _cache.nearest(self._cached_as, metas)
        if kept is None or not kept.reaches(after_us):
            return None
        kept.leave([shard for shard in kept.versions if shard not in metas])
        coming = {shard: meta for shard, meta in metas.items() if shard not in kept.versions}
        if coming:
            read = self._read(came := dict(coming), after_us)
            for shard in coming.keys() - came.keys():
                del metas[shard]
            kept.absorb(read.snapshot(came).items())
            kept.versions.update(read.versions)
        return kept

    def _read(self, metas: dict[int, Meta], after_us: int | None) -> NumberedState[Any, Any]:
        state = state_of(self.plan)
        layers: list[list[tuple[int, Any]]] = []
        for shard, meta in list(metas.items()):
            base, links = meta.base()
            try:
                parts = (
                    [] if base is None else [self.opened[shard].read(base.version, snapshot=True)]
                )
                parts += [self.opened[shard].read(link.version, snapshot=False) for link in links]
                held = [decoded(self.plan, blob) for blob in parts]
            except StateError:
                self.opened[shard].wipe()
                del metas[shard], self.metas[shard]
                continue
            layers += [[] for _ in range(len(held) - len(layers))]
            for layer, entries in zip(layers, held, strict=False):
                layer.append((shard, entries))
        state.absorb_all(layers)
        state.forget(self.plan.forgotten_us)
        state.drop(after_us)
        state.versions = {shard: meta.version for shard, meta in metas.items()}
        return state

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


class _Cache:
    """Decoded slots of this process, least recently used out first. One that is being changed is not in it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: OrderedDict[tuple[str, frozenset[int]], NumberedState[Any, Any]] = (
            OrderedDict()
        )

    def take(self, operator: str, shards: frozenset[int]) -> NumberedState[Any, Any] | None:
        return self._slots.pop((operator, shards), None)

    def nearest(self, operator: str, shards: Collection[int]) -> NumberedState[Any, Any] | None:
        """The slot that has most of these shards, where it has at least half of them."""
        near = [key for key in self._slots if key[0] == operator]
        best = max(near, key=lambda key: len(key[1].intersection(shards)), default=None)
        if best is None or 2 * len(best[1].intersection(shards)) < max(1, len(shards)):
            return None
        return self._slots.pop(best)

    def put(self, operator: str, state: NumberedState[Any, Any]) -> None:
        """Keeps a slot. One that shares half of its shards with it, or more, is what it was under an older route and goes.

        One that shares few stays: its slot comes yet in this step, and goes on with it. But no shard is held thrice for long.
        """
        shards = frozenset(state.versions)
        for key in [
            key
            for key in self._slots
            if key[0] == operator and 2 * len(shards & key[1]) >= len(key[1])
        ]:
            del self._slots[key]
        self._slots[operator, shards] = state
        mine = [key for key in self._slots if key[0] == operator]
        many = sum(len(key[1]) for key in mine) - 2 * len(
            frozenset().union(*(key[1] for key in mine))
        )
        for key in mine:
            if many <= 0:
                break
            many -= len(key[1])
            del self._slots[key]
        while len(self._slots) > self._size:
            self._slots.popitem(last=False)


_cache = _Cache(_CACHED_SLOTS)
_shards: dict[Path, Any] = {}
