"""What people ask for between two steps, and what happens with it, without Spark."""

from __future__ import annotations

import pytest

from anabranch.errors import TopologyError
from anabranch.plan.ids import APPLIES, ComponentId
from anabranch.plan.route import Route, even_route
from anabranch.spark.driver.changes import Changes, Requests, changed_routes, route_notice
from tests.spark.driver.reports_by_hand import FIRST, SECOND, SHARDS

ROUTES = {FIRST: even_route(SHARDS, 2), SECOND: even_route(SHARDS, 1)}


def test_requests_that_make_no_sense_are_refused() -> None:
    requests = Requests(SHARDS)
    with pytest.raises(TopologyError, match="slots=5; valid: 1 to 4"):
        requests.resize(5)
    with pytest.raises(
        TopologyError, match=r"slot_of=\[0, 1\]; valid: a slot from 0 to 3 for each of the 4 shards"
    ):
        requests.reroute([0, 1], None, ROUTES)
    with pytest.raises(TopologyError, match=r"slot_of=\[0, 0, 0, 4\]"):
        requests.reroute([0, 0, 0, 4], None, ROUTES)
    with pytest.raises(TopologyError, match="unknown component 'w7'; valid: w0, w1"):
        requests.reroute([0, 0, 0, 0], "w7", ROUTES)
    assert requests.take() == Changes()


def test_requests_are_taken_once() -> None:
    requests = Requests(SHARDS)
    requests.reroute([1, 1, 0, 0], "w0", ROUTES)
    assert changed_routes(ROUTES, requests.take()) == {FIRST: Route((1, 1, 0, 0), 2, 2)}
    assert changed_routes(ROUTES, requests.take()) == {}
    assert ROUTES[FIRST].slot_of == (0, 1, 0, 1)


def test_a_number_of_slots_wins_over_routes() -> None:
    requests = Requests(SHARDS)
    requests.reroute([1, 1, 0, 0], None, ROUTES)
    requests.resize(3)
    assert requests.waiting.slots == 3
    changed = changed_routes(ROUTES, requests.take())
    assert {name: route.slots for name, route in changed.items()} == {FIRST: 3, SECOND: 3}


def test_of_two_changes_the_later_one_counts() -> None:
    first = Changes(slots=2, routes={FIRST: Route((0, 0, 0, 0), 1, 0)})
    second = Changes(slots=3, routes={SECOND: Route((0, 1, 2, 0), 3, 0)})
    both = first.then(second)
    assert (both.slots, set(both.routes)) == (3, {FIRST, SECOND})
    assert first.then(Changes()) == first


def test_a_route_that_is_the_same_or_of_other_shards_changes_nothing() -> None:
    gone = ComponentId(("gone",))
    same = {FIRST: Route((0, 1, 0, 1), 2, 9), SECOND: Route((0, 0), 1, 9), gone: ROUTES[FIRST]}
    assert changed_routes(ROUTES, Changes(routes=same)) == {}


def test_a_change_of_route_says_how_many_shards_have_another_slot() -> None:
    before, moved = even_route(SHARDS, 2), Route((1, 1, 0, 1), 2, 2)
    kind, text, _ = route_notice(FIRST, before, moved, alone=True)
    assert (kind, text) == ("reroute", "1 of 4 shards have another slot, no state moved")
    kind, text, _ = route_notice(FIRST, before, even_route(SHARDS, 4), alone=False)
    assert kind == "resize"
    assert text == "slots of 'w0' 2 -> 4: 2 of 4 shards have another slot, no state moved"
    assert route_notice(APPLIES, before, moved, alone=False).text == "slots of applies 2 -> 2"
