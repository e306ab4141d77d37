"""`explain`: slots of components, why streams are fused or not, costs, joins, passing rows."""

from __future__ import annotations

import json

import pytest

from anabranch.aggregates.functions import count, sum
from anabranch.errors import TopologyError
from anabranch.plan import explain, make_plan
from anabranch.plan.operators.joins import join_input, join_plan
from anabranch.plan.planners.cost import Adaptation
from anabranch.plan.planners.measured import Measures, OperatorMeasures
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, tumbling
from anabranch.topology.graph import Join, Map, Named

FIELDS = (Field("a", "string"), Field("b", "string"), Field("at", "timestamp"))


def windows(graph: Graph, name: str, reads: str, by: str, minutes: int = 1) -> Graph:
    """Counts of rows, or sums of counts."""
    first = isinstance(graph.operator(reads), Source)
    named = (
        Named(
            name=f"{name}_n", aggregate=count() if first else sum(f"{reads}_n"), input_type="bigint"
        ),
    )
    fields = tuple(each for each in FIELDS if each.name in by)
    graph = graph.add(Compute(name=f"{name}_", input=reads, by=fields, aggregates=named))
    return graph.add(
        Consolidate(name=name, input=f"{name}_", windows=(tumbling(f"{minutes} minutes"),))
    )


def joined(graph: Graph, name: str, left: str, right: str, by: list[str]) -> Graph:
    inputs = [
        join_input(each, graph.fields_of(each), graph.clock_of(each)) for each in (left, right)
    ]
    plan = join_plan(name, inputs[0], inputs[1], by, [tumbling("5 minutes")], "left")
    fields = plan.result_fields
    return graph.add(
        Join(
            name=name,
            input=left,
            right=right,
            by=plan.keys,
            windows=plan.panes.windows,
            how=plan.how,
            fields=fields,
        )
    )


def tolls() -> Graph:
    """Rows of one source per (a, b), then per a, then over everything.

    Rows of another source are joined with those per a.
    """
    graph = Graph(name="tolls").add(
        Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0)
    )
    other = (FIELDS[0], Field("seen", "timestamp"), Field("v", "bigint"))
    graph = graph.add(Source(name="r", fields=other, event_time="seen", unit_us=None, delay_us=0))
    graph = windows(graph, "fine", "s", "ab")
    graph = windows(graph, "coarse", "fine", "a", 5)
    graph = windows(graph, "all", "coarse", "", 10)
    return joined(graph, "met", "coarse", "r", ["a"])


def measures(shards: int = 8, windows: int = 4) -> Measures:
    loads = {
        "fine": [9, 9, 9, 9, 0, 0, 0, 0],
        "coarse": [3, 3, 3, 0, 0, 0, 0, 0],
        "all": [1, 0, 0, 0, 0, 0, 0, 0],
    }
    by: dict[str, tuple[str, ...]] = {"fine": ("a", "b"), "coarse": ("a",), "all": ("",)}
    found = {
        name: OperatorMeasures(
            rate=float(np_sum(row)),
            loads=[row] * windows,
            by=by[name],
            state=100.0,
            keys=float(np_sum(row) / 3),
        )
        for name, row in loads.items()
    }
    return Measures(shards=shards, operators=found)


def np_sum(row: list[int]) -> int:
    total = 0
    for each in row:
        total += each
    return total


def test_a_component_says_how_many_slots_it_can_use_and_why() -> None:
    graph = tolls()
    plain = json.loads(explain(graph, make_plan(graph), "json", Measures(shards=64)))
    limits = {
        each["name"]: (each["most_slots"], each["most_slots_because"])
        for each in plain["components"]
    }
    assert limits["fine + coarse + met"] == (64, "as many as shards (64)")
    assert limits["all"] == (
        1,
        "one shard has all rows, as there are no attributes to partition by",
    )
    known = measures()
    facts = json.loads(explain(graph, make_plan(graph, "unfused", measures=known), "json", known))
    limits = {
        each["name"]: (each["most_slots"], each["most_slots_because"])
        for each in facts["components"]
    }
    assert limits["fine"] == (4, "(a, b) has values in 4 of 8 shards, as measured")
    assert limits["coarse"] == (3, "(a) has values in 3 of 8 shards, as measured")
    assert limits["met"] == (8, "as many as shards (8)")
    fused = json.loads(explain(graph, make_plan(graph, measures=known), "json", known))
    assert fused["components"][0]["most_slots"] == 3, (
        "loads by (a, b) tell nothing of shards by (a)"
    )
    few = Measures(
        shards=8, operators={"coarse": OperatorMeasures(rate=1.0, loads=[[1] * 8], keys=2.4)}
    )
    facts = json.loads(explain(graph, make_plan(graph, "unfused", measures=few), "json", few))
    assert facts["components"][1]["most_slots_because"] == "(a) has about 2 values, as measured"


