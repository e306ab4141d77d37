"""The interfaces of shard stores, as a slot task uses them.

`Shard` and `CellShard` implement them in LMDB, and `anabranch.testing` implements them in memory.
`tests/contracts/test_shard_stores.py` tests what all of them must do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self

from anabranch.state.store.cell_shard import CellMeta, CellWrite
from anabranch.state.store.shard import Meta, Write
from anabranch.state.store.version import Fence, Version


class HeldStore(Protocol):
    """A store that one attempt at a time uses."""

    def held(self, wait_s: float) -> AbstractContextManager[Self]:
        """Keeps all other processes out. Raises ShardHeldError if it waits longer than `wait_s`."""

    def check(self, last: Fence, fence: Fence) -> None:
        """Refuses an attempt that a newer one has overtaken."""

    def wipe(self) -> None:
        """Removes the contents, damaged or not."""

    def size_bytes(self) -> int:
        """How much space the store takes."""

    def close(self) -> None:
        """Releases files and memory. The contents stay."""


class ShardStore(HeldStore, Protocol):
    """A shard of partials or rows: a chain of deltas and snapshots."""

    def meta(self) -> Meta:
        """What the shard holds."""

    def read(self, version: Version, *, snapshot: bool) -> bytes:
        """The delta or the snapshot of one step of the chain; StateError if it is missing."""

    def write(self, meta: Meta, write: Write, fence: Fence) -> Meta:
        """Appends a step to the chain of `meta`. All that `meta` does not name is deleted."""

    def restore(self, writes: Sequence[Write], fence: Fence) -> Meta:
        """Replaces the contents by a snapshot and the deltas after it."""


class CellStore(HeldStore, Protocol):
    """A shard of a `process`: one cell per key, and alarms by time."""

    def meta(self) -> CellMeta:
        """What the shard holds."""

    def rewound(
        self, meta: CellMeta, committed: Version | None, step: int, fence: Fence
    ) -> CellMeta | None:
        """The shard at the committed version, after undoing another attempt; None if impossible."""

    def get(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The cells of some keys; None for a key without one."""

    def due(self, until_us: int | None) -> list[bytes]:
        """The keys of cells with alarms up to a time, None: with any alarm. They are not sorted."""

    def next_alarm(self) -> int | None:
        """The time of the first alarm."""

    def prepared(
        self,
        meta: CellMeta,
        version: Version,
        before: Mapping[bytes, bytes | None],
        after: Mapping[bytes, bytes | None],
    ) -> CellWrite:
        """What a step that changes these cells writes to the store and to the log."""

    def write(self, meta: CellMeta, write: CellWrite, fence: Fence) -> CellMeta:
        """Changes the cells of a step, all or none."""

    def restore(self, writes: Sequence[Write], fence: Fence) -> CellMeta:
        """Fills an empty shard with what the log has of it."""
