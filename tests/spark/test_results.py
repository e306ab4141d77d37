"""Whole outputs, results and late rows, against DuckDB: random cases, then special ones.

Every batch is one file (maxFilesPerTrigger=1, each younger than the last). So it is known which
watermark applies to which rows. More random cases: ANABRANCH_EXAMPLES=200.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.testing import (
    EventPlan,
    WindowQuery,
    bag_differences,
    differences,
    event_batches,
    expected_late,
    expected_results,
    read_results,
    write_batches,
)
from anabranch.testing.events import HOUR_US, MINUTE_US, ODD_FLOATS, SECOND_US, WORDS
from anabranch.testing.reference.windows import FinalWatermark, Window
from anabranch.testing.strategies import RandomCase, cases, rows_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

EXAMPLES = int(os.environ.get("ANABRANCH_EXAMPLES", "12"))
DAY_US = 24 * HOUR_US
UNITS = {
    "day": DAY_US,
    "hour": HOUR_US,
    "minute": MINUTE_US,
    "second": SECOND_US,
    "millisecond": 1000,
    "microsecond": 1,
}

SO_FAR_EVERY = timedelta(minutes=15)

EVERY_AGGREGATE = [
    ("n", "count", "*"),
    ("values", "count", "v"),
    ("total", "sum", "v"),
    ("exact", "sum", "d"),
    ("mean", "avg", "x"),
    ("exact_mean", "avg", "d"),
    ("least", "min", "x"),
    ("most", "max", "x"),
    ("first_word", "min", "s"),
    ("last_word", "max", "s"),
    ("spread", "variance", "x"),
    ("deviation", "stddev_pop", "v"),
    ("opened", "first", "v"),
    ("closed", "last", "s", "v > 0"),
    ("all_above", "bool_and", "v > 0"),
    ("one_above", "bool_or", "v > 0"),
    ("at_most", "max_by", "s", None, {"by": "v"}),
    ("at_least", "min_by", "x", "v > 0", {"by": "d"}),
    ("words", "count_distinct", "s"),
    ("about_words", "approx_count_distinct", "s"),
    ("listed", "collect_list", "x", None, {"limit": 5}),
    ("some_words", "collect_set", "s", None, {"limit": 4}),
    ("top", "top_k", "s", None, {"k": 3}),
]


def spoken(us: int) -> str:
    """A time in the largest unit that fits, as window names have it."""
    unit, size = next((unit, size) for unit, size in UNITS.items() if us % size == 0)
    return f"{us // size} {unit}{'' if us == size else 's'}"


def named(length: int, every: int | None = None, offset: int = 0) -> Window:
    """A window with the name that the engine should give it."""
    every = length if every is None else every
    name = spoken(length) + (f" every {spoken(every)}" if every != length else "")
    return name + (f" starting {spoken(offset)}" if offset else ""), length, every, offset


def as_asked(window: Window) -> ab.Window:
    """The window as a user writes it, without a name; a cumulative window names its steps."""
    name, length, every, offset = window
    long, slide, start = (timedelta(microseconds=us) for us in (length, every, offset))
    if "so far" in name:
        return next(
            w
            for w in ab.cumulative(slide, every=SO_FAR_EVERY, start=start)
            if w.length_us == length
        )
    if length == every:
        return ab.tumbling(long, start=start)
    return (ab.sliding if every < length else ab.hopping)(long, every=slide, start=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One topology in a directory of its own; each `run` adds batches and continues."""

    spark: SparkSession
    root: Path
    query: WindowQuery
    unit: str | None = None
    share: bool | None = None
    rows: Callable[[DataFrame], DataFrame] | None = None
    written: list[Path] = field(default_factory=list)

    def topology(self, frame: DataFrame) -> ab.Topology:
        app = ab.Topology("results")
        delay = timedelta(microseconds=self.query.delay_us)
        stream = app.source(frame, event_time=self.query.event_time, delay=delay, unit=self.unit)
        if self.rows is not None:
            stream = stream.map(self.rows)
        aggregates = {}
        for name, kind, expression, *rest in self.query.aggregates:
            where, given, made = (
                rest[0] if rest else None,
                rest[1] if len(rest) > 1 else {},
                getattr(ab, kind),
            )
            aggregates[name] = (
                ab.count(where=where)
                if expression == "*"
                else made(expression, where=where, **given)
            )
        windows = [as_asked(window) for window in self.query.windows]
        sessions = [
            ab.session(timedelta(microseconds=gap_us), name=name)
            for name, gap_us in self.query.sessions
        ]
        windowed = stream.aggregate(
            by=list(self.query.keys),
            windows=[*windows, *sessions],
            share=self.share,
            name="windows",
            **aggregates,
        )
        windowed.to(ab.parquet(self.root / "results"))
        windowed.late.to(ab.parquet(self.root / "late"))
        return app

    def run(
        self,
        batches: Sequence[pa.Table],
        *,
        slots: int = 2,
        finish: bool = False,
        lift: str = "auto",
    ) -> ab.Run:
        source = str(self.root / "in")
        self.written.extend(write_batches(batches, source, first=len(self.written)))
        schema = self.spark.read.parquet(source).schema
        frame = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
        run = self.topology(frame).start(
            checkpoint=self.root / "checkpoint",
            slots=slots,
            shards=8,
            availableNow=True,
            idle=None,
            state_root=self.root / "state",
            lift=lift,
        )
        assert run.awaitTermination(timeout=300)
        if finish:
            run.finish()
        return run

    def differences(
        self, steps: Sequence[pa.Table | None], final: FinalWatermark = "closing"
    ) -> list[str]:
        """How the written files differ from the reference, which is on the right."""
        identity = [*self.query.keys, "window_start", "window_end", "window_name"]
        expected = expected_results(steps, self.query, final_watermark=final)
        results = differences(read_results(self.root / "results"), expected, identity)
        late = bag_differences(read_results(self.root / "late"), expected_late(steps, self.query))
        return [f"results: {each}" for each in results] + [f"late: {each}" for each in late]


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Callable[..., Engine]:
    def made(query: WindowQuery, **options: Any) -> Engine:
        return Engine(spark=spark, root=tmp_path, query=query, **options)

    return made


