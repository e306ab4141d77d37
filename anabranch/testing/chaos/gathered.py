"""Sketches, users' aggregates, lists and early results for chaos runs; and what they must give.

Exact aggregates must be equal; early results must be those of the rows up to their step. Sketches
are compared with the values of their window, by their stated error. A sketch of quantiles is
random, so two runs may differ.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.aggregates import functions as made
from anabranch.aggregates.custom import udaf
from anabranch.spark.api.streams import Stream, Windowed
from anabranch.testing.compare import bag_differences, differences
from anabranch.testing.reference.aggregates import Aggregate
from anabranch.testing.reference.windows import (
    FinalWatermark,
    WindowQuery,
    expected_results,
)
from anabranch.topology.windows import session, sliding, tumbling
from anabranch.types import Array

_WINDOWS = (tumbling("2 minutes"), sliding("3 minutes", every="1 minute"))
_SESSION = session("30 seconds")
_LG_K, _K, _KEEP, _SHARES = 8, 32, 12, (0.1, 0.5, 0.9)
_ERRORS = 5  # a sketch may be off by so many stated errors; half are off by less than one
_SKETCHES = ("about", "shares", "often")


class DistinctInPython:
    """How many distinct values there are, in plain Python."""

    state_type = set[int]
    result_type = "bigint"

    def init(self) -> set[int]:
        return set()

    def add(self, state: set[int], value: int) -> set[int]:
        state.add(value)
        return state

    def merge(self, left: set[int], right: set[int]) -> set[int]:
        return left | right

    def finish(self, state: set[int]) -> int:
        return len(state)


class Mean:
    """The mean of the values, with arrays; null without values."""

    state_types = ("double", "bigint")
    identities = (0.0, 0)
    result_type = "double"

    def lift(self, group: Array, size: int, value: Array) -> tuple[Array, Array]:
        return np.bincount(group, value, size), np.bincount(group, minlength=size)

    def merge(self, into: Sequence[Array], at: Any, lifted: Sequence[Array]) -> None:
        for column, values in zip(into, lifted, strict=True):
            column[at] += values

    def finish(self, total: Array, count: Array) -> pa.Array:
        return pa.array(total / np.maximum(count, 1), mask=count == 0)


_EXACT: tuple[Aggregate, ...] = (
    ("rows", "count", "*"),
    ("distinct", "count_distinct", "v % 50"),
    ("mean", "avg", "x"),
    ("total", "sum", "x"),
    ("listed", "collect_list", "v", None, {"limit": 5}),
    ("best", "max_by", "s", None, {"by": "v"}),
    ("most", "top_k", "s", None, {"k": 3}),
)
_VALUES: Aggregate = ("values", "collect_list", "v", None, {"limit": 1_000_000})


def gathered(rows: Stream, keys: Sequence[str]) -> Windowed:
    """The operator: early results after every step."""
    return rows.aggregate(
        by=list(keys),
        windows=[*_WINDOWS, _SESSION],
        early=1,
        name="gathered",
        rows=made.count(),
        distinct=udaf(DistinctInPython)("v % 50"),
        mean=udaf(Mean)("x"),
        total=made.sum("x"),
        listed=made.collect_list("v", 5),
        best=made.max_by("s", "v"),
        most=made.top_k("s", 3),
        about=made.approx_count_distinct("v", _LG_K),
        shares=made.quantile("v", _SHARES, _K),
        often=made.top_k("v % 100", 4, _KEEP),
    )


def gathered_differences(
    disturbed: pa.Table,
    undisturbed: pa.Table,
    steps: Sequence[pa.Table | None],
    keys: Sequence[str],
    delay_us: int,
    *,
    finish: bool,
) -> list[str]:
    """Differences from the undisturbed run and from DuckDB, and sketches that are too far off."""
    query = WindowQuery(
        keys=keys,
        event_time="at",
        windows=[(each.name, each.length_us, each.every_us, each.offset_us) for each in _WINDOWS],
        sessions=[(_SESSION.name, _SESSION.gap_us)],
        aggregates=_EXACT,
        delay_us=delay_us,
    )
    final: FinalWatermark = "finish" if finish else "closing"
    with_values = replace(query, aggregates=(*_EXACT, _VALUES))
    wanted = expected_results(steps, with_values, final_watermark=final)
    identity = [*keys, "window_start", "window_end", "window_name"]
    whole, early = _parted(disturbed)
    other_whole, other_early = _parted(undisturbed)
    names = [name for name in whole.column_names if name not in _SKETCHES]
    exact, exact_early = _chosen(whole, names), _chosen(early, names)
    compared = {
        "undisturbed": differences(exact, _chosen(other_whole, names), identity),
        "DuckDB": differences(exact, wanted.drop_columns(["values"]), identity),
        "early, undisturbed": bag_differences(exact_early, _chosen(other_early, names)),
        "early, DuckDB": bag_differences(exact_early, _expected_early(steps, query, names)),
    }
    found = [f"{name}: {text}" for name, texts in compared.items() for text in texts]
    return found or [f"sketches: {text}" for text in sketch_errors(whole, wanted, identity)]


def _parted(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Final and early results."""
    if not table.num_columns:
        return table, table
    marked = table["early"]
    return tuple(
        table.filter(which).drop_columns(["early"]) for which in (pc.invert(marked), marked)
    )


