"""How many slots by forecast and capacity: AutoScale+ (DABS-Storm 4).

Each component's input in the next interval is forecast from its own past and from what its parents
will send; divided by what a slot can do in the interval it gives the ideal number of slots. Nothing
changes while that is in the working interval.

The paper prints lambda in equation 13 and explains an alpha below it, without a value. With lambda
= 0.3 each change would reserve more than three times the need, which its figures do not show; alpha
is `margin` here, in the middle of the working interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, isfinite

import numpy as np

from anabranch.elastic.observation import ComponentEvaluation, Evaluation, Floats, PolicyRequest
from anabranch.elastic.policies.base import BasePolicy

_ABOVE = 2.0  # the limit of a forecast, as a multiple of the largest rate seen


@dataclass(frozen=True, slots=True)
class Fit:
    """A regression, how well it fits (mean squared error), and its value at a time."""

    kind: str
    error: float
    at: Callable[[Floats], Floats]


def fits(times: Floats, values: Floats) -> list[Fit]:
    """Linear, logarithmic and exponential regression of values over times > 0."""
    found = [
        _fit("linear", values, times, times, lambda t: t),
        _fit("logarithmic", values, times, np.log(times), np.log),
    ]
    if (values > 0).all():
        slope, start = _line(times, np.log(values))
        found.append(
            _judged(
                "exponential", values, times, lambda t: np.exp(np.minimum(start + slope * t, 700.0))
            )
        )
    return found


def _fit(
    kind: str, values: Floats, times: Floats, scaled: Floats, scale: Callable[[Floats], Floats]
) -> Fit:
    slope, start = _line(scaled, values)
    return _judged(kind, values, times, lambda t: start + slope * scale(t))


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Least squares: slope, and value at 0."""
    dx = x - x.mean()
    slope = float(dx @ y / (dx @ dx))
    return slope, float(y.mean() - slope * x.mean())


def _judged(kind: str, values: Floats, times: Floats, at: Callable[[Floats], Floats]) -> Fit:
    return Fit(kind, float(np.mean((at(times) - values) ** 2)), at)


def forecast(past: Sequence[tuple[float, float]], ahead_s: float) -> float:
    """The mean rate of the next `ahead_s` seconds by the best of the regressions (equation 3).

    With fewer than three rates known, it is the last one.
    """
    if len(past) < 3:
        return past[-1][1] if past else 0.0
    times, values = np.array(past, dtype=np.float64).T
    gap = (times[-1] - times[0]) / (len(times) - 1)
    if gap <= 0 or values.max() <= 0:
        return float(values[-1])
    scaled = (times - times[0]) / gap + 1.0  # from 1, so that a logarithm exists
    ahead = scaled[-1] + np.arange(1, max(1, round(ahead_s / gap)) + 1, dtype=np.float64)
    best = min(fits(scaled, values), key=lambda fit: fit.error)
    value = float(np.mean(best.at(ahead)))
    return (
        min(max(value, 0.0), _ABOVE * float(values.max())) if isfinite(value) else float(values[-1])
    )


def usable_cpu(
    used: Sequence[float], reserved: Sequence[float], weight: float = 0.3
) -> list[float]:
    """The share of one core that each of its threads may use in the near future (equation 7)."""
    return [
        min(1.0, weight * max(own, asked) + max(0.0, 1.0 - (sum(used) - own)) / len(used))
        for own, asked in zip(used, reserved, strict=True)
    ]


def capacity(interval_s: float, cost_s: float, cpu: float) -> float:
    """Rows that a slot can process in the interval with a share of a core (equations 6, 9)."""
    return interval_s / cost_s * cpu


def new_slots(slots: int, needed: float, usable: float, reserved: float, beta: float = 0.8) -> int:
    """Another number of slots, if the ideal leaves the working interval [beta k, k].

    Equations 10 to 13.

    `needed` is the estimated input, `usable` and `reserved` what one slot is able to do by usable
    and by reserved CPU.
    """
    ideal = needed / usable
    if beta * slots <= ideal <= slots:
        return slots
    chosen = max(1, ceil(needed / reserved - 1e-9))
    return max(chosen, slots) if ideal > slots else min(chosen, slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoScale(BasePolicy):
    """AutoScale+ as a policy, with the paper's parameters (its Table 2)."""

    weight: float = 0.3
    beta: float = 0.8
    combine: Callable[[float, float], float] = max
    interval_s: float = 10.0
    margin: float = 0.9

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        """Slots of all components, parents before their children; the latency does not count."""
        del latency_s, most
        outputs: dict[str, float] = {}
        slots: dict[str, int] = {}
        figures: dict[str, float] = {}
        for each in sorted(seen.components, key=lambda each: each.level):
            needed = self.estimated_input(each, sum(outputs[parent] for parent in each.parents))
            outputs[each.name] = needed * each.selectivity  # equation 4
            if each.cost_s <= 0:
                slots[each.name] = each.slots
                continue
            usable = capacity(self.interval_s, each.cost_s, self.usable(each, seen.cores))
            reserved = capacity(
                self.interval_s, each.cost_s, self.margin * _reserved(each.slots, seen.cores)
            )
            slots[each.name] = new_slots(each.slots, needed, usable, reserved, self.beta)
            figures |= {f"{each.name}: input": needed, f"{each.name}: ideal slots": needed / usable}
        ideal = ", ".join(
            f"{name} {value:.2f}" for name, value in figures.items() if name.endswith("ideal slots")
        )
        return PolicyRequest(
            slots=slots, reason=f"forecast input over capacity: {ideal}", figures=figures
        )

    def estimated_input(self, each: ComponentEvaluation, from_parents: float) -> float:
        """Rows of the next interval (equation 5).

        They combine the component's own past, its parents' output, and what is pending.
        """
        own = forecast(each.rates, self.interval_s) * self.interval_s
        return (
            self.combine(own, from_parents) if each.parents else own
        ) + each.pending * self.interval_s

    def usable(self, each: ComponentEvaluation, cores: int) -> float:
        """The usable share of a core of the worst slot (equation 8); slots share cores evenly."""
        threads = ceil(each.slots / max(1, cores))
        cpu = usable_cpu(
            [min(1.0, each.busy)] * threads, [_reserved(each.slots, cores)] * threads, self.weight
        )
        return min(cpu)


def _reserved(slots: int, cores: int) -> float:
    return min(1.0, cores / slots)
