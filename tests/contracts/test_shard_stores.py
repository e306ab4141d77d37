"""The contracts of `ShardStore` and `CellStore`: what every store of a shard does."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from anabranch.errors import FencedError, ShardHeldError, StateError
from anabranch.state.checkpoint.log import LogFile, Stored, needed_before, read_chain
from anabranch.state.codec.cells import NO_HEAD, Head, sealed_cell
from anabranch.state.store.cell_shard import CellMeta, CellShard
from anabranch.state.store.ports import CellStore, ShardStore
from anabranch.state.store.shard import Shard, Write
from anabranch.state.store.version import Fence, Version
from anabranch.testing import MemoryCellShard, MemoryDisk, MemoryFiles, MemoryShard

FIRST = Fence(1, 1)
V = [Version(step, f"t{step}") for step in range(20)]

OpenShard: TypeAlias = Callable[[], ShardStore]
OpenCells: TypeAlias = Callable[[str], CellStore]


@pytest.fixture(params=["LMDB", "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shard(kind: str, tmp_path: Path) -> OpenShard:
    """Opens one shard, each time by another store, as another process would."""
    disk = MemoryDisk()
    if kind == "LMDB":
        return lambda: Shard(tmp_path / "shard")
    return lambda: MemoryShard(disk)


@pytest.fixture
def cells(kind: str, tmp_path: Path) -> OpenCells:
    """Opens a shard of cells by its name, each time by another store."""
    disks: dict[str, MemoryDisk] = {}
    if kind == "LMDB":
        return lambda name: CellShard(tmp_path / "cells" / name)
    return lambda name: MemoryCellShard(disks.setdefault(name, MemoryDisk()))


def filled(store: ShardStore, steps: int, snapshots: tuple[int, ...] = ()) -> ShardStore:
    with store.held(1):
        for step in range(1, steps + 1):
            snapshot = f"s{step}".encode() if step in snapshots else None
            store.write(store.meta(), Write(V[step], f"d{step}".encode(), snapshot), Fence(1, step))
    return store


def test_a_shard_that_was_never_written_holds_nothing(shard: OpenShard, cells: OpenCells) -> None:
    with shard().held(1) as store:
        assert (store.meta().version, store.meta().chain) == (None, ())
    with cells("a").held(1) as other:
        assert (other.meta().version, other.meta().cells) == (None, 0)
        assert other.get([b"k"]) == [None]
        assert (other.due(None), other.next_alarm()) == ([], None)


def test_a_shard_that_is_held_keeps_others_out_until_it_is_released(
    shard: OpenShard, cells: OpenCells
) -> None:
    for first, second in ((shard(), shard()), (cells("a"), cells("a"))):
        with first.held(1), pytest.raises(ShardHeldError), second.held(0.02):
            pass
        with pytest.raises(FencedError), first.held(1) as store:
            store.check(Fence(2, 0), Fence(1, 0))  # an attempt that fails releases it too
        with second.held(1):
            pass


def test_what_was_written_is_read_by_another_store(shard: OpenShard) -> None:
    filled(shard(), 3).close()
    with shard().held(1) as again:
        meta = again.meta()
        assert meta.version == V[3]
        read = [again.read(link.version, snapshot=False) for link in meta.chain]
        assert read == [b"d1", b"d2", b"d3"]
        assert meta.base() == (None, meta.chain)
        assert again.size_bytes() > 0


def test_another_attempt_at_a_step_is_undone_by_the_next_write(shard: OpenShard) -> None:
    with filled(shard(), 3, snapshots=(3,)).held(1) as store:
        at = store.meta().rewound(V[2], 3)
        assert at is not None
        new = Version(3, "other")
        store.write(at, Write(new, b"new"), Fence(2, 1))
        assert [link.version for link in store.meta().chain] == [V[1], V[2], new]
        with pytest.raises(StateError):
            store.read(V[3], snapshot=False)


def test_a_chain_is_kept_from_the_snapshot_before_the_last_one_on(shard: OpenShard) -> None:
    with filled(shard(), 9, snapshots=(2, 5, 8)).held(1) as store:
        meta = store.meta()
        assert [link.version.step for link in meta.chain] == [5, 6, 7, 8, 9]
        assert store.read(V[8], snapshot=True) == b"s8"
        assert store.read(V[8], snapshot=False) == b"d8"
        with pytest.raises(StateError):
            store.read(V[9], snapshot=True)
        with pytest.raises(StateError):
            store.read(V[4], snapshot=False)


def test_an_older_attempt_cannot_write_after_a_newer_one(
    shard: OpenShard, cells: OpenCells
) -> None:
    with filled(shard(), 3).held(1) as store, pytest.raises(FencedError, match="overtaken"):
        store.write(store.meta(), Write(V[4], b"late"), Fence(1, 2))
    with cells("a").held(1) as other:
        meta = step(other, CellMeta(), 1, {b"k": cell(b"1")}, Fence(1, 5))
        with pytest.raises(FencedError, match="overtaken"):
            step(other, meta, 2, {b"k": cell(b"2")}, Fence(1, 4))
        assert other.get([b"k"]) == [cell(b"1")]


def test_restoring_replaces_what_is_there(shard: OpenShard) -> None:
    with filled(shard(), 3).held(1) as store:
        store.restore([Write(V[7], b"", b"s7"), Write(V[8], b"d8")], Fence(2, 1))
        assert [link.version for link in store.meta().chain] == [V[7], V[8]]
        assert store.meta().fence == Fence(2, 1)
        assert store.read(V[7], snapshot=True) == b"s7"
        with pytest.raises(StateError):
            store.read(V[3], snapshot=False)


def test_a_wiped_shard_holds_nothing_and_can_be_written_again(
    shard: OpenShard, cells: OpenCells
) -> None:
    with filled(shard(), 3).held(1) as store:
        store.wipe()
        assert store.meta().chain == ()
        store.write(store.meta(), Write(V[1], b"again"), Fence(1, 1))
        assert store.read(V[1], snapshot=False) == b"again"
    with cells("a").held(1) as other:
        step(other, other.meta(), 1, {b"k": cell(b"1", 5)})
        other.wipe()
        assert (other.get([b"k"]), other.due(None), other.meta().cells) == ([None], [], 0)


def cell(state: bytes, *timers: int) -> bytes:
    return sealed_cell(Head({str(at): at for at in timers}) if timers else NO_HEAD, state)


def step(
    store: CellStore,
    meta: CellMeta,
    number: int,
    after: dict[bytes, bytes | None],
    fence: Fence = FIRST,
    attempt: str = "t",
) -> CellMeta:
    """Changes some cells in a step."""
    before = dict(zip(after, store.get(after), strict=True))
    write = store.prepared(meta, Version(number, attempt), before, after)
    return store.write(meta, write, fence)


def test_cells_and_alarms_are_those_of_the_last_step(cells: OpenCells) -> None:
    long = b"long" * 300
    with cells("a").held(1) as store:
        meta = step(store, store.meta(), 1, {b"a": cell(b"1", 5, 9), long: cell(b"2", 7)})
        meta = step(store, meta, 2, {b"a": cell(b"3", 6), b"b": cell(b"4")})
        assert meta.cells == 3
    store.close()
    with cells("a").held(1) as again:
        assert again.meta() == meta
        assert again.get([b"a", long, b"b", b"c"]) == [
            cell(b"3", 6),
            cell(b"2", 7),
            cell(b"4"),
            None,
        ]
        assert again.next_alarm() == 6
        assert (again.due(5), again.due(6), sorted(again.due(None))) == ([], [b"a"], [b"a", long])
        step(again, meta, 3, {b"a": None, long: None})
        assert (again.due(None), again.next_alarm()) == ([], None)
        assert (again.get([b"a", long]), again.meta().cells) == ([None, None], 1)


def test_another_attempt_at_a_step_of_cells_is_undone_with_its_alarms(cells: OpenCells) -> None:
    with cells("a").held(1) as store:
        first = step(store, store.meta(), 1, {b"a": cell(b"1", 5), b"b": cell(b"2")})
        dead = step(
            store, first, 2, {b"a": None, b"b": cell(b"3", 8), b"c": cell(b"4")}, attempt="x"
        )
        fence = Fence(1, 2)
        back = store.rewound(dead, first.version, 2, fence)
        assert back is not None
        assert (back.version, back.fence, back.cells) == (first.version, fence, 2)
        assert store.get([b"a", b"b", b"c"]) == [cell(b"1", 5), cell(b"2"), None]
        assert store.due(None) == [b"a"]
        assert store.meta() == back
        assert step(store, back, 2, {b"c": cell(b"5")}, fence).version == Version(2, "t")


def test_cells_at_another_version_are_missing_unless_nothing_was_committed(
    cells: OpenCells,
) -> None:
    with cells("a").held(1) as store:
        first = step(store, store.meta(), 1, {b"a": cell(b"1")})
        second = step(store, first, 2, {b"a": cell(b"2")})
        assert store.rewound(second, second.version, 3, Fence(1, 1)) == second
        assert store.rewound(second, first.version, 3, Fence(1, 1)) is None
        assert store.rewound(second, Version(2, "other"), 3, Fence(1, 1)) is None
        nothing = store.rewound(second, None, 3, Fence(1, 1))
        assert nothing is not None
        assert (nothing.version, store.get([b"a"])) == (None, [None])


def test_what_the_log_needs_of_a_chain_restores_all_cells(cells: OpenCells) -> None:
    chance, files = random.Random(5), MemoryFiles()
    chain: list[Stored] = []
    expected: dict[bytes, bytes] = {}
    keys = [b"k%03d" % i for i in range(150)]
    with cells("a").held(1) as store:
        meta = store.meta()
        for number in range(1, 40):
            after: dict[bytes, bytes | None] = {
                key: None if chance.random() < 0.2 else cell(chance.randbytes(40), number)
                for key in chance.sample(keys, 12)
            }
            before = dict(zip(after, store.get(after), strict=True))
            write = store.prepared(meta, Version(number, "t"), before, after)
            log = LogFile(f"state/{number:08d}/0.bin")
            stored = log.add(write)
            log.write(files)
            chain = [*needed_before(chain, stored), stored]
            meta = store.write(meta, write, Fence(1, number))
            expected = {k: c for k, c in {**expected, **after}.items() if c is not None}
    assert len(chain) < 39, "what is in the log twice is not needed"
    with cells("b").held(1) as restored:
        found = restored.restore(read_chain(files, chain), Fence(2, 1))
        assert (found.version, found.cells) == (Version(39, "t"), len(expected))
        assert dict(zip(keys, restored.get(keys), strict=True)) == {
            key: expected.get(key) for key in keys
        }
        assert sorted(restored.due(None)) == sorted(expected)
        assert step(restored, restored.meta(), 40, {b"new": cell(b"")}, Fence(2, 2)).cells == (
            len(expected) + 1
        )
