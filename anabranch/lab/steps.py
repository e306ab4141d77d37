"""The simulator's second mode: steps as the product runs them, and how well the model of a live run foretells their times.

In a step the levels run one after another on the cores there are; what arrives meanwhile is the next batch. `Steps` makes such steps,
with any number of components, and hands each to the controller of a live run. `foretold` takes observations, of such steps or
of a real run, and says before each step what the step model (elastic/latency.py) expects it to take, from the steps before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from anabranch.elastic.controller import Memory, control
from anabranch.elastic.evaluation import History, evaluate
from anabranch.elastic.observation import (
    ComponentObservation,
    Decision,
    Evaluation,
    Floats,
    Observation,
    SourceObservation,
    by_slot,
)
from anabranch.elastic.policies.latency import ComponentWork, StepModel, makespan
from anabranch.elastic.settings import Elastic, Guards
from anabranch.plan.route import Route, even_route

_SOURCE = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """One step: what it was expected to take, and what it took."""

    step: int
    expected_s: float
    took_s: float

    @property
    def error(self) -> float:
        """As a part of what it took."""
        return abs(self.expected_s - self.took_s) / self.took_s


def foretold(observations: Sequence[Observation], guards: Guards | None = None) -> list[Foretold]:
    """Each step with rows, foretold from those before it; the first steps, and the first after a change, are not."""
    guards = guards or Guards()
    history = History()
    known: Evaluation | None = None
    found = []
    for seen in observations:
        rows = sum(source.rows for source in seen.sources.values())
        if known is not None and rows > 0 and history.facts and _same_routes(known, seen):
            found.append(
                Foretold(step=seen.step, expected_s=expected_s(known, seen), took_s=seen.duration_s)
            )
        history, evaluation = evaluate(history, seen, guards)
        known = (
            evaluation
            if not evaluation.holds
            else known
            if known is not None and _same_routes(known, seen)
            else None
        )
    return found


def expected_s(known: Evaluation, seen: Observation) -> float:
    """What the step model makes of the rows of a step, by what was known before it: fixed, and for each level overhead and work."""
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


def median_error(steps: Sequence[Foretold]) -> float:
    """By which half of the steps are off, at most."""
    return median(step.error for step in steps)


def _same_routes(known: Evaluation, seen: Observation) -> bool:
    now = {each.name: each.route.version for each in seen.components}
    return {each.name: each.route.version for each in known.components} == now


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A component: what a row costs, and rows for each row of the source."""

    name: str
    cost_s: float
    level: int = 0
    per_row: float = 1.0
    parents: tuple[str, ...] = ()


@dataclass
class Steps:
    """A run in steps. `rate` gives rows a second at a time; `noise` is the part by which a step's times differ from the rest."""

    parts: Sequence[Part]
    rate: Callable[[float], float]
    settings: Elastic
    shares: Floats  # of shards
    cores: int = 8
    slots: int = 1
    fixed_s: float = 0.2
    overhead_s: float = 0.02
    interval_s: float = 0.0
    noise: float = 0.05
    seed: int = 1
    observations: list[Observation] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.routes: dict[str, Route] = {
            part.name: even_route(len(self.shares), self.slots) for part in self.parts
        }
        self._chance = np.random.default_rng([self.seed, 43])
        self._memory = Memory()
        self._at = 0.0
        self._waits = self.rate(0.0) * max(self.interval_s, self.fixed_s)

    def run(self, until_s: float) -> Steps:
        """Steps until a time, each followed by what the controller decides."""
        while self._at < until_s:
            seen = self._step()
            self.observations.append(seen)
            self._memory, decision = control(self._memory, seen, self.settings)
            self.decisions.append(decision)
            for change in decision.changes:
                self.routes[change.component] = change.route
        return self

    def _step(self) -> Observation:
        rows, self._waits = self._waits, 0.0
        noisy = 1 + self.noise * float(self._chance.standard_normal())
        seen = [self._component(part, rows, max(0.5, noisy)) for part in self.parts]
        levels: dict[int, list[Floats]] = {}
        for each in seen:
            levels.setdefault(each.level, []).append(each.slot_s)
        duration_s = self.fixed_s * max(0.5, noisy) + sum(
            makespan(np.concatenate(tasks), self.cores) for tasks in levels.values()
        )
        period_s = max(self.interval_s, duration_s)
        self._waits = self.rate(self._at) * period_s
        self._at += period_s
        return Observation(
            step=len(self.observations) + 1,
            at=self._at,
            duration_s=duration_s,
            cores=self.cores,
            sources={_SOURCE: SourceObservation(rows=rows, rows_per_s=self._waits / period_s)},
            components=tuple(seen),
            interval_s=self.interval_s,
        )

    def _component(self, part: Part, rows: float, noisy: float) -> ComponentObservation:
        route = self.routes[part.name]
        own = rows * part.per_row * self.shares
        cpu_s = own * part.cost_s * noisy
        return ComponentObservation(
            name=part.name,
            route=route,
            rows=own,
            rows_out=own,
            cpu_s=cpu_s,
            state_bytes=np.zeros(len(self.shares)),
            slot_s=by_slot(cpu_s, route) + self.overhead_s,
            level=part.level,
            parents=part.parents,
        )
