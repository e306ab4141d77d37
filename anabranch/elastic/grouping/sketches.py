"""Count-Min sketches of how often values come and how long they take (DABS-Storm 5.1).

The sketch is by Cormode and Muthukrishnan.

Values are 64-bit numbers, hashes of whatever decides the cost of a row. Both matrices of a pair
have the same hash functions, so that their quotient, cell by cell, is the mean time of the values
in it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anabranch.elastic.observation import Floats
from anabranch.topology.apply import Osg

__all__ = [
    "Osg",
    "Sketches",
    "Values",
    "add_rows",
    "add_to_cells",
    "cells_of",
    "empty_sketches",
    "frequency",
    "merge_sketches",
    "relative_change",
    "times_of",
    "variation",
]

Values: TypeAlias = npt.NDArray[np.int64]
Cells: TypeAlias = npt.NDArray[np.int64]

_HALF = np.uint64(0xFFFFFFFF)
_BITS = np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class Sketches:
    """The pair of matrices of a task: frequencies (Phi) and cumulated times in seconds (Omega)."""

    frequencies: Floats
    times: Floats

    @property
    def rows(self) -> float:
        """How many rows they have seen."""
        return float(self.frequencies[0].sum())

    @property
    def seconds(self) -> float:
        """The time of all rows that they have seen."""
        return float(self.times[0].sum())

    @property
    def mean_s(self) -> float:
        """The time of a row, on average."""
        return self.seconds / self.rows if self.rows else 0.0

    def ratios(self) -> Floats:
        """The mean time of the values in each cell (a snapshot, Psi); 0 where there is none."""
        seen = self.frequencies > 0
        return np.divide(self.times, self.frequencies, out=np.zeros_like(self.times), where=seen)


def empty_sketches(settings: Osg) -> Sketches:
    """Sketches of no rows."""
    return Sketches(np.zeros(settings.shape), np.zeros(settings.shape))


def cells_of(values: Values, settings: Osg) -> Cells:
    """The column of each value in each row of a matrix, by 2-universal hash functions.

    Thorup's pair-multiply-shift: ((a + low) * (b + high) + c) mod 2^64, of which the upper half is
    scaled to the number of columns.
    """
    rows, columns = settings.shape
    a, b, c = _multipliers(settings.seed, rows)
    given = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    mixed = ((a + (given & _HALF)) * (b + (given >> _BITS)) + c) >> _BITS
    cells: Cells = ((mixed * np.uint64(columns)) >> _BITS).astype(np.int64)
    return cells


def add_rows(sketches: Sketches, values: Values, seconds: Floats, settings: Osg) -> Sketches:
    """The sketches after some more rows, each with its value and the time that it took."""
    return add_to_cells(sketches, cells_of(values, settings), seconds)


def add_to_cells(sketches: Sketches, cells: Cells, seconds: Floats) -> Sketches:
    """The sketches after some more rows, whose cells are known."""
    rows, columns = sketches.frequencies.shape
    places = (cells + np.arange(0, rows * columns, columns)[:, None]).ravel()
    counts = np.bincount(places, minlength=rows * columns).reshape(rows, columns)
    times = np.bincount(places, weights=np.tile(seconds, rows), minlength=rows * columns).reshape(
        rows, columns
    )
    return Sketches(sketches.frequencies + counts, sketches.times + times)


def merge_sketches(many: Iterable[Sketches]) -> Sketches | None:
    """Sketches of all rows that some have seen; None if there are none."""
    found = list(many)
    if not found:
        return None
    return Sketches(
        np.sum([s.frequencies for s in found], axis=0), np.sum([s.times for s in found], axis=0)
    )


def frequency(sketches: Sketches, values: Values, settings: Osg) -> Floats:
    """How often each value came: never less than it did."""
    least: Floats = _at(sketches.frequencies, cells_of(values, settings)).min(axis=0)
    return least


def times_of(sketches: Sketches, values: Values, settings: Osg) -> Floats:
    """The estimated time of a row of each value, from the cell with the fewest rows in it.

    NaN for a value that no cell has seen.
    """
    cells = cells_of(values, settings)
    counts = _at(sketches.frequencies, cells)
    least = counts.argmin(axis=0)[None, :]
    count = np.take_along_axis(counts, least, axis=0)[0]
    time = np.take_along_axis(_at(sketches.times, cells), least, axis=0)[0]
    estimated: Floats = time / np.where(count > 0, count, np.nan)
    return estimated


def relative_change(snapshot: Floats, sketches: Sketches) -> float:
    """The relative error between a snapshot and the sketches now: eta, equation 14."""
    total = float(snapshot.sum())
    differing = float(np.abs(snapshot - sketches.ratios()).sum())
    return differing / total if total > 0 else (0.0 if differing == 0 else math.inf)


def variation(sketches: Sketches) -> float:
    """The coefficient of variation of a row's time by its value: how much the costs differ.

    Values that share a cell level each other out, so the row of the matrix with the largest
    variation is nearest.
    """
    if not sketches.rows or not sketches.mean_s:
        return 0.0
    squares = (sketches.frequencies * (sketches.ratios() - sketches.mean_s) ** 2).sum(
        axis=1
    ) / sketches.rows
    return float(np.sqrt(squares.max())) / sketches.mean_s


def _at(matrix: Floats, cells: Cells) -> Floats:
    return np.take_along_axis(matrix, cells, axis=1)


@functools.lru_cache(maxsize=16)
def _multipliers(seed: int, rows: int) -> tuple[npt.NDArray[np.uint64], ...]:
    """Three 64-bit numbers for each hash function, drawn from the seed (SplitMix64)."""
    drawn, state, mask = [], seed & (2**64 - 1), 2**64 - 1
    for _ in range(3 * rows):
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        drawn.append(mixed ^ (mixed >> 31))
    numbers = np.array(drawn, dtype=np.uint64).reshape(3, rows, 1)
    return numbers[0], numbers[1], numbers[2]
