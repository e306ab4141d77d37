"""What later steps learn from a step, from reports made by hand."""

from __future__ import annotations

from anabranch.elastic.grouping.steps import new_grouping
from anabranch.plan.lifting import LIFT_FIRST, ROUTE_FIRST, Lifting
from anabranch.plan.make import make_plan
from anabranch.runtime.reports import NodeReport, StepReports
from anabranch.spark.driver.learn import measure, next_groupings, next_lifting
from anabranch.spark.driver.progress import apply_progress
from anabranch.state.checkpoint.statistics import Statistics
from anabranch.topology.apply import Osg
from tests.spark.driver.reports_by_hand import (
    FIRST,
    SECOND,
    SHARDS,
    W0,
    W1,
    applied,
    graph,
    node_report,
    report,
    with_nodes,
)


def test_statistics_have_the_rows_of_each_operator_by_shard() -> None:
    plan, statistics = make_plan(graph(), "unfused"), Statistics()
    slots = [
        report(FIRST, 0, {W0: {0: (5, 1), 2: (7, 0)}}),
        report(FIRST, 1, {W0: {1: (10, 2)}}),
        report(SECOND, 0, {W1: {0: (3, 1)}}),
    ]
    measure(statistics, plan, StepReports(tuple(slots)), SHARDS)
    assert statistics.rates() == {"w0": 22.0, "w1": 3.0}
    assert statistics.operators["w0"].loads == [[5, 10, 7, 0]]
    assert statistics.operators["w0"].rows_out == [3]
    assert statistics.operators["w0"].state_bytes == 100 + 200 + 300


def test_a_step_whose_lift_combines_little_is_followed_by_one_that_routes_first() -> None:
    plan = make_plan(graph(), "unfused")
    rows, combined = 100_000, 95_000
    node = node_report(W0, {0: (rows, 0)})
    sent = NodeReport(part=W0, shards=node.shards, arrived=combined, distinct=30_000)
    found = with_nodes(report(FIRST, 0, {}), sent)
    before = Lifting()
    after = next_lifting(before, plan.nodes, StepReports((found,)))
    assert (before.way, after.way) == (LIFT_FIRST, ROUTE_FIRST)
    assert next_lifting(before, plan.nodes, StepReports()) == before


def test_a_grouping_learns_from_the_slots_that_have_reported() -> None:
    before = {"a": new_grouping("round robin", 2, Osg()), "b": new_grouping("hash", 2, Osg())}
    reports = StepReports(applies=tuple(applied("a", slot, 10, 4) for slot in (1, 0)))
    after = next_groupings(before, reports)
    assert after["b"] is before["b"], "it has no reports"
    assert after["a"] is not before["a"]
    found = apply_progress(reports, before, after)
    assert list(found) == ["a"]
    assert (found["a"].rows_in, found["a"].rows_out, found["a"].failed) == (20, 8, 4)
    assert (found["a"].grouping, found["a"].slot_s) == ("round robin", (0.5, 0.5))
    assert found["a"].makespan_s == 1.0