def minutes(**changes: Any) -> WindowQuery:
    """Keys `k`, one-minute windows, a count; with these changes."""
    query = WindowQuery(
        keys=["k"], event_time="at", windows=[named(MINUTE_US)], aggregates=[("n", "count", "*")]
    )
    return replace(query, **changes)


def timed(*seconds: float | None, key: Any = 0, kind: pa.DataType | None = None) -> pa.Table:
    """Rows at these seconds, all of one key."""
    micros = [None if each is None else round(each * SECOND_US) for each in seconds]
    times = pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"k": pa.array([key] * len(seconds), kind or pa.int64()), "at": times})


# ---- random cases


@settings(max_examples=EXAMPLES)
@given(
    case=cases(most_steps=4, most_rows=10),
    slots=st.integers(1, 3),
    finish=st.booleans(),
    lift=st.sampled_from(["lift first", "route first"]),
    gaps=st.lists(
        st.sampled_from([1, SECOND_US, 10 * SECOND_US, MINUTE_US]), max_size=2, unique=True
    ),
    share=st.sampled_from([None, True, False]),
)
def test_random_topologies_over_random_batches(  # noqa: PLR0917 - drawn one by one
    spark: SparkSession,
    case: RandomCase,
    slots: int,
    finish: bool,
    lift: str,
    gaps: list[int],
    share: bool | None,
) -> None:
    windows = [named(*shape) for _, *shape in case.query.windows]
    query = replace(
        case.query, windows=windows, sessions=[(f"session {spoken(gap)}", gap) for gap in gaps]
    )
    with tempfile.TemporaryDirectory() as root:
        engine = Engine(spark=spark, root=Path(root), query=query, share=share)
        engine.run(case.steps, slots=slots, finish=finish, lift=lift)
        assert engine.differences(case.steps, "finish" if finish else "closing") == []


