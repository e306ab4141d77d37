"""Results of a chain of operators by DuckDB: each operator's from the results that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.testing.reference.aggregates import Aggregate
from anabranch.testing.reference.windows import (
    FinalWatermark,
    Window,
    WindowQuery,
    expected_results,
)

ROWS = "rows"
HAPPENED = "__happened_us"  # the column of the time at which results happened


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOperator:
    """One operator: what it reads (`rows`, or another operator's name), and what it makes of it."""

    name: str
    reads: str = ROWS
    where: str | None = None  # an SQL condition, as a map before the operator has it
    keys: Sequence[str]
    windows: Sequence[Window]
    aggregates: Sequence[Aggregate]


def expected_of(
    steps: Sequence[pa.Table | None],
    stages: Sequence[ChainOperator],
    event_time: str,
    delay_us: int,
    final: FinalWatermark = "closing",
) -> dict[str, pa.Table]:
    """The results of every stage.

    A result that another stage reads happened just before its window ended, and is never late.
    """
    found: dict[str, pa.Table] = {}
    until = closed_until(steps, event_time, delay_us, final)
    for stage in stages:
        time, rows = (
            (event_time, list(steps))
            if stage.reads == ROWS
            else (HAPPENED, [as_rows(found[stage.reads])])
        )
        query = WindowQuery(
            keys=stage.keys,
            event_time=time,
            windows=stage.windows,
            aggregates=stage.aggregates,
            delay_us=delay_us,
            where=stage.where,
        )
        found[stage.name] = expected_results(rows, query, final_watermark=until)
    return found


def closed_until(
    steps: Sequence[pa.Table | None], event_time: str, delay_us: int, final: FinalWatermark
) -> int:
    """The watermark at the end, which all stages share."""
    if final == "finish" or isinstance(final, int):
        return final if isinstance(final, int) else 1 << 62
    newest = latest(steps, event_time)
    return -(1 << 62) if newest is None else newest - delay_us


def latest(steps: Sequence[pa.Table | None], event_time: str) -> int | None:
    """The newest event time of some steps, in microseconds; None where there is none."""
    given = [pc.max(each[event_time].cast(pa.int64())).as_py() for each in steps if each]
    return max((int(us) for us in given if us is not None), default=None)


def as_rows(results: pa.Table) -> pa.Table:
    """Results as rows of the next stage, with the time at which they happened."""
    return results.append_column(HAPPENED, pc.subtract(results["window_end"], 1))
