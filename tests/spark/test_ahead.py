"""Rows far ahead of the clock, in the middle of a stream: nothing else may change.

Whole results are compared with those of DuckDB or plain Python over the rows without them.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.state.checkpoint.commits import Commit, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.testing import (
    JoinQuery,
    WindowQuery,
    bag_differences,
    differences,
    expected_join,
    expected_late,
    expected_results,
    read_results,
    write_batches,
)
from anabranch.testing.chaos.processes import PROCESSES
from anabranch.testing.chaos.processes import expected_of as expected_of_process
from anabranch.testing.events import (
    FAR_US,
    MINUTE_US,
    SECOND_US,
    EventPlan,
    event_batches,
    without_far,
)
from anabranch.testing.reference.chains import as_rows, closed_until
from tests.spark.test_results import TIMES, Engine, minutes, named, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

YEAR_9999_S = FAR_US / SECOND_US
LIMIT_US = round(1e6 * (time.time() + 2 * 86_400))
DELAY_US = 15 * SECOND_US
WINDOW = ["window_start", "window_end", "window_name"]
HOPPING = named(2 * MINUTE_US, MINUTE_US)


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Callable[..., Engine]:
    def made(query: WindowQuery, **options: Any) -> Engine:
        return Engine(spark=spark, root=tmp_path, query=query, **options)

    return made


def stream(spark: SparkSession, path: Path) -> DataFrame:
    return (
        spark.readStream.schema(spark.read.parquet(str(path)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
    )


def start(app: ab.Topology, place: Path, **settings: Any) -> ab.Run:
    run = app.start(
        checkpoint=place / "chk",
        availableNow=True,
        idle=None,
        state_root=place / "state",
        shards=8,
        **settings,
    )
    assert run.awaitTermination(500)
    return run


def left_out(run: ab.Run) -> Counter[str]:
    return sum((Counter(each.left_out) for each in run.recentProgress), Counter())


def far_events() -> list[pa.Table]:
    plan = EventPlan(
        seed=3,
        batches=4,
        rows=250,
        keys=20,
        null_share=0.02,
        start_us=1_700_000_000 * SECOND_US,
        span_us=2 * MINUTE_US,
        disorder_us=10 * SECOND_US,
        late_share=0.05,
        late_us=10 * MINUTE_US,
        ahead_share=0.03,
    )
    return list(event_batches(plan))


@pytest.mark.parametrize("lift", ["lift first", "route first"])
def test_rows_of_the_year_9999_change_nothing_for_any_kind_of_operator(
    spark: SparkSession, tmp_path: Path, lift: str
) -> None:
    steps = far_events()
    taken = [without_far(each) for each in steps]
    ahead = sum(len(each) for each in steps) - sum(len(each) for each in taken)
    assert ahead > 15
    assert all(len(mine) < len(each) for mine, each in zip(taken, steps, strict=True))
    write_batches(steps, tmp_path / "in")
    app = ab.Topology("kinds")
    delay = timedelta(microseconds=DELAY_US)
    source = app.source(stream(spark, tmp_path / "in"), event_time="at", delay=delay)
    made = {"n": ab.count(), "total": ab.sum("v"), "first": ab.first("s"), "newest": ab.max("at")}
    long = ab.hopping("2 minutes", every="1 minute")
    windows = source.aggregate(
        by="k",
        windows=[ab.tumbling("1 minute"), long, ab.session("20 seconds", name="session")],
        name="windows",
        **made,
    )
    windows.late.to(ab.parquet(tmp_path / "late"))
    then = windows.aggregate(by="k", windows=ab.tumbling("5 minutes"), name="then", n=ab.sum("n"))
    left = source.map(lambda df: df.select("k", "at", "v"))
    other = app.source(
        stream(spark, tmp_path / "in").withColumnRenamed("at", "seen"),
        event_time="seen",
        delay=delay,
        name="other",
    )
    right = other.map(lambda df: df.filter("v > 900").select("k", "seen", "x"))
    joined = ab.join(left, right, by="k", window=long, name="joined")
    joined.late.to(ab.parquet(tmp_path / "late_joined"))
    applied = source.apply(lambda batch: batch, schema="*", name="applied")
    after = applied.aggregate(by="k", windows=long, name="after", n=ab.count(), total=ab.sum("v"))
    after.late.to(ab.parquet(tmp_path / "late_after"))
    processes = [
        source.process("k", cls, order=order, name=name) for name, (cls, order) in PROCESSES.items()
    ]
    for each in processes:
        each.late.to(ab.parquet(tmp_path / f"late_{each.name}"))
    for each in (windows, then, joined, after, *processes):
        each.to(ab.parquet(tmp_path / each.name))
    run = start(app, tmp_path, lift=lift)

    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[named(MINUTE_US), HOPPING],
        sessions=[("session", 20 * SECOND_US)],
        aggregates=[
            ("n", "count", "*"),
            ("total", "sum", "v"),
            ("first", "first", "s"),
            ("newest", "max", 'epoch_us("at")'),
        ],
        delay_us=DELAY_US,
        limit_us=LIMIT_US,
    )
    wanted = expected_results(steps, query)
    assert wanted.num_rows > 100
    identity = ["k", *WINDOW]
    assert differences(read_results(tmp_path / "windows"), wanted, identity) == []
    assert bag_differences(read_results(tmp_path / "late"), expected_late(steps, query)) == []
    second = WindowQuery(
        keys=["k"],
        event_time="__happened_us",
        windows=[named(5 * MINUTE_US)],
        aggregates=[("n", "sum", "n")],
    )
    until = closed_until(taken, "at", DELAY_US, "closing")
    results = expected_results([as_rows(wanted)], second, final_watermark=until)
    assert differences(read_results(tmp_path / "then"), results, identity) == []
    counted = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[HOPPING],
        aggregates=[("n", "count", "*"), ("total", "sum", "v")],
        delay_us=DELAY_US,
        limit_us=LIMIT_US,
    )
    found = read_results(tmp_path / "after")
    assert differences(found, expected_results(steps, counted), identity) == []
    late = expected_late(steps, counted)
    assert bag_differences(read_results(tmp_path / "late_after"), late) == []
    for name in PROCESSES:
        expected = expected_of_process(name, [*taken, None], ["k"], DELAY_US, finish=False)
        assert bag_differences(read_results(tmp_path / name), expected) == [], name
        reasons = Counter(read_results(tmp_path / f"late_{name}")["reason"].to_pylist())
        assert reasons["ahead"] > 0, name
    _compare_join(tmp_path, steps, taken)
    assert run.recentProgress[-1].watermark_us == until
    big = sum(pc.sum(pc.greater(each["v"], 900)).as_py() for each in _ahead(steps))
    # Windows, both processes, what follows the apply, and the sides of the join.
    assert left_out(run)["ahead"] == 5 * ahead + big


def _ahead(steps: Sequence[pa.Table]) -> list[pa.Table]:
    return [each.filter(pc.greater(each["at"].cast(pa.int64()), LIMIT_US)) for each in steps]


def _compare_join(place: Path, steps: Sequence[pa.Table], taken: Sequence[pa.Table]) -> None:
    sides = [
        [each.select(["k", "at", "v"]) for each in taken],
        [
            each.filter(pc.greater(each["v"], 900))
            .select(["k", "at", "x"])
            .rename_columns(["k", "seen", "x"])
            for each in taken
        ],
    ]
    known: list[int | None] = [None]
    for each in taken:
        newest = pc.max(each["at"]).cast(pa.int64()).as_py() - DELAY_US
        known.append(newest if known[-1] is None else max(known[-1], newest))
    query = JoinQuery(keys=["k"], left_time="at", right_time="seen", windows=[HOPPING])
    given = [[*side, side[0].slice(0, 0)] for side in sides]
    wanted = expected_join(*given, query, known)
    assert wanted.num_rows > 100
    assert bag_differences(read_results(place / "joined"), wanted) == []
    late = read_results(place / "late_joined")
    ahead = late.filter(pc.equal(late["reason"], "ahead"))
    assert Counter(ahead["side"].to_pylist()) == {
        "left": sum(map(len, _ahead(steps))),
        "right": sum(pc.sum(pc.greater(each["v"], 900)).as_py() for each in _ahead(steps)),
    }


@pytest.mark.parametrize("kind", TIMES)
def test_an_event_time_of_every_type_may_be_ahead(engine: Callable[..., Engine], kind: str) -> None:
    type_, unit, unit_us, of = TIMES[kind]
    far = float(2**31 - 1) if kind == "int seconds" else YEAR_9999_S
    seconds = [[-61.0, 0.0, 59.0], [60.0, far, 600.0], [], [0.0, 601.0, 1.0], [700.0, far]]
    steps = [
        pa.table(
            {
                "k": pa.array([0] * len(batch), pa.int64()),
                "at": pa.array([of(each) for each in batch], type_),
            }
        )
        for batch in seconds
    ]
    windows = [named(MINUTE_US), named(90 * SECOND_US, 30 * SECOND_US)]
    tested = engine(minutes(unit_us=unit_us, windows=windows, limit_us=LIMIT_US), unit=unit)
    tested.run(steps)
    assert tested.differences(steps) == []
    reasons = Counter(read_results(tested.root / "late")["reason"].to_pylist())
    assert reasons == {"ahead": 2, "late": 2}


def test_dates_may_be_ahead(engine: Callable[..., Engine]) -> None:
    days = [[date(1970, 1, 1)], [date(9999, 12, 31), date(1970, 1, 3)], [date(1970, 1, 4)]]
    steps = [
        pa.table({"k": pa.array([0] * len(each), pa.int64()), "at": pa.array(each, pa.date32())})
        for each in days
    ]
    tested = engine(minutes(windows=[named(24 * 60 * MINUTE_US)], limit_us=LIMIT_US))
    run = tested.run(steps)
    assert tested.differences(steps) == []
    assert left_out(run) == {"ahead": 1}


def test_rows_that_maps_leave_out_are_not_counted_and_do_not_move_the_watermark(
    engine: Callable[..., Engine],
) -> None:
    """Every operator drops some rows, so Spark observes the latest event time at the source."""
    far = timed(YEAR_9999_S, YEAR_9999_S, 100)
    far = far.set_column(0, "k", pa.array([0, 1, 1], pa.int64()))
    steps = [timed(0, 30), far, timed(60, 130), timed(70, 200)]
    query = minutes(where="k = 0", limit_us=LIMIT_US)
    tested = engine(query, rows=lambda df: df.filter("k = 0"))
    run = tested.run(steps)
    assert tested.differences(steps) == []
    assert left_out(run) == {"ahead": 1}
    assert [each.watermark_us for each in run.recentProgress] == [
        None if each is None else each * SECOND_US for each in (None, 30, 100, 130, 200)
    ]


def test_a_static_topology_leaves_rows_ahead_out_too(spark: SparkSession) -> None:
    steps = far_events()[:2]
    taken = [without_far(each) for each in steps]
    app = ab.Topology("static")
    frame = spark.createDataFrame(pa.concat_tables(steps))
    app.source(frame, event_time="at").aggregate(
        by="k", windows=ab.tumbling("1 minute"), name="windows", n=ab.count()
    )
    found = app.run_batch(slots=2)
    wanted = expected_results([pa.concat_tables(taken)], minutes(), final_watermark="finish")
    assert differences(found["windows"].toArrow(), wanted, ["k", *WINDOW]) == []
    reasons = Counter(found["windows.late"].toArrow()["reason"].to_pylist())
    assert reasons["ahead"] == sum(map(len, steps)) - sum(map(len, taken))


@pytest.mark.parametrize("after_apply", [False, True])
def test_a_step_that_runs_again_has_the_clock_that_it_had_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_apply: bool
) -> None:
    """The driver fails between job and commit, and the state is lost.

    By then the clock has moved past rows that were ahead, one every 10 ms.
    """
    now_us = time.time_ns() // 1000
    at = pa.array([now_us + 10_000 * i for i in range(60_000)]).cast(pa.timestamp("us", tz="UTC"))
    rows = pa.table({"k": pa.array([i % 3 for i in range(len(at))]), "at": at})
    write_batches([rows.slice(0, 10), rows.slice(10)], tmp_path / "in")

    def topology() -> ab.Topology:
        app = ab.Topology("clock")
        source = app.source(stream(spark, tmp_path / "in"), event_time="at", ahead="5 seconds")
        if after_apply:
            source = source.apply(lambda batch: batch, schema="*", name="applied")
        made = source.aggregate(by="k", windows=ab.tumbling("1 minute"), name="w", n=ab.count())
        made.late.to(ab.parquet(tmp_path / "late"))
        made.to(ab.parquet(tmp_path / "out"))
        return app

    monkeypatch.setenv("ANABRANCH_FAULTS", "commit.before@2=fail")
    monkeypatch.setenv("ANABRANCH_FAULTS_FIRED", str(tmp_path))
    settings = {"state_root": tmp_path / "state", "availableNow": True, "shards": 8}
    with pytest.raises(Exception, match=r"commit\.before"):
        topology().start(checkpoint=tmp_path / "chk", **settings).awaitTermination(120)
    monkeypatch.delenv("ANABRANCH_FAULTS")
    first = read_results(tmp_path / "late")
    shutil.rmtree(tmp_path / "state")
    run = topology().start(checkpoint=tmp_path / "chk", **settings)
    assert run.awaitTermination(120)

    found = read_results(tmp_path / "late")
    clock_us = next(each.clock_us for each in _commits(tmp_path / "chk") if each.step == 2)
    assert clock_us is not None
    ahead = rows.slice(10).filter(pc.greater(at.slice(10).cast(pa.int64()), clock_us + 5_000_000))
    assert 0 < len(ahead) < len(rows)
    reason = pa.array(["ahead"] * len(ahead))
    assert bag_differences(found, ahead.append_column("reason", reason)) == []
    assert bag_differences(found, first) == []
    assert run.recentProgress[0].left_out == {"ahead": len(ahead)}
    assert run.recentProgress[0].restored > 0


def test_without_a_limit_all_rows_count_except_those_whose_windows_python_cannot_show(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of the years 0, 9999 and 200,000; also results, whose windows end later."""
    seconds = [0, 30, YEAR_9999_S, -62_198_755_200, 253_402_300_700, 6_249_217_593_600]
    named = {"k": pa.array(range(6), pa.int64()), "at": pa.array(seconds, pa.float64())}
    rows = pa.table({**named, "v": pa.array([1] * 6, pa.int64())})
    write_batches([rows], tmp_path / "in")
    app = ab.Topology("years")
    frame = stream(spark, tmp_path / "in").withColumn("at", F.timestamp_seconds("at"))
    source = app.source(frame, event_time="at", ahead=None)
    days = source.aggregate(by="k", windows=ab.tumbling("1 day"), name="days", n=ab.count())
    days.late.to(ab.parquet(tmp_path / "late"))
    long = days.aggregate(by="k", windows=ab.tumbling("36500 days"), name="long", n=ab.sum("n"))
    kept = source.process("k", PROCESSES["added"][0], order="arrival", name="kept")
    for each in (days, long, kept):
        each.to(ab.parquet(tmp_path / each.name))
    run = start(app, tmp_path)
    run.finish()
    for name in ("days", "long", "kept"):
        spark.read.parquet(str(tmp_path / name)).collect()
    assert sorted(read_results(tmp_path / "days")["k"].to_pylist()) == [0, 1, 2]
    assert sorted(read_results(tmp_path / "kept")["k"].to_pylist()) == [0, 1, 2]
    assert sorted(read_results(tmp_path / "long")["k"].to_pylist()) == [0, 1]
    late = read_results(tmp_path / "late")
    assert sorted(late["k"].to_pylist()) == [3, 4, 5]
    assert set(late["reason"].to_pylist()) == {"out of range"}
    assert left_out(run) == {"out of range": 7}  # three of days and of kept, one of long


