"""How well the step model forecasts step times.

`forecast_steps` goes through the observations of a run, live or simulated. Before each step it asks
the step model (`policies/latency.py`) how long that step should take, from the steps before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from anabranch.elastic.evaluation import History, evaluate
from anabranch.elastic.observation import Evaluation, Observation
from anabranch.elastic.policies.latency import ComponentWork, StepModel
from anabranch.elastic.settings import Guards


@dataclass(frozen=True, slots=True, kw_only=True)
class StepForecast:
    """One step: the time that the model expected, and the time that it took."""

    step: int
    expected_s: float
    took_s: float

    @property
    def error(self) -> float:
        """The difference, as a share of the time that the step took."""
        return abs(self.expected_s - self.took_s) / self.took_s


def forecast_steps(
    observations: Sequence[Observation], guards: Guards | None = None
) -> list[StepForecast]:
    """A forecast of each step with rows; none for the first steps and the first after a change."""
    guards = guards or Guards()
    history = History()
    known: Evaluation | None = None
    found = []
    for seen in observations:
        if known is not None and not _same_routes(known, seen):
            known = None
        rows = sum(source.rows for source in seen.sources.values())
        if known is not None and rows > 0 and history.facts:
            expected_s = expected_step_s(known, seen)
            found.append(
                StepForecast(step=seen.step, expected_s=expected_s, took_s=seen.duration_s)
            )
        history, evaluation = evaluate(history, seen, guards)
        if not evaluation.holds:
            known = evaluation
    return found


def expected_step_s(known: Evaluation, seen: Observation) -> float:
    """The time that the step model gives for the rows of a step, by what was known before it."""
    rows = {each.name: float(each.rows.sum()) for each in seen.components}
    works = [
        ComponentWork(each.level, each.cost_s * rows[each.name], each.hot_share)
        for each in known.components
    ]
    slots = [each.slots for each in known.components]
    busy = [each.imbalance for each in known.components if rows[each.name] > 0]
    model = StepModel(
        fixed_s=known.fixed_s,
        overhead_s=known.overhead_s,
        cores=max(1, known.cores),
        uneven=max(busy, default=1.0),
    )
    without, more = model.parts(works, slots)
    return without + more


def median_error(forecasts: Sequence[StepForecast]) -> float:
    """Half of the forecasts are off by at most this share."""
    return median(each.error for each in forecasts)


def _same_routes(known: Evaluation, seen: Observation) -> bool:
    now = {each.name: each.route.version for each in seen.components}
    return {each.name: each.route.version for each in known.components} == now
