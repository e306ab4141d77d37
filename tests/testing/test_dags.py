"""The generator of random DAGs, and its reference on cases that can be worked out by hand."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pyarrow as pa

from anabranch.testing.compare import bag_differences, differences
from anabranch.testing.dags import (
    Dag,
    DagNode,
    DagSource,
    batches_of,
    columns_of,
    pruned,
    random_dag,
    shapes_in,
)
from anabranch.testing.events import MINUTE_US, SECOND_US
from anabranch.testing.reference.dags import expected_of_dag, watermarks_of
from anabranch.testing.reference.joins import JoinQuery, expected_join
from anabranch.testing.reference.windows import WindowQuery, expected_results


def drawn(count: int = 60) -> list[Dag]:
    return [random_dag(random.Random(seed)) for seed in range(count)]


def test_all_that_a_dag_can_have_is_drawn_often() -> None:
    seen = Counter(name for dag in drawn() for name, there in shapes_in(dag).items() if there)
    assert set(seen) == set(shapes_in(drawn(1)[0]))
    assert all(times >= 6 for times in seen.values()), seen


def test_a_dag_prints_itself_and_travels_as_json() -> None:
    for dag in drawn(10):
        assert eval(repr(dag)) == dag  # noqa: S307 - our own text
        assert msgspec.json.decode(msgspec.json.encode(dag), type=Dag) == dag
        assert random_dag(random.Random(3)) == random_dag(random.Random(3))
        assert dag.nodes[-1].name in str(dag)


def test_nothing_is_left_that_no_operator_reads_and_columns_of_a_join_differ() -> None:
    for dag in drawn():
        assert pruned(dag) == dag
        read = {name for node in dag.nodes for name in node.inputs}
        assert all(source.name in read for source in dag.sources)
        for node in dag.nodes:
            if node.kind == "join":
                left, right = (set(columns_of(dag, each)) - set(node.by) for each in node.inputs)
                assert not left & right


def test_rows_of_the_reference_are_what_a_source_gives() -> None:
    [dag] = drawn(1)
    for source in dag.sources:
        tables = list(batches_of(dag, source, 2))
        assert tables == list(batches_of(dag, source, 2))
        assert [each.num_rows for each in tables] == [source.rows] * 2
        assert set(tables[0].column_names) == set(columns_of(dag, source.name))


def test_the_reference_of_graphs_agrees_with_those_of_windows_and_of_joins() -> None:
    compared: Counter[str] = Counter()
    for dag in drawn(32):
        given = {source.name: list(batches_of(dag, source, 4)) for source in dag.sources}
        steps = [{name: tables[i] for name, tables in given.items()} for i in range(4)]
        found = expected_of_dag(dag, steps)
        sources = {source.name: source for source in dag.sources}
        for node in dag.results:
            read = [sources.get(name) for name in node.inputs]
            if node.kind == "windows" and read[0] is not None and len(sources) == 1:
                query = WindowQuery(
                    keys=node.by,
                    event_time=read[0].time,
                    windows=node.windows,
                    aggregates=node.aggregates,
                    delay_us=read[0].delay_us,
                )
                identity = [*node.by, "window_start", "window_end", "window_name"]
                assert (
                    differences(
                        found[node.name], expected_results(given[read[0].name], query), identity
                    )
                    == []
                )
            elif node.kind == "join" and read[0] is not None and read[1] is not None:
                query = JoinQuery(
                    keys=node.by,
                    left_time=read[0].time,
                    right_time=read[1].time,
                    windows=node.windows,
                    how=node.how,
                )
                sides = [
                    [*given[each.name], given[each.name][0].slice(0, 0)] for each in read if each
                ]
                wanted = expected_join(sides[0], sides[1], query, watermarks_of(dag, steps))
                assert bag_differences(found[node.name], wanted) == []
            else:
                continue
            compared[node.kind] += found[node.name].num_rows
    assert compared["windows"] > 100
    assert compared["join"] > 30


def rows(name: str, *given: tuple[str | None, int, int]) -> pa.Table:
    """Key a, value and second of each row."""
    return pa.table(
        {
            "a": pa.array([a for a, _, _ in given], pa.string()),
            "b": pa.array([0] * len(given), pa.int64()),
            "c": pa.array([0] * len(given), pa.int32()),
            f"{name}_v": pa.array([v for _, v, _ in given], pa.int64()),
            f"{name}_at": pa.array([s * SECOND_US for _, _, s in given], pa.int64()).cast(
                pa.timestamp("us", tz="UTC")
            ),
        }
    )


def test_the_slowest_source_holds_the_watermark_and_late_rows_count_nowhere() -> None:
    sources = (
        DagSource(name="s0", delay_us=0, seed=0, rows=0),
        DagSource(name="s1", delay_us=30 * SECOND_US, seed=0, rows=0),
    )
    minute = (("1m", MINUTE_US, MINUTE_US, 0),)
    counted = DagNode(
        name="o0",
        kind="windows",
        inputs=("s0",),
        by=("a",),
        windows=minute,
        aggregates=(("o0_0", "sum", "s0_v"),),
    )
    twice = DagNode(name="m", kind="explode", inputs=("s1",), text="s1_v")
    met = DagNode(
        name="o1",
        kind="join",
        inputs=("o0", "m"),
        by=("a",),
        windows=(("2m", 2 * MINUTE_US, 2 * MINUTE_US, 0),),
        how="left",
    )
    dag = Dag(sources=sources, nodes=(counted, twice, met))
    steps = [
        {"s0": rows("s0", ("p", 1, 10), ("q", 2, 20)), "s1": rows("s1", ("p", 1, 5))},
        {"s0": rows("s0", ("p", 4, 130)), "s1": rows("s1", ("p", 0, 200))},
        {"s0": rows("s0", ("p", 8, 100)), "s1": rows("s1", ("p", 0, 200))},
        {"s0": rows("s0", ("p", 16, 30), ("p", 32, 300)), "s1": rows("s1", ("p", 0, 400))},
    ]
    assert watermarks_of(dag, steps) == [
        None,
        -25 * SECOND_US,
        130 * SECOND_US,
        130 * SECOND_US,
        300 * SECOND_US,
    ]
    found = expected_of_dag(dag, steps)
    sums = {
        (row["a"], row["window_start"] // SECOND_US): row["o0_0"] for row in found["o0"].to_pylist()
    }
    assert sums == {("p", 0): 1, ("q", 0): 2, ("p", 60): 8, ("p", 120): 4}, (
        "the row at 30 s came behind the watermark of 130 s"
    )
    joined = sorted(
        (row["a"], row["window_start"] // SECOND_US, row["o0_0"], row["m_v"])
        for row in found["o1"].to_pylist()
        if row["m_v"] is not None
    )
    assert joined == [
        ("p", 0, 1, 0),
        ("p", 0, 1, 1),
        ("p", 0, 8, 0),
        ("p", 0, 8, 1),
        ("p", 120, 4, 0),
        ("p", 120, 4, 0),
    ]
    assert [row["a"] for row in found["o1"].to_pylist() if row["m_v"] is None] == ["q"]
