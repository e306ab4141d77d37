"""Values sorted by group, with the number of values in each group.

They are split, filtered, and merged into one value per group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.types import Array


def split(values: Any, lengths: Array) -> Iterator[Any]:
    """The values of each group, from a list or an array."""
    end = 0
    for length in lengths.tolist():
        yield values[end : end + length]
        end += length


def valid(values: pa.Array) -> Array:
    """Which values are not null."""
    array: Array = values.is_valid().to_numpy(zero_copy_only=False)
    return array


def keep_some(values: pa.Array, here: Array, lengths: Array) -> tuple[pa.Array, Array]:
    """Some of the values, and how many of them each group has."""
    if here.all():
        return values, lengths
    group = np.repeat(np.arange(len(lengths)), lengths)
    return values.filter(pa.array(here)), np.bincount(group[here], minlength=len(lengths))


def reduce_groups(pick: Any, values: Array, lengths: Array, into: Array) -> Array:
    """One value per group, by a binary NumPy function. `into` has the values of empty groups."""
    some = lengths > 0
    into[some] = pick.reduceat(values, (np.cumsum(lengths) - lengths)[some])
    return into


def merge_groups(
    merge: Callable[[Sequence[Array], Array, Sequence[Array]], None],
    columns: Sequence[Array],
    lengths: Array,
    into: Sequence[Array],
) -> Sequence[Array]:
    """Merges the partials of each group into one.

    In each round, every second partial of a group is merged into the one before it. That halves the
    groups, so all rounds together merge no more partials than there are. `into` has the values of
    empty groups.
    """
    starts = np.cumsum(lengths) - lengths
    columns = [np.array(column) for column in columns]
    left = np.arange(len(columns[0]))
    rank = left - np.repeat(starts, lengths)
    while (several := (rank > 0) | np.append(rank[1:] > 0, False)).any():
        left, rank = left[several], rank[several]
        odd = rank & 1 == 1
        at, before = left[odd], left[:-1][odd[1:]]
        merge(columns, before, [column[at] for column in columns])
        left, rank = left[~odd], rank[~odd] >> 1
    some = lengths > 0
    for target, column in zip(into, columns, strict=True):
        target[some] = column[starts[some]]
    return into
