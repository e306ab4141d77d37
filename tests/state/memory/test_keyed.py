"""What the decoded states share: groups, panes by number, partials of several parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from anabranch.aggregates.functions import count, max
from anabranch.plan.make import make_plan
from anabranch.plan.operators.base import OperatorPlan
from anabranch.state.memory.keyed import groups, merged_parts, numbered
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, tumbling
from anabranch.topology.graph import Named

FIELDS = (Field("k", "bigint"), Field("at", "timestamp"), Field("v", "double"))


def plan() -> OperatorPlan:
    named = (
        Named(name="n", aggregate=count(), input_type="int"),
        Named(name="most", aggregate=max("v"), input_type="double"),
    )
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="s", by=FIELDS[:1], aggregates=named))
        .add(Consolidate(name="w", input="c", windows=(tumbling("1 minute"),)))
    )
    return make_plan(graph).nodes[0].plan


@pytest.mark.parametrize("values", [[3, 1, 3, 0, 1], [-1, 70_000, -1], [5], []])
def test_groups_are_the_positions_of_equal_values_in_order(values: list[int]) -> None:
    starts, order = groups(np.array(values, dtype=np.int64))
    found = [order[a:b].tolist() for a, b in itertools.pairwise(starts)]
    expected = [[i for i, v in enumerate(values) if v == each] for each in sorted({*values})]
    assert found == expected


@pytest.mark.parametrize("panes", [[0, 20, 10, 20], [0, 10**9, 10], [-30, 0], []])
def test_panes_are_found_again_by_their_numbers_near_or_far(panes: list[int]) -> None:
    pane = np.array(panes, dtype=np.int64)
    held, number = numbered(pane, 10)
    assert held[number].tolist() == panes
    assert len(held) < 5_000


def test_what_several_parts_have_of_a_group_is_merged_and_a_group_of_none_is_empty() -> None:
    columns = [np.array([1, 2, 4, 8]), np.array([1.0, 5.0, 3.0, -1.0]), np.ones(4, dtype=bool)]
    made = plan()
    given = [
        column.astype(each.empty(1).dtype)
        for column, each in zip(columns, made.columns, strict=False)
    ]
    at, part = np.array([0, 2, 0, 2]), np.array([0, 0, 1, 1])
    merged = merged_parts(made, at, 3, part, given)
    assert merged[0].tolist() == [5, 0, 10]
    assert (merged[1][0], merged[1][2]) == (3.0, 5.0)
