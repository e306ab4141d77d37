"""A small simulated run: batches of the rows that have arrived, slots with a cost per row, pauses.

It has no clock and no randomness. Its text says what happened, for tests that fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from anabranch.elastic import (
    ComponentObservation,
    Decision,
    Elastic,
    Memory,
    Observation,
    SourceObservation,
    control,
)
from anabranch.elastic.observation import Resize, by_slot
from anabranch.elastic.policies.latency import makespan
from anabranch.plan.route import even_route

COST_S = 1e-4  # a slot does 10,000 rows per second


@dataclass(repr=False)
class Loop:
    """A run with one component. `rate` gives the rows per second at a time."""

    rate: Callable[[float], float]
    settings: Elastic
    slots: int = 1
    cores: int = 16
    shards: int = 128
    weights: np.ndarray | None = None
    limit: float = float("inf")  # rows per step
    interval_s: float = 1.0
    fixed_s: float = 0.2
    overhead_s: float = 0.02
    pauses: dict[int, float] = field(default_factory=dict)  # step -> seconds
    slow: float = 1.0
    bottleneck: bool = False  # something other than slots takes the time
    applied: bool = True
    waits: float = 0.0
    at: float = 0.0
    step: int = 0
    memory: Memory = field(default_factory=Memory)
    trace: list[tuple[float, int, float, Decision]] = field(default_factory=list)
    longest_uneven: int = 0  # steps in a row with a slot above theta
    _uneven: int = 0

    def __post_init__(self) -> None:
        self.route = even_route(self.shards, self.slots)
        if self.weights is None:
            self.weights = np.ones(self.shards)
        self.weights = self.weights / self.weights.sum()

    def observed(self) -> Observation:
        assert self.weights is not None
        self.step += 1
        rows = min(self.waits, self.limit)
        self.waits -= rows
        cpu_s = rows * self.weights * COST_S * self.slow
        slot_s = by_slot(cpu_s, self.route) + self.overhead_s
        if self.bottleneck:
            slot_s = np.full(self.route.slots, rows * COST_S / 2 + self.overhead_s)
        pause = self.pauses.get(self.step, 0.0)
        slot_s[0] += pause
        cpu_s = cpu_s * (1 + 3 * (pause > 0))
        duration_s = self.fixed_s + makespan(slot_s, self.cores)
        period_s = max(self.interval_s, duration_s)
        self.waits += self.rate(self.at) * period_s
        self.at += period_s
        component = ComponentObservation(
            name="areas",
            route=self.route,
            rows=rows * self.weights,
            rows_out=rows * self.weights / 10,
            cpu_s=cpu_s,
            state_bytes=np.zeros(self.shards),
            slot_s=slot_s,
        )
        source = SourceObservation(rows=rows, backlog=self.waits)
        return Observation(
            step=self.step,
            interval_s=self.interval_s,
            at=self.at,
            duration_s=duration_s,
            cores=self.cores,
            sources={"loans": source},
            components=(component,),
        )

    def run(self, until_s: float) -> Loop:
        for _ in range(5000):
            if self.at >= until_s:
                break
            seen = self.observed()
            level = (
                self.weights is None
                or by_slot(self.weights, self.route).max() * self.route.slots <= self.settings.theta
            )
            self._uneven = 0 if level else self._uneven + 1
            self.longest_uneven = max(self.longest_uneven, self._uneven)
            self.memory, decision = control(self.memory, seen, self.settings)
            latency_s = seen.duration_s + self.waits / max(1.0, self.rate(self.at))
            self.trace.append((self.at, self.route.slots, latency_s, decision))
            if decision and not decision.advice and self.applied:
                self.route = decision.changes[0].route
        return self

    @property
    def decisions(self) -> list[tuple[float, Decision]]:
        return [(at, decision) for at, _, _, decision in self.trace if decision]

    @property
    def resizes(self) -> list[tuple[float, int, int]]:
        return [
            (at, c.before, c.route.slots)
            for at, one in self.decisions
            for c in one.changes
            if isinstance(c, Resize)
        ]

    @property
    def reversals(self) -> int:
        ways = [after > before for _, before, after in self.resizes]
        return sum(a != b for a, b in pairwise(ways))

    @property
    def notes(self) -> list[str]:
        return [note for *_, decision in self.trace for note in decision.notes]

    @property
    def slot_seconds(self) -> float:
        times = [0.0, *(at for at, *_ in self.trace)]
        return sum(
            (b - a) * slots
            for a, b, (_, slots, *_) in zip(times, times[1:], self.trace, strict=False)
        )

    def misses(self, latency_s: float) -> int:
        return sum(latency > latency_s for _, _, latency, _ in self.trace)

    def __repr__(self) -> str:
        lines = [f"{at:7.1f} s: {decision.reason}" for at, decision in self.decisions]
        figures = (
            f"{len(self.resizes)} resizes, {self.reversals} reversals, {self.misses(3.0)} of "
            f"{len(self.trace)} steps above 3 s"
        )
        return "\n".join(
            [
                *lines,
                *self.notes,
                f"{figures}, {self.slot_seconds:.0f} slot-seconds, {self.waits:.0f} rows wait",
            ]
        )


def steady(rate: float) -> Callable[[float], float]:
    return lambda _: rate


def progressive(at: float) -> float:
    """DABS-Storm, Fig. 11: a large increase, a plateau, a decrease."""
    return 5_000 + 250 * min(at, 300.0) if at < 500 else max(5_000.0, 80_000 - 250 * (at - 500))


def erratic(at: float) -> float:
    """DABS-Storm, Fig. 11: sudden and severe variations."""
    peaks = ((60, 80, 60_000), (200, 215, 90_000), (330, 420, 70_000), (600, 605, 90_000))
    return next((float(rate) for start, end, rate in peaks if start <= at < end), 8_000.0)


LATENCY = Elastic(latency="2500 ms")
