"""The plan of a topology: shared partials, refusals, fingerprints, explain."""

from __future__ import annotations

import json

import pytest

from anabranch.errors import NotYetError, TopologyError
from anabranch.plan import explain, make_plan
from anabranch.plan.fingerprint import differences, fingerprint
from anabranch.topology import Aggregate, Compute, Consolidate, Field, Graph, Source, avg, count, max, sliding, sum, tumbling
from anabranch.topology.graph import Named

FIELDS = (Field("area", "string"), Field("at", "timestamp"), Field("v", "double"))


def graph(**aggregates: Aggregate) -> Graph:
    named = tuple(Named(name=n, aggregate=a, input_type="double") for n, a in aggregates.items())
    return (
        Graph(name="lending")
        .add(Source(name="loans", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="areas", input="loans", by=FIELDS[:1], aggregates=named))
        .add(Consolidate(name="hourly", input="areas", windows=(tumbling("10m"), sliding("1h", every="20m"))))
    )


def test_partials_that_two_aggregates_need_are_kept_once() -> None:
    plan = make_plan(
        graph(n=count(), total=sum("v"), mean=avg("v"), top=max("v"), some=sum("v", where="v > 0"))
    ).component.slotted
    kinds = [(type(kept.partial).__name__, kept.input) for kept in plan.kept]
    assert kinds == [("Count", 0), ("Total", 1), ("Count", 1), ("Greatest", 1), ("Total", 2), ("Count", 2)]
    assert [result.kept for result in plan.results] == [(0,), (1, 2), (1, 2), (3, 2), (4, 5)]


def test_several_aggregations_and_several_sources_are_refused_for_now() -> None:
    two = graph(n=count())
    two = two.add(Compute(name="again", input="loans", by=(), aggregates=two.operators[1].aggregates))  # type: ignore[union-attr]
    two = two.add(Consolidate(name="global", input="again", windows=(tumbling("1h"),)))
    with pytest.raises(NotYetError, match=r"2 aggregations \(hourly, global\); this version runs topologies of one component"):
        make_plan(two)


def test_a_topology_without_windows_is_refused() -> None:
    with pytest.raises(TopologyError, match="no windows"):
        make_plan(Graph(name="t"))


def test_a_checkpoint_of_another_topology_says_what_differs() -> None:
    one = fingerprint(make_plan(graph(n=count())).component, 64)
    other = fingerprint(make_plan(graph(n=sum("v"))).component, 32)
    told = differences(one, other)
    assert told[0].startswith("aggregates: the checkpoint has [n = count(*: double)], the topology has [n = sum(v: double)]")
    assert told[1] == "shards: the checkpoint has [64], the topology has [32]"
    assert differences(one, one) == []


def test_explain_tells_pane_exchanges_and_reason() -> None:
    plan = make_plan(graph(n=count()))
    text = explain(graph(n=count()), plan)
    assert "pane:      10 minutes" in text
    assert "areas and hourly have the attributes (area) in common" in text
    facts = json.loads(explain(graph(n=count()), plan, "json"))
    assert len(facts["exchanges"]) == 1
    assert explain(graph(n=count()), plan, "mermaid").startswith("graph LR")
    with pytest.raises(TopologyError, match="unknown format 'xml'; valid: text, json, mermaid"):
        explain(graph(n=count()), plan, "xml")
