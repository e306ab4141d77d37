"""Migrations: verdicts do not depend on the seed.

Without balancing, moving instantly brings no gain.
"""

from __future__ import annotations

import pytest

from anabranch.lab.enorm.migration import (
    DISRUPTIVE,
    INSTANT,
    MigrationSetting,
    experiment,
    latencies,
    overhead,
)

SMALL = {"rises": 1, "shards": 18}


@pytest.mark.parametrize("seed", [1, 2])
def test_all_claims_hold_whatever_the_seed(seed: int) -> None:
    report = experiment(MigrationSetting(seed=seed, **SMALL))
    assert {claim.id.split("-")[1] for claim in report.claims} == {"10", "11", "12", "13"}
    assert all(claim.holds for claim in report.claims), report.claims


def test_without_balancing_the_claims_that_rest_on_it_fail() -> None:
    found = {
        claim.id: claim.holds for claim in experiment(MigrationSetting(theta=10, **SMALL)).claims
    }
    assert {name for name, holds in found.items() if not holds} == {
        "enorm-13-instant",
        "enorm-13-often",
    }


def test_keys_that_come_rarely_cost_less_to_move_instantly() -> None:
    setting = MigrationSetting(**SMALL)
    assert overhead(setting, INSTANT, 0.5, 50_000) < overhead(setting, DISRUPTIVE, 0.5, 50_000)
    assert overhead(setting, INSTANT, 0.0, 50_000) == 0


def test_the_course_of_latency_covers_the_whole_run() -> None:
    mean, course = latencies(MigrationSetting(**SMALL), INSTANT, 5.0)
    assert len(course) == 6 * (5 + 5)
    assert 0 < mean <= max(course)
