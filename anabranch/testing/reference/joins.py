"""Joins computed a second time, by DuckDB: each row is paired with its windows, then SQL joins.

Nothing here comes from the engine. Lateness is decided per window: a row counts in the windows that
were open at the watermark of the step before its own. Watermarks are arguments, because that of a
join is the minimum over several sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from anabranch.testing.reference.database import connect, quote
from anabranch.testing.reference.windows import Calendar, Window, meets

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinQuery:
    """What to join: the same things that a topology says, as plain values.

    Times are timestamps, or microseconds.
    """

    keys: Sequence[str]
    left_time: str
    right_time: str
    windows: Sequence[Window | Calendar]
    how: Literal["inner", "left", "right", "full"] = "inner"


def expected_join(
    left_steps: Sequence[pa.Table],
    right_steps: Sequence[pa.Table],
    query: JoinQuery,
    watermarks: Sequence[int | None],
    *,
    finish: bool = False,
) -> pa.Table:
    """Every result row of the steps: keys, the window, other columns of left and right.

    Each step has one table per side and one watermark. Windows that end at or before the last
    watermark have closed; with `finish`, all have.
    """
    if not len(left_steps) == len(right_steps) == len(watermarks) or not watermarks:
        raise ValueError(
            f"{len(left_steps)} steps left, {len(right_steps)} right, "
            f"{len(watermarks)} watermarks: must be equal, and at least 1"
        )
    known = [each for each in watermarks if each is not None]
    if any(later < earlier for earlier, later in pairwise(known)):
        raise ValueError(f"watermarks must not go back: {list(watermarks)}")
    final = 2**62 if finish else known[-1] if known else None
    with connect() as db:
        _load(db, "l", _judged(left_steps, watermarks), query.left_time, query.keys)
        _load(db, "r", _judged(right_steps, watermarks), query.right_time, query.keys)
        return pa.concat_tables([_joined(db, window, query, final) for window in query.windows])


def _judged(steps: Sequence[pa.Table], watermarks: Sequence[int | None]) -> pa.Table:
    """The rows of all steps with __closed, the watermark of the step before."""
    before = (None, *watermarks[:-1])
    return pa.concat_tables(
        [
            table.append_column("__closed", pa.array([closed] * table.num_rows, pa.int64()))
            for table, closed in zip(steps, before, strict=True)
        ]
    )


def _load(
    db: duckdb.DuckDBPyConnection, side: str, rows: pa.Table, time: str, keys: Sequence[str]
) -> None:
    """The table of a side: rows that have a time, with __at (microseconds). -0.0 is 0.0."""
    db.register(f"arrived_{side}", rows)
    types = {name: str(kind) for name, kind, *_ in db.sql(f"DESCRIBE arrived_{side}").fetchall()}
    at = quote(time) if types[time] == "BIGINT" else f"epoch_us({quote(time)})"
    floats = [quote(key) for key in keys if types[key] in {"FLOAT", "DOUBLE"}]
    zeros = ", ".join(f"CASE WHEN {key} = 0 THEN 0 ELSE {key} END AS {key}" for key in floats)
    db.execute(f"""
        CREATE TEMP TABLE {side} AS SELECT * {f"REPLACE ({zeros})" if zeros else ""}, {at} AS __at
        FROM arrived_{side} WHERE __at IS NOT NULL
    """)


def _joined(
    db: duckdb.DuckDBPyConnection, window: Window | Calendar, query: JoinQuery, final: int | None
) -> pa.Table:
    """The results of one window definition."""
    label = window[0].replace("'", "''")
    keys = [quote(key) for key in query.keys]
    equal = " AND ".join(f"l.{key} = r.{key}" for key in keys)
    chosen = [
        *(f"COALESCE(l.{key}, r.{key}) AS {key}" for key in keys),
        "COALESCE(l.__start, r.__start) AS window_start",
        "COALESCE(l.__end, r.__end) AS window_end",
        f"'{label}' AS window_name",
        *(f"{side}.{quote(column)}" for side in "lr" for column in _payload(db, side, query.keys)),
    ]
    return db.sql(f"""
        WITH l AS ({in_windows("l", window, final)}), r AS ({in_windows("r", window, final)})
        SELECT {", ".join(chosen)} FROM l {query.how} JOIN r ON l.__start = r.__start AND {equal}
    """).to_arrow_table()


def _payload(db: duckdb.DuckDBPyConnection, side: str, keys: Sequence[str]) -> list[str]:
    columns = [str(name) for name, *_ in db.sql(f"DESCRIBE {side}").fetchall()]
    return [name for name in columns if name not in keys and not name.startswith("__")]


def in_windows(side: str, window: Window | Calendar, final: int | None) -> str:
    """SQL: the rows of a side, once for each window that takes them and has closed at the end."""
    return f"""
        SELECT * FROM ({meets(side, window)})
        WHERE (__closed IS NULL OR __end > __closed)
          AND __end <= {"NULL" if final is None else final}
    """
