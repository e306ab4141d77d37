"""Cases are run until enough faults have happened; and a short chaos run with Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.testing.chaos import run as chaos
from anabranch.testing.chaos.dealing import plan_case
from anabranch.testing.chaos.plan import (
    COMMIT_LOST,
    OTHER_SLOTS,
    REPLAN,
    REROUTE,
    RESIZE,
    CasePlan,
)
from anabranch.testing.chaos.run import ChaosSettings, run_chaos


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_same_cases_run_whatever_number_of_them_side_by_side(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fault of each case does not happen, so a second round follows."""

    def ran(case: Any) -> None:
        kinds = Counter(fault.kind for fault in case._plan.faults)
        case._result.happened = kinds - Counter([min(kinds)])

    monkeypatch.setattr(chaos._CaseRun, "run", ran)
    monkeypatch.setattr(chaos._Round, "_archive_classes", lambda _: None)
    said: list[str] = []
    settings = ChaosSettings(seed=2, faults=40, directory=tmp_path, case_faults=10, jobs=jobs)
    result = run_chaos(settings, report=said.append)
    assert [case.plan.number for case in result.cases] == [1, 2, 3, 4, 5]
    assert result.as_dict()["faults"] >= 40
    assert sum(result.as_dict()["did_not_happen"].values()) == 5
    assert any("topology 5 of 5" in text for text in said)


def test_a_case_that_raises_is_an_error_of_this_case_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(chaos._CaseRun, "run", broken)
    plans = [plan_case(1, number, [RESIZE], dag=True)[0] for number in (1, 2)]
    settings = ChaosSettings(seed=1, faults=2, directory=tmp_path, case_faults=1)
    result = run_chaos(settings, iter(plans))
    assert result.as_dict()["errors"] == 2
    assert all("broken" in text for text in result.problems)


@pytest.mark.spark
def test_faults_do_not_change_results(tmp_path: Path) -> None:
    """Two topologies side by side; a driver and a worker are killed, and state is damaged."""
    in_windows = ["driver killed: commit.before", "worker killed: slot.half", "state truncated"]
    in_dag = ["job failed: slot.stored", COMMIT_LOST, REROUTE, REPLAN, OTHER_SLOTS]
    cases = [_case(1, in_windows, dag=False), _case(2, in_dag, dag=True)]
    cases[0] = replace(cases[0], topology=replace(cases[0].topology, gathered=True))
    settings = ChaosSettings(seed=251, faults=8, directory=tmp_path, jobs=2)
    result = run_chaos(settings, iter(cases))
    assert result.problems == []
    figures = result.as_dict()
    assert figures["kinds"] == dict.fromkeys(sorted([*in_windows, *in_dag]), 1)
    assert figures["did_not_happen"] == {}
    assert figures["rows_compared"] > 0
    assert figures["steps_redone"] >= 3


def _case(number: int, kinds: list[str], *, dag: bool) -> CasePlan:
    """A case of a few batches that Spark need not compile."""
    case, left_out = plan_case(251, number, kinds, dag=dag)
    assert left_out == []
    return replace(case, compiled=False)
