"""Applies in a plan: their stages, their readers, their slots, and what is refused."""

from __future__ import annotations

import json

import pytest

from anabranch.aggregates.functions import count
from anabranch.errors import NotYetError, TopologyError
from anabranch.plan import explain, make_plan
from anabranch.plan.exchange import raw, whole_rows
from anabranch.plan.ids import APPLIES, PartId
from anabranch.plan.operators.applies import stages_of
from anabranch.topology import Compute, Consolidate, Field, Graph, Map, Sink, Source, tumbling
from anabranch.topology.apply import ApplySpec, cost_columns
from anabranch.topology.graph import Apply, Named

FIELDS = (Field("k", "string"), Field("at", "timestamp"), Field("v", "double"))
MADE = (*FIELDS, Field("y", "bigint"))


def source() -> Graph:
    return Graph(name="t").add(
        Source(name="rows", fields=FIELDS, event_time="at", unit_us=None, delay_us=0)
    )


def apply(name: str, reads: str, fields: tuple[Field, ...] = MADE, grouping: str = "auto") -> Apply:
    return Apply(
        name=name,
        input=reads,
        work=ApplySpec(fn=len, cost_by=("k",), grouping=grouping),
        fields=fields,
    )


def windows(graph: Graph, reads: str, name: str) -> Graph:
    named = (Named(name="n", aggregate=count(), input_type="int"),)
    return graph.add(Compute(name=f"c_{name}", input=reads, by=FIELDS[:1], aggregates=named)).add(
        Consolidate(name=name, input=f"c_{name}", windows=(tumbling("1m"),))
    )


def test_applies_are_in_stages_and_their_readers_are_at_the_first_level() -> None:
    graph = (
        source()
        .add(apply("a", "rows"))
        .add(Map(name="m", input="a", fn=len, fields=MADE))
        .add(apply("b", "m"))
    )
    graph = windows(
        windows(windows(graph.add(apply("c", "rows")), "b", "of_b"), "rows", "of_rows"),
        "of_b",
        "of_windows",
    )
    plan = make_plan(graph)
    assert [[each.name for each in stage] for stage in stages_of(plan.applies)] == [
        ["a", "c"],
        ["b"],
    ]
    assert [(each.feed.stream, [m.name for m in each.feed.maps]) for each in plan.applies] == [
        ("rows", []),
        ("a", ["m"]),
        ("rows", []),
    ]
    assert plan.entries == {"rows", "a", "b", "c"}
    assert plan.routed[-1] == APPLIES
    assert {str(n.name): (n.feed.stream, plan.component_of(n.name).level) for n in plan.nodes} == {
        "of_b": ("b", 1),
        "of_rows": ("rows", 1),
        "of_windows": ("of_b", 1),  # fused
    }
    assert {kind: len(fields) for kind, fields in whole_rows(plan).items()} == {
        "a": 3,
        "b": 4,
        "c": 3,
        raw("b"): 4,
        raw(PartId("of_b")): 4,
    }


def test_a_topology_of_applies_alone_is_a_plan_and_one_of_nothing_is_not() -> None:
    plan = make_plan(source().add(apply("a", "rows", fields=FIELDS[:1])))
    assert (plan.levels, plan.components, plan.routed, plan.sources[0].name) == (
        0,
        (),
        (APPLIES,),
        "rows",
    )
    with pytest.raises(TopologyError, match="topology 't' has nothing to do"):
        make_plan(source())


def test_windows_after_an_apply_need_the_event_time_that_it_keeps() -> None:
    lost = source().add(apply("a", "rows", fields=FIELDS[:1]))
    with pytest.raises(
        TopologyError,
        match="windows after apply 'a' need the event time, column 'at' of type timestamp",
    ):
        lost.clock_of("a")
    assert lost.clock_or_none("a") is None
    retyped = source().add(apply("a", "rows", fields=(Field("at", "date"), *FIELDS[:1])))
    with pytest.raises(TopologyError, match=r"its schema has at: date, k: string"):
        retyped.clock_of("a")
    assert source().add(apply("a", "rows")).clock_of("a").column == "at"


def test_an_operator_after_an_apply_on_windows_is_refused_by_name() -> None:
    graph = windows(source(), "rows", "w")
    behind = graph.add(apply("a", "w", fields=graph.fields_of("w")))
    assert make_plan(behind).applies == ()  # it feeds sinks only
    with pytest.raises(
        NotYetError,
        match="operator 'c_late' reads apply 'a', which is applied to results of windows",
    ):
        make_plan(windows(behind, "a", "late"))


def test_explain_shows_how_rows_are_grouped_and_why() -> None:
    graph = (
        source()
        .add(apply("a", "rows"))
        .add(apply("h", "rows", grouping="hash"))
        .add(apply("o", "a", grouping="osg"))
    )
    graph = graph.add(
        Apply(
            name="plain",
            input="rows",
            work=ApplySpec(fn=None, grouping="round robin"),
            fields=FIELDS,
        )
    )
    graph = graph.add_sink(Sink(name="letters", input="a", late=True, target="memory"))
    plan = make_plan(graph)
    text = explain(graph, plan)
    for line in (
        "apply rows -> a, form arrow, on error the step fails",
        (
            "auto: round robin until the time of rows is measured, "
            "then by cost (osg) where it varies with (k)"
        ),
        "hash: rows with equal (k) in one slot, as asked for",
        "osg: round robin until the time of rows by (k) is measured, then by cost",
        "round robin: rows only pass, to be written",
        "exchange 1: rows to slots for a, h, plain, whole",
        "exchange 2: rows to slots for o, whole",
        "letters <- a.failed: memory",
    ):
        assert line in text
    measured = {"a": "osg: a row takes 3 ms on average"}
    assert (
        json.loads(explain(graph, plan, "json", groupings=measured))["applies"][0]["reason"]
        == measured["a"]
    )
    assert "== route ==>" in explain(graph, plan, "mermaid")
    assert "|failed|" in explain(graph, plan, "mermaid")


def test_cost_goes_by_all_columns_that_can_be_hashed_but_the_event_time() -> None:
    kinds = [("k", "string"), ("at", "timestamp"), ("m", "map<string,int>"), ("v", "double")]
    assert cost_columns(None, kinds, "at") == ("k", "v")
    assert cost_columns("v", kinds, "at") == ("v",)
    assert cost_columns(["at", "k"], kinds, "at") == ("at", "k")


def test_no_operator_is_called_as_all_applies_are_together() -> None:
    with pytest.raises(TopologyError, match="'all applies' is reserved for all applies together"):
        source().add(apply(str(APPLIES), "rows"))