@pytest.mark.parametrize("key_kind", ["int", "string", "float", "several", "none"])
def test_many_events_with_churn_skew_nulls_and_late_rows(
    engine: Callable[..., Engine], key_kind: Any
) -> None:
    plan = EventPlan(
        seed=11,
        batches=4,
        rows=5_000,
        key_kind=key_kind,
        keys=300,
        skew=1.0,
        churn=0.3,
        null_share=0.05,
        start_us=-3 * MINUTE_US,
        span_us=2 * MINUTE_US,
        disorder_us=20 * SECOND_US,
        late_share=0.05,
        late_us=10 * MINUTE_US,
    )
    windows = [
        named(MINUTE_US),
        named(5 * MINUTE_US, MINUTE_US),
        named(10 * SECOND_US, 25 * SECOND_US, 3 * SECOND_US),
    ]
    query = WindowQuery(
        keys=plan.key_columns,
        event_time="at",
        windows=windows,
        aggregates=EVERY_AGGREGATE,
        delay_us=15 * SECOND_US,
    )
    steps = list(event_batches(plan))
    tested = engine(query)
    tested.run(steps, slots=3)
    assert expected_late(steps, query).num_rows > 100
    assert tested.differences(steps) == []


# ---- event time


def naive(second: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=second)  # noqa: DTZ001


TIMES: dict[str, tuple[pa.DataType, str | None, int, Callable[[float], Any]]] = {
    "timestamp": (pa.timestamp("us", tz="UTC"), None, 1, lambda s: naive(s).replace(tzinfo=UTC)),
    "timestamp_ntz": (pa.timestamp("us"), None, 1, naive),
    "int seconds": (pa.int32(), "seconds", SECOND_US, int),
    "long milliseconds": (pa.int64(), "milliseconds", 1_000, lambda s: int(s * 1_000)),
    "long microseconds": (pa.int64(), "microseconds", 1, lambda s: int(s * SECOND_US)),
    "double seconds": (pa.float64(), "seconds", SECOND_US, float),
    "decimal seconds": (
        pa.decimal128(20, 6),
        "seconds",
        SECOND_US,
        lambda s: Decimal(s).quantize(Decimal("0.000001")),
    ),
}


@pytest.mark.parametrize("kind", TIMES)
def test_event_time_of_every_type(engine: Callable[..., Engine], kind: str) -> None:
    type_, unit, unit_us, of = TIMES[kind]
    seconds = [[-61.0, -60.0, -1.0, -0.25, 0.0, 59.75], [60.0, 600.0, 90.5], [], [0.0, 601.0, 1.0]]
    if kind == "int seconds":
        seconds = [[float(int(each)) for each in batch] for batch in seconds]
    steps = [
        pa.table(
            {
                "k": pa.array([0] * len(batch), pa.int64()),
                "at": pa.array([of(each) for each in batch], type_),
            }
        )
        for batch in seconds
    ]
    steps.append(
        pa.table({"k": pa.array([0, 1], pa.int64()), "at": pa.array([None, of(700.0)], type_)})
    )
    tested = engine(
        minutes(unit_us=unit_us, windows=[named(MINUTE_US), named(90 * SECOND_US, 30 * SECOND_US)]),
        unit=unit,
    )
    tested.run(steps)
    assert tested.differences(steps) == []
    assert {"late", "no event time"} == set(
        read_results(tested.root / "late")["reason"].to_pylist()
    )


def test_event_time_as_dates(engine: Callable[..., Engine]) -> None:
    days = [
        [date(1969, 12, 30), date(1970, 1, 1)],
        [date(2024, 2, 29), date(2024, 3, 1)],
        [],
        [date(1970, 1, 1), None],
    ]
    steps = [
        pa.table({"k": pa.array([0] * len(each), pa.int64()), "at": pa.array(each, pa.date32())})
        for each in days
    ]
    tested = engine(minutes(windows=[named(DAY_US), named(7 * DAY_US, DAY_US)]))
    tested.run(steps)
    assert tested.differences(steps) == []


