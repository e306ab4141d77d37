"""A host: its identity, the space it needs, and whose state it keeps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.errors import StateError, StateFullError
from anabranch.plan.ids import PartId
from anabranch.state.store import host as host_module
from anabranch.state.store.host import LEAST_BYTES, Host, default_root, open_host


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_root_has_one_id_for_all_processes_and_another_root_another(tmp_path: Path) -> None:
    first = open_host(str(tmp_path / "a"))
    assert open_host(str(tmp_path / "a")) == first
    assert open_host(str(tmp_path / "b")).id != first.id
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["host"], "no draft is left"


def test_every_name_has_a_directory_of_its_own_that_file_systems_take(tmp_path: Path) -> None:
    host = Host(tmp_path, "h")
    names = ["a/b", "a%2Fb", "..", ".", ".hidden", "a+b", "größe", "\U0001f600" * 128, "x" * 128]
    parts = [PartId(n, part) for n in names for part in ("", "b", "y" * 300, f"{'y' * 300}z")]
    directories = [host.directory("checkpoint", each) for each in parts]
    for each in directories:
        each.mkdir(parents=True)
    assert len(set(directories)) == len(parts)
    assert {each.parent for each in directories} == {tmp_path / "checkpoint"}
    assert len(list((tmp_path / "checkpoint").iterdir())) == len(parts)


def test_too_little_space_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    Host(tmp_path, "h").need(0)
    with pytest.raises(StateFullError, match="nothing is lost: free space there"):
        Host(tmp_path, "h").need(1 << 60)


def test_the_least_free_space_is_kept_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = LEAST_BYTES + 100
    monkeypatch.setattr(host_module.shutil, "disk_usage", lambda _: Usage(0, 0, free))
    Host(tmp_path, "h").need(100)
    with pytest.raises(StateFullError, match="has 16 MiB free and needs 16 MiB"):
        Host(tmp_path, "h").need(101)


def test_shared_memory_is_the_default_root_where_it_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(host_module.shutil, "disk_usage", lambda _: Usage(0, 0, 1 << 40))
    assert default_root() == tmp_path / f"anabranch-{os.getuid()}"
    monkeypatch.setattr(host_module.shutil, "disk_usage", lambda _: Usage(0, 0, 1 << 20))
    assert default_root().parent != tmp_path


def test_the_directory_of_an_operator_holds_any_name(tmp_path: Path) -> None:
    host = Host(tmp_path, "h")
    places = {
        host.directory("c", PartId(*name))
        for name in (
            ("a/b",),
            ("a",),
            ("a: 5 minutes",),
            ("a%2Fb",),
            ("a", "5 minutes"),
            ("a+5 minutes",),
        )
    }
    assert len(places) == 6
    assert all(place.parent == tmp_path / "c" for place in places)


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o707, 0o770])
def test_a_root_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(StateError, match=rf"mode 0{mode:o}\); close it: chmod 700 {tmp_path}/open"):
        open_host(str(tmp_path / "open"))
    assert list((tmp_path / "open").iterdir()) == []


def test_a_root_that_is_made_is_closed_to_others(tmp_path: Path) -> None:
    assert open_host(str(tmp_path / "a" / "b")).root.stat().st_mode & 0o777 == 0o700


def test_a_root_that_is_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    (tmp_path / "file").touch()
    for name, why in {
        "link": f"is a symbolic link to {tmp_path}/own; remove it",
        "nowhere": "is a symbolic link to",
        "file": "is not a directory; remove it",
    }.items():
        with pytest.raises(StateError, match=why):
            open_host(str(tmp_path / name))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to others")
def test_a_root_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "SHARED_MEMORY", tmp_path)
    taken = tmp_path / f"anabranch-{os.getuid()}"
    taken.mkdir(mode=0o700)
    os.chown(taken, 65534, 65534)
    with pytest.raises(StateError, match=r"belongs to user nobody \(65534\), who could read"):
        open_host(None)
