"""A shard against crashes, damage, stopped processes and full disks."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch.errors import ShardHeldError, StateError, StateFullError
from anabranch.state.store.shard import Shard, Write
from anabranch.state.store.version import Fence, Version

V = [Version(step, f"t{step}") for step in range(20)]


def filled(path: Path, steps: int, snapshots: tuple[int, ...] = ()) -> Shard:
    shard = Shard(path)
    with shard.held(1):
        for step in range(1, steps + 1):
            snapshot = f"s{step}".encode() if step in snapshots else None
            shard.write(shard.meta(), Write(V[step], f"d{step}".encode(), snapshot), Fence(1, step))
    return shard


def test_a_shard_at_an_older_or_newer_version_is_missing(tmp_path: Path) -> None:
    shard = filled(tmp_path / "a", 3)
    with shard.held(1):
        meta = shard.meta()
    assert meta.rewound(V[3], 4) == meta
    assert meta.rewound(V[2], 4) is None
    assert meta.rewound(V[5], 6) is None
    assert meta.rewound(Version(3, "other"), 4) is None
    leftovers = meta.rewound(None, 7)
    assert leftovers is not None
    assert leftovers.chain == ()


def test_the_chain_is_kept_from_the_snapshot_before_the_last_one_on(tmp_path: Path) -> None:
    shard = filled(tmp_path / "a", 9, snapshots=(2, 5, 8))
    with shard.held(1):
        meta = shard.meta()
        assert [link.version.step for link in meta.chain] == [5, 6, 7, 8, 9]
        base, links = meta.base()
        assert base is not None
        assert (base.version, [link.version.step for link in links]) == (V[8], [9])
        undone = meta.rewound(V[8], 9)
        assert undone is not None
        assert shard.read(V[8], snapshot=True) == b"s8"
        assert meta.since(V[6]) == meta.chain[2:]
        assert meta.since(V[4]) is None


@pytest.mark.parametrize("damage", ["truncate", "header", "empty", "unlink"])
def test_a_damaged_file_is_an_error_or_nothing_but_no_crash(tmp_path: Path, damage: str) -> None:
    filled(tmp_path / "a", 3).close()
    data = tmp_path / "a" / "data.mdb"
    raw = data.read_bytes()
    if damage == "truncate":
        data.write_bytes(raw[: len(raw) // 2])
    elif damage == "header":
        data.write_bytes(os.urandom(8192) + raw[8192:])
    elif damage == "empty":
        data.write_bytes(b"")
    else:
        data.unlink()
    shard = Shard(tmp_path / "a")
    with shard.held(1):
        with suppress(StateError):
            assert shard.meta().rewound(V[3], 4) is None
        shard.wipe()
        assert shard.meta().chain == ()
        shard.restore([Write(V[3], b"", b"s")], Fence(2, 1))
        assert shard.meta().version == V[3]


def elsewhere(work: Callable[[Path], None], path: Path) -> None:
    """Runs something on a shard in another process."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == 0


def _make_anew(path: Path) -> None:
    shard = Shard(path)
    with shard.held(1):
        shard.wipe()
        shard.restore([Write(V[9], b"", b"s9")], Fence(2, 1))


def _make_large(path: Path) -> None:
    shard = Shard(path)
    with shard.held(1):
        shard.write(shard.meta(), Write(V[2], b"x" * (150 << 20)), Fence(2, 1))


def test_an_open_shard_notices_that_another_process_recreated_it(tmp_path: Path) -> None:
    mine = filled(tmp_path / "a", 3)
    elsewhere(_make_anew, tmp_path / "a")
    with mine.held(1):
        assert mine.meta().version == V[9]


def test_an_open_shard_notices_that_another_process_made_it_grow(tmp_path: Path) -> None:
    mine = filled(tmp_path / "a", 1)
    elsewhere(_make_large, tmp_path / "a")
    with mine.held(1):
        assert len(mine.read(V[2], snapshot=False)) == 150 << 20


def test_a_full_map_is_a_clear_error_that_loses_nothing(tmp_path: Path) -> None:
    shard = Shard(tmp_path / "a", limit_bytes=2 << 20)
    with shard.held(1):
        meta = shard.write(shard.meta(), Write(V[1], b"kept"), Fence(1, 1))
        with pytest.raises(StateFullError, match=r"limit is 2 MiB; nothing is lost"):
            shard.write(meta, Write(V[2], b"x" * (10 << 20)), Fence(1, 2))
        assert shard.meta() == meta
        assert shard.read(V[1], snapshot=False) == b"kept"


def _hold(path: str, pid: multiprocessing.SimpleQueue[int]) -> None:
    with Shard(Path(path)).held(1):
        pid.put(os.getpid())
        signal.pause()


def test_waiting_for_a_stopped_process_has_a_limit_and_names_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    holder = context.Process(target=_hold, args=(str(tmp_path / "a"), queue))
    holder.start()
    try:
        pid = queue.get()
        os.kill(pid, signal.SIGSTOP)
        with (
            pytest.raises(ShardHeldError, match=f"held by process {pid} "),
            Shard(tmp_path / "a").held(0.2),
        ):
            pass
        os.kill(pid, signal.SIGKILL)
        with Shard(tmp_path / "a").held(10):
            pass
    finally:
        holder.kill()
        holder.join()


def test_a_file_does_not_stay_large_when_its_contents_have_become_small(tmp_path: Path) -> None:
    shard, other = Shard(tmp_path / "a"), Shard(tmp_path / "a")
    sizes = []
    with shard.held(1):
        for step in range(1, 120):
            size = 400_000 if step < 40 else 10_000 + 137 * step
            snapshot = bytes(size) if step % 5 == 0 else None
            shard.write(
                shard.meta(), Write(Version(step, "t"), bytes(size // 5), snapshot), Fence(1, step)
            )
            sizes.append(shard.size_bytes())
    live = 2 * (10_000 + 137 * 119) * 2
    assert max(sizes[:40]) > 1_000_000
    assert max(sizes[60:]) < 5 * live
    shard.close()
    with other.held(1):
        assert other.meta().version == Version(119, "t")
        assert len(other.read(Version(115, "t"), snapshot=True)) == 10_000 + 137 * 115