def test_times_on_the_edges_of_windows_and_a_microsecond_beside_them(
    engine: Callable[..., Engine],
) -> None:
    edges = [minute * 60 + beside for minute in (-2, -1, 0, 1, 2) for beside in (-1e-6, 0, 1e-6)]
    windows = [
        named(MINUTE_US),
        named(MINUTE_US, offset=1),
        named(MINUTE_US, 2 * MINUTE_US),
        named(2 * MINUTE_US, MINUTE_US),
    ]
    tested = engine(minutes(windows=windows))
    steps = [timed(*edges), timed(180), timed(*edges), timed(*edges)]
    tested.run(steps)
    assert tested.differences(steps) == []


def test_windows_from_the_start_of_an_hour_so_far(engine: Callable[..., Engine]) -> None:
    steps_of_an_hour = [
        ("1 hour so far every 15 minutes", i * 15 * MINUTE_US, HOUR_US, 0) for i in range(1, 5)
    ]
    tested = engine(minutes(windows=[*steps_of_an_hour, named(5 * MINUTE_US)]))
    steps = [
        timed(0, 600, 1000, 2000),
        timed(3599.5, 3601, 4000),
        timed(100, 2800, 3700),
        timed(9000),
        timed(5000, 8000),
    ]
    tested.run(steps)
    assert tested.differences(steps) == []
    found = read_results(tested.root / "results")
    lengths = {
        end - start
        for start, end in zip(
            found["window_start"].to_pylist(), found["window_end"].to_pylist(), strict=True
        )
    }
    assert {15 * i * MINUTE_US for i in range(1, 5)} <= lengths


# ---- keys

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [-128, 127, 0, None]),
    "smallint": (pa.int16(), [-1, 0, 1, None]),
    "int": (pa.int32(), [2**31 - 1, -(2**31), None]),
    "bigint": (pa.int64(), [2**63 - 1, -(2**63), 2**53 + 1, None]),
    "float": (pa.float32(), [0.0, -0.0, float("nan"), float("-inf"), 0.1, None]),
    "double": (pa.float64(), [*ODD_FLOATS, None]),
    "string": (pa.string(), [*WORDS, "a\x00b", "x" * 10_000, None]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"a", None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "decimal": (
        pa.decimal128(20, 3),
        [Decimal("0.000"), Decimal("-1.500"), Decimal("99999999999999999.999"), None],
    ),
    "date": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29), None]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [naive(-1.5).replace(tzinfo=UTC), naive(1e9).replace(tzinfo=UTC), None],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [naive(-1.5), naive(1e9), None]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(engine: Callable[..., Engine], kind: str) -> None:
    type_, keys = KEYS[kind]
    times = pa.array([0, 30 * SECOND_US], pa.timestamp("us", tz="UTC"))

    def batch(*minute: int) -> pa.Table:
        rows = [
            (key, at + m * MINUTE_US) for m in minute for key in keys for at in (0, 30 * SECOND_US)
        ]
        return pa.table(
            {
                "k": pa.array([key for key, _ in rows], type_),
                "at": pa.array([at for _, at in rows], times.type),
            }
        )

    steps = [batch(0), batch(0, 1), batch(5), batch(0)]
    tested = engine(minutes())
    tested.run(steps)
    assert tested.differences(steps) == []


def test_both_zeros_and_all_nans_are_one_key_each(engine: Callable[..., Engine]) -> None:
    zeros = [
        timed(0, key=key, kind=pa.float64())
        for key in (0.0, -0.0, float("nan"), -float("nan"), None)
    ]
    tested = engine(minutes())
    tested.run(
        [
            pa.concat_tables(zeros),
            pa.concat_tables(zeros[::-1]),
            timed(100, key=1.0, kind=pa.float64()),
        ]
    )
    assert sorted(read_results(tested.root / "results")["n"].to_pylist()) == [2, 4, 4]


