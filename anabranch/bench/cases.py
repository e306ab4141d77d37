"""The windows that a benchmark computes: three standard cases, and the one that `--windows` describes.

Every side of a benchmark (Anabranch, native Spark, Polars, DuckDB and the reference) is built from these values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.errors import TopologyError, unknown
from anabranch.topology import Window, sliding, tumbling
from anabranch.topology.windows import parse_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Windows that are computed together, all aligned to the epoch."""

    name: str
    windows: tuple[Window, ...]

    @property
    def longest_us(self) -> int:
        return max(window.length_us for window in self.windows)

    @property
    def pane_us(self) -> int:
        """The longest interval that every window of the case is a union of."""
        return math.gcd(*(size for window in self.windows for size in (window.length_us, window.every_us)))

    @property
    def copies(self) -> int:
        """How many windows a row falls into: what plain Structured Streaming multiplies each row by."""
        return sum(copies(window) for window in self.windows)

    @property
    def text(self) -> str:
        return ", ".join(window.name for window in self.windows)


def copies(window: Window) -> int:
    """How many windows a row falls into at most."""
    return math.ceil(window.length_us / window.every_us)


def _every_minute(*minutes: int) -> tuple[Window, ...]:
    return tuple(sliding(f"{length} minutes", every="1 minute") for length in minutes)


CASES: dict[str, Case] = {
    "A": Case(name="A", windows=(tumbling("1 minute"),)),
    "B": Case(name="B", windows=_every_minute(10)),
    "C": Case(name="C", windows=_every_minute(5, 10, 15, 20, 30, 60)),
}


def choose_cases(names: str, windows: str | None) -> tuple[Case, ...]:
    """The standard cases of `--case A,B`, or the one case 'custom' where `--windows` is given."""
    if windows is not None:
        return (Case(name="custom", windows=parse_windows(windows)),)
    wanted = dict.fromkeys(name.strip().upper() for name in names.split(",") if name.strip())
    for name in wanted or [names]:
        if name not in CASES:
            raise TopologyError(unknown("--case", name, CASES))
    return tuple(CASES[name] for name in wanted)
