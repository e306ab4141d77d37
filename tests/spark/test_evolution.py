"""Windows and aggregates that come and go at a restart.

Windows for which the panes have all rows are complete; others are marked incomplete. A new
aggregate is null in windows that have already started.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.errors import CheckpointError
from anabranch.testing import (
    EventPlan,
    WindowQuery,
    differences,
    event_batches,
    expected_results,
    read_results,
    write_batches,
)
from anabranch.testing.events import MINUTE_US, SECOND_US
from anabranch.testing.reference.aggregates import Aggregate
from anabranch.testing.reference.chains import as_rows, latest
from anabranch.testing.reference.changes import Phase, expected_with_changes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FIVE, TEN, HALF = (
    ("5 minutes", 5 * MINUTE_US, 5 * MINUTE_US, 0),
    ("10 minutes every 5 minutes", 10 * MINUTE_US, 5 * MINUTE_US, 0),
    ("30 minutes every 10 minutes", 30 * MINUTE_US, 10 * MINUTE_US, 0),
)
IDENTITY = ["k", "window_start", "window_end", "window_name"]
DELAY_US = 10 * SECOND_US


def windows(*shapes: tuple[str, int, int, int]) -> list[ab.Window]:
    return [
        ab.hopping(timedelta(microseconds=length), every=timedelta(microseconds=every))
        for _, length, every, _ in shapes
    ]


def test_windows_come_and_go_at_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    plan = EventPlan(
        seed=8, batches=12, rows=200, keys=15, span_us=6 * MINUTE_US, disorder_us=8 * SECOND_US
    )
    steps = list(event_batches(plan))

    def run(batches: slice, chosen: list[ab.Window]) -> ab.Run:
        write_batches(steps[batches], tmp_path / "in", first=batches.start)
        schema = spark.read.parquet(str(tmp_path / "in")).schema
        rows = (
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / "in"))
        )
        app = ab.Topology("evolving")
        stream = app.source(rows, event_time="at", delay=timedelta(microseconds=DELAY_US))
        results = stream.aggregate(by="k", windows=chosen, name="w", n=ab.count(), s=ab.sum("v"))
        results.to(ab.parquet(tmp_path / "out"))
        started = app.start(
            checkpoint=tmp_path / "chk",
            availableNow=True,
            idle=None,
            shards=8,
            state_root=tmp_path / "st",
        )
        started.awaitTermination(120)
        return started

    run(slice(0, 4), windows(FIVE, TEN))
    last = run(slice(4, 8), windows(FIVE, HALF))
    assert [event.kind for event in last.events][:1] == ["changed"]
    watermark = last.recentProgress[0].watermark_us
    run(slice(8, 12), windows(FIVE, HALF))
    found = read_results(tmp_path / "out")
    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[FIVE, TEN, HALF],
        aggregates=[("n", "count", "*"), ("s", "sum", "v")],
        delay_us=DELAY_US,
    )
    wanted = expected_results(steps, query)
    assert watermark is not None
    name = pc.field("window_name")
    complete = wanted.filter(name == FIVE[0])
    assert differences(found.filter(name == FIVE[0]), complete, IDENTITY) == []
    # Ten minutes went after the first run, half hours came: those within kept panes are complete.
    went = wanted.filter((name == TEN[0]) & (pc.field("window_end") <= watermark))
    assert differences(found.filter(name == TEN[0]), went, IDENTITY) == []
    came = found.filter(name == HALF[0])
    since = min(came["window_start"].to_pylist())
    assert came.num_rows > 0
    assert (
        differences(
            came, wanted.filter((name == HALF[0]) & (pc.field("window_start") >= since)), IDENTITY
        )
        == []
    )
    marked = found.filter(name == f"{HALF[0]} (incomplete)")
    assert marked.num_rows > 0
    assert max(marked["window_start"].to_pylist()) < since <= watermark + 10 * MINUTE_US

    with pytest.raises(
        CheckpointError, match="'7 minutes' is not made of the checkpoint's panes of 5 minutes"
    ):
        run(slice(12, 12), [ab.tumbling("7 minutes")])


class Spread:
    """The distance between the least and the greatest value, in plain Python."""

    state_type = tuple[int, int]
    result_type = "bigint"

    def init(self) -> tuple[int, int]:
        return (1 << 40, -(1 << 40))

    def add(self, state: tuple[int, int], value: int) -> tuple[int, int]:
        return min(state[0], value), max(state[1], value)

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return min(one[0], other[0]), max(one[1], other[1])

    def finish(self, state: tuple[int, int]) -> int | None:
        return state[1] - state[0] if state[0] <= state[1] else None


GAP = ("session 20 seconds", 20 * SECOND_US)
PHASES: list[tuple[Aggregate, ...]] = [
    (("n", "count", "*"), ("s", "sum", "v"), ("m", "max", "v", "v > 0"), ("a", "avg", "x")),
    # m has another filter, c and e are new, s is gone; t is complete, as a keeps what it needs.
    (
        ("c", "collect_set", "v % 7"),
        ("n", "count", "*"),
        ("m", "max", "v", "v % 2 = 0"),
        ("a", "avg", "x"),
        ("t", "sum", "x"),
        ("e", "variance", "x", "v < 500"),
    ),
    # s comes back and starts empty, so does m with its first filter; c and e continue.
    (
        ("m", "max", "v", "v > 0"),
        ("e", "variance", "x", "v < 500"),
        ("s", "sum", "v"),
        ("c", "collect_set", "v % 7"),
    ),
]


def _built(phase: int) -> dict[str, ab.Aggregate]:
    found = {}
    for name, kind, expression, *rest in PHASES[phase]:
        found[name] = getattr(ab, kind)(expression, where=rest[0] if rest else None)
    return found


def _pane_after(us: int) -> int:
    return us - us % (5 * MINUTE_US) + 5 * MINUTE_US


def test_aggregates_come_and_go_and_filters_change_at_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan = EventPlan(
        seed=21, batches=9, rows=200, keys=12, span_us=8 * MINUTE_US, disorder_us=20 * SECOND_US
    )
    batches = list(event_batches(plan))

    def run(number: int, **more: ab.Aggregate) -> ab.Run:
        write_batches(batches[3 * number : 3 * number + 3], tmp_path / "in", first=3 * number)
        rows = (
            spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / "in"))
        )
        app = ab.Topology("evolving")
        stream = app.source(rows, event_time="at", delay=timedelta(microseconds=DELAY_US))
        w = stream.aggregate(by="k", windows=windows(FIVE, TEN), name="w", **_built(number), **more)
        w.to(ab.parquet(tmp_path / f"w-{number}"))
        gap = ab.session(timedelta(microseconds=GAP[1]))
        visits = stream.aggregate(by="k", windows=gap, name="visits", **_built(number))
        visits.to(ab.parquet(tmp_path / f"visits-{number}"))
        then = w.aggregate(
            by="k", windows=ab.tumbling("5 minutes"), name="then", rows=ab.count(), top=ab.max("m")
        )
        then.to(ab.parquet(tmp_path / "then"))
        said = "new:       e is null in windows that started before 1970-01-01 00:25:00 UTC"
        if number == 1:
            assert said in app.explain(checkpoint=tmp_path / "chk")
        started = app.start(
            checkpoint=tmp_path / "chk",
            availableNow=True,
            idle=None,
            shards=8,
            slots=1 + number % 2,
            state_root=tmp_path / "st",
        )
        started.awaitTermination(240)
        # What was new is complete now.
        assert said not in app.explain(checkpoint=tmp_path / "chk")
        return started

    run(0)
    second = run(1, u=ab.udaf(Spread)("v"))
    [changed] = [event.text for event in second.events if event.kind == "changed"]
    for change in (
        "'w': aggregate 'e' is new and starts empty: null in windows that started before 1970-01-01",
        "aggregate 'm' was max(v: bigint) where v > 0 and is max(v: bigint) where v % 2 = 0",
        "aggregate 't' is new, and complete",
        "aggregate 's' is gone, its state is forgotten",
        "'then': aggregate 'top' reads a column that has changed and starts empty",
    ):
        assert change in changed
    run(2)

    steps = [*batches[:3], None, *batches[3:6], None, *batches[6:], None]
    phases = [Phase(steps=4, aggregates=each) for each in PHASES]
    w, visits = (
        [read_results(tmp_path / f"{name}-{number}") for number in range(3)]
        for name in ("w", "visits")
    )
    own = w[1].column("u")
    w[1] = w[1].drop_columns("u")
    wanted = {}
    for name, found, shapes, gaps in (("w", w, [FIVE, TEN], []), ("visits", visits, [], [GAP])):
        query = WindowQuery(
            keys=["k"], event_time="at", windows=shapes, sessions=gaps, delay_us=DELAY_US
        )
        wanted[name] = expected_with_changes(steps, query, phases, whole={"v", "v % 7"})
        whole = pa.concat_tables(found, promote_options="default")
        assert differences(whole, wanted[name], IDENTITY) == []
        assert 0 < found[1]["e"].null_count < found[1].num_rows
        assert found[1]["n"].null_count == found[1]["t"].null_count == 0
        assert 0 < found[2]["s"].null_count < found[2].num_rows

    # The user's own aggregate: null before, then the distance of the extremes.
    newest = [latest(steps[:4], "at"), latest(steps[:8], "at")]
    complete = [_pane_after(us) for us in newest if us is not None]
    extremes = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=[FIVE, TEN],
        aggregates=[("low", "min", "v"), ("high", "max", "v")],
        delay_us=DELAY_US,
    )
    every = {
        (row["k"], row["window_start"], row["window_name"]): row["high"] - row["low"]
        for row in expected_results(steps, extremes).to_pylist()
    }
    assert 0 < own.null_count < len(own)
    for row, found in zip(w[1].to_pylist(), own.to_pylist(), strict=True):
        at = row["k"], row["window_start"], row["window_name"]
        assert found == (every[at] if row["window_start"] >= complete[0] else None)

    # The next operator: null until it reads only windows that have started since.
    again = WindowQuery(
        keys=["k"],
        event_time="__happened_us",
        windows=[FIVE],
        aggregates=[("rows", "count", "*"), ("top", "max", "m")],
    )
    until = newest[1] - DELAY_US if newest[1] is not None else 0
    last = latest(steps, "at")
    assert last is not None
    then = expected_results([as_rows(wanted["w"])], again, final_watermark=last - DELAY_US)
    first_run = pc.less_equal(then["window_end"], (newest[0] or 0) - DELAY_US)
    second_run = pc.less_equal(then["window_end"], until)
    starts = then["window_start"]
    known = pc.if_else(
        first_run,
        True,
        pc.if_else(
            second_run,
            pc.greater_equal(starts, complete[0] + TEN[1]),
            pc.greater_equal(starts, complete[1] + TEN[1]),
        ),
    )
    top = pc.if_else(known, then["top"], pa.scalar(None, then["top"].type))
    expected = then.set_column(then.column_names.index("top"), "top", top)
    assert differences(read_results(tmp_path / "then"), expected, IDENTITY) == []
    assert 0 < top.null_count < len(top)


class Totals:
    """Rows of a key so far; the second form has their sum, too."""

    state = {"n": "bigint"}
    output = "n bigint"
    columns = {"rows": ab.count()}

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        state.n += rows["rows"]
        return {"n": state.n}


class TotalsOfMore(Totals):
    """The same state, of other aggregates."""

    output = "n bigint, s bigint"
    columns = {"rows": ab.count("v"), "sum": ab.sum("v", where="v > 0")}

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        state.n += rows["rows"]
        return {"n": state.n, "s": rows["sum"]}


def test_another_map_a_process_that_reads_other_aggregates_and_columns_of_a_join_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan = EventPlan(seed=4, batches=6, rows=80, keys=5, span_us=5 * MINUTE_US)
    batches = list(event_batches(plan))

    def run(number: int) -> ab.Run:
        write_batches(batches[3 * number : 3 * number + 3], tmp_path / "in", first=3 * number)
        rows = (
            spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / "in"))
        )
        app = ab.Topology("evolving")
        stream = app.source(rows, event_time="at", delay="0 seconds")
        some = stream.map(lambda df: df.where("v < 0" if number else "v > 0"))
        five = ab.tumbling("5 minutes")
        more = {"high": ab.max("v")} if number else {}
        left = some.aggregate(by="k", windows=five, name="left", n=ab.count(), **more)
        left.to(ab.parquet(tmp_path / "left"))
        right = stream.aggregate(by="k", windows=five, name="right", low=ab.min("v"))
        right.to(ab.parquet(tmp_path / "right"))
        joined = ab.join(left, right, by="k", window=ab.tumbling("10 minutes"), name="joined")
        joined.to(ab.parquet(tmp_path / "joined"))
        kind = TotalsOfMore if number else Totals
        stream.process("k", kind, order="arrival", name="totals").to(
            ab.parquet(tmp_path / f"totals-{number}")
        )
        started = app.start(
            checkpoint=tmp_path / "chk",
            availableNow=True,
            idle=None,
            shards=4,
            slots=2,
            state_root=tmp_path / "st",
        )
        started.awaitTermination(240)
        return started

    run(0)
    [changed] = [event.text for event in run(1).events if event.kind == "changed"]
    assert "'left': aggregate 'high' is new and starts empty" in changed
    assert "'joined': column 'high' is new: null in rows that already wait" in changed
    assert "totals" not in changed

    # Windows: rows of the first run by the first map, those of the second run by the second map.
    rows = [
        {**row, "us": int(row["at"].timestamp() * 1_000_000), "second": number >= 3}
        for number, batch in enumerate(batches)
        for row in batch.to_pylist()
    ]
    mapped = [row for row in rows if (row["v"] < 0 if row["second"] else row["v"] > 0)]
    begins = _pane_after(max(row["us"] for row in rows if not row["second"]))
    left = read_results(tmp_path / "left").to_pylist()
    assert len({(row["k"], row["window_start"]) for row in left}) == len(left) > 0
    for found in left:
        mine = [
            row
            for row in mapped
            if row["k"] == found["k"] and found["window_start"] <= row["us"] < found["window_end"]
        ]
        assert found["n"] == len(mine)
        complete = found["window_start"] >= begins
        assert found.get("high") == (max(row["v"] for row in mine) if complete else None)

    # The join: every pair of a key in the same ten minutes, with the columns of that time.
    right = read_results(tmp_path / "right").to_pylist()
    ten = 10 * MINUTE_US
    closed = max(row["us"] for row in rows)
    pairs = sorted(
        (repr(mine["k"]), start, mine["n"], mine["high"] or 0, theirs["low"])
        for mine in left
        for theirs in right
        if mine["k"] == theirs["k"]
        and mine["k"] is not None
        and (start := (mine["window_end"] - 1) // ten * ten)
        == (theirs["window_end"] - 1) // ten * ten
        and start + ten <= closed
    )
    joined = read_results(tmp_path / "joined").to_pylist()
    assert pairs == sorted(
        (repr(row["k"]), row["window_start"], row["n"], row["high"] or 0, row["low"])
        for row in joined
    )
    highs = [row["high"] for row in joined if row["window_start"] >= begins - ten]
    assert None in highs
    assert any(high is not None for high in highs)

    # The process: its count continues, over the rows of both runs.
    first, second = (read_results(tmp_path / f"totals-{number}") for number in range(2))
    counted: dict[Any, int] = {}
    for row in rows:
        counted[row["k"]] = counted.get(row["k"], 0) + (1 if row["v"] is not None else 0)
    last: dict[Any, int] = {}
    for table in (first, second):
        for row in table.to_pylist():
            last[row["k"]] = max(row["n"], last.get(row["k"], 0))
    assert last == counted
    positive = sum(row["v"] for row in rows if row["second"] and row["v"] > 0)
    assert sum(each or 0 for each in second["s"].to_pylist()) == positive
