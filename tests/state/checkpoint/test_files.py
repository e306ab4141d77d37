"""Locations of files, and errors that say so; tests/contracts/test_files.py has the rest."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

from anabranch.errors import CheckpointError, StateFullError
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.files import disk_full_as_state_error as full


def test_a_location_may_be_a_path_or_a_file_uri(tmp_path: Path) -> None:
    for location in (str(tmp_path / "a"), f"file://{tmp_path}/a", f"file:{tmp_path}/a"):
        assert Files(location).path("x") == f"{tmp_path}/a/x"
        assert Files(location).local
    with pytest.raises(CheckpointError, match="nosuch"):
        Files("nosuch://bucket/a").exists("x")


def test_files_that_are_shipped_to_a_task_are_the_same_place(tmp_path: Path) -> None:
    files = Files(str(tmp_path / "a"))
    files.write("x", [b"1"])
    shipped = pickle.loads(pickle.dumps(files))  # noqa: S301 - made here
    assert shipped == files
    assert shipped.read("x") == b"1"


def test_only_a_full_disk_becomes_an_error_of_state() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(StateFullError, match="checkpoint here has no space left"), full("here"):
            raise OSError(number, "full")
    with pytest.raises(PermissionError), full("here"):
        raise PermissionError(errno.EACCES, "no")
