"""Damage to the files of a run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from anabranch.testing.chaos.files import RunDirectory, damage, delete_last_commit
from anabranch.testing.chaos.plan import DAMAGES


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_changes_a_file(kind: str, tmp_path: Path) -> None:
    file, copies = tmp_path / "operator" / "00001" / "data.mdb", tmp_path / "copies"
    file.parent.mkdir(parents=True)
    copies.mkdir()
    (copies / "operator 00001").write_bytes(b"older")
    content = bytes(20_000)
    file.write_bytes(content)
    assert damage(kind, file, copies, Random(1))
    assert not file.exists() or file.read_bytes() != content


def test_a_copy_that_is_the_same_is_no_damage(tmp_path: Path) -> None:
    file = tmp_path / "operator" / "00001" / "data.mdb"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"same")
    (tmp_path / "operator 00001").write_bytes(b"same")
    assert not damage("state put back", file, tmp_path, Random(1))


def test_sparks_last_commit_is_deleted_only_where_it_is_the_last_entry(tmp_path: Path) -> None:
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
        for batch in range(3):
            (tmp_path / name / str(batch)).touch()
            (tmp_path / name / f".{batch}.crc").touch()
    (tmp_path / "offsets" / "3").touch()
    assert delete_last_commit(tmp_path) == 0
    (tmp_path / "offsets" / "3").unlink()
    assert delete_last_commit(tmp_path) == 1
    left = sorted(file.name for file in (tmp_path / "commits").glob("*"))
    assert left == [".0.crc", ".1.crc", "0", "1"]


def test_each_source_sees_its_first_files(tmp_path: Path) -> None:
    for source in ("left", "right"):
        (tmp_path / "files" / source).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "files" / source / f"{number}.parquet").touch()
    directory = RunDirectory(root=str(tmp_path / "run"), files=str(tmp_path / "files"))
    directory.publish(1)
    directory.publish(2)
    found = sorted(str(f.relative_to(directory.of("input"))) for f in _files(directory))
    assert found == ["left/0.parquet", "left/1.parquet", "right/0.parquet", "right/1.parquet"]


def _files(directory: RunDirectory) -> list[Path]:
    return list(directory.of("input").rglob("*.parquet"))
