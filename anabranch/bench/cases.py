"""The windows that a benchmark computes: the standard cases, and the one of `--windows`.

Every side of a benchmark (Anabranch, native Spark, Polars, DuckDB and the reference) is built from
these values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.errors import TopologyError, unknown
from anabranch.topology import Window, sliding, tumbling
from anabranch.topology.windows import parse_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCase:
    """Windows that are computed together, all aligned to the epoch."""

    name: str
    windows: tuple[Window, ...]
    summary: str = ""
    keys: int | None = None  # for a case with other data than usual
    rows_per_minute: int | None = None

    @property
    def longest_us(self) -> int:
        return max(window.length_us for window in self.windows)

    @property
    def pane_us(self) -> int:
        """The longest interval that every window of the case is a union of."""
        return math.gcd(
            *(size for window in self.windows for size in (window.length_us, window.every_us))
        )

    @property
    def copies(self) -> int:
        """How many windows a row falls into: Structured Streaming makes as many copies of it."""
        return sum(copies(window) for window in self.windows)

    @property
    def text(self) -> str:
        return self.summary or ", ".join(window.name for window in self.windows)


def copies(window: Window) -> int:
    """How many windows a row falls into at most."""
    return math.ceil(window.length_us / window.every_us)


def _every_minute(*minutes: int) -> tuple[Window, ...]:
    return tuple(sliding(f"{length} minutes", every="1 minute") for length in minutes)


CASES: dict[str, WindowCase] = {
    "A": WindowCase(name="A", windows=(tumbling("1 minute"),)),
    "B": WindowCase(name="B", windows=_every_minute(10)),
    "C": WindowCase(name="C", windows=_every_minute(5, 10, 15, 20, 30, 60)),
    "many": WindowCase(
        name="many",
        windows=tuple(tumbling(f"{length} minutes") for length in range(1, 81)),
        summary="80 tumbling windows of 1 to 80 minutes",
    ),
    "long": WindowCase(
        name="long",
        windows=(sliding("6 hours", every="10 seconds"),),
        summary="6 hours every 10 seconds, 2,000 keys, 5 million rows in 12 hours",
        keys=2_000,
        rows_per_minute=6_945,
    ),
}


def choose_cases(names: str, windows: str | None) -> tuple[WindowCase, ...]:
    """The standard cases of `--case A,B`; with `--windows`, the one case 'custom'."""
    if windows is not None:
        return (WindowCase(name="custom", windows=parse_windows(windows)),)
    known = {name.lower(): case for name, case in CASES.items()}
    wanted = dict.fromkeys(name.strip().lower() for name in names.split(",") if name.strip())
    for name in wanted or [names]:
        if name not in known:
            raise TopologyError(unknown("--case", name, CASES))
    return tuple(known[name] for name in wanted)
