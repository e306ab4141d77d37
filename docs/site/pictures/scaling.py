"""A scaling decision over time: a surge, and what the controller of a live run decides.

Simulated steps of `lab/steps.py` with a fixed seed; each is handed to `elastic.controller.control`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from anabranch.elastic.observation import Resize
from anabranch.elastic.settings import Elastic
from anabranch.lab.steps import SimulatedComponent, SimulatedSteps
from docs.site.svg import Canvas

UNTIL_S, TARGET_S, MOST = 360.0, 3.0, 8
COST_S = 1e-4

_LEFT, _RIGHT, _WIDTH = 70.0, 20.0, 900.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the picture shows: values by time, and the resizes."""

    at: Sequence[float]
    rate: Sequence[float]
    slots: Sequence[int]
    latency_s: Sequence[float]
    resizes: Sequence[tuple[float, int, int]]


def rate(at: float) -> float:
    """Rows per second: a surge to five times as many that ends after two minutes."""
    if at < 60:
        return 8_000.0
    return min(40_000.0, 8_000.0 + (at - 60) * 1_600.0) if at < 200 else 8_000.0


@cache
def simulated() -> Simulated:
    """The surge, run once."""
    steps = SimulatedSteps(
        (SimulatedComponent(name="interest", cost_s=COST_S),),
        rate,
        Elastic(latency=f"{TARGET_S:g} seconds", max_slots=MOST),
        np.full(64, 1 / 64),
        cores=MOST,
        interval_s=1.0,
    ).run(UNTIL_S)
    seen = steps.observations
    periods = [seen[0].interval_s, *(max(each.interval_s, each.duration_s) for each in seen)]
    return Simulated(
        [each.at for each in seen],
        [rate(each.at) for each in seen],
        [each.components[0].route.slots for each in seen],
        # The row that waited longest came when the step before began.
        [before + each.duration_s for before, each in zip(periods, seen, strict=False)],
        [
            (each.at, change.before, change.route.slots)
            for each, decision in zip(seen, steps.decisions, strict=True)
            for change in decision.changes
            if isinstance(change, Resize)
        ],
    )


def draw_scaling() -> Canvas:
    """Rate, slots and latency over the same time."""
    found = simulated()
    canvas = Canvas(_WIDTH, 490, "A surge, and what the controller decides")
    for at, *_ in found.resizes:
        canvas.line((_x(at), 24), (_x(at), 418), stroke="box", width=2)
    thousands = [each / 1000 for each in found.rate]
    _draw_plot(canvas, 40, "thousand rows per second", found.at, thousands, "purple")
    _draw_plot(canvas, 170, "slots", found.at, found.slots, "blue", stairs=True)
    _draw_plot(
        canvas, 300, "longest latency, seconds", found.at, found.latency_s, "green", limit=TARGET_S
    )
    for at, _, after in found.resizes:
        y = _y(170, after, _top(found.slots))
        canvas.text(_x(at) + 5, y - 10, str(after), bold=True, colour="blue", anchor="start")
    for second in range(0, int(UNTIL_S) + 1, 60):
        canvas.text(_x(second), 434, f"{second // 60} min", colour="faint", size=12)
    over = [at for at, each in zip(found.at, found.latency_s, strict=True) if each > TARGET_S]
    canvas.text(
        _LEFT,
        464,
        f"Latency is above its target of {TARGET_S:g} s from second {over[0]:.0f} to "
        f"{over[-1]:.0f}.\nSlots are added within seconds. "
        "They are given up only after a minute in which fewer suffice.",
        colour="faint",
        anchor="start",
    )
    return canvas


def _x(at: float) -> float:
    return _LEFT + at / UNTIL_S * (_WIDTH - _LEFT - _RIGHT)


def _y(top: float, value: float, most: float) -> float:
    return top + 100 * (1 - value / most)


def _top(values: Sequence[float]) -> float:
    """A round number that no value exceeds."""
    most = max(values)
    return next(t for t in (8, 10, 12, 20, 40, 50, 100) if t >= most)


def _draw_plot(
    canvas: Canvas,
    top: float,
    title: str,
    at: Sequence[float],
    values: Sequence[float],
    colour: str,
    *,
    stairs: bool = False,
    limit: float | None = None,
) -> None:
    most = _top(values)
    canvas.text(_LEFT, top - 14, title, anchor="start", bold=True, colour=colour)
    for mark in (0, most / 2, most):
        canvas.line((_LEFT, _y(top, mark, most)), (_WIDTH - _RIGHT, _y(top, mark, most)), width=0.6)
        canvas.text(
            _LEFT - 8, _y(top, mark, most), f"{mark:g}", anchor="end", colour="faint", size=12
        )
    points = []
    for i, (x, value) in enumerate(zip(at, values, strict=True)):
        if stairs and i:
            points.append((_x(x), _y(top, values[i - 1], most)))
        points.append((_x(x), _y(top, value, most)))
    canvas.line(*points, stroke=colour, width=2)
    if limit is not None:
        y = _y(top, limit, most)
        canvas.line((_LEFT, y), (_WIDTH - _RIGHT, y), stroke="orange", dashed=True)
        canvas.text(_WIDTH - _RIGHT, y - 9, "target", anchor="end", colour="orange", size=12)
