"""The durable log: what is written is read back, and only what no chain needs is deleted."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest

from anabranch.errors import StateFullError
from anabranch.state.checkpoint.log import (
    Stored,
    delete_unneeded,
    log_file,
    needed_before,
    read_chain,
)
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.testing import MemoryFiles


def stored(step: int, *, snapshot: bool = False, since: int | None = None) -> Stored:
    return Stored(
        version=Version(step, "t"),
        file=f"state/{step:08d}/0-t.bin",
        delta=(0, 1),
        snapshot=(1, 1) if snapshot else None,
        since=since,
    )


def test_blobs_of_several_shards_in_one_file_are_read_where_they_were_placed() -> None:
    files, log = MemoryFiles(), log_file(12, "0-3", "1.2.0.ab")
    version = Version(12, "1.2.0.ab")
    writes = [
        Write(version, b"first", None, 7),
        Write(version, b"second", b"all of it"),
        Write(version, b"", b"a snapshot alone"),
        Write(version, b"last"),
    ]
    places = [log.add(each) for each in writes]
    log.write(files)
    assert files.list("state/00000012") == ["0-3-1.2.0.ab.bin"]
    assert [each.since for each in places] == [7, None, None, None]
    assert read_chain(files, places) == [
        Write(version, b"first"),
        Write(version, b"", b"all of it"),
        Write(version, b"", b"a snapshot alone"),
        Write(version, b"last"),
    ]


def test_a_step_that_changes_nothing_writes_no_file() -> None:
    files = MemoryFiles()
    log_file(1, "0-0", "t").write(files)
    assert files.list() == []


def test_a_full_disk_is_an_error_that_says_what_to_do() -> None:
    class Full(MemoryFiles):
        def write(self, name: str, parts: Iterable[bytes]) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log = log_file(1, "0-0", "t")
    log.add(Write(Version(1, "t"), b"delta"))
    with pytest.raises(StateFullError, match="nothing is lost: free space and start again"):
        log.write(Full("full"))


def test_a_chain_needs_what_came_since_the_last_snapshot_or_the_last_whole_pass() -> None:
    chain = [stored(step) for step in (1, 2, 3)]
    assert needed_before(chain, stored(4)) == chain
    assert needed_before(chain, stored(4, since=2)) == chain[1:]
    assert needed_before(chain, stored(4, since=4)) == []
    assert needed_before(chain, stored(4, snapshot=True)) == []


def test_files_that_no_chain_needs_are_deleted_but_not_those_of_a_step_that_runs() -> None:
    files = MemoryFiles()
    for step in (1, 2, 3, 4):
        for name in ("0-t.bin", "0-died.bin"):
            files.write(f"state/{step:08d}/{name}", [b"x"])
    left = delete_unneeded(files, [[stored(2)], [stored(2), stored(3)]], 3, {})
    assert files.list("state") == ["00000002", "00000003", "00000004"]
    assert files.list("state/00000002") == ["0-t.bin"]
    assert files.list("state/00000004") == ["0-died.bin", "0-t.bin"]
    assert left == {"00000002": frozenset({"0-t.bin"}), "00000003": frozenset({"0-t.bin"})}


def test_a_cleaned_directory_is_listed_again_only_when_less_of_it_is_needed() -> None:
    class Counted(MemoryFiles):
        def list(self, name: str = "") -> list[str]:
            listed.append(name)
            return MemoryFiles.list(self, name)

    listed: list[str] = []
    files = Counted()
    files.write("state/00000002/0-t.bin", [b"x"])
    known = delete_unneeded(files, [[stored(2)]], 2, {})
    listed.clear()
    known = delete_unneeded(files, [[stored(2)]], 2, known)
    assert listed == ["state"]
    assert delete_unneeded(files, [], 2, known) == {}
    assert not files.exists("state/00000002")
