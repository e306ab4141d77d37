"""Faults that are set from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.faults import Faults, InjectedError, parse


def test_steps_that_only_write_state_anew_do_not_count_for_faults(tmp_path: Path) -> None:
    faults = Faults((parse("slot.begin@3=fail"),), str(tmp_path)).behind(2)
    faults.at("slot.begin", 3, 0)
    with pytest.raises(InjectedError):
        faults.at("slot.begin", 5, 0)
    assert [file.name for file in tmp_path.iterdir()] == ["slot.begin@3=fail"]
