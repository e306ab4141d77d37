"""Window results computed a second time, by DuckDB, to check the engine against.

Nothing here comes from the engine: the arithmetic of windows, watermarks and lateness is written
again, in SQL over the raw rows, without panes, partials or shards. Each row is paired with each of
its windows; a plain `GROUP BY` does the rest. `anabranch.testing.reference.sessions` decides which
session a row is in, step by step.

Two engines that agree by accident would have to make the same mistake twice. What they could share
is the meaning of the aggregates, so the places where DuckDB and Spark differ (sums of integers,
decimal averages, infinities in variances) are written out below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.testing.reference.aggregates import (
    FLOATS,
    Aggregate,
    aggregate_sql,
    argument_sql,
    by_sql,
)
from anabranch.testing.reference.database import connect, quote
from anabranch.testing.reference.sessions import SessionSteps

if TYPE_CHECKING:
    import duckdb

Window: TypeAlias = tuple[str, int, int, int]
"""Name, length, slide and offset; times in microseconds."""

Calendar: TypeAlias = tuple[str, str, str]
"""Name, unit and time zone of calendar windows; the time zones are DuckDB's."""

Session: TypeAlias = tuple[str, int]
"""Name and gap of a session; the gap is in microseconds."""

Steps: TypeAlias = pa.Table | Sequence[pa.Table | None]
"""Rows with a column `step`, from 1; or a table per step, None for a step without input."""

