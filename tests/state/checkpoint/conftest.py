"""A new checkpoint that one driver has taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create
from tests.state.checkpoint.one_checkpoint import plan


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    found, _ = open_or_create(Files(str(tmp_path / "chk")), plan(), 2)
    found.take_over()
    return found
