"""Windows over partials: their result columns, and partials from what a checkpoint notes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.errors import CheckpointError
from anabranch.plan.operators.aggregates import AggregatePlan
from anabranch.plan.operators.base import EVERYTHING
from anabranch.plan.operators.noted import AggregateContents, NotedPartial
from tests.plan.every_kind import nodes


def contents(*partials: NotedPartial) -> AggregateContents:
    return AggregateContents(keys=(("k", "bigint"),), partials=partials, aggregates={})


def test_only_what_is_written_to_sinks_marks_early_results() -> None:
    plan = nodes()["windows"].plan
    assert isinstance(plan, AggregatePlan)
    names = [each.name for each in plan.result_fields]
    assert names == ["k", "window", "window_name", "n", "total"]
    assert plan.written_fields == plan.result_fields
    early = replace(plan, early=True)
    assert early.result_fields == plan.result_fields
    assert [each.name for each in early.written_fields] == [*names[:3], "early", *names[3:]]


def test_a_global_aggregate_has_no_key_in_its_results() -> None:
    plan = replace(nodes()["windows"].plan, keys=(EVERYTHING,))
    assert plan.result_fields[0].name == "window"


def test_noted_partials_have_their_columns_one_after_another() -> None:
    noted = (
        NotedPartial(kind="Count", type="bigint", input="*"),
        NotedPartial(kind="Moments", type="double", input="v"),
        NotedPartial(kind="Greatest", type="double", input="v"),
    )
    kept = contents(*noted).kept()
    assert [type(each.partial).__name__ for each in kept] == [each.kind for each in noted]
    assert [(each.columns.start, each.columns.stop) for each in kept] == [(0, 1), (1, 4), (4, 5)]


@pytest.mark.parametrize(
    ("kind", "why"),
    [("Unheard", "partials of kind Unheard"), ("Custom", r"only the topology's own code .* udaf")],
)
def test_partials_that_cannot_be_made_without_the_topology_are_refused(kind: str, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        contents(NotedPartial(kind=kind, type="double", input="v")).kept()
