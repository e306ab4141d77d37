"""Node-local state of many runs: who uses it, what is removed, and that none vanishes in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import StateError, TopologyError
from anabranch.plan.ids import PartId
from anabranch.state.store.host import Host, open_host
from anabranch.state.store.local import (
    INACTIVE,
    ClaimedState,
    Hold,
    check_inactive,
    local_states,
    make_room,
    most_inactive,
    remove_state,
)
from anabranch.state.store.shard import Shard, Write
from anabranch.state.store.version import Fence, Version

A_B, C = PartId("a/b"), PartId("c")
ROOM = 1 << 40


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return open_host(str(tmp_path / "root"))


def written(host: Host, name: str, kilobytes: int, used_at: float) -> None:
    """State of a run that was used at a time."""
    place = host.directory(name, C) / "00000"
    place.mkdir(parents=True)
    (place / "data.mdb").write_bytes(os.urandom(kilobytes << 10))
    os.utime(place / "data.mdb", (used_at, used_at))


def names(host: Host) -> list[str]:
    return [each.id for each in local_states(host)]


def test_state_of_operators_and_checkpoints_that_are_gone_is_removed(
    host: Host, tmp_path: Path
) -> None:
    for name in ("kept", "lost", "lost but active"):
        location = tmp_path / name
        location.mkdir()
        (location / "anabranch.json").touch()
        claimed = ClaimedState(host, name, ROOM).claim(str(location), [A_B, C])
        for part in (A_B, C):
            host.directory(name, part).mkdir()
        if name != "lost but active":
            claimed.release()
    for name in ("lost", "lost but active"):
        (tmp_path / name / "anabranch.json").unlink()
    ClaimedState(host, "remote", ROOM).claim("s3://bucket/x", [])
    ClaimedState(host, "kept", ROOM).claim(str(tmp_path / "kept"), [A_B])
    assert host.directory("kept", A_B).is_dir()
    assert not host.directory("kept", C).exists()
    assert not (host.root / "lost").exists()
    assert (host.root / "lost but active").is_dir(), "a run uses it"
    assert (host.root / "remote").is_dir(), "whether that checkpoint exists is not known here"


def test_state_is_active_while_somebody_holds_it(host: Host, tmp_path: Path) -> None:
    first, second = ClaimedState(host, "r", ROOM), Hold(host, "r")
    (tmp_path / "anabranch.json").touch()
    first.claim(str(tmp_path), [])
    second.acquire()
    assert [(each.location, each.active) for each in local_states(host)] == [(str(tmp_path), True)]
    first.release()
    assert local_states(host)[0].active
    assert not remove_state(host, "r")
    second.release()
    assert not local_states(host)[0].active
    assert remove_state(host, "r")
    assert list(host.root.iterdir()) == [host.root / "host"], "no lock is left"


def test_a_lock_dies_with_its_holder(host: Host) -> None:
    written(host, "r", 1, 0)
    code = (
        "import sys, time; from anabranch.state.store.host import open_host;"
        "from anabranch.state.store.local import Hold;"
        "hold = Hold(open_host(sys.argv[1]), 'r'); hold.acquire(); print('held', flush=True);"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(host.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert not remove_state(host, "r")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert remove_state(host, "r")


def test_finish_removes_the_state_unless_another_run_has_it(host: Host) -> None:
    claimed = ClaimedState(host, "r", ROOM).claim("s3://b/r", [])
    with Hold(host, "r"):
        claimed.remove()
        assert names(host) == ["r"]
    claimed.hold()
    claimed.remove()
    assert names(host) == []


def test_what_is_not_active_gives_way_oldest_first_down_to_the_bound(host: Host) -> None:
    for age, name in enumerate(("new", "middle", "old", "oldest but active")):
        written(host, name, 100, 1_000_000 - age)
    with Hold(host, "oldest but active"):
        removed = make_room(host, most_bytes=200 << 10, least_free=0)
        assert [each.id for each in removed] == ["old"]
        assert removed[0].bytes >= 100 << 10
        assert make_room(host, most_bytes=200 << 10, least_free=0) == []
        removed = make_room(host, most_bytes=0, least_free=0)
        assert [each.id for each in removed] == ["middle", "new"]
        assert names(host) == ["oldest but active"]


def test_what_is_not_active_gives_way_when_space_is_short(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, name in enumerate(("new", "middle", "old")):
        written(host, name, 1, 1_000_000 - age)
    free = iter([10, 20, 30])
    monkeypatch.setattr(Host, "free_bytes", lambda _: next(free))
    removed = make_room(host, most_bytes=None, least_free=30)
    assert [each.id for each in removed] == ["old", "middle"]


def test_a_claim_keeps_the_bound_and_reports_the_removed_state(host: Host) -> None:
    for age, name in enumerate(("new", "old")):
        written(host, name, 100, 1_000_000 - age)
    claimed = ClaimedState(host, "mine", 150 << 10).claim("s3://b/x", [])
    assert [each.id for each in claimed.gave_way] == ["old"]
    written(host, "newest", 100, time.time())
    claimed.release()
    assert "new" not in names(host), "the bound holds after the run, too"


def test_a_removal_that_died_half_way_is_completed(host: Host) -> None:
    written(host, ".removed-x", 10, 0)
    assert names(host) == []
    make_room(host, most_bytes=None, least_free=0)
    assert not (host.root / ".removed-x").exists()


def test_links_and_files_of_others_below_the_state_are_refused(host: Host, tmp_path: Path) -> None:
    place = host.directory("r", C)
    place.mkdir(parents=True)
    (place / "00000").symlink_to(tmp_path)
    with pytest.raises(StateError, match=r"00000 is a symbolic link; remove it: rm "):
        ClaimedState(host, "r", ROOM).claim("s3://b/r", [C])
    assert not local_states(host)[0].active, "a claim that fails holds nothing"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to others")
def test_files_of_others_below_the_state_are_refused(host: Host) -> None:
    place = host.directory("r", C)
    place.mkdir(parents=True)
    os.chown(place, 65534, 65534)
    with pytest.raises(StateError, match=r"belongs to user nobody \(65534\), who could read"):
        ClaimedState(host, "r", ROOM).claim("s3://b/r", [C])


def test_the_bound_is_a_share_of_the_file_system_or_bytes(host: Host) -> None:
    total = os.statvfs(host.root)
    assert most_inactive(host, 0.5) == pytest.approx(total.f_blocks * total.f_frsize / 2, rel=0.01)
    assert most_inactive(host, 5_000) == 5_000
    assert check_inactive(INACTIVE) == INACTIVE
    wrong: list[Any] = [-1, True, "10 %", None, float("nan")]
    for value in wrong:
        with pytest.raises(TopologyError, match=r"inactive_state=.*; valid: a share of the file"):
            check_inactive(value)


REMOVER = """
import sys
from anabranch.state.store.host import open_host
from anabranch.state.store.local import remove_state

host = open_host(sys.argv[1])
print("ready", flush=True)
while True:
    remove_state(host, "r")
"""


def test_state_is_whole_or_gone_for_those_who_open_it_while_others_remove_it(host: Host) -> None:
    """Two processes remove the state all the time.

    A holder never sees it vanish, and finds what it wrote the last time, or nothing.
    """
    command = [sys.executable, "-c", REMOVER, str(host.root)]
    removers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for each in removers:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        store = Shard(host.directory("r", C) / "00000")
        version, gone = None, 0
        for step in range(1, 301):
            with Hold(host, "r"), store.held(5):
                found = store.meta()
                assert found.version in {None, version}
                gone += found.version is None
                version = Version(step, "t")
                store.write(found, Write(version, b"delta %d" % step), Fence(1, step))
                assert store._data.stat().st_ino == store._inode, "it vanished in use"
            if step % 3 == 0:
                with Hold(host, "r"), Hold(host, "r"), store.held(5):
                    assert store.meta().version in {None, version}
        assert gone > 10, "nothing was removed: the test shows nothing"
        store.close()
    finally:
        for each in removers:
            each.kill()
            each.wait()
            assert each.stdout is not None
            each.stdout.close()
