"""A slot task of a new checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.runtime.slot import SlotTask
from tests.runtime.one_slot import new_task


@pytest.fixture
def task(tmp_path: Path) -> SlotTask:
    return new_task(tmp_path)
