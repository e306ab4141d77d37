"""The record of a step, from reports made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.plan.ids import PartId
from anabranch.plan.make import make_plan
from anabranch.runtime.reports import NodeReport, StepReports
from anabranch.spark.driver.record import (
    Counts,
    counts_of,
    jump_notice,
    next_watermark,
    taken_of,
)
from anabranch.spark.outlets import Outlet
from anabranch.topology import Field, Graph, Source
from anabranch.topology.apply import ApplySpec
from anabranch.topology.graph import Apply
from tests.spark.driver.reports_by_hand import (
    FIELDS,
    FUSED,
    W0,
    W1,
    applied,
    commit,
    graph,
    report,
    with_nodes,
)

if TYPE_CHECKING:
    from anabranch.plan.model import Plan

TARGET: Any = None


def outlet(operator: str, *, late: bool = False) -> Outlet:
    return Outlet(name=operator, operator=operator, late=late, target=TARGET)


def test_rows_count_where_sources_are_read_and_where_sinks_take_results() -> None:
    plan = make_plan(graph(), "fusion by attributes")
    slots = [report(FUSED, 0, {W0: {0: (10, 3), 1: (5, 2)}, W1: {0: (5, 1)}})]
    reports = StepReports(tuple(slots))
    assert counts_of(plan, [outlet("w1")], reports) == Counts(rows_in=15, rows_out=1)
    assert counts_of(plan, [outlet("w0"), outlet("w1")], reports).rows_out == 6
    assert counts_of(plan, [outlet("w0", late=True)], reports).rows_out == 0


def test_rows_of_applies_count_and_those_that_fail_are_dropped() -> None:
    reports = StepReports(applies=tuple(applied("first", slot, 10, 4) for slot in range(2)))
    counts = counts_of(applies(), [outlet("first")], reports)
    assert counts == Counts(rows_in=20, rows_out=8, failed=4)
    assert counts.dropped == {"failed": 4}


def test_totals_have_rows_in_and_out_and_what_was_dropped_by_reason() -> None:
    counts = Counts(rows_in=5, rows_out=2, left_out={"late": 1}, failed=3)
    assert counts.dropped == {"failed": 3, "late": 1}
    assert counts.added_to({"in": 10, "late": 4}) == {"in": 15, "out": 2, "failed": 3, "late": 5}
    assert Counts().added_to({}) == {"in": 0, "out": 0}


def test_the_newest_time_of_each_operator_is_kept_and_forgotten_with_it() -> None:
    plan = make_plan(graph(), "fusion by attributes")
    nodes = [
        NodeReport(part=part, shards={}, newest_us=us)
        for part, us in ((W0, -5), (W0, 7), (W1, None))
    ]
    reports = StepReports((with_nodes(report(FUSED, 0, {}), *nodes),))
    assert taken_of(plan, {}, reports) == {W0: 7}
    assert taken_of(plan, {W0: 9, W1: 0, PartId("gone"): 3}, reports) == {W0: 9, W1: 0}


def test_left_out_rows_of_all_slots_are_added_up() -> None:
    plan = make_plan(graph(), "fusion by attributes")
    node = NodeReport(part=W0, shards={}, left_out={"late": 2, "outside": 1})
    found = with_nodes(report(FUSED, 0, {}), node)
    counts = counts_of(plan, [], StepReports((found, found)))
    assert counts.left_out == {"late": 4, "outside": 2}


def test_the_next_watermark_waits_for_the_slowest_source_but_not_for_a_silent_one() -> None:
    sources = [
        Source(
            name=name, fields=FIELDS, event_time="at", unit_us=None, delay_us=10, idle_us=1_000_000
        )
        for name in ("a", "b")
    ]
    seen = {"a": 100, "b": 50}
    assert next_watermark(sources, seen, {"a": 0.0, "b": 0.5}, None) == 40
    assert next_watermark(sources, seen, {"a": 0.0, "b": 1.5}, None) == 90
    assert next_watermark(sources, seen, {"a": 0.0, "b": 0.0}, 70) == 70


def test_a_jump_of_the_watermark_by_more_than_a_day_is_reported_with_its_cause() -> None:
    day = 86_400_000_000
    before, after = (replace(commit(i, {}), next_us=i * day) for i in (1, 4))
    [found] = jump_notice(before, after, {"clicks": 4 * day + 5_000_000})
    assert found.text == (
        "watermark jumped by 3.0 days in step 4, from 1970-01-02 00:00:00 to 1970-01-05 00:00:00 "
        "(UTC); newest row of source 'clicks' 1970-01-05 00:00:05"
    )
    assert found.figures == {"days": 3.0}
    assert jump_notice(before, replace(after, next_us=2 * day), {}) == ()
    assert jump_notice(None, after, {}) == ()
    assert jump_notice(replace(before, next_us=None), after, {}) == ()
    [far] = jump_notice(before, replace(after, next_us=1 << 62), {})
    assert f"to {1 << 62} us (UTC); newest row none: no source had rows" in far.text


def applies() -> Plan:
    columns = (*FIELDS, Field("s", "double"))
    second = ApplySpec(fn=len)
    made = (
        Graph(name="t")
        .add(Source(name="visits", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Apply(name="first", input="visits", work=ApplySpec(fn=len), fields=columns))
        .add(Apply(name="second", input="first", work=second, fields=columns))
    )
    return make_plan(made)
