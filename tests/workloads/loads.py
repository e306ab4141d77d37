"""Rates by name, and workloads with them."""

from __future__ import annotations

from anabranch.workloads import (
    Keys,
    Rate,
    Workload,
    constant,
    erratic,
    progressive,
    sine,
    stepped,
    zipf,
)

RATES = {
    "constant": constant(37.5),
    "stepped": stepped(10, ("20 seconds", 200), ("40500 ms", 0), ("90 seconds", 55)),
    "progressive": progressive(10, 500, "2 minutes"),
    "erratic": erratic(10, 500, "2 minutes"),
    "drawn": erratic(10, 500, "2 minutes", seed=5),
    "sine": sine(100, 80, "17 seconds"),
    "sum": 0.5
    * (
        progressive(10, 500, "2 minutes") + stepped(3, ("1 minute", 40)) + sine(50, 50, "7 seconds")
    ),
}


def load(
    rate: Rate = RATES["sum"], keys: Keys | None = None, lasting: str = "2 minutes", **more: int
) -> Workload:
    return Workload(rate=rate, keys=keys or zipf(100), lasting=lasting, **more)
