"""Rows for a `process` that reads aggregates: one per key and step, combined in the JVM or here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.aggregates.lift_rows import lift_rows
from anabranch.plan.operators.base import EVERYTHING
from anabranch.plan.operators.process import ProcessPlan
from anabranch.runtime.process.ordered import NO_TIME_US, Incoming, is_marked, key_codes
from anabranch.state.memory.keyed import merged_parts
from anabranch.types import Array


def merged_rows(
    plan: ProcessPlan, keys: pa.Table, shards: Array, columns: Sequence[Array], part: Array
) -> Incoming:
    """One row per key, merged from the partials of all source partitions.

    Rows that are left out have a mark instead of a time. They are combined to a row of their own.
    """
    code, newest = key_codes(keys), columns[-1]
    marked = is_marked(newest)
    if marked.any():
        mark = np.where(marked, newest - NO_TIME_US, 0)
        code = np.unique(code.astype(np.int64) * (mark.max() + 1) + mark, return_inverse=True)[1]
    first = _first(code)
    return _seen(plan, keys, shards, first, merged_parts(plan, code, len(first), part, columns))


def lifted_rows(
    plan: ProcessPlan, keys: pa.Table, shards: Array, inputs: Sequence[pa.Array | None], t: Array
) -> Incoming:
    """One row per key, from rows that are not combined yet. An input that is None is a constant."""
    code = key_codes(keys)
    first = _first(code)
    constant = pa.array(np.ones(len(code), dtype=np.int32))
    given = [constant if each is None else each for each in inputs]
    return _seen(plan, keys, shards, first, lift_rows(plan.kept, given, t, code, len(first)))


def _first(code: Array) -> Array:
    """The index of one row of each key."""
    found = np.empty(int(code.max(initial=-1)) + 1, dtype=np.int64)
    found[code] = np.arange(len(code))
    return found


def _seen(
    plan: ProcessPlan, keys: pa.Table, shards: Array, first: Array, columns: Sequence[Array]
) -> Incoming:
    """Rows with the columns that the user's class gets. Their time is that of the newest row."""
    mine = keys.take(pa.array(first))
    named = [(each.name, mine.column(i)) for i, each in enumerate(plan.keys) if each != EVERYTHING]
    named += [
        (each.named.name, made)
        for each, made in zip(plan.results, plan.finished(columns), strict=True)
    ]
    seen = pa.table([column for _, column in named], names=[name for name, _ in named])
    return Incoming(
        mine, seen, np.maximum(columns[-1], NO_TIME_US), shards[first], None, columns[0]
    )
