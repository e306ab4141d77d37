"""Recorded steps of a run with a surge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from anabranch.elastic import (
    ComponentObservation,
    Elastic,
    Observation,
    SourceObservation,
)
from anabranch.elastic.observation import by_slot
from anabranch.elastic.policies.latency import makespan
from anabranch.plan.route import Route, even_route
from tests.elastic.loop import COST_S

OVERHEAD_S = 0.02


def step(number: int, rate: float, route: Route, **changes: Any) -> Observation:
    """A second of a run: two components, the second of which gets a tenth of the rows."""
    shards = len(route.slot_of)
    weights = np.linspace(1.0, 1.4, shards)
    weights /= weights.sum()
    components = tuple(
        ComponentObservation(
            name=name,
            route=route,
            rows=rate * part * weights,
            rows_out=rate * part * weights / 10,
            cpu_s=rate * part * weights * COST_S,
            state_bytes=np.ones(shards),
            slot_s=by_slot(rate * part * weights * COST_S, route) + OVERHEAD_S,
            level=level,
            parents=parents,
        )
        for name, part, level, parents in (("areas", 1.0, 1, ()), ("total", 0.1, 2, ("areas",)))
    )
    seen = Observation(
        step=number,
        at=float(number),
        duration_s=0.2 + sum(makespan(each.slot_s, 8) for each in components),
        cores=8,
        interval_s=1.0,
        sources={"loans": SourceObservation(rows=rate, rows_per_s=rate)},
        components=components,
    )
    return replace(seen, **changes)


def surge(number: int) -> float:
    return 50_000.0 if 40 <= number < 120 else 4_000.0


RECORDED = [step(i, surge(i), even_route(64, 2)) for i in range(1, 240)]


SETTINGS = Elastic(latency="2 seconds", max_slots=8)
