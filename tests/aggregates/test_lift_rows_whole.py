"""The lift over Arrow against DuckDB: a whole plan, many rows, groups of very unequal size."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch.topology as ab
from anabranch.aggregates.lift_rows import lift_rows
from anabranch.plan import make_plan
from anabranch.testing.compare import differences
from anabranch.topology import Aggregate, Compute, Consolidate, Field, Graph, Source, tumbling
from anabranch.topology.graph import Named
from anabranch.types import Array, arrow_type

BY_TIME = 'list_sort(list((epoch_us("at"), v)) filter (v is not null))'
FIELDS = {
    "v": "bigint",
    "x": "double",
    "s": "string",
    "d": "decimal(10,2)",
    "at": "timestamp",
    "k": "bigint",
}
SQL: dict[str, tuple[Aggregate, str, str]] = {
    "n": (ab.count(), "int", "count(*)"),
    "values": (ab.count("x"), "double", "count(x)"),
    "few": (ab.count("x", where="v > 0"), "double", "count(x) filter (v > 0)"),
    "total": (ab.sum("v"), "bigint", "sum(v)::bigint"),
    "part": (ab.sum("v", where="v > 0"), "bigint", "sum(v) filter (v > 0)::bigint"),
    "sum_x": (ab.sum("x"), "double", "sum(x)"),
    "sum_d": (ab.sum("d"), "decimal(10,2)", "sum(d)"),
    "mean": (ab.avg("v"), "bigint", "avg(v)"),
    "low": (ab.min("x"), "double", "min(x)"),
    "high": (ab.max("s"), "string", "max(s)"),
    "when": (ab.max("at"), "timestamp", 'max("at")'),
    "spread": (ab.variance("x"), "double", "var_samp(x)"),
    "wide": (ab.stddev_pop("v"), "bigint", "stddev_pop(v)"),
    "first": (ab.first("v"), "bigint", 'min((epoch_us("at"), v)) filter (v is not null)[2]'),
    "last": (ab.last("s"), "string", 'max((epoch_us("at"), s)) filter (s is not null)[2]'),
    "best": (
        ab.max_by("s", "v"),
        "struct<a0:string,a1:bigint>",
        "max((v, s)) filter (s is not null and v is not null)[2]",
    ),
    "different": (ab.count_distinct("v"), "bigint", "count(distinct v)"),
    "some": (
        ab.collect_set("s", 5),
        "string",
        "coalesce(list_sort(list(distinct s) filter (s is not null))[:5], [])",
    ),
    "earliest": (
        ab.collect_list("v", 3),
        "bigint",
        f"coalesce(list_transform({BY_TIME}[:3], lambda e: e[2]), [])",
    ),
}


def masked(values: Array, random: np.random.Generator, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind, mask=random.random(len(values)) < 0.1)


@pytest.mark.parametrize("size", [1, 3_000, 70_000])
def test_groups_of_very_unequal_size_give_what_duckdb_gives(size: int) -> None:
    random = np.random.default_rng(size)
    group = np.concatenate(
        [np.zeros(100_000, dtype=np.int64), np.arange(size), random.integers(0, size, 20_000)]
    )
    random.shuffle(group)
    n = len(group)
    words = np.array([f"w{each}" for each in range(50)])
    t = random.integers(-(10**12), 10**15, n) // 10**9 * 10**9
    inputs = {
        "v": masked(random.integers(-300, 300, n), random),
        "x": masked(random.normal(10, 3, n), random),
        "s": masked(words[random.integers(0, 50, n)], random, pa.string()),
        "d": pa.array(
            [Decimal(each).scaleb(-2) for each in random.integers(-999, 999, n).tolist()],
            arrow_type("decimal(10,2)"),
        ),
        "at": pa.array(t).cast(arrow_type("timestamp")),
    }
    named = tuple(
        Named(name=name, aggregate=each, input_type=kind) for name, (each, kind, _) in SQL.items()
    )
    fields = tuple(Field(name, kind) for name, kind in FIELDS.items())
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=fields, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="s", by=(Field("k", "bigint"),), aggregates=named))
        .add(Consolidate(name="w", input="c", windows=(tumbling("1h"),)))
    )
    component = make_plan(graph).nodes[0]
    plan = component.plan
    positive = pc.fill_null(pc.greater(inputs["v"], 0), False)

    def input_of(expression: Any, where: object) -> pa.Array:
        if isinstance(expression, tuple):
            values: pa.Array = pa.StructArray.from_arrays(
                [inputs[each] for each in expression], ["a0", "a1"]
            )
        else:
            values = (
                pa.array(np.ones(n, dtype=np.int32))
                if expression is None
                else inputs[str(expression)]
            )
        return (
            values if where is None else pc.if_else(positive, values, pa.scalar(None, values.type))
        )

    columns = lift_rows(
        plan.kept,
        [input_of(each.expression, each.where) for each in component.inputs],
        t,
        group,
        size,
    )
    assert [column.dtype for column in columns] == [column.dtype for column in plan.columns]
    found = pa.table(
        {
            "k": np.arange(size),
            **{
                result.named.name: result.named.aggregate.finish(
                    result.named.input_type,
                    tuple(c for number in result.kept for c in columns[plan.kept[number].columns]),
                )
                for result in plan.results
            },
        }
    )
    rows = pa.table({"k": group, **inputs})
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("rows", rows)
        chosen_sql = ", ".join(f'{sql} AS "{name}"' for name, (_, _, sql) in SQL.items())
        expected = db.sql(f"SELECT k, {chosen_sql} FROM rows GROUP BY k").to_arrow_table()
    assert not differences(found, expected, ["k"])
