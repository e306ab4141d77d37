"""The results of one window as a stream of their own, and windows under other names."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.testing import (
    EventPlan,
    WindowQuery,
    bag_differences,
    differences,
    event_batches,
    expected_results,
    read_results,
    write_batches,
)
from anabranch.testing.events import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

IDENTITY = ["k", "window_start", "window_end", "window_name"]
FIVE, HALF = ("5m", 5 * MINUTE_US), ("half", 30 * MINUTE_US)
BATCHES = list(
    event_batches(
        EventPlan(
            seed=5, batches=6, rows=150, keys=12, span_us=8 * MINUTE_US, disorder_us=5 * SECOND_US
        )
    )
)


def query(*windows: tuple[str, int]) -> WindowQuery:
    return WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[(name, length, length, 0) for name, length in windows],
        aggregates=[("n", "count", "*"), ("s", "sum", "v")],
        delay_us=10 * SECOND_US,
    )


def started(
    spark: SparkSession, root: Path, windows: list[Any], first: int, last: int
) -> tuple[ab.Topology, Any, Any]:
    """A topology over some of the batches, and its results."""
    write_batches(BATCHES[first:last], root / "in", first=first)
    rows = spark.readStream.schema(spark.read.parquet(str(root / "in")).schema).option(
        "maxFilesPerTrigger", 1
    )
    app = ab.Topology("windows")
    source = app.source(rows.parquet(str(root / "in")), event_time="at", delay="10 seconds")
    w = source.aggregate(by="k", windows=windows, name="w", n=ab.count(), s=ab.sum("v"))
    return app, source, w


def finished(app: ab.Topology, root: Path) -> None:
    run = app.start(
        checkpoint=root / "chk", availableNow=True, slots=2, shards=8, state_root=root / "state"
    )
    run.awaitTermination(180)
    assert run.exception() is None


def counted(results: pa.Table) -> Counter[Any]:
    """The sum of n by key and half hour, over windows of five minutes."""
    found: Counter[Any] = Counter()
    for row in results.to_pylist():
        found[row["k"], (row["window_end"] - 1) // HALF[1]] += row["n"]
    return found


def test_each_window_has_sinks_maps_and_operators_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = ab.session("90s", name="visit")
    windows = [ab.tumbling("5m"), ab.tumbling("30 minutes", name="half"), session]
    app, source, w = started(spark, tmp_path, windows, 0, 6)
    memory = ab.memory()
    w["5m"].to(ab.parquet(tmp_path / "five")).to(memory)
    w["visit"].to(ab.parquet(tmp_path / "visit"))
    w["5m"].map(lambda df: df.filter("n > 1")).to(ab.parquet(tmp_path / "busy"))
    w["5m"].aggregate(by="k", windows=ab.tumbling("30 minutes"), name="sums", n=ab.sum("n")).to(
        ab.parquet(tmp_path / "sums")
    )
    joined = ab.join(
        w["5m"].map(lambda df: df.select("k", "window", "n")),
        w["half"].map(lambda df: df.select("k", "window", "s")),
        by="k",
        window=[ab.tumbling("10 minutes", name="ten"), ab.tumbling("20 minutes")],
        name="j",
    )
    joined["ten"].to(ab.parquet(tmp_path / "joined"))
    finished(app, tmp_path)
    five = read_results(tmp_path / "five")
    expected = expected_results([*BATCHES, None], query(FIVE))
    assert differences(five, expected, IDENTITY) == []
    assert bag_differences(memory.table(), five) == []
    assert {*read_results(tmp_path / "visit")["window_name"].to_pylist()} == {"visit"}
    assert bag_differences(read_results(tmp_path / "busy"), five.filter(pc.field("n") > 1)) == []
    sums = read_results(tmp_path / "sums")
    whole = {key: n for key, n in counted(five).items() if key in counted(sums)}
    assert counted(sums) == whole
    assert len(sums) > 10
    assert {*read_results(tmp_path / "joined")["window_name"].to_pylist()} == {"ten"}
    own = re.compile(r"step-\d{8}-results-[\w.-]+\.parquet")
    files = [path.name for path in (tmp_path / "five").glob("*.parquet")]
    assert all(map(own.fullmatch, files)), "the slots' own files, with no way through the JVM"
    assert not any(map(own.fullmatch, (p.name for p in (tmp_path / "busy").glob("*.parquet"))))
    with pytest.raises(ab.TopologyError, match="unknown window of 'w' 'day'; valid: 5m, half, vi"):
        w["day"]
    assert source.name == "source"


@pytest.mark.parametrize("planner", ["fusion by attributes", "unfused"])
def test_an_operator_reads_one_window_in_the_same_slot_or_after_an_exchange(
    spark: SparkSession, planner: str
) -> None:
    app = ab.Topology("static")
    rows = spark.createDataFrame(pa.concat_tables(BATCHES))
    w = app.source(rows, event_time="at").aggregate(
        by="k", windows=[ab.tumbling("5m"), ab.tumbling("30m")], name="w", n=ab.count()
    )
    w["5m"].aggregate(by="k", windows=ab.tumbling("30 minutes"), name="sums", n=ab.sum("n"))
    assert ("w + sums" in app.explain(planner=planner)) == (planner != "unfused")
    found = app.run_batch(planner=planner)
    sums, five = found["sums"].toArrow(), found["w[5m]"].toArrow()
    assert {*five["window_name"].to_pylist()} == {"5m"}
    halves = found["w"].filter("window_name = '30m'").toArrow()
    wanted = {(row["k"], row["window"]["end"]): row["n"] for row in halves.to_pylist()}
    assert {(row["k"], row["window"]["end"]): row["n"] for row in sums.to_pylist()} == wanted
    assert len(sums) == len(wanted) > 20


def test_windows_under_other_names_go_on_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    old = [ab.tumbling("300 seconds"), ab.session("2 minutes")]
    app, _, w = started(spark, tmp_path, old, 0, 3)
    w.to(ab.parquet(tmp_path / "out"))
    finished(app, tmp_path)
    new = [ab.tumbling("5m", name="five"), ab.session("120s", name="visit")]
    app, _, w = started(spark, tmp_path, new, 3, 6)
    w.to(ab.parquet(tmp_path / "out"))
    run = app.start(checkpoint=tmp_path / "chk", availableNow=True, state_root=tmp_path / "state")
    run.awaitTermination(180)
    assert [event.kind for event in run.events] == ["changed"]
    results = read_results(tmp_path / "out")
    names = {*results["window_name"].to_pylist()}
    assert names == {"300 seconds", "session 2 minutes", "five", "visit"}
    one = {"300 seconds": "5m", "five": "5m"}
    mine = results.set_column(
        results.column_names.index("window_name"),
        "window_name",
        pa.array([one.get(name, "session") for name in results["window_name"].to_pylist()]),
    )
    five = mine.filter(pa.array([name == "5m" for name in mine["window_name"].to_pylist()]))
    steps = [*BATCHES[:3], None, *BATCHES[3:], None]
    assert differences(five, expected_results(steps, query(FIVE)), IDENTITY) == []
