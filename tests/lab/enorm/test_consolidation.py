"""The consolidation experiment: the paper's figures, plans that run as counted, and mistakes."""

from __future__ import annotations

import json

import pytest

from anabranch.cli import main


def lab(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["lab", "enorm-consolidation", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_papers_figures_and_random_sets_are_carried_out_as_planned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = lab(capsys, "--random", "4", "--seed", "3", "--json")
    facts = json.loads(out.splitlines()[-1])
    assert code == 0
    assert (facts["merges"], facts["merges_done"], facts["naive"]) == (86, 86, 240)
    assert facts["random"]["planned_as_done"]
    assert len(facts["random"]["cases"]) == 4


def test_windows_and_panes_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = lab(
        capsys, "--windows", "30s/10s,60s/10s", "--pane", "10s", "--random", "0", "--json"
    )
    facts = json.loads(out.splitlines()[-1])
    assert code == 0
    assert (facts["merges"], facts["naive"]) == (360 * (3 + 2), 360 * (3 + 6))


def test_windows_that_are_not_made_of_the_panes_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = lab(capsys, "--windows", "5m,7m", "--pane", "2m")
    assert code == 2
    assert "5 minutes" in err
    assert "2 minutes" in err
