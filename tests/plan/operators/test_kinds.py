"""What an operator of the graph becomes: one node or several, each of its kind."""

from __future__ import annotations

from typing import get_args

import pytest

from anabranch.plan.operators.kinds import AnyContents, nodes_for
from tests.plan.every_kind import graph, nodes


@pytest.mark.parametrize(
    ("operator", "kinds"),
    [("w", ["windows", "sessions"]), ("j", ["join", "join"]), ("p", ["process"])],
)
def test_each_operator_becomes_nodes_of_its_kinds(operator: str, kinds: list[str]) -> None:
    given = graph()
    found = nodes_for(given, given.operator(operator), shared=None)
    assert [node.plan.kind for node in found] == kinds
    assert {node.operator for node in found} == {operator}
    assert len({node.name for node in found}) == len(found)


def test_state_goes_on_as_it_was_begun_whatever_the_topology_wants() -> None:
    for wanted in (True, False, None):
        given = graph(share=wanted)
        for shared, names in ((True, ["w"]), (False, ["w: 1 minute", "w: 10 minutes"])):
            found = nodes_for(given, given.operator("w"), shared=shared)
            assert [str(node.name) for node in found] == [*names, "w: session 5 seconds"]


def test_a_checkpoint_can_hold_the_contents_of_every_kind() -> None:
    made = {type(node.contents()) for node in nodes().values()}
    assert made == set(get_args(AnyContents))
