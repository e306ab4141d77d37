"""The state of one operator in a slot task: its shards are opened, loaded, written, and cached.

A shard that is not in the expected state is left alone and reported missing. How rows change the
state depends on the kind of the operator: see `runtime.kinds`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.errors import FencedError, StateError, StateFullError
from anabranch.runtime.cache import Owner, decoded_slots
from anabranch.runtime.tasks import NodeOutcome, NodeTask, StateSettings, Upstream, Watermarks
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.log import Stored, read_chain
from anabranch.state.memory.keyed import NumberedState
from anabranch.state.memory.kinds import decoded, encoded, state_of
from anabranch.state.store.cell_shard import CellMeta, CellShard
from anabranch.state.store.host import Host
from anabranch.state.store.shard import Meta, Shard, Write
from anabranch.state.store.version import Fence, Version
from anabranch.types import Array, to_array


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlace:
    """Where an attempt works: the run, its checkpoint, the host and the settings of state."""

    checkpoint_id: str
    epoch: int
    files: Files
    host: Host
    state: StateSettings


_shards: dict[Path, Any] = {}  # the open shards of this process
StoreT = TypeVar("StoreT", Shard, CellShard)
MetaT = TypeVar("MetaT", Meta, CellMeta)


class ShardWork(ABC, Generic[StoreT, MetaT]):
    """One attempt at the shards of one operator in a slot: opens, loads, changes, writes them."""

    def __init__(self, task: NodeTask, place: WorkPlace) -> None:
        self.task, self.plan = task, task.plan
        self._place = place
        self._path = place.host.directory(place.checkpoint_id, task.plan.part)
        self._owner = Owner(place.checkpoint_id, task.plan.part, place.epoch)
        self.opened: dict[int, StoreT] = {}
        self.metas: dict[int, MetaT] = {}

    @classmethod
    def of(
        cls,
        task: NodeTask,
        tasks: Sequence[NodeTask],  # noqa: ARG003
        place: WorkPlace,
    ) -> Self:
        """The work of an operator. `tasks` are all tasks of its slot."""
        return cls(task, place)

    def open(
        self, shards: Sequence[int], stack: ExitStack, fence: Fence, step: int, *, distrust: bool
    ) -> None:
        """Holds the shards, and brings them to the committed state. `metas` has those that are.

        It undoes another attempt at this step, and restores shards from the log if the task says
        so. A damaged shard is wiped.
        """
        self.opened = {
            shard: stack.enter_context(self._shard(shard).held(self._place.state.wait_s))
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
        """Restores a shard from the durable log, into a new file: damage in the old file may only
        show when it is written.
        """
        try:
            store.check(self._meta(store).fence, fence)
        except FencedError:
            raise
        except StateError:
            pass
        store.wipe()
        return self._restore(store, read_chain(self._place.files, chain), fence)

    @abstractmethod
    def _meta(self, store: StoreT) -> MetaT:
        """What a shard holds."""

    @abstractmethod
    def _rewound(
        self, store: StoreT, meta: MetaT, committed: Version | None, step: int, fence: Fence
    ) -> MetaT | None:
        """What a shard holds at the committed version, after another attempt at this step was
        undone. None if it cannot be brought there.
        """

    @abstractmethod
    def _restore(self, store: StoreT, writes: Sequence[Write], fence: Fence) -> MetaT:
        """Fills an empty shard with its entries of the log."""

    @abstractmethod
    def _new_shard(self, path: Path, limit_bytes: int | None) -> StoreT:
        """The shard at a path."""

    @property
    @abstractmethod
    def versions(self) -> Mapping[int, Version | None]:
        """The shards that are loaded, and their versions."""

    @property
    @abstractmethod
    def keys_held(self) -> int:
        """How many keys the slot has."""

    @abstractmethod
    def next_end(self, after_us: int | None) -> int | None:
        """When the next window may close or the next timer is due; None if there is none."""

    @abstractmethod
    def load(self, shards: Collection[int], after_us: int | None) -> None:
        """Loads the state of these shards. A damaged one is wiped and removed from `metas`."""

    @abstractmethod
    def merge(
        self, rows: Mapping[int, pa.Table], upstream: Upstream, marks: Watermarks
    ) -> NodeOutcome:
        """Merges the rows of a step, from the exchange or from another operator of the slot."""

    @abstractmethod
    def close(self, outcome: NodeOutcome, marks: Watermarks) -> None:
        """Closes the windows that the watermark allows."""

    def make_rows(self, outcome: NodeOutcome) -> None:
        """Makes the result rows of the windows that were closed."""

    @abstractmethod
    def written(self, outcome: NodeOutcome, version: Version) -> None:
        """Encodes what the step changed."""

    @abstractmethod
    def store(self, shard: int, write: Write, fence: Fence) -> None:
        """Writes a shard that changed, in one transaction."""

    @abstractmethod
    def keep(self) -> None:
        """Keeps the decoded state for the next step."""

    def _shard(self, shard: int) -> StoreT:
        path = self._path / f"{shard:05d}"
        limit = self._place.state.limit_bytes
        found = _shards.get(path)
        if found is None or found.limit_bytes != limit:
            if found is not None:
                found.close()
            found = _shards[path] = self._new_shard(path, limit)
        return found

    def _mine(self, incoming: pa.Table) -> tuple[pa.Table, Array]:
        """The rows of shards that are loaded, and the shard of each row."""
        shards = to_array(incoming.column("shard"), np.dtype(np.int64), 0)
        mine = np.isin(shards, np.fromiter(self.versions, dtype=np.int64))
        return (incoming, shards) if mine.all() else (incoming.filter(pa.array(mine)), shards[mine])


class StateWork(ShardWork[Shard, Meta]):
    """An operator whose state is decoded as a whole: windows, sessions, joins."""

    state: NumberedState[Any, Any]

    def __init__(self, task: NodeTask, place: WorkPlace) -> None:
        super().__init__(task, place)
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
        """Loads the decoded state of these shards: from the cache, with later steps added, or from
        the shards.

        A shard whose blobs are damaged is wiped and removed from `metas`.
        """
        metas = {shard: meta for shard, meta in self.metas.items() if shard in shards}
        kept = decoded_slots.take(self._owner, frozenset(metas)) or self._adapted(metas, after_us)
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
        """The state of a slot that was cached under another route. It forgets shards that left the
        slot and reads new ones. None if less than half of the shards are cached.

        So a change of routes costs by the shards that move, not by all shards of the slot.
        """
        kept = decoded_slots.nearest(self._owner, metas)
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

    def _until(self, marks: Watermarks) -> int | None:
        """The time up to which windows close: the watermark, or the end of the last window."""
        until_us = self.state.final_end() if marks.finish else marks.close_until_us
        return marks.late_before_us if until_us is None else until_us

    def written(self, outcome: NodeOutcome, version: Version) -> None:
        """Drops what is not needed any more, and encodes what the step changed."""
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
        decoded_slots.put(self._owner, self.state)
