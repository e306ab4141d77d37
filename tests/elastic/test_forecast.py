"""The step model forecasts the times of simulated steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.elastic.forecast import forecast_steps, median_error
from anabranch.elastic.settings import Elastic
from anabranch.lab.steps import SimulatedComponent, SimulatedSteps

CHAIN = (
    SimulatedComponent(name="areas", cost_s=4e-5),
    SimulatedComponent(name="states", cost_s=2e-5, level=1, per_row=0.5, parents=("areas",)),
)
EVEN = np.full(64, 1 / 64)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_step_times_are_forecast_within_a_quarter(noise: float) -> None:
    steps = SimulatedSteps(
        CHAIN, lambda _: 20_000.0, Elastic(mode="off"), EVEN, slots=4, noise=noise
    ).run(60)
    known = forecast_steps(steps.observations)
    assert len(known) > 20
    assert median_error(known) < (0.02 if noise == 0 else 0.25)


def test_uneven_shards_are_forecast_by_their_longest_slot() -> None:
    shares = np.arange(1, 65, dtype=np.float64) ** -1.0
    steps = SimulatedSteps(
        CHAIN, lambda _: 20_000.0, Elastic(mode="off"), shares / shares.sum(), slots=4, noise=0
    ).run(40)
    assert median_error(forecast_steps(steps.observations)) < 0.1


def test_a_model_that_knows_another_cost_is_wrong() -> None:
    steps = SimulatedSteps(
        CHAIN, lambda _: 20_000.0, Elastic(mode="off"), EVEN, slots=4, noise=0
    ).run(30)
    slower = [
        replace(seen, duration_s=3 * seen.duration_s) if seen.step > 15 else seen
        for seen in steps.observations
    ]
    assert max(each.error for each in forecast_steps(slower)) > 0.5
