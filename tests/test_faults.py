"""Faults that are asked for: how they are written, and that each happens once, where it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import AnabranchError
from anabranch.faults import (
    APPLY_POINTS,
    POINTS,
    Fault,
    Faults,
    InjectedError,
    from_environment,
    parse,
)


def test_a_fault_is_written_as_it_is_read() -> None:
    for text in ("slot.merged@3/1=kill", "commit.before@12=fail", "apply.begin@1=stop5"):
        assert str(parse(text)) == text
    assert parse(" slot.half@2/0=stop3 ") == Fault("slot.half", 2, 0, "stop", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slot.merged", "is not POINT@STEP=ACTION"),
        ("slot.middle@1=kill", "unknown fault point 'slot.middle'; valid: step.begin"),
        ("slot.half@1=explode", "unknown fault action 'explode'; valid: kill, fail, stop"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(AnabranchError, match=message):
        parse(text)


def happens(faults: Faults, point: str, step: int, slot: int | None = None) -> bool:
    try:
        faults.at(point, step, slot)
    except InjectedError:
        return True
    return False


def test_a_fault_happens_once_at_its_point_step_and_slot(tmp_path: Path) -> None:
    faults = Faults((parse("slot.half@2/1=fail"),), str(tmp_path))
    assert not happens(faults, "slot.half", 1, 1)
    assert not happens(faults, "slot.half", 2, 0)
    assert not happens(faults, "slot.held", 2, 1)
    assert happens(faults, "slot.half", 2, 1)
    assert not happens(faults, "slot.half", 2, 1), "a step that runs again goes through"
    again = Faults(faults.faults, str(tmp_path))
    assert not happens(again, "slot.half", 2, 1), "nor does another process see it again"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_fault_without_a_slot_happens_in_the_first_slot_that_comes(tmp_path: Path) -> None:
    faults = Faults((parse("slot.half@2=fail"),), str(tmp_path))
    assert happens(faults, "slot.half", 2, 3)
    assert not happens(faults, "slot.half", 2, 4)


def test_steps_that_only_wrote_state_again_do_not_count(tmp_path: Path) -> None:
    faults = Faults((parse("commit.before@2=fail"),), str(tmp_path)).not_counting(3)
    assert not happens(faults, "commit.before", 2)
    assert happens(faults, "commit.before", 5)


def test_the_environment_may_ask_for_several_or_none(tmp_path: Path) -> None:
    assert from_environment({}) == Faults()
    asked = {
        "ANABRANCH_FAULTS": "slot.half@1=kill;commit.after@2=fail;",
        "ANABRANCH_FAULTS_FIRED": str(tmp_path),
    }
    found = from_environment(asked)
    assert [str(each) for each in found.faults] == ["slot.half@1=kill", "commit.after@2=fail"]
    assert found.marks == str(tmp_path)


def test_every_point_has_one_name() -> None:
    assert len({*POINTS, *APPLY_POINTS}) == len(POINTS) + len(APPLY_POINTS)
