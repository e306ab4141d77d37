"""Rows per second as a function of time.

A rate consists of straight lines between knots, jumps if two knots have the same time, and waves on
top. Rates are integrated exactly, so the rows of any period are known without generating them.
Rates can be added and multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite, pi
from typing import TypeAlias

import numpy as np

from anabranch.errors import TopologyError
from anabranch.topology.durations import Duration, duration_us
from anabranch.workloads.draws import Floats, shares

Knot: TypeAlias = tuple[float, float]
"""A time in seconds, and the rows per second then."""

Wave: TypeAlias = tuple[float, float]
"""The amplitude in rows per second, and the period in seconds.

At time 0 a wave is at its middle and rises.
"""

# DABS-Storm's Fig. 11 is a drawing. These are parts of the time and of the way from low to high, as
# the text describes them.
_PROGRESSIVE = (
    (0.0, 0.0),
    (0.1, 0.0),
    (0.4, 1.0),
    (0.6, 1.0),
    (0.9, 0.0),
)  # "a large increase with a plateau before a decrease"
_ERRATIC = (
    (0.08, 0.03, 0.7),
    (0.24, 0.02, 1.0),
    (0.42, 0.02, 0.6),
    (0.62, 0.2, 0.85),
)  # the last increase "lasts longer"


@dataclass(frozen=True)
class Rate:
    """Rows per second over time. After the last knot, its rate stays."""

    knots: tuple[Knot, ...]
    waves: tuple[Wave, ...] = ()

    def __post_init__(self) -> None:
        if not self.knots or self.knots[0][0] != 0:
            raise TopologyError(f"a rate must have a knot at second 0; its knots are {self.knots}")
        if any(after[0] < before[0] for before, after in pairwise(self.knots)):
            raise TopologyError(f"the times of a rate must not go back; its knots are {self.knots}")
        if any(not (isfinite(period) and period > 0) for _, period in self.waves):
            raise TopologyError(
                f"a wave needs a period longer than zero; the waves are {self.waves}"
            )
        lowest = min(rate for _, rate in self.knots) - sum(abs(height) for height, _ in self.waves)
        if not isfinite(lowest + max(rate for _, rate in self.knots)) or lowest < 0:
            raise TopologyError(
                f"a rate must never be below 0 rows per second; this one goes down to {lowest:g}"
            )

    def __add__(self, other: Rate) -> Rate:
        """The sum of both rates."""
        times = sorted({time for time, _ in self.knots + other.knots})
        sides = [(time, self._sides(time), other._sides(time)) for time in times]
        knots: list[Knot] = []
        for time, ours, theirs in sides:
            before, after = ours[0] + theirs[0], ours[1] + theirs[1]
            knots += (
                [(time, after)] if before == after or time == 0 else [(time, before), (time, after)]
            )
        return Rate(tuple(knots), self.waves + other.waves)

    def __mul__(self, factor: float) -> Rate:
        """The rate multiplied by a factor."""
        return Rate(
            tuple((time, rate * factor) for time, rate in self.knots),
            tuple((height * factor, period) for height, period in self.waves),
        )

    __rmul__ = __mul__

    def at(self, seconds: Floats | float) -> Floats:
        """Rows per second at these times. At a jump, it is the rate after the jump."""
        times = np.asarray(seconds, dtype=np.float64)
        place, since = self._place(times)
        _, start, slope, _ = self._pieces
        rate = start[place] + slope[place] * since
        for height, period in self.waves:
            rate = rate + height * np.sin(2 * pi * times / period)
        return rate

    def rows_until(self, seconds: Floats | float) -> Floats:
        """The number of rows from 0 to these times, with fractions."""
        times = np.asarray(seconds, dtype=np.float64)
        place, since = self._place(times)
        _, start, slope, before = self._pieces
        rows = before[place] + start[place] * since + 0.5 * slope[place] * since * since
        for height, period in self.waves:
            rows = rows + height * period / (2 * pi) * (1 - np.cos(2 * pi * times / period))
        return rows

    def _place(self, times: Floats) -> tuple[np.typing.NDArray[np.intp], Floats]:
        """The piece that contains each time, and the seconds since the piece began."""
        begin = self._pieces[0]
        place = np.searchsorted(begin, times, side="right") - 1
        return place, times - begin[place]

    @cached_property
    def _pieces(self) -> tuple[Floats, Floats, Floats, Floats]:
        """For the piece after each knot: its start, its first rate, its slope, the rows before."""
        times, rates = np.array(self.knots, dtype=np.float64).T
        lengths = np.diff(times)
        slopes = np.divide(np.diff(rates), lengths, out=np.zeros_like(lengths), where=lengths > 0)
        rows = np.concatenate([[0.0], np.cumsum(lengths * (rates[:-1] + rates[1:]) / 2)])
        return times, rates, np.append(slopes, 0.0), rows

    def _sides(self, time: float) -> tuple[float, float]:
        """The rate just before a time and just after it, without waves."""
        here = [rate for at, rate in self.knots if at == time]
        if here:
            return here[0], here[-1]
        times, start, slope, _ = self._pieces
        place = int(np.searchsorted(times, time, side="right")) - 1
        rate = float(start[place] + slope[place] * (time - times[place]))
        return rate, rate


def constant(rows: float) -> Rate:
    """The same number of rows per second at all times."""
    return Rate(((0.0, float(rows)),))


def stepped(first: float, *later: tuple[Duration, float]) -> Rate:
    """Rows per second in steps: `first`, then from each time on, such as ("1 minute", 1_000)."""
    knots, last = [(0.0, float(first))], float(first)
    for when, rows in later:
        time = _seconds(when, "time of a step")
        knots += [(time, last), (time, float(rows))]
        last = float(rows)
    return Rate(tuple(knots))


def progressive(low: float, high: float, over: Duration) -> Rate:
    """A large increase from `low` to `high`, a plateau, and a decrease (DABS-Storm, Fig. 11a)."""
    seconds = _seconds(over, "over")
    return Rate(
        tuple((share * seconds, low + height * (high - low)) for share, height in _PROGRESSIVE)
    )


def erratic(low: float, high: float, over: Duration, *, seed: int | None = None) -> Rate:
    """Sudden peaks between `low` and `high`, the last of them long (DABS-Storm, Fig. 11b).

    With a seed, there are six peaks with random times, lengths and heights.
    """
    seconds = _seconds(over, "over")
    base = float(low)
    knots = [(0.0, base)]
    for share, length, height in _ERRATIC if seed is None else _drawn_peaks(seed):
        start, end, peak = (
            share * seconds,
            (share + length) * seconds,
            base + height * (high - base),
        )
        knots += [(start, base), (start, peak), (end, peak), (end, base)]
    return Rate(tuple(knots))


def sine(mean: float, amplitude: float, period: Duration) -> Rate:
    """A sine wave around a mean, in rows per second."""
    return Rate(((0.0, float(mean)),), ((float(amplitude), _seconds(period, "period")),))


def _drawn_peaks(seed: int) -> list[tuple[float, float, float]]:
    """Start, length and height of one peak in each sixth of the time, as parts of the whole.

    A length is a fiftieth to a tenth of the time.
    """
    numbers = np.arange(6, dtype=np.int64)
    when, length, height = (shares(seed, salt, numbers) for salt in (101, 102, 103))
    lengths = 0.02 + 0.08 * length
    starts = numbers / 6 + when * (1 / 6 - lengths)
    return list(zip(starts.tolist(), lengths.tolist(), (0.3 + 0.7 * height).tolist(), strict=True))


def _seconds(value: Duration, what: str) -> float:
    return duration_us(value, what) / 1e6
