"""The command `anabranch chaos`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from anabranch.testing.chaos import command
from anabranch.testing.chaos.command import chaos_command
from anabranch.testing.chaos.dealing import plan_case
from anabranch.testing.chaos.run import CaseResult, ChaosResult


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(chaos_command)
    return made


def test_the_help_names_the_options() -> None:
    shown = CliRunner().invoke(app(), ["--help"], env={"COLUMNS": "120"}).output
    assert all(option in shown for option in ("--case-faults", "--jobs", "--json"))


@pytest.mark.parametrize(
    ("differences", "error"), [(["a row"], None), ([], "it ended"), ([], None)]
)
def test_the_command_fails_on_a_difference_and_on_an_error(
    differences: list[str], error: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = plan_case(1, 1, ["resize", "reroute"], dag=True)
    case = CaseResult(plan, differences=differences, error=error)
    case.happened["resize"] = 1
    result = ChaosResult(1, 14, [case])
    monkeypatch.setattr(command, "run_chaos", lambda *_: result)
    ended = CliRunner().invoke(app(), ["--json", "--keep", str(tmp_path)])
    assert ended.exit_code == (1 if differences or error else 0)
    figures = json.loads(ended.stdout.splitlines()[-1])
    assert figures["kinds"] == {"resize": 1}
    assert figures["did_not_happen"] == {"reroute": 1}
    assert (figures["differences"], figures["errors"]) == (len(differences), int(error is not None))
    assert ("--case 1" in ended.stderr) == (ended.exit_code == 1)
