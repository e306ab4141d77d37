"""Windows of the calendar on Spark: whole outputs against DuckDB's time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.errors import TopologyError
from anabranch.plan.panes import panes_of
from anabranch.testing import (
    EventPlan,
    JoinQuery,
    WindowQuery,
    differences,
    event_batches,
    expected_join,
    expected_late,
    expected_results,
    read_results,
    write_batches,
)
from anabranch.testing.compare import bag_differences
from anabranch.testing.events import HOUR_US, MINUTE_US, SECOND_US
from anabranch.topology.calendar import UNITS
from anabranch.topology.zones import zone_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from anabranch.spark.api.streams import Windowed

DAY_US = 24 * HOUR_US
TEN = ("10 minutes", 10 * MINUTE_US, 10 * MINUTE_US, 0)
IDENTITY = ["k", "window_start", "window_end", "window_name"]
AGGREGATES = [("n", "count", "*"), ("s", "sum", "v"), ("top", "max", "v")]


def us(text: str) -> int:
    """An instant in UTC, as microseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND_US


def stream(spark: SparkSession, path: Path) -> DataFrame:
    return (
        spark.readStream.schema(spark.read.parquet(str(path)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(path))
    )


def calendars(zone: str, *units: str) -> list[tuple[str, str, str]]:
    return [(f"{unit} in {zone}", unit, zone) for unit in units]


def aggregated(app: ab.Topology, rows: DataFrame, query: WindowQuery, **given: Any) -> Windowed:
    """The topology of a query of calendar windows and of windows of ten minutes."""
    windows: list[Any] = [
        ab.tumbling("10 minutes") if each == TEN else ab.calendar(each[1], timezone=str(each[2]))
        for each in query.windows
    ]
    windows += [ab.session(timedelta(microseconds=gap)) for _, gap in query.sessions]
    found = app.source(rows, event_time="at", delay=timedelta(microseconds=query.delay_us))
    return found.aggregate(
        by="k", windows=windows, name="w", n=ab.count(), s=ab.sum("v"), top=ab.max("v"), **given
    )


def finished(app: ab.Topology, tmp_path: Path, *, finish: bool = True, **given: Any) -> ab.Run:
    run = app.start(
        checkpoint=tmp_path / "chk",
        availableNow=True,
        idle=None,
        shards=4,
        state_root=tmp_path / "st",
        **given,
    )
    run.awaitTermination(120)
    if finish:
        run.finish()
    return run


@pytest.mark.parametrize(
    ("zone", "start", "span_us", "units"),
    [
        ("Europe/Berlin", "2024-02-28T20:00:00", 9 * HOUR_US, ("ten", *UNITS)),
        ("Europe/Berlin", "2024-10-20T00:00:00", 3 * DAY_US, ("day", "month")),
        ("Asia/Kathmandu", "2023-12-28T00:00:00", DAY_US, ("ten", "week", "month")),
        ("Australia/Lord_Howe", "2024-04-03T11:00:00", DAY_US, ("day", "week")),
        ("America/Sao_Paulo", "2018-10-31T00:00:00", DAY_US, ("ten", "day", "month", "year")),
        ("Europe/Berlin", "1893-03-25T00:00:00", 2 * DAY_US, ("ten", "day", "month")),
        ("Asia/Kathmandu", "1901-12-28T00:00:00", DAY_US, ("day", "quarter")),
    ],
)
def test_results_and_late_rows_are_those_of_duckdbs_time_zones(
    spark: SparkSession,
    tmp_path: Path,
    zone: str,
    start: str,
    span_us: int,
    units: tuple[str, ...],
) -> None:
    plan = EventPlan(
        seed=3,
        batches=6,
        rows=150,
        keys=6,
        start_us=us(start),
        span_us=span_us,
        disorder_us=2 * HOUR_US,
        late_share=0.1,
        late_us=3 * span_us,
    )
    steps = list(event_batches(plan))
    write_batches(steps, tmp_path / "in")
    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[
            TEN if unit == "ten" else each
            for unit, each in zip(units, calendars(zone, *units), strict=True)
        ],
        sessions=[("session 1 hour", HOUR_US)] if zone == "Asia/Kathmandu" else [],
        aggregates=AGGREGATES,
        delay_us=HOUR_US,
    )
    app = ab.Topology("calendar")
    results = aggregated(app, stream(spark, tmp_path / "in"), query)
    results.to(ab.parquet(tmp_path / "out"))
    results.late.to(ab.parquet(tmp_path / "late"))
    finished(app, tmp_path)
    wanted = expected_results(steps, query, final_watermark="finish")
    assert differences(read_results(tmp_path / "out"), wanted, IDENTITY) == []
    late = bag_differences(read_results(tmp_path / "late"), expected_late(steps, query))
    assert late == []


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/St_Johns", "America/Toronto", "Pacific/Apia"]
)
def test_the_query_gives_every_time_a_time_of_its_own_pane(spark: SparkSession, zone: str) -> None:
    """Also if midnight comes twice, if it is skipped, or a whole day is; in all centuries."""
    rng = np.random.default_rng(4)
    for beside in ([], [ab.tumbling("10 minutes")], [ab.tumbling("7 hours", start="13 minutes")]):
        for units in (["day"], ["month"], ["week", "quarter"]):
            windows = [*beside, *(ab.calendar(unit, timezone=zone) for unit in units)]
            panes = panes_of(windows)
            changes = zone_of(ab.calendar("day", timezone=zone).rules).begins[1:]
            near = rng.choice(changes, 600) + rng.integers(-90_000, 90_000, 600) * SECOND_US
            anywhen = rng.integers(-6 * 10**16, 2 * 10**17, 200)
            edges = windows[-1].last_ends(np.concatenate([near, anywhen]))
            times = np.concatenate([near, anywhen, edges, edges - 1])
            given = spark.createDataFrame(pa.table({"t": pa.array(times)}))
            found = given.selectExpr("t", f"{panes.pane_sql()} as pane").toArrow()
            t, pane = (found[name].to_numpy() for name in ("t", "pane"))
            assert (pane <= t).all()
            assert (panes.starts(pane) == panes.starts(t)).all()
            assert len(np.unique(pane)) > 100


