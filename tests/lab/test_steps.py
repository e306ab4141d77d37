"""Simulated steps: the controller adapts to them, and the step model follows."""

from __future__ import annotations

import numpy as np

from anabranch.elastic.forecast import forecast_steps, median_error
from anabranch.elastic.settings import Elastic
from anabranch.lab.steps import SimulatedComponent, SimulatedSteps

CHAIN = (
    SimulatedComponent(name="areas", cost_s=4e-5),
    SimulatedComponent(name="states", cost_s=2e-5, level=1, per_row=0.5, parents=("areas",)),
)
EVEN = np.full(64, 1 / 64)


def test_a_rising_load_gets_slots_and_steps_are_forecast_again_after_the_change() -> None:
    steps = SimulatedSteps(
        CHAIN,
        lambda at: 5_000.0 if at < 30 else 15_000.0,
        Elastic(latency="2 seconds"),
        EVEN,
        interval_s=1.0,
    ).run(150)
    assert steps.routes["areas"].slots > 1
    changed = next(i for i, decision in enumerate(steps.decisions) if decision.changes)
    later = [each for each in forecast_steps(steps.observations) if each.step > changed + 10]
    assert later
    assert median_error(later) < 0.25