def _chosen(table: pa.Table, names: Sequence[str]) -> pa.Table:
    return table.select(names) if table.num_columns else table


def _expected_early(
    steps: Sequence[pa.Table | None], query: WindowQuery, names: Sequence[str]
) -> pa.Table:
    """The windows that are open after each step, as computed from all rows up to it."""
    made_early: list[pa.Table] = []
    newest: int | None = None
    for number, step in enumerate(steps, start=1):
        so_far = expected_results(steps[:number], query, final_watermark="finish")
        closed = -(1 << 62) if newest is None else newest - query.delay_us
        made_early.append(so_far.filter(pc.greater(so_far["window_end"], closed)))
        seen = None if step is None else pc.max(step["at"]).cast(pa.int64()).as_py()
        newest = max((us for us in (newest, seen) if us is not None), default=None)
    return pa.concat_tables(made_early).select(names) if names else pa.concat_tables(made_early)


# Sketches ---------------------------------------------------------------------------------------


def sketch_errors(found: pa.Table, wanted: pa.Table, identity: Sequence[str]) -> list[str]:
    """Sketches that are further off than they may be, and kinds of them that are off too often."""
    values = {
        _name(row, identity): row["values"]
        for row in wanted.select([*identity, "values"]).to_pylist()
    }
    off: dict[str, list[float]] = {name: [] for name in _SKETCHES}
    errors_found = []
    for row in found.select([*identity, *_SKETCHES]).to_pylist() if found.num_columns else []:
        name = _name(row, identity)
        for kind, errors in _errors(row, sorted(values[name])):
            off[kind].append(errors)
            if errors > _ERRORS:
                errors_found.append(
                    f"{kind} of {name} is {row[kind]}, {errors:.1f} times its stated error off"
                )
    for kind, errors_of in off.items():
        if errors_of and sum(each > 1 for each in errors_of) > len(errors_of) / 2:
            errors_found.append(f"more than half of {kind} are further off than their stated error")
    return errors_found


def _name(row: Mapping[str, Any], identity: Sequence[str]) -> tuple[str, ...]:
    """What identifies a row: as text, since a key may be NaN; -0.0 is 0.0."""
    return tuple(
        str(0.0 if row[each] == 0.0 and isinstance(row[each], float) else row[each])
        for each in identity
    )


def _errors(row: Mapping[str, Any], values: Sequence[int]) -> Iterator[tuple[str, float]]:
    """How far each sketch of a result is off, in units of its stated error."""
    distinct = len(set(values))
    yield "about", abs(row["about"] - distinct) / max(distinct, 1) / (1.04 / math.sqrt(2**_LG_K))
    stated = ds.kll_doubles_sketch.get_normalized_rank_error(_K, False)
    for share, value in zip(_SHARES, row["shares"] or [None] * len(_SHARES), strict=True):
        if value is None:
            yield "shares", math.inf if values else 0.0
            continue
        below, up_to = (
            bisect_left(values, value) / len(values),
            bisect_right(values, value) / len(values),
        )
        yield (
            "shares",
            (0.0 if len(values) > _K or below < share + 1e-9 <= up_to + 2e-9 else math.inf),
        )
        yield "shares", max(0.0, below - share, share - up_to) / stated
    counts = Counter(math.fmod(value, 100) for value in values)
    worst = 2 * len(values) / _KEEP if len(counts) > _KEEP else 0.0
    for each in row["often"]:
        short = counts[each["value"]] - each["count"]
        yield "often", 0.0 if short == 0 else math.inf if short < 0 or not worst else short / worst
