"""Keys of rows over time: Zipf distributed, permuted from time to time, with a moving hot spot.

Elasticutor 5.1: the frequencies of 10,000 keys follow a Zipf distribution with a skew of 0.5, and a
random permutation is applied to them omega times per minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from anabranch.errors import TopologyError
from anabranch.topology.durations import Duration, duration_us
from anabranch.workloads.draws import Floats, Integers, shares, words

_RANK, _HOT, _SPOT, _PLACE, _ORDER = (
    1,
    2,
    3,
    4,
    1_000,
)  # salts; the last one and all above it are for permutations
MOST_KEYS = 100_000_000


@dataclass(frozen=True)
class Keys:
    """How keys 0 to count - 1 are drawn. At first, key 0 is the most frequent.

    Use `uniform`, `zipf` or `hot_spot` to make one.
    """

    count: int
    skew: float = 0.0
    """Exponent of the Zipf distribution; 0 is uniform."""
    omega: float = 0.0
    """Permutations per minute."""
    hot_share: float = 0.0
    """The part of the rows that goes to the hot spot, from 0 to 1."""
    hot_width: int = 1
    """The number of adjacent keys in the hot spot."""
    hot_every_s: float = 60.0
    """Seconds after which the hot spot moves."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_KEYS:
            raise TopologyError(f"{self.count} keys; valid: 1 to {MOST_KEYS}")
        if not self.skew >= 0 or not self.omega >= 0:
            raise TopologyError(
                f"skew is {self.skew} and omega {self.omega}; both must be 0 or more"
            )
        if not 0 <= self.hot_share <= 1:
            raise TopologyError(f"the hot spot's share is {self.hot_share}; valid: 0 to 1")
        if not 1 <= self.hot_width <= self.count:
            raise TopologyError(
                f"the hot spot is {self.hot_width} keys wide; valid: 1 to {self.count}"
            )
        if not self.hot_every_s > 0:
            raise TopologyError(
                f"the hot spot moves every {self.hot_every_s} seconds; it must be longer than 0"
            )

    def drawn(self, seed: int, numbers: Integers, seconds: Floats) -> Integers:
        """The keys of rows, from their numbers and times."""
        ranks = np.searchsorted(
            _cumulated(self.count, self.skew), shares(seed, _RANK, numbers), side="right"
        )
        keys = np.minimum(ranks, self.count - 1).astype(np.int64)
        if self.omega:
            epochs = self.epoch(seconds)
            for epoch in np.unique(epochs).tolist():
                there = epochs == epoch
                keys[there] = permutation(self.count, seed, epoch)[keys[there]]
        if self.hot_share:
            hot = np.flatnonzero(shares(seed, _HOT, numbers) < self.hot_share)
            beside = (shares(seed, _SPOT, numbers[hot]) * self.hot_width).astype(np.int64)
            keys[hot] = (self.hot_place(seed, seconds[hot]) + beside) % self.count
        return keys

    def epoch(self, seconds: Floats | float) -> Integers:
        """The number of permutations before these times."""
        return np.floor(np.asarray(seconds, dtype=np.float64) * self.omega / 60).astype(np.int64)

    def hot_place(self, seed: int, seconds: Floats | float) -> Integers:
        """The first key of the hot spot at these times."""
        moves = np.floor(np.asarray(seconds, dtype=np.float64) / self.hot_every_s).astype(np.int64)
        return (words(seed, _PLACE, moves) % np.uint64(self.count)).astype(np.int64)

    def shares_at(self, seed: int, second: float) -> Floats:
        """The probability of each key at a time."""
        found = np.empty(self.count)
        found[permutation(self.count, seed, int(self.epoch(second)))] = _weights(
            self.count, self.skew
        )
        if self.hot_share:
            found *= 1 - self.hot_share
            spot = (int(self.hot_place(seed, second)) + np.arange(self.hot_width)) % self.count
            found[spot] += self.hot_share / self.hot_width
        return found


def uniform(count: int) -> Keys:
    """`count` keys, all equally frequent."""
    return Keys(count)


def zipf(count: int, skew: float = 0.5, *, omega: float = 0.0) -> Keys:
    """`count` keys with Zipf frequencies: the r-th most frequent has a weight of r ** -skew.

    `omega` times per minute, keys are permuted at random (Elasticutor 5.1).
    """
    return Keys(count, skew, omega)


def hot_spot(
    count: int,
    share: float,
    *,
    width: int = 1,
    every: Duration = "1 minute",
    skew: float = 0.0,
    omega: float = 0.0,
) -> Keys:
    """A part of the rows, `share`, goes to `width` adjacent keys, which change `every` so often.

    The other rows have keys as in `zipf`.
    """
    return Keys(count, skew, omega, share, width, duration_us(every, "every") / 1e6)


@lru_cache(maxsize=8)
def permutation(count: int, seed: int, epoch: int) -> Integers:
    """The key of each rank after `epoch` permutations. At first, each rank is its own key."""
    ranks = np.arange(count, dtype=np.int64)
    return np.argsort(words(seed, _ORDER + epoch, ranks)) if epoch else ranks


@lru_cache(maxsize=8)
def _weights(count: int, skew: float) -> Floats:
    weights: Floats = np.arange(1, count + 1, dtype=np.float64) ** -skew
    weights /= weights.sum()
    return weights


@lru_cache(maxsize=8)
def _cumulated(count: int, skew: float) -> Floats:
    return np.cumsum(_weights(count, skew))
