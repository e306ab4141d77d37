"""A `process` that reads aggregates: one row per key and step, against the tester.

Rows are combined in the JVM or in the slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import TopologyError
from anabranch.testing import ProcessTester, write_batches
from anabranch.testing.events import SECOND_US

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, g int, at timestamp, v bigint"
DELAY_S = 4


@dataclass
class Account:
    n: int = 0


class Slots:
    """All keys of a slot: number, sum and greatest of all rows so far."""

    state = {"n": "bigint", "total": "bigint", "top": "bigint"}
    output = "n bigint, total bigint, top bigint"
    columns = {"rows": ab.count(), "sum": ab.sum("v"), "most": ab.max("v")}

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        assert len(rows) == len(state)
        state.n += rows["rows"]
        state.total += rows["sum"]
        state.top = np.maximum(state.top, rows["most"])
        return {"n": state.n, "total": state.total, "top": state.top}


class Keys:
    """Key by key, with a timer after the newest row and a time to live."""

    state: Account
    output = "n bigint, mean double, kinds array<int>, at timestamp"
    event_time = "at"
    ttl = "20 seconds"
    columns = {"rows": ab.count(), "mean": ab.avg("v"), "kinds": ab.collect_set("g")}

    def process(self, key: Any, rows: ab.Rows, state: Account, ctx: ab.Context) -> Any:
        [row] = rows
        state.n += row.rows
        if ctx.time is None:
            return
        yield state.n, row.mean, sorted(row.kinds), ctx.time
        at = ctx.time + timedelta(seconds=5)
        if ctx.watermark is None or at > ctx.watermark:
            ctx.timer(at)

    def on_timer(self, key: Any, state: Account, ctx: ab.Context) -> Any:
        yield state.n, None, [], ctx.time


class Windows:
    """What all windows of a key have counted."""

    state = {"n": "bigint", "windows": "bigint"}
    output = "n bigint, windows bigint"
    columns = {"rows": ab.sum("n"), "closed": ab.count()}

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        state.n += rows["rows"]
        state.windows += rows["closed"]
        return {"n": state.n, "windows": state.windows}


def batches(count: int) -> list[pa.Table]:
    rng = np.random.default_rng(9)
    made = []
    for i in range(count):
        size = 400
        second = 10 * i + rng.uniform(-12, 10, size)  # many are late, which changes nothing here
        at = pa.array((second * SECOND_US).astype(np.int64), mask=rng.random(size) < 0.02).cast(
            pa.timestamp("us", tz="UTC")
        )
        keys = [None if n == 0 else f"k{n}" for n in rng.integers(0, 30, size).tolist()]
        made.append(
            pa.table(
                {
                    "k": pa.array(keys, pa.string()),
                    "g": pa.array(rng.integers(0, 3, size), pa.int32()),
                    "at": at,
                    "v": pa.array(rng.integers(0, 100, size)),
                }
            )
        )
    return made


def stream(spark: SparkSession, path: Path) -> DataFrame:
    """Each file is read in several partitions."""
    rows = (
        spark.readStream.schema(spark.read.parquet(str(path)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
    )
    return rows.repartition(3)


def topology(spark: SparkSession, place: Path, *, windows: bool) -> ab.Topology:
    app = ab.Topology("combined")
    source = app.source(
        stream(spark, place / "in"), event_time="at", delay=timedelta(seconds=DELAY_S)
    )
    found = [
        source.process("k", Slots, order="arrival"),
        source.process(["k", "g"], Keys, order="arrival"),
    ]
    if windows:
        counted = source.aggregate(
            by=["k"], windows=ab.tumbling("5 seconds"), name="counted", n=ab.count()
        )
        found += [counted, counted.process("k", Windows, order="arrival", name="fused")]
        behind = counted.map(lambda df: df.withColumn("odd", F.col("n") % 2))
        found.append(behind.process("odd", Windows, order="arrival", name="behind"))
    for each in found:
        each.to(ab.parquet(place / "out" / each.name))
    return app


def run(app: ab.Topology, place: Path, **settings: Any) -> ab.Run:
    started = app.start(
        checkpoint=place / "chk",
        availableNow=True,
        idle=None,
        state_root=place / "state",
        shards=8,
        **settings,
    )
    assert started.awaitTermination(180)
    return started


def written(path: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(path).to_pylist(), key=repr)


def expected(cls: Any, by: list[str], runs: list[list[pa.Table]]) -> list[dict[str, Any]]:
    """By the tester: the rows of each step, and a closing step at the end of each run.

    The watermark follows the newest row.
    """
    tester = ProcessTester(cls, by=by, schema=SCHEMA, event_time="at", order="arrival")
    found: list[dict[str, Any]] = []
    newest = None
    for table in (each for tables in runs for each in (*tables, None)):
        watermark = None if newest is None else newest - timedelta(seconds=DELAY_S)
        found += tester.step([] if table is None else table.to_pylist(), watermark=watermark)
        if table is not None:
            newest = max(filter(None, [newest, *table["at"].to_pylist()]))
    return sorted(found, key=repr)


@pytest.mark.parametrize("lift", ["lift first", "route first"])
def test_rows_are_combined_as_the_tester_combines_them_through_restarts_and_other_slots(
    spark: SparkSession, tmp_path: Path, lift: str
) -> None:
    tables = batches(5)
    write_batches(tables[:3], tmp_path / "in")
    run(topology(spark, tmp_path, windows=False), tmp_path, slots=2, lift=lift)
    write_batches(tables[3:], tmp_path / "in", first=3)
    ended = run(topology(spark, tmp_path, windows=False), tmp_path, slots=3, lift=lift)
    assert sum(each.rows_in for each in ended.recentProgress) == 2 * sum(
        table.num_rows for table in tables[3:]
    )
    assert not any(each.left_out for each in ended.recentProgress)
    runs = [tables[:3], tables[3:]]
    assert written(tmp_path / "out" / "slots") == expected(Slots, ["k"], runs)
    assert written(tmp_path / "out" / "keys") == expected(Keys, ["k", "g"], runs)


def test_results_of_windows_are_combined_in_their_slot_and_after_an_exchange(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_batches(batches(4), tmp_path / "in")
    app = topology(spark, tmp_path, windows=True)
    text = app.explain()
    assert (
        "reads:     one row per key and step: rows = count(*), sum = total(v), count(v), most = greatest(v), count(v)"
        in text
    ), text
    assert "row by row for" not in text
    run(app, tmp_path, slots=2)
    totals: dict[str | None, list[int]] = {}
    odd: dict[int, list[int]] = {}
    for each in written(tmp_path / "out" / "counted"):
        totals.setdefault(each["k"], []).append(each["n"])
        odd.setdefault(each["n"] % 2, []).append(each["n"])
    assert totals
    for name, wanted in (("fused", totals), ("behind", odd)):
        last: dict[Any, tuple[int, int]] = {}
        for row in written(tmp_path / "out" / name):
            key = row["k"] if name == "fused" else row["odd"]
            last[key] = max(last.get(key, (0, 0)), (row["n"], row["windows"]))
        assert last == {key: (sum(values), len(values)) for key, values in wanted.items()}


class Sums:
    state = {"sum": "double"}
    output = "sum double, at timestamp"
    columns = {"one": ab.sum("v * 2", where="v > 1")}

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        state.sum += np.nan_to_num(rows["one"])
        return {"sum": state.sum, "at": rows.t.astype("datetime64[us]")}


def test_a_static_run_combines_expressions_with_filters(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, 2.5, 10), (2, 1.0, 20), (1, 0.5, 30)], "k int, v double, s int"
    )
    app = ab.Topology("static")
    source = app.source(rows.withColumn("at", F.timestamp_seconds("s")), event_time="at")
    source.process("k", Sums, order="arrival")
    source.process([], Sums, order="arrival", name="everything")
    made = app.run_batch()
    found = {(row.k, row.sum, row.at.timestamp()) for row in made["sums"].collect()}
    assert found == {(1, 5.0, 30.0), (2, 0.0, 20.0)}
    assert [(row.sum, row.at.timestamp()) for row in made["everything"].collect()] == [(5.0, 30.0)]


@pytest.mark.parametrize(
    ("columns", "order", "message"),
    [
        ({}, "arrival", "reads nothing"),
        ({"n": ab.count()}, "event_time", "order='arrival'"),
        ({"k": ab.count()}, "arrival", "an aggregate named 'k'"),
        ({"n": "v"}, "arrival", "'v' is not an aggregate"),
        ({"n": ab.sum("w")}, "arrival", "w does not fit the stream's columns"),
    ],
)
def test_columns_that_cannot_be_combined_are_refused(
    spark: SparkSession, columns: dict[str, Any], order: str, message: str
) -> None:
    app = ab.Topology("refused")
    rows = spark.createDataFrame([], SCHEMA)
    made = type("Some", (Slots,), {"columns": columns})
    with pytest.raises(TopologyError, match=message):
        app.source(rows, event_time="at").process("k", made, order=order)


def test_the_tester_takes_columns_as_they_are() -> None:
    for aggregate, message in (
        (ab.sum("v * 2"), "column"),
        (ab.sum("v", where="v > 1"), "filters"),
    ):
        made = type("Some", (Slots,), {"columns": {"rows": aggregate}})
        with pytest.raises(TopologyError, match=message):
            ProcessTester(made, by="k", schema=SCHEMA, event_time="at", order="arrival")
