"""Compares two results completely, row by row.

Floats may differ by 1e-9 of their size, because sums are added in another order. Everything else
must be equal, also lists of floats. Null equals null, NaN equals NaN and -0.0 equals 0.0. Integers
of different width are the same kind of value, and so are decimals of different precision: a
comparison is about values, not about how they are stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.testing.reference.database import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

RELATIVE = 1e-9
ABSOLUTE = 1e-12
SHOWN = 3
"""How many rows of each kind of difference a message shows."""


def read_results(path: str | Path) -> pa.Table:
    """All rows of a directory of parquet files; `window` becomes window_start and window_end.

    Both are in microseconds. Files and directories whose names begin with `_` or `.` are not
    results. Without files: a table without columns.
    """
    root = Path(path)
    files = sorted(
        file for file in root.rglob("*.parquet") if not _is_hidden(file.relative_to(root))
    )
    tables = [flatten_window(pq.ParquetFile(file).read()) for file in files]
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in relative.parts)


def flatten_window(table: pa.Table) -> pa.Table:
    """Replaces the struct `window` with window_start and window_end, in microseconds."""
    position = table.schema.get_field_index("window")
    if position < 0 or not pa.types.is_struct(table.schema.field(position).type):
        return table
    window = table.column(position)
    flat = table.remove_column(position)
    for place, part in enumerate(("start", "end")):
        flat = flat.add_column(
            position + place, f"window_{part}", _microseconds(pc.struct_field(window, part))
        )
    return flat


def records(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries, with times in microseconds."""
    rows: list[dict[str, Any]] = _normalised(table).to_pylist()
    return rows


def differences(left: pa.Table, right: pa.Table, keys: Sequence[str]) -> list[str]:
    """How two tables differ whose rows are identified by `keys`; an empty list: not at all."""
    if not keys:
        raise ValueError("no keys given; for rows without keys use bag_differences")
    left, right = _normalised(left), _normalised(right)
    if (empty := _one_is_nothing(left, right)) is not None:
        return empty
    if schema := _schema_differences(left, right, keys):
        return schema
    with connect() as db:
        db.register("l", left)
        db.register("r", right)
        duplicated = [
            *_duplicates(db, "left", "l", keys),
            *_duplicates(db, "right", "r", keys),
        ]
        return duplicated or _row_differences(db, left, keys)


def bag_differences(left: pa.Table, right: pa.Table) -> list[str]:
    """How two tables differ whose rows may repeat: both must have each row equally often."""
    left, right = _normalised(left), _normalised(right)
    if (empty := _one_is_nothing(left, right)) is not None:
        return empty
    return differences(_counted(left), _counted(right), left.column_names)


def _counted(table: pa.Table) -> pa.Table:
    with connect() as db:
        db.register("t", table)
        return db.sql("SELECT *, count(*) AS rows_alike FROM t GROUP BY ALL").to_arrow_table()


def _normalised(table: pa.Table) -> pa.Table:
    """Timestamps as microseconds, dictionaries as their values, windows flat."""
    table = flatten_window(table)
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, _microseconds(table.column(place)))
        elif pa.types.is_dictionary(field.type):
            table = table.set_column(
                place, field.name, table.column(place).cast(field.type.value_type)
            )
    return table


def _microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())


def _one_is_nothing(left: pa.Table, right: pa.Table) -> list[str] | None:
    """A directory without files has no columns; it equals only a table without rows."""
    if left.num_columns and right.num_columns:
        return None
    if not left.num_rows and not right.num_rows:
        return []
    side, other = ("left", right) if not left.num_columns else ("right", left)
    return [f"{side} has nothing; the other side has {other.num_rows} rows"]


def _schema_differences(left: pa.Table, right: pa.Table, keys: Sequence[str]) -> list[str]:
    found = [
        f"only left has the column {name!r}"
        for name in left.column_names
        if name not in right.column_names
    ]
    found += [
        f"only right has the column {name!r}"
        for name in right.column_names
        if name not in left.column_names
    ]
    found += [
        f"no column {key!r}, which is one of the keys"
        for key in keys
        if key not in left.column_names
    ]
    for name in left.column_names:
        if name in right.column_names:
            ours, theirs = _kind(left.schema.field(name).type), _kind(right.schema.field(name).type)
            if ours != theirs and "nothing" not in (ours, theirs):
                found.append(f"column {name!r}: left is {ours}, right is {theirs}")
    return found


