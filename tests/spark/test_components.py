"""Topologies of several operators against DuckDB, whatever shares a component.

Exchanges are those of `explain`.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.plan.planners.registry import PLANNERS
from anabranch.testing import differences, read_results, write_batches
from anabranch.testing.events import MINUTE_US, SECOND_US
from anabranch.testing.reference.chains import ROWS, ChainOperator, expected_of
from anabranch.testing.restless import disturb
from tests.spark.physical import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("ANABRANCH_EXAMPLES", "6"))
STRESS_STEPS = int(os.environ.get("ANABRANCH_STRESS_STEPS", "16"))
STRESS_TOPOLOGIES = int(os.environ.get("ANABRANCH_STRESS_TOPOLOGIES", "2"))
SCHEMA = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.int64()),
        ("c", pa.int32()),
        ("v", pa.int64()),
        ("x", pa.float64()),
    ]
)
DELAY_US = 20 * SECOND_US
LENGTHS = {"1m": MINUTE_US, "2m": 2 * MINUTE_US, "3m": 3 * MINUTE_US, "5m": 5 * MINUTE_US}
OF_ROWS = [
    ("n", "count", "*"),
    ("s", "sum", "v"),
    ("m", "max", "x"),
    ("f", "first", "v"),
    ("e", "sum", "v + 1"),
]
OF_RESULTS = [
    ("n", "sum", "n"),
    ("s", "sum", "s"),
    ("m", "max", "m"),
    ("f", "last", "f"),
    ("e", "sum", "e + 0"),
]


@st.composite
def batches(draw: st.DrawFn) -> list[pa.Table]:
    """A few batches of rows at advancing times; some are late, some have no time or no key."""
    steps = []
    for i in range(draw(st.integers(2, 4))):
        row = st.fixed_dictionaries(
            {
                "a": st.sampled_from(["p", "q", "é", None]),
                "b": st.integers(0, 2) | st.none(),
                "c": st.integers(0, 1),
                "v": st.integers(-9, 9) | st.none(),
                "x": st.sampled_from([-1.5, 0.0, 2.0, float("nan"), None]),
                "at": st.integers((2 * i - 3) * 60, (2 * i + 2) * 60) | st.none(),
            }
        )
        rows = draw(st.lists(row, max_size=14))
        columns = {
            name: pa.array([each[name] for each in rows], SCHEMA.field(name).type)
            for name in SCHEMA.names
        }
        micros = pa.array(
            [None if each["at"] is None else each["at"] * SECOND_US for each in rows], pa.int64()
        )
        steps.append(pa.table({**columns, "at": micros.cast(pa.timestamp("us", tz="UTC"))}))
    return steps


@st.composite
def stages(draw: st.DrawFn) -> list[ChainOperator]:
    """A DAG: each operator reads the source or an earlier operator, by some of its keys.

    It has windows and maybe a filter of its own.
    """
    found: list[ChainOperator] = []
    for i in range(draw(st.integers(2, 4))):
        before = draw(st.sampled_from([None, *found]))
        keys = ["a", "b", "c"] if before is None else list(before.keys)
        windows = draw(
            st.lists(st.sampled_from(sorted(LENGTHS)), min_size=1, max_size=2, unique=True)
        )
        shapes = [
            (length, LENGTHS[length], draw(st.sampled_from([LENGTHS[length], MINUTE_US])), 0)
            for length in windows
        ]
        offered = (
            OF_ROWS
            if before is None
            else [each for each in OF_RESULTS if each[0] in {n for n, *_ in before.aggregates}]
        )
        chosen = [each for each in offered if draw(st.booleans())] or offered[:1]
        found.append(
            ChainOperator(
                name=f"w{i}",
                reads=ROWS if before is None else before.name,
                where=draw(
                    st.sampled_from(
                        [
                            None,
                            None,
                            "v > 0" if before is None else f"{before.aggregates[0][0]} IS NOT NULL",
                        ]
                    )
                ),
                keys=[key for key in keys if draw(st.booleans())],
                windows=[(f"{n}/{every}", length, every, 0) for n, length, every, _ in shapes],
                aggregates=chosen,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A topology of several operators in a directory of its own."""

    spark: SparkSession
    root: Path
    stages: Sequence[ChainOperator]
    planner: str = "auto"

    def topology(self) -> ab.Topology:
        source = str(self.root / "in")
        schema = self.spark.read.parquet(source).schema
        frame = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
        app = ab.Topology("components")
        streams: dict[str, Any] = {
            ROWS: app.source(frame, event_time="at", delay=timedelta(microseconds=DELAY_US))
        }
        for stage in self.stages:
            stream = streams[stage.reads]
            if stage.where is not None:
                stream = stream.map(lambda df, where=stage.where: df.filter(where))
            windows = [
                ab.hopping(
                    timedelta(microseconds=length), every=timedelta(microseconds=every), name=name
                )
                for name, length, every, _ in stage.windows
            ]
            made = {
                name: ab.count() if given == "*" else getattr(ab, kind)(given)
                for name, kind, given, *_ in stage.aggregates
            }
            streams[stage.name] = stream.aggregate(
                by=list(stage.keys), windows=windows, name=stage.name, **made
            )
            streams[stage.name].to(ab.parquet(self.root / "results" / stage.name))
        return app

    def run(
        self, steps: Sequence[pa.Table], *, first: int = 0, finish: bool = False, **options: Any
    ) -> ab.Run:
        write_batches(steps, self.root / "in", first=first)
        run = self.topology().start(
            checkpoint=self.root / "checkpoint",
            availableNow=True,
            idle=None,
            state_root=self.root / "state",
            planner=self.planner,
            **{"slots": 2, "shards": 8, **options},
        )
        assert run.awaitTermination(timeout=300)
        if finish:
            run.finish()
        return run

    def differences(self, steps: Sequence[pa.Table | None], *, finish: bool = False) -> list[str]:
        """How the results of all operators differ from the reference, which is on the right."""
        expected = expected_of(
            steps, self.stages, "at", DELAY_US, "finish" if finish else "closing"
        )
        found = []
        for stage in self.stages:
            identity = [*stage.keys, "window_start", "window_end", "window_name"]
            wrong = differences(
                read_results(self.root / "results" / stage.name), expected[stage.name], identity
            )
            found += [f"{stage.name}: {each}" for each in wrong]
        return found