def test_early_results_of_a_month_are_what_the_rows_so_far_give(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan = EventPlan(
        seed=6, batches=5, rows=200, keys=5, start_us=us("2024-03-29T00:00:00"), span_us=DAY_US
    )
    steps = list(event_batches(plan))
    write_batches(steps, tmp_path / "in")
    month = calendars("Europe/Berlin", "month")
    query = WindowQuery(keys=["k"], event_time="at", windows=[TEN, *month], aggregates=AGGREGATES)
    found: dict[int, pa.Table] = {}
    app = ab.Topology("early")
    results = aggregated(app, stream(spark, tmp_path / "in"), query, early=1)
    results.to(lambda frame, step: found.update({step: frame.toArrow()}))
    run = finished(app, tmp_path, finish=False)
    checked = 0
    for step in run.recentProgress:
        if step.batch_id is not None:
            given = found[step.step]
            early = flat(given.filter(given["early"]))
            so_far = expected_results(steps[: step.step], query, final_watermark="finish")
            until = step.watermark_us if step.watermark_us is not None else -(1 << 62)
            still_open = so_far.filter(pc.field("window_end") > until)
            assert differences(early, still_open, IDENTITY) == []
            checked += still_open.num_rows
    assert checked > 50


def flat(results: pa.Table) -> pa.Table:
    """The window's edges as whole numbers, as the reference has them."""
    window = results["window"].combine_chunks()
    kept = results.drop_columns(["window", "early"])
    for name in ("start", "end"):
        kept = kept.append_column(f"window_{name}", window.field(name).cast(pa.int64()))
    return kept


def test_a_calendar_window_that_is_added_is_marked_until_its_first_whole_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its edges are not edges of the panes of ten minutes: in Kathmandu days begin at 18:15 UTC."""
    plan = EventPlan(
        seed=9, batches=8, rows=120, keys=5, start_us=us("2024-03-29T00:00:00"), span_us=DAY_US // 2
    )
    steps = list(event_batches(plan))
    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[TEN, *calendars("Asia/Kathmandu", "day")],
        aggregates=AGGREGATES,
    )
    first = WindowQuery(keys=["k"], event_time="at", windows=[TEN], aggregates=AGGREGATES)
    for batches, chosen in ((slice(0, 3), first), (slice(3, 6), query), (slice(6, 8), query)):
        write_batches(steps[batches], tmp_path / "in", first=batches.start)
        app = ab.Topology("calendar")
        results = aggregated(app, stream(spark, tmp_path / "in"), chosen)
        results.to(ab.parquet(tmp_path / "out"))
        finished(app, tmp_path, finish=batches.stop == 8)
    found = read_results(tmp_path / "out")
    wanted = expected_results(steps, query, final_watermark="finish")
    name, start = pc.field("window_name"), pc.field("window_start")
    newest = max(pc.max(step["at"]).cast(pa.int64()).as_py() for step in steps[:3])
    whole = wanted.filter((name == TEN[0]) | (start > newest))
    assert differences(found.filter(~pc.ends_with(name, "(incomplete)")), whole, IDENTITY) == []
    marked = found.filter(pc.ends_with(name, "(incomplete)"))
    assert set(marked["window_name"].to_pylist()) == {"day in Asia/Kathmandu (incomplete)"}
    assert max(marked["window_start"].to_pylist()) <= newest


def test_joins_in_calendar_windows_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    start = us("2024-10-26T12:00:00")

    def rows(time: str, value: str) -> pa.Table:
        at = start + rng.integers(0, 3 * DAY_US, 80)
        return pa.table(
            {
                "k": pa.array(rng.integers(0, 5, 80), pa.int32()),
                time: pa.array(at).cast(pa.timestamp("us", tz="UTC")),
                value: pa.array(rng.integers(0, 100, 80)),
            }
        )

    left, right = rows("at", "a"), rows("seen", "b")
    windows = [("6 hours", 6 * HOUR_US, 6 * HOUR_US, 0), *calendars("Europe/Berlin", "day")]
    query = JoinQuery(keys=["k"], left_time="at", right_time="seen", windows=windows, how="full")
    for name, table in (("l", left), ("r", right)):
        write_batches([table], tmp_path / name)
    app = ab.Topology("joined")
    mine = app.source(stream(spark, tmp_path / "l"), event_time="at", name="l", delay="3 days")
    theirs = app.source(stream(spark, tmp_path / "r"), event_time="seen", name="r", delay="3 days")
    joined = ab.join(
        mine,
        theirs,
        by="k",
        window=[ab.tumbling("6 hours"), ab.calendar("day", timezone="Europe/Berlin")],
        how="full",
    )
    joined.to(ab.parquet(tmp_path / "out"))
    finished(app, tmp_path)
    wanted = expected_join([left], [right], query, [None], finish=True)
    assert wanted.num_rows > 100
    assert bag_differences(read_results(tmp_path / "out"), wanted) == []


def test_times_without_a_zone_are_local_already(spark: SparkSession) -> None:
    given = spark.sql(
        "select 1 as k, timestamp_ntz'2024-02-29 23:59:59' as at union all "
        "select 1 as k, timestamp_ntz'2024-03-01 00:00:00' as at"
    )
    app = ab.Topology("local")
    rows = app.source(given, event_time="at", name="rows")
    berlin = ab.calendar("month", timezone="Europe/Berlin")
    with pytest.raises(TopologyError, match="its times are local already"):
        rows.aggregate(by="k", windows=berlin, n=ab.count())
    rows.aggregate(by="k", windows=ab.calendar("month"), n=ab.count(), name="months")
    found = app.run_batch({"rows": given})["months"].orderBy("window.start").toArrow()
    starts = found["window"].combine_chunks().field("start").to_pylist()
    assert starts == [datetime(2024, 2, 1), datetime(2024, 3, 1)]  # noqa: DTZ001
    assert found["n"].to_pylist() == [1, 1]
