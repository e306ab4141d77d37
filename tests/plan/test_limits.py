"""The number of slots that a component can use, and why."""

from __future__ import annotations

from typing import Any

from anabranch.plan.limits import slots_limit
from anabranch.plan.make import make_plan
from anabranch.plan.model import Component
from anabranch.plan.planners.measured import Measures, OperatorMeasures
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, tumbling
from tests.plan.every_kind import COUNTED, LEFT


def component(*by: Field) -> Component:
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=LEFT, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="s", by=by, aggregates=COUNTED))
        .add(Consolidate(name="w", input="c", windows=(tumbling("1 minute"),)))
    )
    [found] = make_plan(graph).components
    return found


def measured(**known: Any) -> Measures:
    return Measures(shards=8, operators={"w": OperatorMeasures(rate=1.0, **known)})


def test_without_attributes_one_shard_has_all_rows() -> None:
    limit = slots_limit(component(), Measures(shards=8))
    assert limit.slots == 1
    assert "one shard has all rows" in limit.reason


def test_without_measures_each_shard_can_have_a_slot() -> None:
    limit = slots_limit(component(LEFT[0]), Measures(shards=8))
    assert (limit.slots, limit.reason) == (8, "as many as shards (8)")


def test_shards_that_never_had_rows_count_only_by_the_same_attributes() -> None:
    loads = [[1, 0, 2, 0, 0, 0, 0, 0], [0, 0, 1, 3, 0, 0, 0, 0]]
    limit = slots_limit(component(LEFT[0]), measured(loads=loads, by=("k",)))
    assert (limit.slots, limit.reason) == (3, "(k) has values in 3 of 8 shards, as measured")
    assert slots_limit(component(LEFT[0]), measured(loads=loads, by=("other",))).slots == 8


def test_few_keys_are_a_limit_where_the_component_has_all_of_them() -> None:
    limit = slots_limit(component(LEFT[0]), measured(keys=2.4))
    assert (limit.slots, limit.reason) == (2, "(k) has about 2 values, as measured")
    assert slots_limit(component(LEFT[0]), measured(keys=0.2)).slots == 1