@settings(max_examples=EXAMPLES)
@given(
    steps=batches(),
    operators=stages(),
    planner=st.sampled_from(["auto", *PLANNERS]),
    slots=st.integers(1, 3),
    finish=st.booleans(),
    lift=st.sampled_from(["lift first", "route first"]),
)
def test_random_topologies_of_several_operators(  # noqa: PLR0917 - drawn one by one
    spark: SparkSession,
    steps: list[pa.Table],
    operators: list[ChainOperator],
    planner: str,
    slots: int,
    finish: bool,
    lift: str,
) -> None:
    with tempfile.TemporaryDirectory() as root:
        engine = Engine(spark=spark, root=Path(root), stages=operators, planner=planner)
        engine.run(steps, slots=slots, finish=finish, lift=lift)
        assert engine.differences(steps, finish=finish) == []


def rows(count: int, first_s: int, seed: int = 1) -> pa.Table:
    """Rows of a few keys, spread over three minutes."""
    import numpy as np

    rng = np.random.default_rng(seed)
    at = (first_s + rng.uniform(0, 180, count)) * SECOND_US
    return pa.table(
        {
            "a": pa.array([f"a{n}" for n in rng.integers(0, 4, count)]),
            "b": rng.integers(0, 5, count),
            "c": pa.array(rng.integers(0, 3, count), pa.int32()),
            "v": rng.integers(-50, 50, count),
            "x": rng.normal(size=count),
            "at": pa.array(at.astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
        }
    )


@settings(max_examples=STRESS_TOPOLOGIES, phases=[Phase.generate])
@given(operators=stages(), seed=st.integers(1, 1 << 30))
def test_permanent_change_of_routes_slots_and_components_changes_no_results(
    spark: SparkSession, operators: list[ChainOperator], seed: int
) -> None:
    """For hundreds of steps: ANABRANCH_STRESS_STEPS=300 ANABRANCH_STRESS_TOPOLOGIES=5."""
    steps = [rows(60, 60 * i, seed=seed % 1000 + i) for i in range(STRESS_STEPS)]
    with tempfile.TemporaryDirectory() as root:
        engine = Engine(spark=spark, root=Path(root), stages=operators)
        write_batches(steps, engine.root / "in")
        options: dict[str, Any] = {
            "checkpoint": engine.root / "checkpoint",
            "state_root": engine.root / "state",
            "shards": 8,
        }
        run = engine.topology().start(availableNow=True, idle=None, slots=2, **options)
        restless = disturb(run, seed, plans=0.25)
        assert run.awaitTermination(60 + 5 * STRESS_STEPS)
        run.finish()
        changed = {event.step for event in run.events if event.kind in {"resize", "reroute"}}
        assert len(changed) >= 0.8 * len(run.recentProgress), (
            "a route by chance the same, a first step begun before"
        )
        assert len(run.recentProgress) >= STRESS_STEPS
        assert restless.offered or STRESS_STEPS < 100
        if len(restless.offered) > 1:  # operators that do not read each other have only one plan
            assert any(event.kind == "plan" for event in run.events)
        assert engine.differences(steps, finish=True) == []


def chain(*changes: dict[str, Any]) -> list[ChainOperator]:
    """(a, b, c) per minute, then (a, b) per two, then (a) per five minutes; and beside it by c."""
    found = [
        ChainOperator(
            name="w0",
            keys=["a", "b", "c"],
            windows=[("1m", MINUTE_US, MINUTE_US, 0)],
            aggregates=OF_ROWS[:3],
        ),
        ChainOperator(
            name="w1",
            reads="w0",
            keys=["a", "b"],
            windows=[("2m", 2 * MINUTE_US, MINUTE_US, 0)],
            aggregates=OF_RESULTS[:3],
        ),
        ChainOperator(
            name="w2",
            reads="w1",
            keys=["a"],
            windows=[("5m", 5 * MINUTE_US, 5 * MINUTE_US, 0)],
            aggregates=OF_RESULTS[:3],
        ),
        ChainOperator(
            name="w3",
            where="v > 0",
            keys=["c"],
            windows=[("3m", 3 * MINUTE_US, MINUTE_US, 0)],
            aggregates=OF_ROWS[:3],
        ),
    ]
    return [
        replace(each, **dict(changes[i])) if i < len(changes) else each
        for i, each in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("planner", "levels", "lift"), [("auto", 1, "lift first"), ("unfused", 3, "route first")]
)
def test_the_exchanges_of_a_step_are_those_of_explain_and_each_source_is_read_once(
    spark: SparkSession, tmp_path: Path, planner: str, levels: int, lift: str
) -> None:
    engine = Engine(spark=spark, root=tmp_path, stages=chain(), planner=planner)
    steps = [rows(500, 180 * i, seed=i) for i in range(3)]
    write_batches(steps, tmp_path / "in")
    app = engine.topology()
    assert len(json.loads(app.explain("json", planner=planner))["exchanges"]) == levels
    run = app.start(
        checkpoint=tmp_path / "checkpoint",
        availableNow=True,
        idle=None,
        planner=planner,
        lift=lift,
        slots=2,
    )
    plans = watched(run)
    assert run.awaitTermination(120)
    with_rows = [plan for plan in plans if "ExistingRDD" in plan]
    assert with_rows
    for plan in with_rows:
        assert plan.count("Exchange ") == levels, plan
        assert plan.count("MapInArrow") == levels
        assert plan.count("Scan ExistingRDD") == 1
    batch = [each for each in run.recentProgress if each.batch_id is not None]
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(run.query.runId))
    assert len(jobs) == len(batch) == 3
    read = [
        json.loads(each.json)["sources"][0]["numInputRows"] for each in run.query.recentProgress
    ]
    assert sum(read) == 1500, "each row of the source is read once"
    assert engine.differences(steps) == []


