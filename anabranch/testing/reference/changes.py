"""Results of windows whose aggregates change at restarts, by DuckDB over all rows.

The rule is written again here, independently of the engine. A result has the aggregates of the run
that closed its window. An aggregate that is new, or has changed, is null in windows that started
before it saw all rows: at or before the newest event time of earlier runs. If all its parts were
kept for other aggregates, such as the count of a sum, it is complete at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.testing.reference.aggregates import Aggregate
from anabranch.testing.reference.chains import closed_until, latest
from anabranch.testing.reference.windows import FinalWatermark, WindowQuery, expected_results

Part: TypeAlias = tuple[str, str, str | None]
"""One part that is kept for an aggregate: its kind, its expression, and its filter."""

_NEVER = -(1 << 62)
_PARTS = {
    "count": ("count",),
    "min": ("least", "count"),
    "max": ("greatest", "count"),
    "bool_or": ("greatest", "count"),
    **dict.fromkeys(("variance", "var_pop", "stddev", "stddev_pop"), ("moments",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The steps between two restarts, and the aggregates that they have."""

    steps: int
    aggregates: Sequence[Aggregate]


def parts_of(aggregate: Aggregate, whole: Collection[str] = ()) -> set[Part]:
    """The parts that are kept for an aggregate; `whole` are the expressions that are whole numbers.

    A sum of whole numbers is a whole number, which an average cannot use.
    """
    kind, expression = aggregate[1], aggregate[2]
    where = aggregate[3] if len(aggregate) > 3 else None
    kinds: tuple[str, ...] = _PARTS.get(kind, (kind,))
    if kind in {"sum", "avg"}:
        kinds = ("count", f"{kind} of whole numbers" if expression in whole else "total")
    return {(each, expression, where) for each in kinds}


def expected_with_changes(
    steps: Sequence[pa.Table | None],
    query: WindowQuery,
    phases: Sequence[Phase],
    *,
    whole: Collection[str] = (),
    final_watermark: FinalWatermark = "closing",
) -> pa.Table:
    """Every window row of several runs over the same checkpoint.

    A column that a run does not have is null in its rows.
    """
    definitions = list(dict.fromkeys(tuple(a[1:]) for each in phases for a in each.aggregates))
    columns = {each: f"__d{i}" for i, each in enumerate(definitions)}
    every = [(columns[each], *each) for each in definitions]
    results = expected_results(
        steps,
        replace(query, aggregates=every),  # type: ignore[arg-type]
        final_watermark=final_watermark,
    )
    found, done, before_us = [], 0, _NEVER
    since: Mapping[Part, int] = {("count", "*", None): _NEVER}
    for number, phase in enumerate(phases):
        newest = latest(steps[:done], query.event_time) if number else None
        since = _continued(since, phase, whole, newest)
        done += phase.steps
        final = final_watermark if number == len(phases) - 1 else "closing"
        until_us = closed_until(steps[:done], query.event_time, query.delay_us, final)
        ends = results["window_end"]
        closed = pc.and_(pc.greater(ends, before_us), pc.less_equal(ends, until_us))
        mine = results.filter(closed)
        kept = mine.drop_columns(list(columns.values()))
        for aggregate in phase.aggregates:
            complete = max(since[part] for part in parts_of(aggregate, whole))
            known = pc.greater_equal(mine["window_start"], complete)
            values = mine[columns[tuple(aggregate[1:])]]
            kept = kept.append_column(
                aggregate[0], pc.if_else(known, values, pa.scalar(None, values.type))
            )
        found.append(kept)
        before_us = max(before_us, until_us)
    return pa.concat_tables(found, promote_options="default")


def _continued(
    since: Mapping[Part, int], phase: Phase, whole: Collection[str], newest_us: int | None
) -> dict[Part, int]:
    """The time from which on each part of a run is complete; parts that it drops are forgotten."""
    begins = _NEVER if newest_us is None else newest_us + 1
    wanted = {part for each in phase.aggregates for part in parts_of(each, whole)}
    return {part: since.get(part, begins) for part in {*wanted, ("count", "*", None)}}
