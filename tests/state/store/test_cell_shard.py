"""Cells in LMDB, beyond the contract in tests/contracts: slices, long keys and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import StateError, StateFullError
from anabranch.state.codec.cells import Head, sealed_cell, unsealed_blob
from anabranch.state.store.cell_shard import CellMeta, CellShard, CellWrite
from anabranch.state.store.version import Fence, Version


def prepared(
    store: CellShard, meta: CellMeta, step: int, after: dict[bytes, bytes | None]
) -> CellWrite:
    before = dict(zip(after, store.get(after), strict=True))
    return store.prepared(meta, Version(step, "t"), before, after)


def filled(store: CellShard, count: int, size: int) -> CellMeta:
    cells: dict[bytes, bytes | None] = {b"%05d" % i: b"\0" + bytes(size) for i in range(count)}
    write = prepared(store, store.meta(), 1, cells)
    return store.write(store.meta(), write, Fence(1, 1))


def test_a_step_that_touches_all_cells_writes_no_slice_and_is_all_that_the_log_needs(
    tmp_path: Path,
) -> None:
    with CellShard(tmp_path / "a").held(1) as store:
        meta = filled(store, 10, 10)
        write = prepared(store, meta, 2, {b"%05d" % i: b"\0" for i in range(10)})
        assert unsealed_blob(write.delta).slice_keys == []
        assert (write.since, write.at) == (2, b"")


def test_slices_go_through_all_other_cells_once_and_then_begin_again(tmp_path: Path) -> None:
    long = b"9" * 1000  # after all others: its place has a hash
    with CellShard(tmp_path / "a").held(1) as store:
        meta = filled(store, 200, 60)
        meta = store.write(meta, prepared(store, meta, 2, {long: b"\0long"}), Fence(1, 2))
        seen: list[bytes] = []
        first = None
        for step in range(3, 30):
            write = prepared(store, meta, step, {b"00000": b"\0" + bytes([step])})
            blob = unsealed_blob(write.delta)
            assert b"00000" not in blob.slice_keys, "what the step changes is in the log already"
            assert sum(map(len, blob.slice_cells)) < 8_000
            seen += blob.slice_keys
            meta = store.write(meta, write, Fence(1, step))
            if write.since is not None:
                first = write.since
                break
        assert first == 2, "the pass began with the step that did not touch all cells"
        begun = {b"%05d" % i for i in range(1, 200)} | {long}
        assert set(seen) <= begun
        assert len(seen) == len(set(seen))
        assert store.get([long]) == [b"\0long"]


def test_two_long_keys_that_begin_alike_are_two_cells(tmp_path: Path) -> None:
    keys = [b"x" * 600 + end for end in (b"1", b"2")]
    with CellShard(tmp_path / "a").held(1) as store:
        cells = {key: sealed_cell(Head({"": 5}), key[-1:]) for key in keys}
        store.write(store.meta(), prepared(store, store.meta(), 1, dict(cells)), Fence(1, 1))
        assert store.get(keys) == list(cells.values())
        assert sorted(store.due(5)) == keys


def test_a_step_that_cannot_be_undone_any_more_leaves_the_shard_missing(tmp_path: Path) -> None:
    with CellShard(tmp_path / "a").held(1) as store:
        first = filled(store, 3, 1)
        second = store.write(first, prepared(store, first, 2, {b"00000": b"\0x"}), Fence(1, 2))
        back = store.rewound(second, first.version, 2, Fence(1, 3))
        assert back is not None
        assert not back.undoable
        assert store.rewound(back, Version(0, "t"), 1, Fence(1, 4)) is None


def test_a_full_map_is_a_clear_error_that_loses_nothing(tmp_path: Path) -> None:
    with CellShard(tmp_path / "a", limit_bytes=1 << 20).held(1) as store:
        meta = filled(store, 3, 1)
        write = prepared(store, meta, 2, {b"00000": b"\0" + bytes(4 << 20)})
        with pytest.raises(StateFullError, match="nothing is lost"):
            store.write(meta, write, Fence(1, 2))
        assert store.meta() == meta
        assert store.get([b"00000"]) == [b"\0\0"]


def test_a_file_that_is_cut_short_is_an_error_and_can_be_wiped(tmp_path: Path) -> None:
    shard = CellShard(tmp_path / "a")
    with shard.held(1) as store:
        filled(store, 3, 1)
    shard.close()
    data = tmp_path / "a" / "data.mdb"
    data.write_bytes(data.read_bytes()[:5000])
    with CellShard(tmp_path / "a").held(1) as store:
        with pytest.raises(StateError, match="damaged"):
            store.meta()
        store.wipe()
        assert store.meta() == CellMeta()
