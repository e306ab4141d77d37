"""One shard of `process` state on one host, in LMDB: one cell per key, and alarms by time.

A step reads and writes only the cells that it touches, and the alarms that are due. Each step also
stores its undo: the cells as they were before.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import lmdb
import msgspec

from anabranch.errors import StateError
from anabranch.state.codec.cells import Blob, alarms_of, has_heads, replayed, sealed_blob
from anabranch.state.store.shard import Environment, Write, damage
from anabranch.state.store.version import Fence, Version

_META, _UNDO = b"y", b"z"  # these sort after all others
_CELL, _LONG, _ALARM = b"c", b"d", b"t"  # cells are next to each other, those with long keys last
_LONGEST = 400  # LMDB takes keys of 511 bytes, and an alarm also has its time
_LEAST_SLICE = 2048
_AT_ONCE = 64  # cells of a slice that are read at once
_SHIFT = 1 << 63


@dataclass(frozen=True, slots=True)
class CellMeta:
    """What a shard holds: its version, and the one before it if the last step can be undone.

    `began` and `at` describe the pass of slices through all cells: its first step, and how far it
    has come.
    """

    version: Version | None = None
    before: Version | None = None
    undoable: bool = False
    fence: Fence = field(default_factory=lambda: Fence(0, 0))
    began: int = 0
    at: bytes = b""
    cells: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWrite(Write):
    """What a step does to a shard: cells before and after, by key; None means no cell."""

    before: Mapping[bytes, bytes | None]
    after: Mapping[bytes, bytes | None]
    began: int
    at: bytes


class CellShard(Environment):
    """An open shard of cells. Use it only inside `held()`."""

    def meta(self) -> CellMeta:
        """What the shard holds. Empty if there is nothing; damage is a StateError."""
        with damage(self.path), self._open().begin() as txn:
            raw = txn.get(_META)
            return CellMeta() if raw is None else msgspec.msgpack.decode(raw, type=CellMeta)

    def rewound(
        self, meta: CellMeta, committed: Version | None, step: int, fence: Fence
    ) -> CellMeta | None:
        """What the shard holds at the committed version; None if it cannot get there.

        Another attempt at this step is undone.
        """
        if (
            meta.version is not None
            and meta.version.step == step
            and meta.version != committed
            and meta.undoable
        ):
            meta = self._undone(meta, fence)
        if meta.version == committed:
            return meta
        if committed is None:
            self.wipe()  # nothing was ever committed: drop what an earlier run left
            return CellMeta()
        return None

    def get(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The cells of some keys; None for a key without one."""
        with damage(self.path), self._open().begin() as txn:
            get = txn.get
            return [
                get(_CELL + key) if len(key) <= _LONGEST else _unboxed(get(_place(key)))
                for key in keys
            ]

    def due(self, until_us: int | None) -> list[bytes]:
        """The keys of cells with alarms up to a time, None: with any alarm. They are not sorted."""
        end = _ALARM + b"\xff" * 9
        if until_us is not None:
            end = _ALARM + (until_us + _SHIFT + 1).to_bytes(8, "big")
        found: dict[bytes, None] = {}
        with damage(self.path), self._open().begin() as txn, txn.cursor() as cursor:
            if cursor.set_range(_ALARM):
                for key in cursor.iternext(values=False):
                    if key >= end:
                        break
                    found[key[9:]] = None
            return [self._full(txn, place) for place in found]

    def next_alarm(self) -> int | None:
        """The time of the first alarm."""
        with damage(self.path), self._open().begin() as txn, txn.cursor() as cursor:
            if not cursor.set_range(_ALARM) or not (key := cursor.key()).startswith(_ALARM):
                return None
            return int.from_bytes(key[1:9], "big") - _SHIFT

    def prepared(
        self,
        meta: CellMeta,
        version: Version,
        before: Mapping[bytes, bytes | None],
        after: Mapping[bytes, bytes | None],
    ) -> CellWrite:
        """What a step writes that changes these cells, with a slice of the others for the log."""
        began = meta.began if meta.at else version.step
        touched = len(before) - list(before.values()).count(None)
        if touched == meta.cells:  # the step touches all cells, so it is a pass of its own
            keys, cells, began, at = list[bytes](), list[bytes](), version.step, b""
        else:
            size = sum(map(len, after)) + sum(map(len, filter(None, after.values())))
            keys, cells, at = self._slice(meta.at, max(size, _LEAST_SLICE), after)
        blob = Blob(list(after), list(after.values()), keys, cells, began, at)
        since = None if at else began
        return CellWrite(
            version, sealed_blob(blob), None, since, before=before, after=after, began=began, at=at
        )

    def _slice(
        self, at: bytes, size: int, changed: Mapping[bytes, bytes | None]
    ) -> tuple[list[bytes], list[bytes], bytes]:
        """The next cells after a position, about `size` bytes of them, and the new position.

        The new position is empty at the end of the cells.
        """
        keys: list[bytes] = []
        cells: list[bytes] = []
        with damage(self.path), self._open().begin() as txn, txn.cursor() as cursor:
            if not cursor.set_range(at + b"\0" if at else _CELL):
                return keys, cells, b""
            found = cursor.iternext()
            while size > 0:
                several = list(itertools.islice(found, _AT_ONCE))
                if several and several[-1][0] >= _LONG:
                    # Near the end: cells with long keys, and entries that are not cells.
                    several = [each for each in several if each[0] < _ALARM]
                    spelled = [_spelled(*each) for each in several]
                else:
                    spelled = [(place[1:], cell) for place, cell in several]
                keys += [key for key, _ in spelled if key not in changed]
                cells += [cell for key, cell in spelled if key not in changed]
                if len(several) < _AT_ONCE:
                    return keys, cells, b""
                at = several[-1][0]
                size -= sum([len(place) + len(cell) for place, cell in several])
        return keys, cells, at

    def write(self, meta: CellMeta, write: CellWrite, fence: Fence) -> CellMeta:
        """Changes the cells of a step and stores its undo, in one transaction."""
        self.check(meta.fence, fence)
        more = list(write.before.values()).count(None) - list(write.after.values()).count(None)
        made = CellMeta(
            write.version, meta.version, True, fence, write.began, write.at, meta.cells + more
        )
        undo = msgspec.msgpack.encode((list(write.before), list(write.before.values()), meta))
        self._change(write.before, write.after, made, undo)
        return made

    def restore(self, writes: Sequence[Write], fence: Fence) -> CellMeta:
        """Replaces the contents of the shard by what the log says."""
        cells, last = replayed(write.snapshot or write.delta for write in writes)
        version = writes[-1].version if writes else None
        meta = CellMeta(version=version, fence=fence, cells=len(cells))
        if last is not None:
            meta = replace(meta, began=last.began, at=last.at)
        self._change({}, cells, meta, None)
        return meta

    def _undone(self, meta: CellMeta, fence: Fence) -> CellMeta:
        with damage(self.path), self._open().begin() as txn:
            raw = txn.get(_UNDO)
            if raw is None:
                raise StateError(
                    f"shard {self.path} is damaged: the undo of step {meta.version} is missing"
                )
            keys, cells, old = msgspec.msgpack.decode(
                raw, type=tuple[list[bytes], list[bytes | None], CellMeta]
            )
        now = dict(zip(keys, self.get(keys), strict=True))
        made = replace(old, fence=fence, undoable=False)
        self._change(now, dict(zip(keys, cells, strict=True)), made, None)
        return made

    def _change(
        self,
        before: Mapping[bytes, bytes | None],
        after: Mapping[bytes, bytes | None],
        meta: CellMeta,
        undo: bytes | None,
    ) -> None:
        """Replaces cells and their alarms."""
        puts: list[tuple[bytes, bytes]] = []
        gone: list[bytes] = []
        if _are_plain(before, after):
            places = map(_CELL.__add__, after)
            puts = list(zip(places, after.values(), strict=True))  # type: ignore[arg-type]
        else:
            for key, cell in after.items():
                self._place_one(key, before.get(key), cell, puts, gone)
        puts.sort()
        puts.append((_META, msgspec.msgpack.encode(meta)))
        if undo is not None:
            puts.append((_UNDO, undo))
        while True:
            try:
                with damage(self.path), self._open().begin(write=True) as txn:
                    for place in gone:
                        txn.delete(place)
                    with txn.cursor() as cursor:
                        cursor.putmulti(puts)
                return
            except lmdb.MapFullError:
                self._grow(sum(len(place) + len(value) for place, value in puts))

    @staticmethod
    def _place_one(
        key: bytes,
        old: bytes | None,
        cell: bytes | None,
        puts: list[tuple[bytes, bytes]],
        gone: list[bytes],
    ) -> None:
        """Collects what must be put and deleted for one cell and its alarms."""
        place = _place(key)
        if cell is None:
            gone.append(place)
        else:
            puts.append((place, cell if len(key) <= _LONGEST else _boxed(key, cell)))
        if (old is not None and old[0]) or (cell is not None and cell[0]):
            was, will = alarms_of(old), alarms_of(cell)
            gone += [_alarm(at, place) for at in was - will]
            puts += [(_alarm(at, place), b"") for at in will - was]

    @staticmethod
    def _full(txn: lmdb.Transaction, place: bytes) -> bytes:
        return place[1:] if place[:1] == _CELL else _spelled(place, bytes(txn.get(place) or b""))[0]


def _are_plain(before: Mapping[bytes, bytes | None], after: Mapping[bytes, bytes | None]) -> bool:
    """Whether no cell is deleted or has alarms, and no key is long."""
    values = after.values()
    if None in values or max(map(len, after), default=0) > _LONGEST:
        return False
    return not has_heads(values) and not has_heads(before.values())


def _place(key: bytes) -> bytes:
    """The LMDB key of a cell. A long key is cut, and gets a hash of all of it."""
    if len(key) <= _LONGEST:
        return _CELL + key
    return _LONG + key[: _LONGEST - 32] + hashlib.blake2b(key, digest_size=32).digest()


def _boxed(key: bytes, cell: bytes) -> bytes:
    return len(key).to_bytes(4, "big") + key + cell


def _unboxed(value: bytes | None) -> bytes | None:
    return None if value is None else value[4 + int.from_bytes(value[:4], "big") :]


def _spelled(place: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The key and the cell of an LMDB entry."""
    if place[:1] == _CELL:
        return place[1:], value
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], value[end:]


def _alarm(at_us: int, place: bytes) -> bytes:
    return _ALARM + (at_us + _SHIFT).to_bytes(8, "big") + place
