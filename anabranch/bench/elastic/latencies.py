"""The figures of a run over a paced workload: latency, late rows, slots used, and steadiness.

A row's latency is the time from when it was due to the commit of its step. It includes waiting at
the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from anabranch.workloads import Workload

_STEADY = 0.1  # a smaller change of the input is no reason to resize
_SOON = 5  # steps


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A committed step: its rows, its slots, and its end in seconds since the workload began."""

    rows: int
    ended_s: float
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The figures of one run."""

    rows: int
    seconds: float
    mean_s: float
    p95_s: float
    late: int
    slot_seconds: float
    steps: int
    most_slots: int
    resizes: int
    needless_reversals: int

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    def facts(self) -> dict[str, Any]:
        """The figures as they are printed."""
        return {
            "rows": self.rows,
            "seconds": round(self.seconds, 2),
            "rows_per_s": round(self.rows_per_s),
            "latency_mean_s": round(self.mean_s, 3),
            "latency_p95_s": round(self.p95_s, 3),
            "rows_late": self.late,
            "slot_seconds": round(self.slot_seconds, 1),
            "steps": self.steps,
            "most_slots": self.most_slots,
            "resizes": self.resizes,
            "needless_reversals": self.needless_reversals,
        }


def latencies(
    load: Workload, steps: Sequence[TimedStep], target_s: float, speed: float = 1.0
) -> Latencies:
    """The figures of a run whose steps took the rows of the workload in order.

    Closing steps have no rows.
    """
    ends = np.repeat([step.ended_s for step in steps], [step.rows for step in steps])
    due = load.due_us(np.arange(len(ends))) / 1e6 / speed
    took = ends - due
    last_s = steps[-1].ended_s
    since = np.diff([0.0, *(step.ended_s for step in steps)])
    return Latencies(
        rows=len(ends),
        seconds=last_s,
        mean_s=float(took.mean()),
        p95_s=float(np.quantile(took, 0.95)),
        late=int((took > target_s).sum()),
        slot_seconds=float(
            sum(step.slots * length for step, length in zip(steps, since, strict=True))
        ),
        steps=len(steps),
        most_slots=max(step.slots for step in steps),
        resizes=sum(a.slots != b.slots for a, b in pairwise(steps)),
        needless_reversals=needless_reversals(load, steps, speed),
    )


def needless_reversals(load: Workload, steps: Sequence[TimedStep], speed: float = 1.0) -> int:
    """How often slots went up and soon down, or down and soon up, while the input was steady."""
    changes = [
        (i, b.slots - a.slots) for i, (a, b) in enumerate(pairwise(steps), 1) if b.slots != a.slots
    ]
    found = 0
    for (first, up), (second, down) in pairwise(changes):
        if up * down < 0 and second - first <= _SOON:
            start, end = (float(load.rate.at(steps[i].ended_s * speed)) for i in (first, second))
            found += abs(end - start) < _STEADY * max(start, 1e-9)
    return found
