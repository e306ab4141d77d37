"""DABS-Storm's experiments, short: rows are counted right, verdicts do not depend on the seed, and do depend on the policy."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.elastic.baselines import Static
from anabranch.lab import osg
from anabranch.lab.bolts import Bolt, Storm, live
from anabranch.lab.dabs import FIGURES, Setting, experiment, stream

ONE = (Bolt(name="bolt", cost_s=0.05),)


def test_a_queue_that_cannot_keep_up_loses_what_waits_too_long() -> None:
    rates = np.concatenate([np.full(100, 10.0), np.full(100, 40.0)])  # one task does 20 a second
    lived = live(ONE, rates, Static(), Storm(), osg=False, seed=1, observed="bolt")
    assert lived.changes == 0
    assert lived.arrived.sum() == pytest.approx(5000, rel=0.05)
    assert lived.done.sum() == pytest.approx(100 * 10 + 100 * 20, rel=0.05)
    assert lived.latency_s[:90].max() < 5
    assert lived.latency_s[150] == pytest.approx(50, rel=0.2)  # 40 a second came and 20 a second went for 50 s
    late = lived.arrived[lived.latency_s > 30].sum() / lived.arrived.sum()
    assert lived.lost == pytest.approx(late)
    assert 0.4 < lived.lost < 0.7


def test_progressive_and_insensitive_claims_hold_whatever_the_seed() -> None:
    for seed in (1, 2):
        report = experiment(Setting(repeats=2, seed=seed), [12])
        assert {claim.id: claim.holds for claim in report.claims} == {
            "dabs-12-loss": True,
            "dabs-12-order": True,
            "dabs-12-units": True,
            "dabs-12-units-learning": True,
        }


def test_a_policy_that_never_gives_slots_up_uses_more_than_the_paper_says() -> None:
    found = {claim.id: claim.holds for claim in experiment(Setting(repeats=1, beta=0), [12]).claims}
    assert not found["dabs-12-units"]


def test_every_figure_has_claims_and_charts() -> None:
    report = experiment(Setting(repeats=1, seconds=120))
    assert {int(claim.id.split("-")[1]) for claim in report.claims} == set(FIGURES)
    assert len(report.charts) == 3 * len(FIGURES)
    assert len(stream("erratic", 200)) == 200


@pytest.mark.parametrize("seed", [1, 2])
def test_grouping_by_cost_is_within_its_bound_and_beats_round_robin(seed: int) -> None:
    claims = osg.experiment(osg.Setting(rows=16_000, tries=50, streams=3, seed=seed)).claims
    assert [claim.id for claim in claims] == ["osg-bound", "osg-bound-tight", "osg-rr", "osg-adapts"]
    assert all(claim.holds for claim in claims), claims


def test_grouping_that_never_learns_is_no_better_than_round_robin() -> None:
    claims = osg.experiment(osg.Setting(rows=4000, tries=5, streams=1, window=10**6)).claims
    assert {claim.id: claim.holds for claim in claims} == {
        "osg-bound": True,
        "osg-bound-tight": True,
        "osg-rr": False,
        "osg-adapts": False,
    }


def test_the_best_makespan_is_that_of_trying_everything() -> None:
    assert osg.best_makespan(np.array([3.0, 3.0, 2.0, 2.0, 2.0]), 2) == 6
    assert osg.best_makespan(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0]), 3) == 3