def test_operators_come_and_go_at_a_restart_with_other_slots(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps = [rows(400, 180 * i, seed=i) for i in range(4)]
    before = chain()[:2]
    Engine(spark=spark, root=tmp_path, stages=before).run(steps[:2])
    engine = Engine(spark=spark, root=tmp_path, stages=[*before, chain()[3]])
    run = engine.run(steps[2:], first=2, slots=3, finish=True)
    assert any("operator 'w3' is new" in event.text for event in run.events)
    kept = replace(engine, stages=before)
    assert kept.differences([*steps[:2], None, *steps[2:]], finish=True) == []
    names = set(read_results(tmp_path / "results" / "w3")["window_name"].to_pylist())
    assert names == {"3m", "3m (incomplete)"}


def test_another_plan_at_a_restart_and_between_two_steps_changes_no_results(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps = [rows(300, 120 * i, seed=i) for i in range(6)]
    fused = Engine(spark=spark, root=tmp_path, stages=chain(), planner="auto")
    fused.run(steps[:2])
    apart = replace(fused, planner="unfused")
    run = apart.run(steps[2:4], first=2, slots=3)
    [moved] = [
        event.text for event in run.events if "partitioned by other attributes" in event.text
    ]
    assert "the state of w0, w1 was moved to other shards" in moved
    write_batches(steps[4:], tmp_path / "in", first=4)
    run = fused.topology().start(
        checkpoint=tmp_path / "checkpoint",
        availableNow=True,
        idle=None,
        state_root=tmp_path / "state",
    )
    assert len(run._stepper.state.plan.components) == 4, (
        "without a planner, a checkpoint goes on as it was"
    )
    run.replan("fusion by attributes")
    assert run.awaitTermination(120)
    assert [event.text for event in run.events if event.kind == "plan"] == [
        "components w0, w3, w1, w2 -> w0 + w1 + w2, w3 by fusion by attributes, 0 rows per step between them; state in other shards: w0, w1"
    ]
    run.finish()
    given: list[pa.Table | None] = []
    for i in (0, 2, 4):  # a closing step ends each run
        given += [*steps[i : i + 2], None]
    assert fused.differences(given, finish=True) == []
    text = fused.topology().explain(checkpoint=tmp_path / "checkpoint", planner="auto")
    assert "w0 -> w1: fused: both may be partitioned by (a: string)" in text
    assert "that saves a rate of 1\n" not in text, "rates are those that were measured"


def test_what_one_operator_sums_is_not_summed_in_rows_of_another(spark: SparkSession) -> None:
    at = [f"2026-01-01 00:00:{i:02d}" for i in range(30)]
    frame = spark.createDataFrame(
        [(t, "k", 8 * 10**17 + i, i) for i, t in enumerate(at)],
        "at string, k string, id bigint, v bigint",
    )
    app = ab.Topology("ids")
    source = app.source(frame.selectExpr("to_timestamp(at) as at", "k", "id", "v"), event_time="at")
    source.aggregate(by=["k"], windows=ab.tumbling("1 minute"), name="sums", total=ab.sum("v"))
    source.aggregate(by=[], windows=ab.tumbling("1 minute"), name="ids", newest=ab.max("id"))
    found = app.run_batch()
    assert [row.total for row in found["sums"].collect()] == [sum(range(30))]
    assert [row.newest for row in found["ids"].collect()] == [8 * 10**17 + 29]


def test_a_start_that_is_refused_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    steps = [rows(200, 120 * i, seed=i) for i in range(2)]
    engine = Engine(spark=spark, root=tmp_path, stages=chain()[:2])
    engine.run(steps)
    header = (tmp_path / "checkpoint" / "anabranch.json").read_bytes()
    app = replace(engine, stages=[chain()[0]]).topology()
    stream = ab.Stream(app, "w0", app.empty("w0")).map(
        lambda df: df.selectExpr("*", "stack(2, 1, 2) as twice")
    )
    stream.aggregate(by=["twice"], windows=ab.tumbling("1 minute"), name="other", n=ab.count()).to(
        ab.parquet(tmp_path / "other")
    )
    with pytest.raises(
        ab.TopologyError,
        match="operator 'other' after map has stack, and other operators read the same rows",
    ):
        app.start(
            checkpoint=tmp_path / "checkpoint",
            availableNow=True,
            state_root=tmp_path / "state",
        )
    assert (tmp_path / "checkpoint" / "anabranch.json").read_bytes() == header


def test_what_a_driver_wrote_before_it_died_is_replaced_even_if_the_next_one_plans_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps = [rows(300, 180 * i, seed=i) for i in range(3)]
    engine = Engine(spark=spark, root=tmp_path, stages=chain())
    run = engine.run(steps[:2])
    last = run.recentProgress[-1].step
    for stage in chain():  # as if it had died between the sinks and the commit record
        lost = tmp_path / "results" / stage.name
        some = next(iter(sorted(lost.glob("*.parquet"))))
        (lost / f"step-{last + 1:08d}-results-0-0-of-an-attempt-that-died.parquet").write_bytes(
            some.read_bytes()
        )
    replace(engine, planner="unfused").run(steps[2:], first=2, finish=True)
    assert engine.differences([*steps[:2], None, *steps[2:]], finish=True) == []


def test_two_sinks_need_two_directories(spark: SparkSession, tmp_path: Path) -> None:
    app = ab.Topology("sinks")
    frame = spark.createDataFrame([], "k string, at timestamp")
    counts = app.source(frame, event_time="at").aggregate(
        by="k", windows=ab.tumbling("1 minute"), n=ab.count()
    )
    counts.to(ab.parquet(tmp_path / "out"), name="first")
    with pytest.raises(
        ab.TopologyError,
        match=r"sink 'first' writes to .* already; each sink needs a directory of its own",
    ):
        counts.late.to(ab.parquet(f"{tmp_path}/./out"))
