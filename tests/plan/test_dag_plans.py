"""Plans of random DAGs, without Spark: levels, components and explanations, by every planner."""

from __future__ import annotations

import builtins
import json
import random
from datetime import timedelta

import pytest

from anabranch.aggregates.functions import count, count_distinct, max, sum
from anabranch.plan import explain, make_plan
from anabranch.plan.make import plan_again
from anabranch.plan.model import Plan
from anabranch.plan.operators.joins import join_input, join_plan
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.testing.dags import Dag, DagNode, columns_of, random_dag, renamed
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, Window, hopping
from anabranch.topology.graph import Join, Map, Named

MAKERS = {"sum": sum, "max": max, "count_distinct": count_distinct}


def graph_of(dag: Dag) -> Graph:
    """The graph of a DAG; maps are named and do nothing."""
    graph = Graph(name="dag")
    for source in dag.sources:
        fields = tuple(Field(*each) for each in columns_of(dag, source.name).items())
        graph = graph.add(
            Source(
                name=source.name,
                fields=fields,
                event_time=source.time,
                unit_us=None,
                delay_us=source.delay_us,
            )
        )
    for node in dag.nodes:
        graph = _added(graph, dag, node)
    return graph


def _added(graph: Graph, dag: Dag, node: DagNode) -> Graph:
    windows = tuple(_window(*each) for each in node.windows)
    if node.kind == "join":
        sides = [
            join_input(each, graph.fields_of(each), graph.clock_of(each)) for each in node.inputs
        ]
        plan = join_plan(node.name, sides[0], sides[1], list(node.by), windows, node.how)
        left, right = node.inputs
        return graph.add(
            Join(
                name=node.name,
                input=left,
                right=right,
                by=plan.keys,
                windows=windows,
                how=plan.how,
                fields=plan.result_fields,
            )
        )
    [given] = node.inputs
    fields = graph.fields_of(given)
    if node.kind == "windows":
        by = tuple(next(each for each in fields if each.name == key) for key in node.by)
        named = tuple(
            Named(
                name=name,
                aggregate=count() if text == "*" else MAKERS[kind](text),
                input_type="bigint",
            )
            for name, kind, text in node.aggregates
        )
        graph = graph.add(Compute(name=f"{node.name}_keys", input=given, by=by, aggregates=named))
        return graph.add(Consolidate(name=node.name, input=f"{node.name}_keys", windows=windows))
    if node.kind == "rename":
        kinds = columns_of(dag, given)
        fields = tuple(
            Field(renamed(node, f.name, kinds[f.name]), f.type) if f.name in kinds else f
            for f in fields
        )
    elif node.kind != "filter":
        fields = (*fields, Field(f"{node.name}_v", "bigint"))
    return graph.add(Map(name=node.name, input=given, fn=lambda df: df, fields=fields))


def _window(name: str, length: int, every: int, start: int) -> Window:
    times = [timedelta(microseconds=us) for us in (length, every, start)]
    return hopping(times[0], every=times[1], start=times[2], name=name)


def check(plan: Plan) -> None:
    """Every operator in one component; each component right after the furthest that feeds it."""
    names = [node.name for component in plan.components for node in component.nodes]
    assert sorted(names) == sorted(node.name for node in plan.nodes)
    operators = {node.operator for node in plan.nodes}
    for component in plan.components:
        assert all(
            field in node.plan.keys for field in component.attributes for node in component.nodes
        )
        mine = {node.operator for node in component.nodes}
        feeding = {node.feed.stream for node in component.nodes} & operators - mine
        levels = [plan.component_of(plan.parts_of(name)[0].name).level for name in feeding]
        assert component.level == 1 + builtins.max(levels, default=0)
    for node in plan.nodes:
        fused = node.feed.stream in {other.operator for other in plan.component_of(node.name).nodes}
        assert plan.is_fused(node) == fused
        assert not (fused and node.feed.maps), "maps stand between two slot tasks"


@pytest.mark.parametrize("planner", [AUTO, *PLANNERS])
@pytest.mark.parametrize(
    "seed", [*range(12), 32]
)  # 32: an operator is joined with what a map makes of it
def test_every_planner_plans_every_dag_and_every_plan_explains_itself(
    planner: str, seed: int
) -> None:
    graph = graph_of(random_dag(random.Random(seed), operators=1 + seed % 7))
    plan = make_plan(graph, planner)
    check(plan)
    facts = json.loads(explain(graph, plan, "json"))
    assert len(facts["exchanges"]) == plan.levels
    assert facts["fusion"]["communication"] <= facts["fusion"]["communication_unfused"]
    assert [each["name"] for each in facts["components"]] == [
        str(each.name) for each in plan.components
    ]
    passing = {str(node.name) for node in plan.nodes if plan.passes(node)}
    assert {name for text in facts["exchanges"] for name in passing if name in text} == passing
    for text in (explain(graph, plan), explain(graph, plan, "mermaid")):
        assert all(str(each.name) in text for each in plan.components)
    again = plan_again(
        graph, [frozenset(n.operator for n in c.nodes) for c in plan.components], shared={}
    )
    assert [each.name for each in again.components] == [each.name for each in plan.components]
