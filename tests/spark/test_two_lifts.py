"""The two lifts of an aggregate, in Spark SQL and over Arrow: equal results, which merge."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.aggregates.lift_rows import lift_rows
from anabranch.plan.make import make_plan
from anabranch.plan.model import Plan
from anabranch.spark import versions
from anabranch.spark.compile.lift import Lift
from anabranch.testing.compare import differences
from anabranch.testing.events import ODD_FLOATS, WORDS
from anabranch.types import Array, arrow_type, to_array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS, KEYS = 6_000, 30
TYPES = {
    "b": "tinyint",
    "i": "int",
    "v": "bigint",
    "f": "float",
    "x": "double",
    "d": "decimal(10,2)",
    "e": "decimal(38,10)",
    "s": "string",
    "y": "binary",
    "o": "boolean",
    "day": "date",
    "moment": "timestamp",
    "clock": "timestamp_ntz",
}
NUMBERS = "bivfxde"
SPREADS = ("variance", "var_pop", "stddev", "stddev_pop")
RANKS = [0.0, 0.1, 0.5, 0.9, 1.0]


def rows_of(seed: int) -> pa.Table:
    """Rows in two halves, of which one key has half; a tenth of all values is null.

    Odd keys have odd floats.
    """
    random = np.random.default_rng(seed)
    k = np.where(random.random(ROWS) < 0.5, 0, random.integers(1, KEYS, ROWS))
    floats = np.where(
        (k % 2 == 1) & (random.random(ROWS) < 0.2),
        random.choice(ODD_FLOATS, ROWS),
        random.normal(10, 3, ROWS),
    )
    micros = random.integers(-(10**15), 10**15, ROWS)
    small = [Decimal(int(each)).scaleb(-10) for each in random.integers(-2_000, 2_000, ROWS)]
    large = [Decimal(int(each)).scaleb(-3) for each in random.integers(-(2**60), 2**60, ROWS)]
    values: dict[str, Sequence[Any] | Array] = {
        "b": random.integers(-128, 128, ROWS),
        "i": random.integers(-(2**31), 2**31, ROWS),
        "v": np.where(
            random.random(ROWS) < 0.1,
            2**53 + random.integers(0, 9, ROWS),
            random.integers(-900, 900, ROWS),
        ),
        "f": np.round(np.where(floats == 1e300, 7, floats)).astype(np.float32),
        "x": floats,
        "d": [Decimal(int(each)).scaleb(-2) for each in random.integers(-99_999, 99_999, ROWS)],
        "e": [
            one if each else two
            for each, one, two in zip(random.random(ROWS) < 0.5, small, large, strict=True)
        ],
        "s": [
            WORDS[each] if each < len(WORDS) else f"w{each}"
            for each in random.integers(0, 700, ROWS)
        ],
        "y": [bytes(random.integers(0, 256, each % 4, dtype=np.uint8)) for each in range(ROWS)],
        "o": random.random(ROWS) < 0.8,
        "day": micros // 10**11,
        "moment": micros,
        "clock": micros // 1_000_003 * 1_000_003,
    }
    columns = {}
    for name, kind in TYPES.items():
        column = pa.array(values[name], mask=random.random(ROWS) < 0.1)
        column = column.cast(pa.int32()) if kind == "date" else column
        columns[name] = column.cast(arrow_type(kind))
    at = random.integers(0, 50, ROWS) * 1_000_000
    return pa.table(
        {
            "k": k,
            "half": random.integers(0, 2, ROWS),
            "at": pa.array(at).cast(arrow_type("timestamp")),
            **columns,
        }
    )


class Texts:
    """Texts with their weights, sorted."""

    state_type = list[tuple[str, float]]
    result_type = "string"

    def init(self) -> list[tuple[str, float]]:
        return []

    def add(
        self, state: list[tuple[str, float]], text: str, weight: float
    ) -> list[tuple[str, float]]:
        state.append((text, weight))
        return state

    def merge(
        self, left: list[tuple[str, float]], right: list[tuple[str, float]]
    ) -> list[tuple[str, float]]:
        return left + right

    def finish(self, state: list[tuple[str, float]]) -> str:
        return ",".join(f"{text}:{weight}" for text, weight in sorted(state, key=str))


class Product:
    """The largest product of two numbers."""

    state_types = ("bigint", "double")
    identities = (0, -1e300)
    result_type = "double"

    def lift(self, group: Array, size: int, left: Array, right: Array) -> tuple[Array, Array]:
        best = np.full(size, -1e300)
        np.maximum.at(best, group, left * right)
        return np.bincount(group, minlength=size), best

    def merge(self, into: Sequence[Array], at: Any, lifted: Sequence[Array]) -> None:
        into[0][at] += lifted[0]
        into[1][at] = np.maximum(into[1][at], lifted[1])

    def finish(self, count: Array, best: Array) -> pa.Array:
        return pa.array(best, mask=count == 0)


def aggregates_of(name: str) -> dict[str, ab.Aggregate]:
    """Every aggregate that takes a column; exact for all values, where more would need a sketch."""
    made = {
        "count": ab.count(name),
        "some": ab.count(name, where="v > 0"),
        "min": ab.min(name),
        "max": ab.max(name, where="v > 0"),
        "first": ab.first(name),
        "last": ab.last(name, where="half = 0"),
        "max_by": ab.max_by(name, "x"),
        "min_by": ab.min_by("s", name, where="v > 0"),
        "different": ab.count_distinct(name),
        "about": ab.approx_count_distinct(name),
        "roughly": ab.approx_count_distinct(name, 5, where="v > 0"),
        "top": ab.top_k(name, 3, 10_000),
        "list": ab.collect_list(name, 7),
        "set": ab.collect_set(name, 7),
    }
    if name in NUMBERS:
        made |= {
            "sum": ab.sum(name),
            "avg": ab.avg(name),
            "variance": ab.variance(name),
            "var_pop": ab.var_pop(name),
            "stddev": ab.stddev(name),
            "stddev_pop": ab.stddev_pop(name),
            "quantiles": ab.quantile(name, RANKS, 5_000),
        }
    if name == "o":
        made |= {"every": ab.bool_and(name), "any": ab.bool_or(name, where="v > 0")}
    if name == "d":
        made |= {
            "product": ab.udaf(Product)("b", "i"),
            "texts": ab.udaf(Texts)("s", "b", where="v > 0"),
            "rows": ab.count(),
        }
    return made


def plan_of(rows: DataFrame, aggregates: dict[str, ab.Aggregate]) -> Plan:
    app = ab.Topology("two lifts")
    app.source(rows, event_time="at").aggregate(
        by=["k", "half"], windows=ab.tumbling("1 hour"), **aggregates
    )
    return make_plan(app.graph)


class Lifts:
    """The same rows lifted in Spark SQL and over Arrow; a group is a key and a half, or a key."""

    def __init__(self, rows: DataFrame, aggregates: dict[str, ab.Aggregate]) -> None:
        plan = plan_of(rows, aggregates)
        [node] = plan.nodes
        self.plan = node.plan
        lift = Lift(plan, 1, frozenset())
        prepared = lift.prepare({plan.sources[0].name: rows})
        named, places = lift.arrives(node), lift._places(node)
        found = lift._combined(lift._timed(prepared, None), []).toArrow()
        at = _numbers(found, named["k0"]) * 2 + _numbers(found, named["k1"])
        assert len(set(at.tolist())) == len(at)
        self.in_sql = tuple(column.empty(2 * KEYS) for column in self.plan.columns)
        for kept in self.plan.kept:
            arrived = kept.partial.arrive([found.column(named[name]) for name in kept.lifted])
            for target, values in zip(self.in_sql[kept.columns], arrived, strict=True):
                target[at] = values
        given = prepared.toArrow().combine_chunks()
        inputs = [pa.array(np.ones(len(given), dtype=np.int32))]
        inputs += [given.column(places[f"x{i}"]).chunk(0) for i in range(1, len(node.inputs))]
        key, half, t = (_numbers(given, name) for name in (places["k0"], places["k1"], "t"))
        self.over_arrow = lift_rows(self.plan.kept, inputs, t, key * 2 + half, 2 * KEYS)
        self.of_keys = lift_rows(self.plan.kept, inputs, t, key, KEYS)

    def merged(self, *parts: Sequence[Array]) -> tuple[Array, ...]:
        into = tuple(column.empty(KEYS) for column in self.plan.columns)
        for part in parts:
            for kept in self.plan.kept:
                kept.partial.merge(into[kept.columns], slice(0, KEYS), part[kept.columns])
        return into

    def finished(self, columns: Sequence[Array]) -> pa.Table:
        results = {
            each.named.name: each.named.aggregate.finish(
                each.named.input_type,
                tuple(
                    column
                    for number in each.kept
                    for column in columns[self.plan.kept[number].columns]
                ),
            )
            for each in self.plan.results
        }
        if versions.SPARK < (4, 3):
            results |= {name: _overflown(results[name]) for name in SPREADS if name in results}
        return pa.table({"group": np.arange(len(columns[0])), **results})


def _overflown(spread: pa.Array) -> pa.Array:
    """Before 4.3, Spark's spread of values whose squares overflow (1e200) is NaN, not infinity."""
    return pc.if_else(pc.is_inf(spread), float("nan"), spread)


