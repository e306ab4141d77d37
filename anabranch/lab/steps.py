"""The simulator's second mode: steps as the product runs them.

The levels of a step run one after another on the available cores; the rows that arrive meanwhile
are the next batch. `SimulatedSteps` makes such steps, with any number of components, and passes
each to the controller of a live run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.elastic.controller import Memory, control
from anabranch.elastic.observation import (
    ComponentObservation,
    Decision,
    Floats,
    Observation,
    SourceObservation,
    by_slot,
)
from anabranch.elastic.policies.latency import makespan
from anabranch.elastic.settings import Elastic
from anabranch.plan.route import Route, even_route

_SOURCE = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedComponent:
    """A component: the cost of a row, and how many rows it gets per row of the source."""

    name: str
    cost_s: float
    level: int = 0
    per_row: float = 1.0
    parents: tuple[str, ...] = ()


@dataclass
class SimulatedSteps:
    """A run in steps.

    `rate` gives the rows per second at a time; `noise` is the standard deviation of a step's times,
    as a share of them.
    """

    components: Sequence[SimulatedComponent]
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
            component.name: even_route(len(self.shares), self.slots)
            for component in self.components
        }
        self._chance = np.random.default_rng([self.seed, 43])
        self._memory = Memory()
        self._at = 0.0
        self._waits = self.rate(0.0) * max(self.interval_s, self.fixed_s)

    def run(self, until_s: float) -> SimulatedSteps:
        """Runs steps until a time; each is followed by the decisions of the controller."""
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
        seen = [self._component(component, rows, max(0.5, noisy)) for component in self.components]
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

    def _component(
        self, component: SimulatedComponent, rows: float, noisy: float
    ) -> ComponentObservation:
        route = self.routes[component.name]
        own = rows * component.per_row * self.shares
        cpu_s = own * component.cost_s * noisy
        return ComponentObservation(
            name=component.name,
            route=route,
            rows=own,
            rows_out=own,
            cpu_s=cpu_s,
            state_bytes=np.zeros(len(self.shares)),
            slot_s=by_slot(cpu_s, route) + self.overhead_s,
            level=component.level,
            parents=component.parents,
        )
