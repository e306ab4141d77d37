"""Cores of hosts for components: Elasticutor 4.2, Algorithm 1, and its naive rival (5.4).

A component that has too few cores gets them from those that have too many, or free ones, so that
little state crosses hosts. One whose slots take in and give out much data takes cores of its own
host only; where that is impossible, the bound for "much" is doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

PHI = 512 * 1024.0  # bytes per second and core below which it hardly matters where a core is
Floats = npt.NDArray[np.float64]
Cores = npt.NDArray[np.int64]  # by host and component


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A component as the assignment sees it."""

    wanted: int
    home: int  # the host where it receives and sends its rows
    state_bytes: float = 0.0
    bytes_per_s: float = 0.0  # in and out, for each core


def moved_bytes(before: Cores, after: Cores, holders: Sequence[Holder]) -> float:
    """State that leaves hosts: C(X | X~), with state spread evenly over a component's cores."""
    state = np.array([each.state_bytes for each in holders])
    return float(np.maximum(0.0, state * _shares(before) - state * _shares(after)).sum())


def remote_bytes_per_s(held: Cores, holders: Sequence[Holder]) -> float:
    """Rows that travel between components and their cores on other hosts."""
    return float(
        sum(
            each.bytes_per_s * (held[:, j].sum() - held[each.home, j])
            for j, each in enumerate(holders)
        )
    )


def assign(
    held: Cores, holders: Sequence[Holder], cores: Sequence[int], phi: float = PHI
) -> Cores | None:
    """Cores for all, with little state moved; None where there are too few cores."""
    if sum(each.wanted for each in holders) > sum(cores):
        return None
    while True:
        found = _assign(held, holders, cores, phi)
        if found is not None or not any(each.bytes_per_s >= phi for each in holders):
            return found
        phi *= 2


def _assign(
    held: Cores, holders: Sequence[Holder], cores: Sequence[int], phi: float
) -> Cores | None:
    now = held.copy()
    for j in sorted(_short(now, holders), key=lambda j: -holders[j].bytes_per_s):
        while (has := int(now[:, j].sum())) < holders[j].wanted:
            gained = (
                holders[j].state_bytes * (has - now[:, j]) / max(1, has * (has + 1))
            )  # C+ of the paper
            costs = _offers(now, holders, cores) + gained[:, None]
            if holders[j].bytes_per_s >= phi:
                costs[np.arange(len(cores)) != holders[j].home] = inf
            host, giver = divmod(int(costs.argmin()), costs.shape[1])
            if costs[host, giver] == inf:
                return None
            _take(now, host, giver, j)
    return now


def naive(held: Cores, holders: Sequence[Holder], cores: Sequence[int]) -> Cores | None:
    """Cores for all, the first there are, without regard to state or distance."""
    now = held.copy()
    for j in _short(now, holders):
        while now[:, j].sum() < holders[j].wanted:
            offered = _offers(now, holders, cores) < inf
            if not offered.any():
                return None
            host, giver = divmod(int(offered.argmax()), offered.shape[1])
            _take(now, host, giver, j)
    return now


def _short(now: Cores, holders: Sequence[Holder]) -> list[int]:
    return [j for j, each in enumerate(holders) if now[:, j].sum() < each.wanted]


def _offers(now: Cores, holders: Sequence[Holder], cores: Sequence[int]) -> Floats:
    """What a core costs its giver, by host and giver; infinite where there is none to give.

    The last giver holds the free cores.

    Only components with more cores than they want give any: C- of the paper.
    """
    has = now.sum(axis=0)
    state = np.array([each.state_bytes for each in holders])
    gives = (now > 0) & (has > np.array([each.wanted for each in holders])) & (has > 1)
    costs = np.where(gives, state * (has - now) / np.maximum(1, has * (has - 1)), inf)
    free = np.where(now.sum(axis=1) < np.array(cores), 0.0, inf)
    return np.column_stack([costs, free])


def _take(now: Cores, host: int, giver: int, taker: int) -> None:
    if giver < now.shape[1]:
        now[host, giver] -= 1
    now[host, taker] += 1


def _shares(held: Cores) -> Floats:
    shares: Floats = held / np.maximum(1, held.sum(axis=0))
    return shares