def test_costs_are_shown_with_those_of_the_unfused_plan_in_every_format() -> None:
    graph, known = tolls(), measures()
    plan = make_plan(graph, "greedy", measures=known)
    facts = json.loads(explain(graph, plan, "json", known))["fusion"]
    assert (facts["communication"], facts["communication_unfused"]) == (1, 9 + 1 + 1)
    assert (facts["adaptation"], facts["adaptation_unfused"]) == (0, 0)
    costs = (
        "1 rows per step between components + 0 for state that moves; unfused 11 + 0; "
        "planned by greedy"
    )
    assert f"  cost: {costs}" in explain(graph, plan, "text", known)
    assert f"  %% cost: {costs}" in explain(graph, plan, "mermaid", known)
    wave = {
        name: OperatorMeasures(
            rate=each.rate, loads=[each.loads[0], [4 * n for n in each.loads[0]]] * 3, state=1000.0
        )
        for name, each in known.operators.items()
    }
    moved = Measures(shards=8, operators=wave)
    dear = make_plan(graph, "exact", measures=moved, adaptation=Adaptation(capacity=12))
    facts = json.loads(explain(graph, dear, "json", moved))["fusion"]
    assert facts["adaptation_unfused"] > 0
    assert (
        facts["communication"] + facts["adaptation"]
        <= facts["communication_unfused"] + facts["adaptation_unfused"]
    )
    assert any("of adaptation" in each["reason"] for each in facts["streams"] if not each["fused"])


def test_every_stream_says_why_it_is_fused_or_not() -> None:
    graph = tolls()
    text = explain(graph, make_plan(graph))
    assert (
        "  fine -> coarse: fused: both may be partitioned by (a: string); that saves a rate of 1"
        in text
    )
    assert "  coarse -> all: not fused: no attribute in common: (a: string) and ()" in text
    assert "  %% coarse to all not fused: no attribute in common" in explain(
        graph, make_plan(graph), "mermaid"
    )


def test_sides_of_a_join_have_neither_partials_nor_merges() -> None:
    graph = tolls()
    text = explain(graph, make_plan(graph))
    assert (
        "    operators: coarse -> met (left) (from its slot, no exchange)\n"
        "    join:      left, by a, in 5 minutes; pane 5 minutes" in text
    )
    assert (
        "    operators: r -> met (right)\n    kept:      seen, v, with how often each row came"
        in text
    )
    sides = [
        each
        for c in json.loads(explain(graph, make_plan(graph), "json"))["components"]
        for each in c["operators"]
        if "side" in each
    ]
    assert [each["side"] for each in sides] == ["left", "right"]
    assert not any({"partials", "merges", "sharing"} & set(each) for each in sides)


def test_rows_of_a_source_for_a_later_level_are_marked_to_pass() -> None:
    graph = tolls()
    plan = make_plan(graph, "unfused")
    assert [(str(each.name), each.level) for each in plan.components] == [
        ("fine", 1),
        ("coarse", 2),
        ("all", 3),
        ("met", 3),
    ]
    first, second, third = json.loads(explain(graph, plan, "json"))["exchanges"]
    assert first.endswith("; rows for met: right pass")
    assert second == "results to slots for coarse by (a), row by row; rows for met: right pass"
    assert third.endswith("row by row, those of sources for met: right combined")
    assert "r -> met (right) (through the exchanges of 3 levels)" in explain(graph, plan)


@pytest.mark.parametrize("planner", [AUTO, *PLANNERS])
def test_every_planner_can_be_chosen_by_name(planner: str) -> None:
    graph = tolls()
    for known in (None, measures()):
        plan = make_plan(graph, planner, measures=known)
        printed = json.loads(explain(graph, plan, "json"))["fusion"]["planner"]
        assert printed in {AUTO, *PLANNERS}, "what explain prints is accepted as planner="
        assert f"planned by {printed}" in explain(graph, plan)
        assert sorted(node.operator for c in plan.components for node in c.nodes) == [
            "all",
            "coarse",
            "fine",
            "met",
            "met",
        ]
        names = {str(c.name) for c in plan.components}
        assert names == (
            {"fine", "coarse", "all", "met"}
            if planner == "unfused"
            else {"fine + coarse + met", "all"}
        )


def test_a_planner_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        TopologyError,
        match=r"unknown planner 'best'; valid: auto, unfused, .*, exact, set cover, cola",
    ):
        make_plan(tolls(), "best")


def test_the_stream_of_one_window_needs_no_spark_sql() -> None:
    graph = windows(
        Graph(name="t").add(
            Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0)
        ),
        "fine",
        "s",
        "ab",
    )
    fields = graph.fields_of("fine")
    one = Map(name="fine[1 minutes]", input="fine", fn=len, fields=fields, window="1 minutes")
    graph = graph.add(one)
    for aggregate, fused in ((sum("fine_n"), True), (sum("fine_n + 1"), False)):
        named = (Named(name="n", aggregate=aggregate, input_type="bigint"),)
        made = graph.add(Compute(name="c", input=one.name, by=FIELDS[:1], aggregates=named))
        made = made.add(Consolidate(name="coarse", input="c", windows=(tumbling("5 minutes"),)))
        text = explain(made, make_plan(made))
        assert ("fine + coarse" in text) == fused
        assert "operators: fine -> fine[1 minutes] -> c -> coarse" in text
        assert "maps run in Spark SQL" not in text
        assert "maps accept any partitioning" not in text
        why = "not fused: expressions and filters run in Spark SQL, between two slot tasks: fine_n + 1"
        assert (why in text) != fused
