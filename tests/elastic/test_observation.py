"""The values that pass from stage to stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.elastic.observation import (
    ComponentObservation,
    Decision,
    Effect,
    Expected,
    Observation,
    Offer,
    Reroute,
    SourceObservation,
    by_slot,
    slot_table,
)
from anabranch.plan.route import Route, even_route
from tests.elastic.policies.evaluations import loaded


def component(route: Route, **more: object) -> ComponentObservation:
    shards = len(route.slot_of)
    figures = {"name": "a", "route": route, "slot_s": np.zeros(route.slots)}
    for name in ("rows", "rows_out", "cpu_s", "state_bytes"):
        figures[name] = np.arange(shards, dtype=np.float64)
    return ComponentObservation(**{**figures, **more})  # type: ignore[arg-type]


def test_figures_by_shard_are_added_up_by_slot() -> None:
    route = Route((0, 2, 0, 2, 2), 4, 1)
    assert by_slot(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), route).tolist() == [4.0, 0.0, 11.0, 0.0]


def test_the_slot_table_of_equal_routes_is_one_array_that_nobody_can_change() -> None:
    table = slot_table(Route((1, 0, 1), 2, 1))
    assert table.tolist() == [1, 0, 1]
    assert slot_table(Route((1, 0, 1), 3, 7)) is table
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0


def test_a_component_on_another_route_adds_up_by_that_route() -> None:
    before = component(even_route(4, 2))
    after = replace(before, route=Route((0, 0, 0, 1), 2, 2))
    assert before.by_slot(before.rows).tolist() == [2.0, 4.0]
    assert after.by_slot(after.rows).tolist() == [3.0, 3.0]


def test_work_is_the_cpu_unless_the_time_in_the_slot_is_known() -> None:
    busy_s = np.full(4, 0.5)
    assert component(even_route(4, 2)).work_s.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert component(even_route(4, 2), busy_s=busy_s).work_s is busy_s


def test_rows_between_components_are_those_with_parents() -> None:
    first, second = component(even_route(4, 2)), component(even_route(4, 2), parents=("a",))
    sources = {"s": SourceObservation(rows=5.0), "t": SourceObservation(rows=2.0)}
    seen = Observation(
        step=1, at=1.0, duration_s=1.0, cores=2, sources=sources, components=(first, second)
    )
    assert (seen.rows, seen.between) == (7.0, 6.0)


def test_imbalance_is_the_most_loaded_slot_over_the_mean() -> None:
    share = np.array([0.5, 0.3, 0.2, 0.0])
    each = loaded(route=even_route(4, 2), share=share)
    assert each.imbalance == pytest.approx(0.7 * 2)
    assert (each.hottest, each.hot_share) == (0, 0.5)


def test_an_effect_knows_the_share_of_its_promise() -> None:
    effect = Effect(what="a", unit="us", before=10.0, expected=6.0, observed=7.0)
    assert effect.share == pytest.approx(0.75)
    assert replace(effect, expected=10.0).share is None, "nothing was promised"


def test_a_decision_is_true_if_something_changes() -> None:
    nothing = Decision(step=1, reason="all is well", notes=("a key is hot",))
    expected = Expected(before=2.0, after=1.0)
    move = Reroute(component="a", route=even_route(4, 2), moved=1, expected=expected)
    offer = Offer(planner="greedy", before=("a",), after=("b",), rows_before=2.0, rows_after=1.0)
    assert not nothing
    assert replace(nothing, changes=(move,))
    assert replace(nothing, replan=offer)
