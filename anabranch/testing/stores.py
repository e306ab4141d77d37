"""Stores of shards in memory: twins of those in LMDB, for tests in one process.

Two stores over one `MemoryDisk` see the same, as two processes on one host do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from anabranch.errors import FencedError, ShardHeldError, StateError
from anabranch.state.codec.cells import Blob, alarms_of, replayed, sealed_blob
from anabranch.state.store.cell_shard import CellMeta, CellWrite
from anabranch.state.store.shard import EMPTY, Meta, Write
from anabranch.state.store.version import Fence, Version


@dataclass(slots=True)
class MemoryDisk:
    """What one shard has on disk; it outlives its store."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    held: dict[str, Any] = field(default_factory=dict)


class _MemoryStore:
    """A store that one attempt at a time uses."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self._disk = MemoryDisk() if disk is None else disk

    @contextmanager
    def held(self, wait_s: float) -> Iterator[Self]:
        """Keeps all others out; fails if the shard is held for longer than `wait_s`."""
        if not self._disk.lock.acquire(timeout=wait_s):
            raise ShardHeldError(f"the shard is held for more than {wait_s:g} s")
        try:
            yield self
        finally:
            self._disk.lock.release()

    def check(self, last: Fence, fence: Fence) -> None:
        """Refuses an attempt that a newer one has overtaken."""
        if fence < last:
            raise FencedError(f"attempt {fence} is overtaken by {last}")

    def wipe(self) -> None:
        """Removes what is there."""
        self._disk.held.clear()

    def close(self) -> None:
        """Nothing is open."""


class MemoryShard(_MemoryStore):
    """A shard of partials or rows: blobs by step."""

    def meta(self) -> Meta:
        """What the shard holds."""
        found: Meta = self._disk.held.get("meta", EMPTY)
        return found

    def read(self, version: Version, *, snapshot: bool) -> bytes:
        """The delta or the snapshot of one step of the chain."""
        write = self._writes().get(version)
        blob = None if write is None else write.snapshot if snapshot else write.delta
        if blob is None:
            raise StateError(f"step {version} is missing")
        return blob

    def write(self, meta: Meta, write: Write, fence: Fence) -> Meta:
        """Appends a step to the chain of `meta`; what `meta` does not name is forgotten."""
        self.check(meta.fence, fence)
        made = Meta(meta.appended(write.link), fence)
        known = {**self._writes(), write.version: write}
        return self._put(made, known)

    def restore(self, writes: Sequence[Write], fence: Fence) -> Meta:
        """Replaces what is there by a snapshot and the deltas after it."""
        made = Meta(tuple(each.link for each in writes), fence)
        return self._put(made, {each.version: each for each in writes})

    def size_bytes(self) -> int:
        """The bytes of all blobs."""
        return sum(len(each.delta) + len(each.snapshot or b"") for each in self._writes().values())

    def _put(self, meta: Meta, known: Mapping[Version, Write]) -> Meta:
        kept = {link.version: known[link.version] for link in meta.chain}
        self._disk.held.update(meta=meta, writes=kept)
        return meta

    def _writes(self) -> dict[Version, Write]:
        found: dict[Version, Write] = self._disk.held.get("writes", {})
        return found


class MemoryCellShard(_MemoryStore):
    """A shard of a `process`: cells by key. Each step writes all cells to the log."""

    def meta(self) -> CellMeta:
        """What the shard holds."""
        found: CellMeta = self._disk.held.get("meta", CellMeta())
        return found

    def rewound(
        self, meta: CellMeta, committed: Version | None, step: int, fence: Fence
    ) -> CellMeta | None:
        """The shard at the committed version, with another attempt undone; None if impossible."""
        another = meta.version is not None and meta.version.step == step
        if another and meta.version != committed and meta.undoable:
            cells, old = self._disk.held["undo"]
            meta = self._put(cells, replace(old, fence=fence, undoable=False))
        if meta.version == committed:
            return meta
        if committed is None:
            self.wipe()
            return CellMeta()
        return None

    def get(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The cells of some keys, None where there is none."""
        return [self._cells().get(key) for key in keys]

    def due(self, until_us: int | None) -> list[bytes]:
        """The keys of the cells with alarms up to a time; without a time, with any alarm."""
        return [
            key
            for key, cell in self._cells().items()
            if any(until_us is None or at <= until_us for at in alarms_of(cell))
        ]

    def next_alarm(self) -> int | None:
        """The time of the first alarm."""
        alarms = (at for cell in self._cells().values() for at in alarms_of(cell))
        return min(alarms, default=None)

    def prepared(
        self,
        meta: CellMeta,  # noqa: ARG002 - all cells are written, so slices do not matter
        version: Version,
        before: Mapping[bytes, bytes | None],
        after: Mapping[bytes, bytes | None],
    ) -> CellWrite:
        """The write of a step that changes these cells; its log entry has all cells."""
        others = {key: cell for key, cell in self._cells().items() if key not in after}
        step = version.step
        blob = Blob(
            list(after), list(after.values()), list(others), list(others.values()), step, b""
        )
        delta = sealed_blob(blob)
        return CellWrite(version, delta, None, step, before=before, after=after, began=step, at=b"")

    def write(self, meta: CellMeta, write: CellWrite, fence: Fence) -> CellMeta:
        """Changes the cells of a step."""
        self.check(meta.fence, fence)
        old = self._cells()
        cells = {**old, **write.after}
        kept = {key: cell for key, cell in cells.items() if cell is not None}
        made = CellMeta(write.version, meta.version, True, fence, write.began, write.at, len(kept))
        self._put(kept, made)
        self._disk.held["undo"] = (old, meta)
        return made

    def restore(self, writes: Sequence[Write], fence: Fence) -> CellMeta:
        """Fills the shard from its log."""
        cells, last = replayed(write.snapshot or write.delta for write in writes)
        version = writes[-1].version if writes else None
        meta = CellMeta(version=version, fence=fence, cells=len(cells))
        if last is not None:
            meta = replace(meta, began=last.began, at=last.at)
        return self._put(cells, meta)

    def size_bytes(self) -> int:
        """The bytes of all keys and cells."""
        return sum(len(key) + len(cell) for key, cell in self._cells().items())

    def _cells(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self._disk.held.get("cells", {})
        return found

    def _put(self, cells: dict[bytes, bytes], meta: CellMeta) -> CellMeta:
        self._disk.held.update(cells=cells, meta=meta)
        return meta
