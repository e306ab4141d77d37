"""The second lift: partials of rows that are already in a slot task, made with Arrow.

The results are those of the lift in Spark SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from anabranch.aggregates.partials import Partial
from anabranch.types import Array


class LiftedPartial(Protocol):
    """A partial, and the number of the input that it is lifted from."""

    @property
    def partial(self) -> Partial: ...

    @property
    def input(self) -> int: ...


def lift_rows(
    kept: Sequence[LiftedPartial], inputs: Sequence[pa.Array], t: Array, group: Array, size: int
) -> tuple[Array, ...]:
    """The columns of all partials, one after another, for groups 0 to size - 1.

    A group without rows gets identities. An input is null in rows for which its condition does not
    hold; input 0 is never null. Times are in microseconds.
    """
    lengths = np.bincount(group, minlength=size)
    if (group[1:] < group[:-1]).any():
        order = np.argsort(
            group.astype(np.uint16) if size <= 1 << 16 else group, kind="stable"
        )  # NumPy sorts 16-bit numbers by radix
        inputs, t = [each.take(pa.array(order)) for each in inputs], t[order]
    return tuple(
        column for each in kept for column in each.partial.of_groups(inputs[each.input], t, lengths)
    )
