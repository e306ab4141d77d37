"""What a plan says of its nodes: which feeds which, which reports late rows, and their parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.plan.ids import PartId
from anabranch.plan.make import make_plan
from anabranch.plan.model import Plan
from tests.plan.every_kind import graph, plan

WINDOWS, SESSION = PartId("w"), PartId("w", "session 5 seconds")
JOIN, RIGHT, PROCESS = PartId("j"), PartId("j", "right"), PartId("p")


@pytest.fixture(scope="module")
def given() -> Plan:
    return plan()


def test_parts_are_found_by_their_ids_and_belong_to_one_component(given: Plan) -> None:
    assert [node.name for node in given.nodes] == [WINDOWS, SESSION, JOIN, RIGHT, PROCESS]
    for node in given.nodes:
        assert given.node(node.name) is node
        assert node in given.component_of(node.name).nodes
    assert [node.name for node in given.parts_of("w")] == [WINDOWS, SESSION]
    assert given.component_of(JOIN) is given.component_of(RIGHT)


def test_windows_of_an_operator_read_the_same_rows_and_sides_of_a_join_do_not(given: Plan) -> None:
    siblings = given.sibling_parts(given.node(SESSION))
    assert [node.name for node in siblings] == [WINDOWS, SESSION]
    assert given.sibling_parts(given.node(RIGHT)) == (given.node(RIGHT),)
    first = {node.name for node in given.nodes if given.is_first_part(node)}
    assert first == {WINDOWS, JOIN, RIGHT, PROCESS}
    assert [node.name for node in given.late_nodes("w")] == [WINDOWS]
    assert [node.name for node in given.late_nodes("j")] == [JOIN, RIGHT]


def test_sources_are_the_entries_and_no_row_of_them_passes_a_level(given: Plan) -> None:
    assert given.entries == {"l", "r"}
    assert given.levels == 1
    assert given.at(1) == given.components
    assert not any(given.passes(node) or given.is_fused(node) for node in given.nodes)
    assert given.routed == tuple(each.name for each in given.components)


def test_other_nodes_of_the_same_names_take_their_places_everywhere(given: Plan) -> None:
    changed = [
        replace(node, plan=replace(node.plan, forgotten_us=5)) for node in reversed(given.nodes)
    ]
    again = given.with_nodes(changed)
    assert [node.name for node in again.nodes] == [node.name for node in given.nodes]
    everywhere = [node for each in again.components for node in each.nodes]
    assert {node.plan.forgotten_us for node in (*again.nodes, *everywhere)} == {5}


def test_windows_that_share_no_panes_are_parts_of_their_own() -> None:
    apart = make_plan(graph(share=False))
    names = [str(node.name) for node in apart.parts_of("w")]
    assert names == ["w: 1 minute", "w: 10 minutes", "w: session 5 seconds"]