def _kind(type_: pa.DataType) -> str:
    """What a column holds, whatever its width."""
    kinds = {
        "nothing": pa.types.is_null,
        "integer": pa.types.is_integer,
        "float": pa.types.is_floating,
        "decimal": pa.types.is_decimal,
        "date": pa.types.is_date,
    }
    for kind, matches in kinds.items():
        if matches(type_):
            return kind
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list of {_kind(type_.value_type)}"
    if pa.types.is_struct(type_):
        return f"struct of {', '.join(f'{field.name}: {_kind(field.type)}' for field in type_)}"
    text = str(type_)
    return text.removeprefix("large_").removesuffix("_view")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _duplicates(
    db: duckdb.DuckDBPyConnection, side: str, table: str, keys: Sequence[str]
) -> list[str]:
    """Keys that one side has more than once: rows with such keys cannot be compared one by one."""
    columns = ", ".join(_quote(key) for key in keys)
    db.execute(f"""
        CREATE OR REPLACE TEMP TABLE repeated AS
        SELECT {columns}, count(*) AS times FROM {table} GROUP BY {columns} HAVING count(*) > 1
    """)
    number = _one(db, "SELECT count(*) FROM repeated")
    if not number:
        return []
    return [f"{side} has {number} keys more than once: {_show(db, 'SELECT * FROM repeated')}"]


def _row_differences(
    db: duckdb.DuckDBPyConnection, left: pa.Table, keys: Sequence[str]
) -> list[str]:
    values = [name for name in left.column_names if name not in keys]
    matched = " AND ".join(f"l.{_quote(key)} IS NOT DISTINCT FROM r.{_quote(key)}" for key in keys)
    wrong = [_unequal(name, _kind(left.schema.field(name).type)) for name in values]
    chosen = [f"COALESCE(l.{_quote(key)}, r.{_quote(key)}) AS {_quote(key)}" for key in keys]
    chosen += [
        f"{side}.{_quote(name)} AS {_quote(f'{side}.{name}')}" for name in values for side in "lr"
    ]
    chosen += [
        f"l.here IS NOT NULL AND r.here IS NOT NULL AND {sql} AS __w{i}"
        for i, sql in enumerate(wrong)
    ]
    db.execute(f"""
        CREATE TEMP TABLE bad AS
        SELECT l.here AS __in_left, r.here AS __in_right, {", ".join(chosen)}
        FROM (SELECT *, 1 AS here FROM l) AS l
        FULL JOIN (SELECT *, 1 AS here FROM r) AS r ON {matched}
        WHERE l.here IS NULL OR r.here IS NULL OR {" OR ".join(["FALSE", *wrong])}
    """)
    found: list[str] = []
    identity = ", ".join(_quote(key) for key in keys)
    for side, absent in (("left", "__in_right"), ("right", "__in_left")):
        if number := _one(db, f"SELECT count(*) FROM bad WHERE {absent} IS NULL"):
            short = side[0]
            columns = ", ".join([identity, *(_quote(f"{short}.{name}") for name in values)])
            rows = _show(db, f"SELECT {columns} FROM bad WHERE {absent} IS NULL")
            found.append(f"{number} rows only in {side}: {rows}")
    for i, name in enumerate(values):
        if number := _one(db, f"SELECT count(*) FROM bad WHERE __w{i}"):
            both = ", ".join(_quote(f"{side}.{name}") for side in "lr")
            rows = _show(db, f"SELECT {identity}, {both} FROM bad WHERE __w{i}")
            found.append(f"{number} rows differ in {name!r}: {rows}")
    return found


def _unequal(name: str, kind: str) -> str:
    """SQL that is true where two values differ; never null."""
    ours, theirs = f"l.{_quote(name)}", f"r.{_quote(name)}"
    if kind != "float":
        return f"({ours} IS DISTINCT FROM {theirs})"
    a, b = f"CAST({ours} AS DOUBLE)", f"CAST({theirs} AS DOUBLE)"
    allowed = f"{RELATIVE} * greatest(abs({a}), abs({b})) + {ABSOLUTE}"
    near = f"isfinite({a}) AND isfinite({b}) AND abs({a} - {b}) <= {allowed}"
    return f"({a} IS DISTINCT FROM {b} AND NOT COALESCE({near}, FALSE))"


def _one(db: duckdb.DuckDBPyConnection, sql: str) -> int:
    [(number,)] = db.sql(sql).fetchall()
    return int(number)


def _show(db: duckdb.DuckDBPyConnection, sql: str) -> str:
    rows = db.sql(f"SELECT * FROM ({sql}) ORDER BY ALL LIMIT {SHOWN}").to_arrow_table().to_pylist()
    return "; ".join(", ".join(f"{name}={value!r}" for name, value in row.items()) for row in rows)