@pytest.mark.parametrize("key", [float("nan"), -0.0, None], ids=str)
def test_an_odd_key_alone_in_its_slot_is_a_key_like_others(
    engine: Callable[..., Engine], key: float | None
) -> None:
    steps = [
        timed(0, key=key, kind=pa.float64()),
        timed(1, key=key, kind=pa.float64()),
        timed(100, key=key, kind=pa.float64()),
    ]
    tested = engine(minutes())
    tested.run(steps, slots=1)
    assert tested.differences(steps) == []


def test_several_key_columns_keep_nulls_apart(engine: Callable[..., Engine]) -> None:
    pairs = [(None, None), (None, "a"), (1, None), (1, "a"), (1, ""), (0, "a")]
    rows = pa.table(
        {
            "k": pa.array([k for k, _ in pairs] * 2, pa.int32()),
            "name": pa.array([name for _, name in pairs] * 2, pa.string()),
            "at": pa.array([0] * 12, pa.timestamp("us", tz="UTC")),
        }
    )
    later = rows.slice(0, 1).set_column(
        2, "at", pa.array([100 * SECOND_US], pa.timestamp("us", tz="UTC"))
    )
    tested = engine(minutes(keys=["k", "name"]))
    tested.run([rows, rows, later])
    assert tested.differences([rows, rows, later]) == []


def test_no_key_is_one_global_group(engine: Callable[..., Engine]) -> None:
    steps = [timed(0, 1, 61), timed(), timed(59, 200), timed(10, 61)]
    tested = engine(minutes(keys=[]))
    tested.run(steps)
    assert tested.differences(steps) == []


def test_columns_may_have_any_name(engine: Callable[..., Engine]) -> None:
    names = [
        "t",
        "k0",
        "x1",
        "c0",
        "pane",
        "shard",
        "slot",
        "row",
        "step",
        "a.b",
        "two words",
        'quo"te',
        "ключ",
        "Ü",
    ]
    rows = pa.table({**{name: pa.array([1, 1, 2]) for name in names}, "at": timed(0, 1, 100)["at"]})
    tested = engine(
        minutes(
            keys=names[::-1],
            aggregates=[("c1", "count", "*"), ("k", "sum", "t"), ("late", "max", "slot")],
        )
    )
    tested.run([rows, rows])
    assert tested.differences([rows, rows]) == []


# ---- lateness


def test_a_row_late_for_its_minute_counts_in_its_hour(engine: Callable[..., Engine]) -> None:
    steps = [
        timed(0, 1),
        timed(600),
        timed(),
        timed(2, 601),
        timed(3, 4000),
        timed(),
        timed(5, 4001),
    ]
    tested = engine(minutes(windows=[named(MINUTE_US), named(HOUR_US)]))
    tested.run(steps, finish=True)
    assert tested.differences(steps, "finish") == []
    results = read_results(tested.root / "results").to_pylist()
    assert [
        row["n"] for row in results if (row["window_start"], row["window_name"]) == (0, "1 minute")
    ] == [2]
    assert [
        row["n"] for row in results if (row["window_start"], row["window_name"]) == (0, "1 hour")
    ] == [6]
    assert read_results(tested.root / "late")["at"].cast(pa.int64()).to_pylist() == [5 * SECOND_US]


def test_equal_late_rows_are_all_kept(engine: Callable[..., Engine]) -> None:
    late = pa.concat_tables([timed(0, 0, 0, None, None), timed(0, key=None)])
    steps = [timed(600), timed(), late, late]
    tested = engine(minutes())
    tested.run(steps)
    assert tested.differences(steps) == []
    assert read_results(tested.root / "late").num_rows == 12


def test_rows_in_the_gap_of_a_window_are_outside(engine: Callable[..., Engine]) -> None:
    steps = [timed(*range(0, 300, 7)), timed(1000), timed(), timed(*range(0, 1200, 13))]
    tested = engine(
        minutes(
            windows=[
                named(5 * SECOND_US, 11 * SECOND_US, SECOND_US),
                named(40 * SECOND_US, MINUTE_US),
            ]
        )
    )
    tested.run(steps)
    assert tested.differences(steps) == []
    assert set(read_results(tested.root / "late")["reason"].to_pylist()) == {"late", "outside"}