def test_a_jump_of_the_watermark_is_an_event(engine: Callable[..., Engine]) -> None:
    day = 86_400
    run = engine(minutes()).run([timed(0), timed(day), timed(4.5 * day)])
    jumps = [each for each in run.events if each.kind == "watermark jump"]
    [jump] = jumps
    assert jump.step == 3
    assert jump.text == (
        "watermark jumped by 3.5 days in step 3, from 1970-01-02 00:00:00 to 1970-01-05 12:00:00 "
        "(UTC); newest row of source 'source' 1970-01-05 12:00:00"
    )


def _commits(place: Path) -> list[Commit]:
    checkpoint = open_checkpoint(Files(str(place)))
    assert checkpoint is not None
    return list(checkpoint.commits.values())


def test_another_clock_compiles_no_query_again(spark: SparkSession, tmp_path: Path) -> None:
    write_batches([timed(*range(60 * i, 60 * i + 60)) for i in range(7)], tmp_path / "in")
    jvm: Any = spark._jvm
    compiled: list[int] = []

    def count(_frame: DataFrame, _step: int) -> None:
        metrics = jvm.org.apache.spark.metrics.source.CodegenMetrics
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount())

    app = ab.Topology("compiled")
    source = app.source(stream(spark, tmp_path / "in"), event_time="at", delay="1 second")
    source.aggregate(by="k", windows=ab.tumbling("1 minute"), n=ab.count()).to(count)
    run = start(app, tmp_path, slots=2, lift="lift first")
    assert len({each.clock_us for each in _commits(tmp_path / "chk")} - {None}) == 7
    assert len(run.recentProgress) >= 7
    *first, _closing = compiled  # from the third step on windows close
    assert len(first) == 5
    assert first[-1] == first[1], compiled
