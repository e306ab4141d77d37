"""Results of a DAG of operators by DuckDB: each operator's from the results that it reads.

Nothing here comes from the engine: no panes, partials, levels or shards. Each row is paired with
each of its windows; SQL does the rest. Rows of sources are judged by the watermark of the step
before their own, the lowest of all sources. Results are never late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.testing.dags import WINDOW_COLUMNS, Dag, DagNode, columns_of, event_time_of, renamed
from anabranch.testing.reference.database import connect
from anabranch.testing.reference.joins import in_windows
from anabranch.testing.reference.windows import Window

if TYPE_CHECKING:
    import duckdb

DagStep: TypeAlias = Mapping[str, pa.Table] | None
"""The rows of each source in a step, None for a closing step."""

_AGGREGATES = {
    "count": "count(*)",
    "sum": "CAST(sum({x}) AS BIGINT)",
    "max": "max({x})",
    "count_distinct": "count(DISTINCT {x})",
}


def watermarks_of(dag: Dag, steps: Sequence[DagStep]) -> list[int | None]:
    """The watermark of each step and of one more: how far the slowest source was before it."""
    found: list[int | None] = [None]
    seen: dict[str, int] = {}
    for step in steps:
        for source in dag.sources:
            newest = (
                pc.max(step[source.name][source.time].cast(pa.int64())).as_py() if step else None
            )
            if newest is not None:
                seen[source.name] = max(newest, seen.get(source.name, newest))
        reached = (
            min(seen[each.name] - each.delay_us for each in dag.sources)
            if len(seen) == len(dag.sources)
            else None
        )
        known = [each for each in (found[-1], reached) if each is not None]
        found.append(max(known, default=None))
    return found


def expected_of_dag(
    dag: Dag, steps: Sequence[DagStep], *, finish: bool = False
) -> dict[str, pa.Table]:
    """All results of every operator, after a closing step; `finish` closes everything."""
    watermarks = watermarks_of(dag, steps)
    final = 2**62 if finish else watermarks[-1]
    with connect() as db:
        for source in dag.sources:
            judged = [
                step[source.name].append_column(
                    "__closed", pa.array([closed] * step[source.name].num_rows, pa.int64())
                )
                for step, closed in zip(steps, [None, *watermarks[:-2]], strict=True)
                if step is not None
            ]
            db.register(f"arrived_{source.name}", pa.concat_tables(judged))
            db.execute(f"""
                CREATE TEMP TABLE {source.name} AS SELECT *, epoch_us({source.time}) AS __at
                FROM arrived_{source.name} WHERE {source.time} IS NOT NULL
            """)
        return {
            node.name: table
            for node in dag.nodes
            if (table := _made(db, dag, node, final)) is not None
        }


def _made(
    db: duckdb.DuckDBPyConnection, dag: Dag, node: DagNode, final: int | None
) -> pa.Table | None:
    """Creates the table of an operator, under its name; returns its results, if it has any."""
    if node.is_map:
        db.execute(f"CREATE TEMP TABLE {node.name} AS {_map_sql(dag, node)}")
        return None
    made = _windows_sql if node.kind == "windows" else _join_sql
    results = pa.concat_tables(
        [db.sql(made(dag, node, window, final)).to_arrow_table() for window in node.windows]
    )
    db.register(f"results_{node.name}", results)
    db.execute(f"""
        CREATE TEMP TABLE {node.name} AS
        SELECT *, window_end - 1 AS __at, CAST(NULL AS BIGINT) AS __closed FROM results_{node.name}
    """)
    return results


def _map_sql(dag: Dag, node: DagNode) -> str:
    [given] = node.inputs
    if node.kind == "filter":
        return f"SELECT * FROM {given} WHERE {node.text}"
    if node.kind == "rename":
        columns = columns_of(dag, given)
        kept = ["__at", "__closed", *(WINDOW_COLUMNS if event_time_of(dag, given) is None else ())]
        names = [f"{name} AS {renamed(node, name, kind)}" for name, kind in columns.items()]
        return f"SELECT {', '.join([*names, *kept])} FROM {given}"
    made = node.text if node.kind == "column" else f"unnest(range(0, abs({node.text}) % 3 + 1))"
    return f"SELECT *, CAST({made} AS BIGINT) AS {node.name}_v FROM {given}"


def _windows_sql(_dag: Dag, node: DagNode, window: Window, final: int | None) -> str:
    name, length, _, _ = window
    [given] = node.inputs
    aggregates = [
        f"{_AGGREGATES[kind].format(x=text)} AS {column}" for column, kind, text in node.aggregates
    ]
    chosen = [
        *node.by,
        "__start AS window_start",
        f"__start + {length} AS window_end",
        f"'{name}' AS window_name",
        *aggregates,
    ]
    rows, groups = in_windows(given, window, final), ", ".join([*node.by, "__start"])
    return f"SELECT {', '.join(chosen)} FROM ({rows}) GROUP BY {groups}"


def _join_sql(dag: Dag, node: DagNode, window: Window, final: int | None) -> str:
    name, length, _, _ = window
    left, right = node.inputs
    equal = " AND ".join(["l.__start = r.__start", *(f"l.{key} = r.{key}" for key in node.by)])
    chosen = [
        *(f"COALESCE(l.{key}, r.{key}) AS {key}" for key in node.by),
        "COALESCE(l.__start, r.__start) AS window_start",
        f"COALESCE(l.__start, r.__start) + {length} AS window_end",
        f"'{name}' AS window_name",
        *(f"l.{column}" for column in columns_of(dag, left) if column not in node.by),
        *(f"r.{column}" for column in columns_of(dag, right) if column not in node.by),
    ]
    return f"""
        WITH l AS ({in_windows(left, window, final)}), r AS ({in_windows(right, window, final)})
        SELECT {", ".join(chosen)} FROM l {node.how} JOIN r ON {equal}
    """
