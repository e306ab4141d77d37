"""One shard on one host: an LMDB environment with a snapshot, later deltas, and their version.

A step is one transaction: its delta (and a snapshot when one is due), and the version. All deltas
since the last snapshot but one are kept. So a step is undone by dropping its delta, and a process
that missed some steps can catch up.

LMDB's own locking is off, because it would wait forever for a stopped process. A file lock protects
a shard instead. The system releases it when its holder dies, and waiting for it has a limit.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import lmdb
import msgspec

from anabranch.errors import FencedError, ShardHeldError, StateError, StateFullError
from anabranch.state.store.version import Fence, Version

_META = b"meta"
_MAP_BYTES = 64 << 20
_WASTEFUL = 2  # a file this many times as large as its contents is rewritten
_LEAST_BYTES = 64 << 10
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAGIC = 0xBEEFC0DE


@dataclass(frozen=True, slots=True)
class Link:
    """One step in the chain: its version, and whether there is a snapshot of the state after it."""

    version: Version
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Meta:
    """What a shard holds: the chain of steps, oldest first, and the fence of its last writer."""

    chain: tuple[Link, ...]
    fence: Fence

    @property
    def version(self) -> Version | None:
        return self.chain[-1].version if self.chain else None

    def rewound(self, committed: Version | None, step: int) -> Meta | None:
        """What the shard holds at the committed version; None if it cannot get there.

        Another attempt at this step is undone.
        """
        chain = self.chain
        if chain and chain[-1].version.step == step and chain[-1].version != committed:
            chain = chain[:-1]
        if (chain[-1].version if chain else None) == committed:
            return replace(self, chain=chain)
        # Nothing was ever committed: drop what an earlier run left.
        return replace(self, chain=()) if committed is None else None

    def since(self, version: Version | None) -> tuple[Link, ...] | None:
        """The steps after a version; None if the chain does not contain it."""
        if version is None:
            return self.chain if not self.chain or not self.chain[0].snapshot else None
        for i, link in enumerate(self.chain):
            if link.version == version:
                return self.chain[i + 1 :]
        return None

    def base(self) -> tuple[Link | None, tuple[Link, ...]]:
        """The last snapshot and the steps after it. Without a snapshot: None, and all steps."""
        at = max((i for i, link in enumerate(self.chain) if link.snapshot), default=-1)
        return (self.chain[at] if at >= 0 else None), self.chain[at + 1 :]

    def appended(self, link: Link) -> tuple[Link, ...]:
        """The chain after one more step, cut at the last snapshot but one.

        That is enough to undo the last step, and for other processes to catch up.
        """
        chain = (*self.chain, link)
        snapshots = [i for i, each in enumerate(chain) if each.snapshot]
        return chain[snapshots[-2] :] if len(snapshots) > 1 else chain


@dataclass(frozen=True, slots=True)
class Write:
    """What a step adds to a shard: its delta, and sometimes a snapshot of the state after it."""

    version: Version
    delta: bytes
    snapshot: bytes | None = None
    since: int | None = None  # the log has the whole shard from this step on

    @property
    def link(self) -> Link:
        return Link(self.version, self.snapshot is not None)

    def blobs(self) -> dict[bytes, bytes]:
        blobs = {_key(self.version, b"d"): self.delta}
        return (
            blobs if self.snapshot is None else {**blobs, _key(self.version, b"s"): self.snapshot}
        )


EMPTY = Meta((), Fence(0, 0))


class Environment:
    """An LMDB environment that one process at a time uses, inside `held()`.

    It grows when it needs to, up to a limit.
    """

    def __init__(self, path: Path, *, limit_bytes: int | None = None) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self._data = path / "data.mdb"
        self._env: lmdb.Environment | None = None
        self._inode = -1
        self._is_held = self._is_checked = False

    @contextmanager
    def held(self, wait_s: float) -> Iterator[Self]:
        """Locks the shard against other processes. After `wait_s`, an error names the holder."""
        lock = _open_lock(self.path)
        try:
            _lock(lock, self.path, wait_s)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            self._is_held = True
            yield self
        finally:
            self._is_held = self._is_checked = False
            os.close(lock)

    def check(self, last: Fence, fence: Fence) -> None:
        """Refuses an attempt that a newer one has overtaken."""
        if fence < last:
            raise FencedError(f"shard {self.path}: attempt {fence} is overtaken by {last}")

    def wipe(self) -> None:
        """Removes the contents, damaged or not. Other processes notice that the file is new."""
        self.close()
        for each in self.path.glob("*.mdb"):
            each.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        found = self._file()
        return found.st_size if found is not None else 0

    def _file(self) -> os.stat_result | None:
        try:
            # Three times as fast as Path.stat, and every step calls it for each shard.
            return os.stat(self._data)  # noqa: PTH116
        except FileNotFoundError:
            return None

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def _open(self) -> lmdb.Environment:
        """The environment. Once per hold, it is checked for replacement and damage."""
        if self._is_checked and self._env is not None:
            return self._env
        found = self._file()
        if self._env is not None:
            replaced = found is None or found.st_ino != self._inode
            if replaced or (found is not None and found.st_size > self._env.info()["map_size"]):
                self.close()  # another process has replaced it, or made it larger
        if found is not None:
            _check_whole(self._data, found.st_size)
        if self._env is None:
            with damage(self.path):
                held = found.st_size if found is not None else 0
                size = max(held, min(max(_MAP_BYTES, 2 * held), self.limit_bytes or sys.maxsize))
                self._env = lmdb.open(
                    str(self.path),
                    map_size=size,
                    lock=False,
                    sync=False,
                    metasync=False,
                    readahead=False,
                    max_dbs=0,
                )
            self._inode = self._data.stat().st_ino
        self._is_checked = self._is_held
        return self._env

    def _shrink(self) -> None:
        """Rewrites the file if most of it is free.

        LMDB never gives pages back, and blobs of changing size leave gaps.
        """
        env = self._open()
        stat = env.stat()
        used = (
            sum(stat[kind] for kind in ("branch_pages", "leaf_pages", "overflow_pages"))
            * stat["psize"]
        )
        if self.size_bytes() < _WASTEFUL * max(used, _LEAST_BYTES):
            return
        draft = self.path / "draft"
        draft.mkdir(exist_ok=True)
        for each in draft.glob("*"):
            each.unlink()
        try:
            env.copy(str(draft), compact=True)
        except lmdb.Error:  # no space for both files: keep the old one
            (draft / "data.mdb").unlink(missing_ok=True)
            return
        self.close()
        (draft / "data.mdb").replace(self._data)

    def _grow(self, wanted: int) -> None:
        size = self._open().info()["map_size"]
        larger = max(2 * size, size + 2 * wanted)
        if self.limit_bytes is not None and larger > self.limit_bytes:
            raise StateFullError(
                f"shard {self.path} needs a map of more than {size / 2**20:g} MiB and its limit is "
                f"{self.limit_bytes / 2**20:g} MiB; nothing is lost: restart with a larger "
                "state_limit, or with fewer keys or shorter windows"
            )
        self._open().set_mapsize(larger)


class Shard(Environment):
    """An open shard of partials or rows: blobs by step. Use it only inside `held()`."""

    def meta(self) -> Meta:
        """What the shard holds. Empty if there is nothing; damage is a StateError."""
        env = self._open()
        with damage(self.path), env.begin() as txn:
            raw = txn.get(_META)
            return EMPTY if raw is None else msgspec.json.decode(raw, type=Meta)

    def read(self, version: Version, *, snapshot: bool) -> bytes:
        """The delta or the snapshot of one step of the chain."""
        with damage(self.path), self._open().begin() as txn:
            raw = txn.get(_key(version, b"s" if snapshot else b"d"))
        if raw is None:
            raise StateError(f"shard {self.path} is damaged: step {version} is missing")
        return bytes(raw)

    def write(self, meta: Meta, write: Write, fence: Fence) -> Meta:
        """Appends a step to the chain of `meta`. All that `meta` does not name is deleted."""
        self.check(meta.fence, fence)
        kept = self._commit(meta.appended(write.link), write.blobs(), fence)
        if write.snapshot is not None:
            self._shrink()
        return kept

    def restore(self, writes: Sequence[Write], fence: Fence) -> Meta:
        """Replaces the contents by a snapshot and the deltas after it."""
        blobs = {key: blob for each in writes for key, blob in each.blobs().items()}
        return self._commit(tuple(each.link for each in writes), blobs, fence)

    def _commit(self, chain: tuple[Link, ...], blobs: dict[bytes, bytes], fence: Fence) -> Meta:
        meta = Meta(chain, fence)
        while True:
            try:
                with damage(self.path), self._open().begin(write=True) as txn:
                    wanted = {_META} | {
                        _key(link.version, kind) for link in chain for kind in (b"d", b"s")
                    }
                    with txn.cursor() as cursor:
                        stale = [
                            bytes(key)
                            for key in cursor.iternext(values=False)
                            if bytes(key) not in wanted
                        ]
                    for key in stale:
                        txn.delete(key)
                    for key, blob in blobs.items():
                        txn.put(key, blob)
                    txn.put(_META, msgspec.json.encode(meta))
                return meta
            except lmdb.MapFullError:
                self._grow(sum(map(len, blobs.values())))


def _key(version: Version, kind: bytes) -> bytes:
    return b"%016d/%s/%s" % (version.step, version.token.encode(), kind)


def _open_lock(path: Path) -> int:
    try:
        return os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        path.mkdir(parents=True, exist_ok=True)
        return os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)


def _lock(lock: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    pause = 0.001
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = os.pread(lock, 32, 0).decode(errors="replace") or "unknown"
                raise ShardHeldError(
                    f"shard {path} has been held by process {holder} for more than {wait_s:g} s; "
                    "continue or end that process"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, 0.05)


def _check_whole(data: Path, size: int) -> None:
    """Refuses a file that is shorter than its header says: reading it would cause a SIGBUS."""
    if size == 0:
        return
    with data.open("rb") as file:
        head = file.read(2 * _PAGE)
    if len(head) < 2 * _PAGE:
        raise StateError(f"shard {data.parent} is damaged: its file is cut short")
    # LMDB's two meta pages, 64-bit layout: magic at 16, last page at 136, transaction at 144.
    newest = (0, 0)
    for at in (0, _PAGE):
        if struct.unpack_from("<I", head, at + 16)[0] != _MAGIC:
            raise StateError(f"shard {data.parent} is damaged: not a state file")
        page, transaction = struct.unpack_from("<QQ", head, at + 136)
        newest = max(newest, (transaction, page))
    if size < (newest[1] + 1) * _PAGE and newest[0] > 0:
        raise StateError(f"shard {data.parent} is damaged: its file is cut short")


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turns errors of LMDB into StateError or StateFullError, which say what to do."""
    try:
        yield
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        text = str(error)
        if "No space" in text or "Input/output" in text or "Disk quota" in text:
            raise StateFullError(
                f"shard {path}: {text}; nothing is lost: free space there, or restart with "
                "state_root= on a larger disk"
            ) from error
        raise StateError(f"shard {path} is damaged: {text}") from error
    except msgspec.DecodeError as error:
        raise StateError(f"shard {path} is damaged: {error}") from error
