"""Random draws without state: the n-th is a hash of the seed, n and a salt.

So any row can be made without those before it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def words(seed: int, salt: int, numbers: Integers) -> Words:
    """64 random bits for each number.

    Splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
    """
    start = _mixed_one(_mixed_one(seed & _MASK) ^ (salt * _GOLDEN & _MASK))
    z = np.atleast_1d(numbers).astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(start)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z.reshape(np.shape(numbers))


def shares(seed: int, salt: int, numbers: Integers) -> Floats:
    """A random number in [0, 1) for each number."""
    return (words(seed, salt, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed_one(z: int) -> int:
    z = (z + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