FinalWatermark: TypeAlias = Literal["closing", "finish"] | int
"""What has closed at the end: what one closing step closes, everything, or up to a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowQuery:
    """What to compute: the same things that a topology says, as plain values."""

    keys: Sequence[str]
    event_time: str
    windows: Sequence[Window | Calendar]
    sessions: Sequence[Session] = ()
    aggregates: Sequence[Aggregate] = ()
    delay_us: int = 0
    unit_us: int = 1
    """Microseconds in one unit of a numeric event time."""
    where: str | None = None
    """An SQL condition: only rows that meet it are used. The watermark follows all rows."""
    limit_us: int | None = None
    """Rows with a later event time are ahead of the clock: left out of everything."""


def expected_results(
    steps: Steps, query: WindowQuery, *, final_watermark: FinalWatermark = "closing"
) -> pa.Table:
    """Every result row of the steps: keys, the window, aggregates."""
    with connect() as db:
        _load(db, _with_row_and_step(steps), query)
        arguments = _materialise_arguments(db, query)
        aggregates = [aggregate_sql(db, aggregate, arguments) for aggregate in query.aggregates]
        final = _resolve_final(db, final_watermark, query.delay_us)
        results = [
            _window_results(db, window, query.keys, aggregates, final) for window in query.windows
        ]
        for name, gap_us in query.sessions:
            _assign_by_steps(db, query.keys, gap_us)
            results.append(_session_results(db, name, query.keys, aggregates, final))
    return pa.concat_tables(results)


def sessions_at_once(rows: pa.Table, query: WindowQuery) -> pa.Table:
    """The sessions of a query as if all rows came at once and none were late."""
    with connect() as db:
        _load(db, _with_row_and_step([rows]), query)
        arguments = _materialise_arguments(db, query)
        aggregates = [aggregate_sql(db, aggregate, arguments) for aggregate in query.aggregates]
        results = []
        for name, gap_us in query.sessions:
            _assign_at_once(db, query.keys, gap_us)
            results.append(_session_results(db, name, query.keys, aggregates, 2**62))
    return pa.concat_tables(results)


def expected_late(steps: Steps, query: WindowQuery) -> pa.Table:
    """The rows that no window and no session takes, in the order they came, with the reason."""
    rows = _with_row_and_step(steps)
    with connect() as db:
        _load(db, rows, query)
        latest_end = [_last_end(window) for window in query.windows]
        latest_end += [f"__at + {gap_us}" for _, gap_us in query.sessions]
        contained = " OR ".join(f"{end} > __at" for end in latest_end)
        taken = " OR ".join(
            f"({end} > __at AND (__closed IS NULL OR {end} > __closed))" for end in latest_end
        )
        late = db.sql(f"""
            SELECT __row, CASE WHEN __ahead THEN 'ahead'
                               WHEN __at IS NULL THEN 'no event time'
                               WHEN NOT ({contained}) THEN 'outside'
                               WHEN NOT ({taken}) THEN 'late' END AS reason
            FROM timed WHERE reason IS NOT NULL ORDER BY __row
        """).to_arrow_table()
    kept = rows.drop_columns(["__row", "__step"])
    return kept.take(late["__row"]).append_column("reason", late["reason"].cast(pa.string()))


def _with_row_and_step(steps: Steps) -> pa.Table:
    """One table of all rows, with their number and their step."""
    if isinstance(steps, pa.Table):
        column = steps["step"]
        rows = steps.drop_columns(["step"])
    else:
        tables = [
            (number, table) for number, table in enumerate(steps, start=1) if table is not None
        ]
        if not tables:
            raise ValueError(
                "no step has a table: at least an empty one is needed, for its columns"
            )
        rows = pa.concat_tables([table for _, table in tables])
        column = pa.array(
            np.concatenate([np.full(table.num_rows, number) for number, table in tables])
        )
    numbered = rows.append_column("__row", pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    return numbered.append_column("__step", pc.cast(column, pa.int64()))


def _load(db: duckdb.DuckDBPyConnection, rows: pa.Table, query: WindowQuery) -> None:
    """The view `timed`: rows with __at (microseconds) and __closed (their watermark)."""
    db.register("arrived", rows)
    time_us = _time_sql(
        rows.schema.field(query.event_time).type, quote(query.event_time), query.unit_us
    )
    ahead = "FALSE" if query.limit_us is None else f"coalesce({time_us} > {query.limit_us}, FALSE)"
    db.execute(f"""
        CREATE TEMP VIEW stamped AS
        SELECT *, {ahead} AS __ahead, CASE WHEN NOT {ahead} THEN {time_us} END AS __at FROM arrived
    """)
    # A row is judged by the watermark of the step before its own, and that one knows only the rows
    # of the steps before it: the latest event time two steps ago. Steps without rows count.
    db.execute(f"""
        CREATE TEMP TABLE judged AS
        SELECT __step, max(max(__at)) OVER earlier - {query.delay_us} AS __closed
        FROM stamped GROUP BY __step
        WINDOW earlier AS (ORDER BY __step RANGE BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)
    """)
    met = "" if query.where is None else f" WHERE {query.where}"
    db.execute(
        "CREATE TEMP VIEW timed AS "
        f"SELECT stamped.*, __closed FROM stamped JOIN judged USING (__step){met}"
    )


def _time_sql(kind: pa.DataType, column: str, unit_us: int) -> str:
    if pa.types.is_integer(kind):
        return f"CAST({column} AS BIGINT) * {unit_us}"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return f"CAST(floor({column} * {unit_us}) AS BIGINT)"
    if pa.types.is_date(kind):
        return f"epoch_us(CAST({column} AS TIMESTAMP))"
    if pa.types.is_timestamp(kind):
        return f"epoch_us({column})"
    raise ValueError(f"event time is {kind}; it must be a number, a timestamp or a date")


def _resolve_final(
    db: duckdb.DuckDBPyConnection, final: FinalWatermark, delay_us: int
) -> int | None:
    """The watermark at the end; None if nothing has closed."""
    if isinstance(final, int):
        return final
    [(latest,)] = db.sql("SELECT max(__at) FROM stamped").fetchall()
    if latest is None:
        return None
    return int(latest) - delay_us if final == "closing" else 2**62


def _last_start(window: Window) -> str:
    """SQL: the start of the latest window that starts at or before __at."""
    _, _, every, offset = window
    return f"__at - (((__at - ({offset})) % {every}) + {every}) % {every}"


def _last_end(window: Window | Calendar) -> str:
    """SQL: the end of that window."""
    if len(window) == 3:
        return _calendar_edge(window, ahead=True)
    return _last_start(window) + f" + {window[1]}"


def _calendar_edge(calendar: Calendar, *, ahead: bool = False) -> str:
    """SQL: when the unit of the calendar that __at is in began, or when it ends."""
    _, unit, zone = calendar
    local = f"date_trunc('{unit}', timezone('{zone}', timezone('UTC', make_timestamp(__at))))"
    months = {"quarter": "3 months"}.get(unit, f"1 {unit}")
    local += f" + INTERVAL {months}" if ahead else ""
    return f"epoch_us(timezone('{zone}', {local}))"


def meets(rows: str, window: Window | Calendar) -> str:
    """SQL: rows with __at, once for each window that they are in, with its __start and __end."""
    if len(window) == 3:
        start, end = _calendar_edge(window), _calendar_edge(window, ahead=True)
        return f"SELECT *, {start} AS __start, {end} AS __end FROM {rows}"
    _, length, every, _ = window
    first = f"__last - {(-(-length // every) - 1) * every}"
    return f"""
        SELECT *, __start + {length} AS __end
        FROM (SELECT *, unnest(range({first}, __last + 1, {every})) AS __start
              FROM (SELECT *, {_last_start(window)} AS __last FROM {rows}))
        WHERE __end > __at
    """


def _window_results(
    db: duckdb.DuckDBPyConnection,
    window: Window | Calendar,
    keys: Sequence[str],
    aggregates: Sequence[str],
    final: int | None,
) -> pa.Table:
    """The results of one window: each row counts in every window that it is in."""
    columns = [quote(key) for key in keys]
    label = window[0].replace("'", "''")
    chosen = [
        *columns,
        "__start AS window_start",
        "__end AS window_end",
        f"'{label}' AS window_name",
    ]
    return db.sql(f"""
        SELECT {", ".join([*chosen, *aggregates])} FROM ({meets("arguments", window)})
        WHERE (__closed IS NULL OR __end > __closed)
          AND __end <= {"NULL" if final is None else final}
        GROUP BY {", ".join([*columns, "__start", "__end"])}
    """).to_arrow_table()


def _session_results(
    db: duckdb.DuckDBPyConnection,
    name: str,
    keys: Sequence[str],
    aggregates: Sequence[str],
    final: int | None,
) -> pa.Table:
    """The results of one session: each row is in the one that the view `assigned` gives."""
    columns = [quote(key) for key in keys]
    label = name.replace("'", "''")
    chosen = [
        *columns,
        "__start AS window_start",
        "__end AS window_end",
        f"'{label}' AS window_name",
    ]
    return db.sql(f"""
        SELECT {", ".join([*chosen, *aggregates])} FROM arguments JOIN assigned USING (__row)
        WHERE __end <= {"NULL" if final is None else final}
        GROUP BY {", ".join([*columns, "__start", "__end"])}
    """).to_arrow_table()


def _assign_by_steps(db: duckdb.DuckDBPyConnection, keys: Sequence[str], gap_us: int) -> None:
    """The view `assigned`: the session of each row that is not late, as the steps form it."""
    key = f"dense_rank() OVER (ORDER BY {', '.join(map(quote, keys))})" if keys else "0"
    arrived = db.sql(
        f"SELECT {key}, __at, __row, __step, __closed FROM arguments ORDER BY __step, __row"
    ).fetchall()
    model = SessionSteps(gap_us)
    found = []
    for (_, closed_us), rows in groupby(arrived, key=lambda row: row[3:]):
        found += model.step((), closed_us)[0]  # close what steps without rows have closed
        model.step([row[:3] for row in rows], closed_us)
    found += model.open()
    pairs = [(number, each.start_us, each.end_us) for each in found for number in each.rows]
    names = ("__row", "__start", "__end")
    assigned = {
        name: pa.array([pair[i] for pair in pairs], pa.int64()) for i, name in enumerate(names)
    }
    db.register("assigned", pa.table(assigned))


def _assign_at_once(db: duckdb.DuckDBPyConnection, keys: Sequence[str], gap_us: int) -> None:
    """The view `assigned`: the session of each row; a longer pause than the gap begins one."""
    by = f"PARTITION BY {', '.join(map(quote, keys))}" if keys else ""
    each = f"PARTITION BY {', '.join([*map(quote, keys), '__session'])}"
    db.execute(f"""
        CREATE OR REPLACE TEMP VIEW assigned AS
        SELECT __row, min(__at) OVER ({each}) AS __start,
               max(__at) OVER ({each}) + {gap_us} AS __end
        FROM (SELECT *, count(*) FILTER (WHERE __new) OVER ({by} ORDER BY __at, __row) AS __session
              FROM (SELECT *, __at - lag(__at) OVER ({by} ORDER BY __at, __row) > {gap_us} AS __new
                    FROM arguments))
    """)


def _materialise_arguments(db: duckdb.DuckDBPyConnection, query: WindowQuery) -> dict[str, str]:
    """The table `arguments`: keys, times and one column per distinct argument.

    Returns the column of each SQL text. A filter becomes part of the argument (null where it does
    not hold), since every aggregate skips nulls.
    """
    arguments: dict[str, str] = {}
    for aggregate in query.aggregates:
        for sql in argument_sql(aggregate), by_sql(aggregate):
            arguments.setdefault(sql, f"__a{len(arguments)}")
    types = {name: str(kind) for name, kind, *_ in db.sql("DESCRIBE timed").fetchall()}
    keys = [f"{_key_sql(key, types[key])} AS {quote(key)}" for key in query.keys]
    values = [f"{sql} AS {column}" for sql, column in arguments.items()]
    chosen = ", ".join([*keys, "__row", "__step", "__at", "__closed", *values])
    db.execute(f"CREATE TEMP TABLE arguments AS SELECT {chosen} FROM timed WHERE __at IS NOT NULL")
    return arguments


def _key_sql(key: str, kind: str) -> str:
    """A key as it appears in results: -0.0 is 0.0 (DuckDB gives whichever came first)."""
    column = quote(key)
    return (
        f"CASE WHEN {column} = 0 THEN CAST(0 AS {kind}) ELSE {column} END"
        if kind in FLOATS
        else column
    )