def half(columns: Sequence[Array], number: int) -> list[Array]:
    return [column[number::2] for column in columns]


def _numbers(table: pa.Table, name: str) -> Array:
    return to_array(table.column(name), np.dtype(np.int64), 0)


def test_both_lifts_give_the_same_of_every_aggregate_and_their_halves_merge(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = rows_of(11)
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = spark.read.parquet(str(tmp_path / "rows.parquet")).cache()
    assert {name: kind for name, kind in rows.dtypes if name in TYPES} == TYPES
    for name in TYPES:
        lifts = Lifts(rows, aggregates_of(name))
        in_sql, over_arrow = lifts.in_sql, lifts.over_arrow
        assert in_sql[0].sum() == over_arrow[0].sum() == ROWS
        assert not differences(lifts.finished(over_arrow), lifts.finished(in_sql), ["group"]), name
        whole = lifts.finished(lifts.of_keys)
        for one, two in ((in_sql, over_arrow), (over_arrow, in_sql)):
            assert not differences(
                lifts.finished(lifts.merged(half(one, 0), half(two, 1))), whole, ["group"]
            ), name
        _equal_values_of_both_lifts_are_one(lifts, name)
    _sketches_of_many_values_are_within_their_error(rows, table)
    ansi = str(spark.conf.get("spark.sql.ansi.enabled"))
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false" if ansi == "true" else "true")
        _equal_values_of_both_lifts_are_one(Lifts(rows, aggregates_of("e")), "e")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        rows.unpersist()


def _equal_values_of_both_lifts_are_one(lifts: Lifts, name: str) -> None:
    """An aggregate that counts or keeps a value once does so if both lifts had it."""
    once = ["group", "about", "roughly", "different", "set", "min", "max"]
    twice = lifts.finished(lifts.merged(half(lifts.in_sql, 0), half(lifts.over_arrow, 0))).select(
        once
    )
    assert not differences(
        twice, lifts.finished(half(lifts.over_arrow, 0)).select(once), ["group"]
    ), name


def _sketches_of_many_values_are_within_their_error(rows: DataFrame, table: pa.Table) -> None:
    """For a key with thousands of values: each lift alone, and halves of both merged."""
    keep, k = 60, 60
    lifts = Lifts(rows, {"q": ab.quantile("x", RANKS, k), "top": ab.top_k("s", keep, keep)})
    mixed = lifts.merged(half(lifts.in_sql, 0), half(lifts.over_arrow, 1))
    error = ds.kll_doubles_sketch.get_normalized_rank_error(k, False)
    for columns, halves in ((lifts.in_sql, {0}), (lifts.over_arrow, {0}), (mixed, {0, 1})):
        result = lifts.finished(columns).to_pylist()[0]
        here = [
            each
            for each in table.select(["k", "half", "x", "s"]).to_pylist()
            if each["k"] == 0 and each["half"] in halves
        ]
        values = sorted(each["x"] for each in here if each["x"] is not None)
        for rank, value in zip(RANKS, result["q"], strict=True):
            below, up_to = (
                np.searchsorted(values, value, side) / len(values) for side in ("left", "right")
            )
            assert max(below - rank, rank - up_to) <= 2.5 * error
        assert (result["q"][0], result["q"][-1]) == (values[0], values[-1])
        true = Counter(each["s"] for each in here if each["s"] is not None)
        worst = 2 * true.total() / keep
        assert all(
            true[each["value"]] - worst <= each["count"] <= true[each["value"]]
            for each in result["top"]
        )
