"""Elasticutor's experiments, short: verdicts depend on the policy, and not on the seed."""

from __future__ import annotations

from functools import cache

import pytest

from anabranch.lab.elasticutor import paradigms
from anabranch.lab.elasticutor.experiment import PARTS, ElasticutorSetting, experiment
from anabranch.lab.report import LabReport
from anabranch.place.assignment import naive


@cache  # several tests look at the same experiments
def report(setting: ElasticutorSetting, *parts: str) -> LabReport:
    return experiment(setting, parts)


def dynamics(seed: int) -> LabReport:
    return report(ElasticutorSetting(seconds=30, seed=seed), "dynamics", "reassignment")


def scaling(seed: int) -> LabReport:
    return report(ElasticutorSetting(hosts=8, seconds=30, seed=seed), "scaling")


def exchange(seed: int) -> LabReport:
    return report(ElasticutorSetting(seconds=20, seed=seed), "exchange")


def verdicts(*reports: LabReport) -> dict[str, bool]:
    return {claim.id: claim.holds for each in reports for claim in each.claims}


@pytest.mark.parametrize("seed", [1, 2])
def test_claims_on_dynamics_hold_whatever_the_seed(seed: int) -> None:
    found = verdicts(dynamics(seed))
    assert len(found) == 14
    assert all(found.values()), found


def test_without_balancing_the_claims_that_rest_on_it_fail() -> None:
    found = verdicts(report(ElasticutorSetting(seconds=30, theta=10), "dynamics"))
    assert not any(
        found[f"elasticutor-{each}"] for each in ("6-rc-before", "6-collapse", "7-ec", "7-gap")
    )
    assert found["elasticutor-6-flat"]  # static deployments never balance


@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_on_one_executor_and_on_the_exchange_are_the_same_whatever_the_seed(
    seed: int,
) -> None:
    found = verdicts(scaling(seed), exchange(seed))
    assert len(found) == 14
    assert [each for each, holds in found.items() if not holds] == ["elasticutor-t2-state"]


def test_without_regard_to_state_and_distance_nothing_is_gained_over_the_naive_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paradigms, "assign", naive)
    found = verdicts(experiment(ElasticutorSetting(hosts=8, seconds=20), ("exchange",)))
    assert not any(
        found[f"elasticutor-t2-{each}"] for each in ("state-less", "remote", "remote-less")
    )


def test_every_figure_and_table_is_there() -> None:
    shards = report(ElasticutorSetting(hosts=8, seconds=30), "granularity")
    reports = [dynamics(1), scaling(1), shards, exchange(1)]
    assert [part for each in reports for part in each.settings["parts"]] == list(PARTS)
    found = verdicts(*reports)
    figures = {name.split("-")[1] for name in found}
    assert figures == {"6", "7", "9", "10", "13", "16", "t2", "t3"}
    assert all(found[f"elasticutor-13-{each}"] for each in ("shards", "less", "elastic", "one"))
    charts = [chart for each in reports for chart in each.charts]
    assert len(charts) == 12
    assert all(line for chart in charts for line in chart.lines.values())
