"""`process` on Spark: beside, before and after windows, with restarts, faults and other slots."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.cli.state import look
from anabranch.testing import ProcessTester, read_results, write_batches
from anabranch.testing.events import SECOND_US

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

DELAY_S = 4
SCHEMA = "k string, g int, at timestamp, v bigint"


@dataclass
class Account:
    n: int = 0
    total: int = 0


class Running:
    """Every row with the number and the sum of the rows of its key so far."""

    state: Account
    output = "n bigint, total bigint, g int, at timestamp"
    event_time = "at"

    def process(self, key: str, rows: ab.Rows, state: Account, ctx: ab.Context) -> Any:
        for row in rows:
            state.n += 1
            state.total += row.v
            yield state.n, state.total, row.g, row.at


class Silent:
    """Reports that a key has had no rows for some seconds, and how many it had before.

    Some seconds later it forgets the key.
    """

    state: Account
    output = "n bigint, at timestamp"
    event_time = "at"
    ttl = "15 seconds"
    columns = ("at",)

    def process(self, key: tuple[str, int], rows: ab.Rows, state: Account, ctx: ab.Context) -> Any:
        state.n += len(rows)
        ctx.timer(ctx.time + timedelta(seconds=6))

    def on_timer(self, key: tuple[str, int], state: Account, ctx: ab.Context) -> Any:
        return [(state.n, ctx.time)]


class Summed:
    """The sum of all windows of a key, after each of them."""

    state = {"sum": "bigint"}
    output = "sum bigint, end timestamp"
    event_time = "end"

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        within = np.cumsum(rows["n"]) - np.repeat(
            np.cumsum(rows["n"])[rows.starts] - rows["n"][rows.starts], np.bincount(rows.key)
        )
        sums = state.sum[rows.key] + within
        state.sum += np.add.reduceat(rows["n"], rows.starts)
        return rows.key, {"sum": sums, "end": rows.table["window"].combine_chunks().field("end")}


def batches(count: int) -> list[pa.Table]:
    rng = np.random.default_rng(5)
    made = []
    for i in range(count):
        rows = 120
        second = (
            10 * i + np.sort(rng.uniform(0, 10, rows)) - rng.uniform(0, 1, rows)
        )  # later than others by less than the delay
        made.append(
            pa.table(
                {
                    "k": pa.array([f"k{n}" for n in rng.integers(0, 40, rows)]),
                    "g": pa.array(rng.integers(0, 2, rows), pa.int32()),
                    "at": pa.array((second * SECOND_US).astype(np.int64)).cast(
                        pa.timestamp("us", tz="UTC")
                    ),
                    "v": pa.array(rng.integers(0, 100, rows)),
                }
            )
        )
    return made


def stream(spark: SparkSession, path: Path) -> DataFrame:
    return (
        spark.readStream.schema(spark.read.parquet(str(path)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
    )


def topology(spark: SparkSession, place: Path) -> ab.Topology:
    app = ab.Topology("processes")
    source = app.source(
        stream(spark, place / "in"), event_time="at", delay=timedelta(seconds=DELAY_S)
    )
    running = source.process("k", Running)
    silent = source.process(["k", "g"], Silent)
    windows = source.aggregate(
        by=["k"], windows=ab.tumbling("5 seconds"), name="windows", n=ab.count()
    )
    summed = windows.process("k", Summed)
    even = running.map(lambda df: df.filter(F.col("n") % 2 == 0)).aggregate(
        by=["g"], windows=ab.tumbling("10 seconds"), name="even", n=ab.count(), top=ab.max("total")
    )
    by_key = silent.aggregate(
        by=["k"], windows=ab.tumbling("5 seconds"), name="by_key", n=ab.sum("n")
    )
    for each in (running, silent, windows, summed, even, by_key):
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


def expected_running(tables: list[pa.Table]) -> list[tuple[Any, ...]]:
    """In plain Python: rows of a step by event time."""
    held: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    out = []
    for table in tables:
        for row in sorted(table.to_pylist(), key=lambda row: row["at"]):
            n, total = held[row["k"]]
            held[row["k"]] = n + 1, total + row["v"]
            out.append((row["k"], *held[row["k"]], row["g"], row["at"]))
    return out


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(path)
    return sorted(
        zip(*(table[name].to_pylist() for name in table.column_names), strict=True), key=repr
    )


def test_processes_go_through_restarts_faults_and_other_plans_as_if_nothing_had_happened(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = batches(6)
    write_batches(tables[:3], tmp_path / "in")
    app = topology(spark, tmp_path)
    text = app.explain()
    assert "process:   Silent, key by key, by event time" in text
    assert "row by row for running, silent" in text
    monkeypatch.setenv("ANABRANCH_FAULTS", "slot.stored@2/0=kill;slot.half@3/1=fail")
    monkeypatch.setenv("ANABRANCH_FAULTS_FIRED", str(tmp_path))
    first = run(app, tmp_path, slots=2)
    assert [each.attempts for each in first.recentProgress[1:3]] == [2, 2]
    monkeypatch.delenv("ANABRANCH_FAULTS")

    write_batches(tables[3:], tmp_path / "in", first=3)
    shutil.rmtree(tmp_path / "state")
    again = run(topology(spark, tmp_path), tmp_path, slots=3, planner="unfused")
    texts = " ".join(event.text for event in again.events)
    assert "the state of silent was moved to other shards" in texts
    assert "restored from the durable log" in texts
    assert (
        sum(each.rows_in for each in (*first.recentProgress, *again.recentProgress)) == 3 * 6 * 120
    )

    assert rows_of(tmp_path / "out" / "running") == sorted(expected_running(tables), key=repr)
    tester = ProcessTester(Silent, by=["k", "g"], schema=SCHEMA, event_time="at")
    newest, silent = None, []
    for table in [*tables[:3], None, *tables[3:], None]:
        silent += tester.step([] if table is None else table.to_pylist(), watermark=newest)
        if table is not None:
            newest = max(table["at"].to_pylist()) - timedelta(seconds=DELAY_S)
    assert len(silent) > 50
    assert rows_of(tmp_path / "out" / "silent") == sorted(
        (tuple(row.values()) for row in silent), key=repr
    )

    windows = sorted(
        read_results(tmp_path / "out" / "windows").to_pylist(),
        key=lambda row: (row["k"], row["window_end"]),
    )
    sums: dict[str, int] = defaultdict(int)
    wanted = []
    for row in windows:
        sums[row["k"]] += row["n"]
        wanted.append((row["k"], sums[row["k"]], row["window_end"]))
    found = [
        (k, total, int(end.timestamp() * SECOND_US))
        for k, total, end in rows_of(tmp_path / "out" / "summed")
    ]
    assert sorted(found) == sorted(wanted)
    assert len(wanted) > 100

    closed = again.recentProgress[-1].watermark_us
    assert closed is not None
    tops: dict[tuple[int, int], list[int]] = defaultdict(list)
    for _, n, total, g, at in expected_running(tables):
        if n % 2 == 0:
            tops[g, int(at.timestamp() * SECOND_US) // (10 * SECOND_US)].append(total)
    even = {
        (g, end): (len(each), max(each))
        for (g, w), each in tops.items()
        if (end := (w + 1) * 10 * SECOND_US) <= closed
    }
    results = read_results(tmp_path / "out" / "even").to_pylist()
    assert {(row["g"], row["window_end"]): (row["n"], row["top"]) for row in results} == even
    by_key: dict[tuple[str, int], int] = defaultdict(int)
    for row in silent:
        by_key[row["k"], int(row["at"].timestamp() * SECOND_US) // (5 * SECOND_US)] += row["n"]
    results = read_results(tmp_path / "out" / "by_key").to_pylist()
    wanted_by = {
        (k, end): n for (k, w), n in by_key.items() if (end := (w + 1) * 5 * SECOND_US) <= closed
    }
    assert {(row["k"], row["window_end"]): row["n"] for row in results} == wanted_by

    facts = [look(str(tmp_path / "chk"), shard, 1_000, "running")["shard"] for shard in range(8)]
    held = {
        row["k"]: (row["state"]["n"], row["state"]["total"])
        for each in facts
        for row in each["rows"]
    }
    assert held == {k: (n, total) for k, n, total, _, _ in expected_running(tables)}
    shown = [
        row
        for shard in range(8)
        for row in look(str(tmp_path / "chk"), shard, 1_000, "silent")["shard"]["rows"]
    ]
    assert len(shown) == len(tester)
    assert any(row.get("timers") for row in shown)
    assert {
        row["sum"]
        for s in range(8)
        for row in look(str(tmp_path / "chk"), s, 99, "summed")["shard"]["rows"]
    } == set(sums.values())


class Fussy(Running):
    """Does not take negative values."""

    def process(self, key: str, rows: ab.Rows, state: Account, ctx: ab.Context) -> Any:
        if min(rows.v) < 0:
            raise ValueError("a negative value")
        return super().process(key, rows, state, ctx)


def test_an_error_in_a_class_ends_the_run_at_once_and_a_mended_class_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = batches(3)
    values = pa.array([-5, *tables[1]["v"].to_pylist()[1:]])
    tables[1] = tables[1].set_column(3, "v", values)
    bad = tables[1]["k"][0].as_py()
    write_batches(tables, tmp_path / "in")

    def app(cls: type) -> ab.Topology:
        made = ab.Topology("fussy")
        source = made.source(stream(spark, tmp_path / "in"), event_time="at", delay="1 second")
        source.process("k", cls, name="running").to(ab.parquet(tmp_path / "out"))
        return made

    with pytest.raises(
        ab.StepError,
        match=rf"step 2 of 'fussy' failed after 1 attempt: operator 'running', key '{bad}': process\(\) raised Val",
    ):
        run(app(Fussy), tmp_path)
    mended = run(app(Running), tmp_path)
    assert mended.recentProgress[0].step == 2
    assert rows_of(tmp_path / "out") == sorted(expected_running(tables), key=repr)
    batch = app(Running).run_batch(spark.read.parquet(str(tmp_path / "in")))
    together = expected_running([pa.concat_tables(tables)])
    assert sorted(
        (tuple(row.values()) for row in batch["running"].toArrow().to_pylist()), key=repr
    ) == sorted(together, key=repr)
