"""Steps as the product runs them: the step model foretells them, and the controller adapts to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.elastic.settings import Elastic
from anabranch.lab.steps import Part, Steps, foretold, median_error

CHAIN = (
    Part(name="areas", cost_s=4e-5),
    Part(name="states", cost_s=2e-5, level=1, per_row=0.5, parents=("areas",)),
)
EVEN = np.full(64, 1 / 64)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_step_times_are_foretold_within_a_quarter(noise: float) -> None:
    steps = Steps(CHAIN, lambda _: 20_000.0, Elastic(mode="off"), EVEN, slots=4, noise=noise).run(
        60
    )
    known = foretold(steps.observations)
    assert len(known) > 20
    assert median_error(known) < (0.02 if noise == 0 else 0.25)


def test_uneven_shards_are_foretold_by_their_longest_slot() -> None:
    shares = np.arange(1, 65, dtype=np.float64) ** -1.0
    steps = Steps(
        CHAIN, lambda _: 20_000.0, Elastic(mode="off"), shares / shares.sum(), slots=4, noise=0
    ).run(40)
    assert median_error(foretold(steps.observations)) < 0.1


def test_a_rising_load_gets_slots_and_steps_are_foretold_again_after_the_change() -> None:
    steps = Steps(
        CHAIN,
        lambda at: 5_000.0 if at < 30 else 15_000.0,
        Elastic(latency="2 seconds"),
        EVEN,
        interval_s=1.0,
    ).run(150)
    assert steps.routes["areas"].slots > 1
    changed = next(i for i, decision in enumerate(steps.decisions) if decision.changes)
    later = [each for each in foretold(steps.observations) if each.step > changed + 10]
    assert later
    assert median_error(later) < 0.25


def test_a_model_that_knows_another_cost_is_wrong() -> None:
    steps = Steps(CHAIN, lambda _: 20_000.0, Elastic(mode="off"), EVEN, slots=4, noise=0).run(30)
    slower = [
        replace(seen, duration_s=3 * seen.duration_s) if seen.step > 15 else seen
        for seen in steps.observations
    ]
    assert max(each.error for each in foretold(slower)) > 0.5