def test_late_rows_have_the_columns_that_maps_made(engine: Callable[..., Engine]) -> None:
    tested = engine(
        minutes(keys=["k2"]), rows=lambda df: df.selectExpr("at", "k + 1 AS k2", "'fixed' AS more")
    )
    tested.run([timed(600), timed(), timed(0, key=4)])
    [row] = read_results(tested.root / "late").select(["k2", "more", "reason"]).to_pylist()
    assert row == {"k2": 5, "more": "fixed", "reason": "late"}


def test_rows_that_a_map_drops_still_move_the_watermark(engine: Callable[..., Engine]) -> None:
    tested = engine(minutes(), rows=lambda df: df.where("k = 0"))
    tested.run([timed(0, 1), timed(600, key=1)])
    assert read_results(tested.root / "results")["n"].to_pylist() == [2]


# ---- values


def test_texts_decimals_and_ties_in_every_aggregate(engine: Callable[..., Engine]) -> None:
    kinds = {
        "count": "vxsd",
        "sum": "vxd",
        "avg": "vxd",
        "min": "vxsd",
        "max": "vxsd",
        "first": "vxsd",
        "last": "vxsd",
    }
    kinds |= dict.fromkeys(("variance", "var_pop", "stddev", "stddev_pop"), "vxd")
    aggregates = [
        (f"{kind}_{column}", kind, column) for kind, columns in kinds.items() for column in columns
    ]
    aggregates += [(f"some_{name}", kind, column, "v < 0") for name, kind, column in aggregates]
    odd = [None, 1.5, float("nan"), -0.0, float("inf"), float("-inf"), 2.25]

    def row(number: int, at: int) -> dict[str, Any]:
        cents = Decimal(number * 333 - 1000).scaleb(-2)
        word = [None, *WORDS][number % (len(WORDS) + 1)]
        v = None if number % 5 == 4 else number - 3
        return {
            "k": number % 4,
            "at": at * SECOND_US,
            "v": v,
            "x": odd[number % 7],
            "s": word,
            "d": cents if number % 3 else None,
        }

    steps = [
        rows_table([row(number, number // 5) for number in range(20)], "int"),
        rows_table([row(number, number // 7) for number in range(25, 60)], "int"),
        rows_table([row(number, 0) for number in (3, 14, 15, 92)], "int"),
        rows_table([row(0, 100)], "int"),
    ]
    tested = engine(
        minutes(
            windows=[named(MINUTE_US), named(10 * SECOND_US, 2 * SECOND_US)], aggregates=aggregates
        )
    )
    tested.run(steps)
    assert tested.differences(steps) == []


def test_aggregates_of_dates_times_flags_and_small_numbers(engine: Callable[..., Engine]) -> None:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        name: (type_, (values * 4)[:6])
        for name, (type_, values) in KEYS.items()
        if name not in {"bigint", "decimal"}
    }
    rows = pa.table(
        {
            "k": pa.array([0, 0, 0, 1, 1, 1], pa.int64()),
            "at": timed(0, 1, 1, 0, 0, 2)["at"],
            **{f"c_{name}": pa.array(values, type_) for name, (type_, values) in columns.items()},
        }
    )
    steps = [rows, rows.slice(2, 3), timed(100).append_column("c", pa.nulls(1)).select(["k", "at"])]
    steps[2] = pa.concat_tables([rows.slice(0, 0), steps[2]], promote_options="default")
    aggregates = [
        (f"{kind}_{name}", kind, f"c_{name}")
        for kind in ("min", "max", "first", "last", "count")
        for name in columns
    ]
    aggregates += [
        (f"{kind}_{name}", kind, f"c_{name}")
        for kind in ("sum", "avg")
        for name in ("tinyint", "smallint", "float")
    ]
    tested = engine(minutes(aggregates=aggregates))
    tested.run(steps)
    assert tested.differences(steps) == []


def test_a_filter_does_not_hide_a_key(engine: Callable[..., Engine]) -> None:
    steps = [timed(0, 1), timed(100)]
    tested = engine(
        minutes(aggregates=[("none", "count", "*", "k > 5"), ("nothing", "sum", "k", "k > 5")])
    )
    tested.run(steps)
    rows = read_results(tested.root / "results").select(["k", "none", "nothing"]).to_pylist()
    assert rows == [{"k": 0, "none": 0, "nothing": None}]


# ---- steps and runs


@pytest.mark.parametrize(
    "steps",
    [
        [timed()],
        [timed(), timed()],
        [timed(), timed(0, 100), timed(), timed(), timed(0)],
        [timed(None)],
        [timed(0)],
        [timed(0), timed(100), timed(0)],
    ],
    ids=["nothing", "nothing twice", "empty between", "no event time", "one row", "late at once"],
)
def test_batches_may_be_empty_or_tiny(engine: Callable[..., Engine], steps: list[pa.Table]) -> None:
    tested = engine(minutes())
    tested.run(steps)
    assert tested.differences(steps) == []


def test_a_second_run_goes_on_where_the_first_ended(engine: Callable[..., Engine]) -> None:
    windows = [named(MINUTE_US), named(10 * MINUTE_US, MINUTE_US)]
    tested = engine(minutes(windows=windows, delay_us=30 * SECOND_US))
    runs = [
        [timed(0, 10, 70), timed(65, 100)],
        [timed(5, 72, 130), timed(75, 200)],
        [],
        [timed(190, 3, 900), timed(800)],
    ]
    steps: list[pa.Table | None] = []
    for number, batches in enumerate(runs):
        tested.run(batches, slots=[1, 3, 2, 3][number])
        steps += [*batches, None]
        assert tested.differences(steps) == []


def test_finish_closes_what_is_open_after_late_runs_too(engine: Callable[..., Engine]) -> None:
    tested = engine(minutes(windows=[named(MINUTE_US), named(HOUR_US)]))
    first, second = [timed(0, 100)], [timed(99, 150, 10)]
    tested.run(first)
    tested.run(second, finish=True)
    assert tested.differences([*first, None, *second, None], "finish") == []


def test_no_window_is_written_twice_and_files_are_named_by_step(
    engine: Callable[..., Engine],
) -> None:
    tested = engine(minutes())
    run = tested.run([timed(0, 100), timed(200), timed(300)])
    names = [path.name for path in (tested.root / "results").iterdir() if path.suffix == ".parquet"]
    assert all(name.startswith("step-") for name in names)
    assert read_results(tested.root / "results").num_rows == 3
    assert run.exception() is None


@settings(max_examples=max(3, EXAMPLES // 4))
@given(case=cases(most_steps=1, most_rows=25))
def test_a_static_run_gives_what_a_finished_stream_gives(
    spark: SparkSession, case: RandomCase
) -> None:
    query = replace(case.query, windows=[named(*shape) for _, *shape in case.query.windows])
    with tempfile.TemporaryDirectory() as root:
        tested = Engine(spark=spark, root=Path(root), query=query)
        write_batches(case.steps, tested.root / "in")
        given_out = tested.topology(spark.read.parquet(str(tested.root / "in"))).run_batch()
        for name, frame in (("results", given_out["windows"]), ("late", given_out["windows.late"])):
            frame.write.parquet(str(tested.root / name))
        assert tested.differences(case.steps, "finish") == []


def batches_of(table: pa.Table, size: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def test_how_rows_are_split_into_batches_does_not_matter_while_none_is_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan = EventPlan(
        seed=5, batches=1, rows=300, keys=20, span_us=5 * MINUTE_US, disorder_us=MINUTE_US
    )
    [rows] = event_batches(plan)
    query = minutes(
        windows=[named(2 * MINUTE_US, 30 * SECOND_US)], aggregates=EVERY_AGGREGATE, delay_us=HOUR_US
    )
    for size in (300, 77):
        tested = Engine(spark=spark, root=tmp_path / str(size), query=query)
        tested.run(list(batches_of(rows, size)), finish=True)
        assert tested.differences([rows], "finish") == []
