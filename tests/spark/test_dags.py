"""Random DAGs of operators: whole outputs against DuckDB, by every planner, with other plans in mid-stream."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.observer import Observer
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.testing.dag_runs import build_dag, dag_differences, write_dag
from anabranch.testing.dags import Dag, DagNode, DagSource, random_dag, shapes_in
from anabranch.testing.events import MINUTE_US, SECOND_US
from anabranch.testing.reference.dags import expected_of_dag
from tests.spark.physical import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("ANABRANCH_EXAMPLES", "1"))
BATCHES = 3
NAMES = [AUTO, *PLANNERS]


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    return random_dag(draw(st.randoms(use_true_random=False)), operators=draw(st.integers(3, 4)))


def turning(run: ab.Run, first: int) -> list[str]:
    """Asks for the plans of all planners in turn, one before each step. Returns their names."""
    asked: list[str] = []

    class Turning(Observer):
        def step(self, progress: ab.Progress | None) -> None:
            asked.append(NAMES[(first + len(asked)) % len(NAMES)])
            run.replan(asked[-1])

    turning = Turning()
    run._stepper.observers.attach(turning)
    turning.step(None)
    return asked


def run_dag(
    spark: SparkSession, dag: Dag, root: Path, *, first: int, lift: str, finish: bool, slots: int
) -> ab.Run:
    """Runs a DAG to its end, with one plan after the other."""
    run = build_dag(spark, dag, root / "in", root / "out").start(
        checkpoint=root / "checkpoint",
        availableNow=True,
        idle=None,
        state_root=root / "state",
        planner=NAMES[first],
        slots=slots,
        shards=4,
        lift=lift,
    )
    asked = turning(run, first + 1)
    assert run.awaitTermination(300)
    if finish:
        run.finish()
    assert len(asked) >= BATCHES
    return run


def check_dag(
    spark: SparkSession, dag: Dag, *, first: int, lift: str, finish: bool, slots: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        steps = write_dag(dag, root / "in", BATCHES)
        run_dag(spark, dag, root, first=first, slots=slots, finish=finish, lift=lift)
        assert dag_differences(dag, steps, root / "out", finish=finish) == []


# Together these two DAGs have all that DAGs can have, and their runs use the plans of all planners.
FIRST, SECOND = (random_dag(random.Random(seed), operators=4) for seed in (402, 120))


def test_two_dags_have_all_that_dags_can_have() -> None:
    assert all(
        one or other
        for one, other in zip(shapes_in(FIRST).values(), shapes_in(SECOND).values(), strict=True)
    )
    assert {*range(BATCHES + 2), *(each % len(NAMES) for each in range(5, 5 + BATCHES + 2))} == {
        *range(len(NAMES))
    }


@settings(
    max_examples=EXAMPLES, phases=(Phase.explicit, Phase.generate)
)  # a case prints itself; a smaller one would take long
@example(dag=FIRST, first=0, slots=2, finish=False, lift="lift first")
@example(dag=SECOND, first=5, slots=3, finish=True, lift="route first")
@given(
    dag=dags(),
    first=st.integers(0, len(NAMES) - 1),
    slots=st.integers(1, 3),
    finish=st.booleans(),
    lift=st.sampled_from(["lift first", "route first"]),
)
def test_dags_give_the_same_by_every_planner_and_while_plans_change(
    spark: SparkSession, dag: Dag, first: int, slots: int, finish: bool, lift: str
) -> None:
    check_dag(spark, dag, first=first, slots=slots, finish=finish, lift=lift)


def windows(
    name: str, reads: str, by: tuple[str, ...], minutes: int, *aggregates: tuple[str, str]
) -> DagNode:
    shape = (f"{minutes}m", minutes * MINUTE_US, minutes * MINUTE_US, 0)
    made = tuple(
        (f"{name}_{i}", kind, text) for i, (kind, text) in enumerate((("count", "*"), *aggregates))
    )
    return DagNode(
        name=name, kind="windows", inputs=(reads,), by=by, windows=(shape,), aggregates=made
    )


EVERYTHING = Dag(
    sources=(
        DagSource(name="s0", delay_us=20 * SECOND_US, seed=1, rows=60, null_share=0.04),
        DagSource(name="s1", delay_us=0, seed=2, rows=40, null_share=0.04),
    ),
    nodes=(
        windows("o0", "s0", ("a", "b"), 1, ("sum", "s0_v")),
        DagNode(name="m1", kind="explode", inputs=("s0",), text="s0_v"),
        windows("o1", "m1", ("c",), 2, ("sum", "m1_v")),
        windows("o2", "o0", ("a",), 2, ("sum", "o0_1")),
        DagNode(name="m3", kind="explode", inputs=("o0",), text="o0_1"),
        windows("o3", "m3", ("b",), 2, ("max", "m3_v")),
        DagNode(
            name="o4",
            kind="join",
            inputs=("o2", "s1"),
            by=("a",),
            windows=(("2m", 2 * MINUTE_US, 2 * MINUTE_US, 0),),
            how="full",
        ),
        windows("o5", "o4", (), 4, ("sum", "s1_v")),
    ),
)


@pytest.mark.parametrize(
    ("planner", "levels", "lift"), [("auto", 2, "route first"), ("unfused", 4, "lift first")]
)
def test_joins_and_multiplied_rows_go_through_the_exchanges_of_explain_with_each_source_read_once(
    spark: SparkSession, tmp_path: Path, planner: str, levels: int, lift: str
) -> None:
    """Rows of s1 are joined with results of s0; unfused, they pass two levels on their way."""
    steps = write_dag(EVERYTHING, tmp_path / "in", BATCHES)
    app = build_dag(spark, EVERYTHING, tmp_path / "in", tmp_path / "out")
    facts = json.loads(app.explain("json", planner=planner))
    assert len(facts["exchanges"]) == levels
    run = app.start(
        checkpoint=tmp_path / "checkpoint",
        availableNow=True,
        idle=None,
        planner=planner,
        lift=lift,
        slots=2,
        shards=4,
        state_root=tmp_path / "state",
    )
    plans = watched(run)
    assert run.awaitTermination(180)
    with_rows = [plan for plan in plans if "ExistingRDD" in plan]
    assert with_rows
    for plan in with_rows:
        assert (
            plan.count("Exchange "),
            plan.count("MapInArrow"),
            plan.count("Scan ExistingRDD"),
        ) == (levels, levels, 1), plan
    read = [
        source["numInputRows"]
        for each in run.query.recentProgress
        for source in json.loads(each.json)["sources"]
    ]
    assert sum(read) == BATCHES * (60 + 40), "each row of each source is read once"
    run.finish()
    assert all(table.num_rows for table in expected_of_dag(EVERYTHING, steps, finish=True).values())
    assert dag_differences(EVERYTHING, steps, tmp_path / "out", finish=True) == []


def test_maps_may_multiply_rows_in_every_way_in_one_of_several_branches(
    spark: SparkSession,
) -> None:
    rows = [
        (1, "x", [1, 2, None], {"p": 1, "q": 2}, [(5, "u"), (6, "v")]),
        (2, "y", [], {}, []),
        (3, "x", None, None, None),
        (61, "y", [7], {"p": 9}, [(8, None), None]),
    ]
    frame = spark.createDataFrame(
        rows,
        "at bigint, to string, l array<int>, m map<string, int>, s array<struct<i: int, t: string>>",
    )
    makers = {
        "plain": lambda df: df.selectExpr("at", "to", "1 as v"),
        "exploded": lambda df: df.selectExpr("at", "to", "explode(l) as v"),
        "outer": lambda df: df.selectExpr("at", "to", "explode_outer(l) as v"),
        "placed": lambda df: df.selectExpr("at", "to", "posexplode(l)").selectExpr(
            "at", "to", "pos * 100 + col as v"
        ),
        "entries": lambda df: (
            df.selectExpr("at", "to", "explode(m)")
            .filter("key = 'p'")
            .selectExpr("at", "to", "value as v")
        ),
        "numbered": lambda df: df.selectExpr("at", "to", "posexplode_outer(m)").selectExpr(
            "at", "to", "pos + value as v"
        ),
        "inline": lambda df: (
            df.filter("to != 'z'")
            .selectExpr("at", "to", "inline(s)")
            .selectExpr("at", "to", "i as v")
        ),
        "twice": lambda df: (
            df.selectExpr("*", "explode(l) as w")
            .selectExpr("at", "to", "w", "explode(m) as (k, n)")
            .selectExpr("at", "to", "w * n as v")
        ),
    }
    app = ab.Topology("multiplied")
    source = app.source(frame, event_time="at", unit="seconds")
    for name, maker in makers.items():
        made = source.map(maker).aggregate(
            by=["to"], windows=ab.tumbling("1 minute"), name=name, n=ab.count(), s=ab.sum("v")
        )
        made.map(lambda df: df.withColumn("double", df["n"] * 2), name=f"{name} twice")
    found = app.run_batch(slots=1, shards=1)
    for name, maker in makers.items():
        wanted = maker(frame).groupBy("to", "at").agg({"v": "sum", "*": "count"}).collect()
        sums: dict[tuple[str, int], tuple[int, int | None]] = {}
        for row in wanted:
            n, s = sums.get((row["to"], row["at"] // 60), (0, None))
            more = row["sum(v)"]
            sums[row["to"], row["at"] // 60] = (
                n + row["count(1)"],
                s if more is None else more + (s or 0),
            )
        seen = {
            (row["to"], row["window"].start.minute): (row["n"], row["s"])
            for row in found[name].collect()
        }
        assert seen == sums, name
        assert [row["double"] for row in found[f"{name} twice"].collect()] == [
            2 * row["n"] for row in found[name].collect()
        ]
    stack = source.map(lambda df: df.selectExpr("at", "to", "stack(2, 1, 2) as v"))
    stack.aggregate(by=["to"], windows=ab.tumbling("1 minute"), name="stacked", n=ab.count())
    with pytest.raises(
        ab.TopologyError,
        match="stack, and other operators read the same rows; valid: explode, posexplode, inline",
    ):
        app.run_batch()
