"""Elasticutor's experiments, shorter than the paper's: verdicts do not depend on the seed, and do
depend on the policy.
"""

from __future__ import annotations

import pytest

from anabranch.lab.elasticutor import paradigms
from anabranch.lab.elasticutor.experiment import PARTS, ElasticutorSetting, experiment
from anabranch.place.assignment import naive

SHORT = ElasticutorSetting(seconds=30)


def verdicts(setting: ElasticutorSetting, *parts: str) -> dict[str, bool]:
    return {claim.id: claim.holds for claim in experiment(setting, parts).claims}


@pytest.mark.parametrize("seed", [1, 2])
def test_claims_on_dynamics_hold_whatever_the_seed(seed: int) -> None:
    found = verdicts(ElasticutorSetting(seconds=30, seed=seed), "dynamics", "reassignment")
    assert len(found) == 14
    assert all(found.values()), found


def test_without_balancing_the_claims_that_rest_on_it_fail() -> None:
    found = verdicts(ElasticutorSetting(seconds=30, theta=10), "dynamics")
    assert not any(
        found[f"elasticutor-{each}"] for each in ("6-rc-before", "6-collapse", "7-ec", "7-gap")
    )
    assert found["elasticutor-6-flat"]  # static deployments do not balance anyhow


@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_on_one_executor_and_on_the_exchange_are_the_same_whatever_the_seed(
    seed: int,
) -> None:
    found = verdicts(ElasticutorSetting(hosts=8, seconds=30, seed=seed), "scaling")
    found |= verdicts(ElasticutorSetting(seconds=20, seed=seed), "exchange")
    assert len(found) == 14
    assert [each for each, holds in found.items() if not holds] == ["elasticutor-t2-state"]


def test_without_regard_to_state_and_distance_nothing_is_gained_over_the_naive_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paradigms, "assign", naive)
    found = verdicts(ElasticutorSetting(hosts=8, seconds=20), "exchange")
    assert not any(
        found[f"elasticutor-t2-{each}"] for each in ("state-less", "remote", "remote-less")
    )


def test_every_figure_and_table_is_there() -> None:
    report = experiment(ElasticutorSetting(hosts=8, seconds=30), tuple(PARTS))
    figures = {claim.id.split("-")[1] for claim in report.claims}
    assert figures == {"6", "7", "9", "10", "13", "16", "t2", "t3"}
    by = {claim.id: claim.holds for claim in report.claims}
    assert all(by[f"elasticutor-13-{each}"] for each in ("shards", "less", "elastic", "one"))
    assert len(report.charts) == 12
    assert all(line for chart in report.charts for line in chart.lines.values())
