"""The plan of a topology: shared partials, refusals, fingerprints, explain."""

from __future__ import annotations

import json

import pytest

from anabranch.aggregates.functions import avg, count, max, sum
from anabranch.errors import TopologyError
from anabranch.plan import explain, make_plan
from anabranch.plan.ids import PartId
from anabranch.plan.operators.fingerprint import differences
from anabranch.topology import (
    Aggregate,
    Compute,
    Consolidate,
    Field,
    Graph,
    Source,
    sliding,
    tumbling,
)
from anabranch.topology.graph import Named

FIELDS = (Field("area", "string"), Field("at", "timestamp"), Field("v", "double"))


def graph(**aggregates: Aggregate) -> Graph:
    named = tuple(Named(name=n, aggregate=a, input_type="double") for n, a in aggregates.items())
    return (
        Graph(name="lending")
        .add(Source(name="loans", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="areas", input="loans", by=FIELDS[:1], aggregates=named))
        .add(
            Consolidate(
                name="hourly", input="areas", windows=(tumbling("10m"), sliding("1h", every="20m"))
            )
        )
    )


def test_partials_that_two_aggregates_need_are_kept_once() -> None:
    plan = (
        make_plan(
            graph(
                n=count(), total=sum("v"), mean=avg("v"), top=max("v"), some=sum("v", where="v > 0")
            )
        )
        .nodes[0]
        .plan
    )
    kinds = [(type(kept.partial).__name__, kept.input) for kept in plan.kept]
    assert kinds == [
        ("Count", 0),
        ("Total", 1),
        ("Count", 1),
        ("Greatest", 1),
        ("Total", 2),
        ("Count", 2),
    ]
    assert [result.kept for result in plan.results] == [(0,), (1, 2), (1, 2), (3, 2), (4, 5)]


def chained(*keys: str, source: str = "loans") -> Graph:
    """Counts by some keys, then sums of these counts by fewer and fewer of them."""
    fields = (*(Field(key, "string") for key in keys), Field("at", "timestamp"))
    found = Graph(name="chain").add(
        Source(name=source, fields=fields, event_time="at", unit_us=None, delay_us=0)
    )
    stream, aggregate = source, count()
    for i in range(len(keys)):
        named = (Named(name="n", aggregate=aggregate, input_type="bigint"),)
        found = found.add(
            Compute(name=f"c{i}", input=stream, by=fields[: len(keys) - i], aggregates=named)
        )
        found = found.add(
            Consolidate(name=f"w{i}", input=f"c{i}", windows=(tumbling(f"{i + 1} minutes"),))
        )
        stream, aggregate = f"w{i}", sum("n")
    return found


def test_operators_with_a_key_in_common_are_one_component_in_the_order_of_their_rows() -> None:
    plan = make_plan(chained("a", "b", "c"))
    [component] = plan.components
    assert [str(node.name) for node in component.nodes] == ["w0", "w1", "w2"]
    assert component.attributes == (Field("a", "string"),)
    assert [plan.is_fused(node) for node in plan.nodes] == [False, True, True]
    assert component.by(plan.node(PartId("w0"))) == (0,)


def test_operators_without_a_common_key_are_components_on_levels_of_their_own() -> None:
    graph = chained("a")
    named = (Named(name="n", aggregate=sum("n"), input_type="bigint"),)
    graph = graph.add(Compute(name="all", input="w0", by=(), aggregates=named))
    graph = graph.add(Consolidate(name="total", input="all", windows=(tumbling("1h"),)))
    plan = make_plan(graph)
    assert [(str(each.name), each.level) for each in plan.components] == [("w0", 1), ("total", 2)]
    facts = json.loads(explain(graph, plan, "json"))
    assert len(facts["exchanges"]) == 2
    assert facts["fusion"]["streams"][0]["reason"].startswith("no attribute in common")


@pytest.mark.parametrize(
    ("given", "why"), [(sum("n + 1"), "n + 1"), (sum("n", where="n > 1"), "n where n > 1")]
)
def test_what_needs_spark_sql_is_not_fused(given: Aggregate, why: str) -> None:
    graph = chained("a")
    graph = graph.add(
        Compute(
            name="c",
            input="w0",
            by=graph.operator("c0").by,
            aggregates=(Named(name="m", aggregate=given, input_type="bigint"),),
        )
    )  # type: ignore[union-attr]
    graph = graph.add(Consolidate(name="w", input="c", windows=(tumbling("1h"),)))
    plan = make_plan(graph)
    assert [(str(each.name), each.level) for each in plan.components] == [("w0", 1), ("w", 2)]
    assert f"in Spark SQL, between two slot tasks: {why}" in explain(graph, plan)


def test_a_topology_without_windows_is_refused() -> None:
    with pytest.raises(TopologyError, match="nothing to do"):
        make_plan(Graph(name="t"))


def test_a_checkpoint_of_another_topology_says_what_differs() -> None:
    one = make_plan(graph(n=count())).nodes[0].fingerprint()
    other = make_plan(graph(n=sum("v"))).nodes[0].fingerprint()
    changes = differences(one, other)
    assert changes[0].startswith(
        "aggregates: the checkpoint has [n = count(*: double)], "
        "the topology has [n = sum(v: double)]"
    )
    assert differences(one, one) == []


def test_explain_shows_pane_exchanges_and_reason() -> None:
    plan = make_plan(graph(n=count()))
    text = explain(graph(n=count()), plan)
    assert "pane:      10 minutes" in text
    assert "areas and hourly have the attributes (area) in common" in text
    facts = json.loads(explain(graph(n=count()), plan, "json"))
    assert len(facts["exchanges"]) == 1
    assert explain(graph(n=count()), plan, "mermaid").startswith("graph LR")
    with pytest.raises(TopologyError, match="unknown format 'xml'; valid: text, json, mermaid"):
        explain(graph(n=count()), plan, "xml")
