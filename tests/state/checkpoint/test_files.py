"""Locations of files, and errors that say so; tests/contracts/test_files.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import CheckpointError
from anabranch.state.checkpoint.files import Files


def test_a_location_may_be_a_path_or_a_file_uri(tmp_path: Path) -> None:
    for location in (str(tmp_path / "a"), f"file://{tmp_path}/a", f"file:{tmp_path}/a"):
        assert Files(location).path("x") == f"{tmp_path}/a/x"
        assert Files(location).local
    with pytest.raises(CheckpointError, match="nosuch"):
        Files("nosuch://bucket/a").exists("x")
