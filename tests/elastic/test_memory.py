"""The controller's memory: the log of requests, and the kinds of changes."""

from __future__ import annotations

from anabranch.elastic.memory import (
    IN,
    MOVE,
    OUT,
    LoggedRequest,
    Memory,
    RequestLog,
    kind_of,
)
from anabranch.elastic.observation import Expected, Reroute, Resize
from anabranch.plan.route import even_route

NOTHING = Expected(before=0.0, after=0.0)


def log(*entries: tuple[float, dict[str, int], str]) -> RequestLog:
    """Requests at times, with slots, and components (letters) that are out of balance."""
    found = RequestLog()
    for at, slots, uneven in entries:
        entry = LoggedRequest(at=at, slots=slots, uneven=frozenset(uneven))
        found = found.add(entry, keep_from=0.0)
    return found


def test_requests_before_the_time_to_keep_are_forgotten() -> None:
    before = log((1.0, {"a": 1}, ""), (2.0, {"a": 2}, ""))
    after = before.add(LoggedRequest(at=3.0, slots={"a": 3}), keep_from=2.0)
    assert [each.at for each in after.entries] == [2.0, 3.0]
    assert [each.at for each in before.entries] == [1.0, 2.0], "the old log stays as it was"


def test_only_requests_that_name_a_component_count_for_its_slots() -> None:
    requests = log((1.0, {"a": 9}, ""), (2.0, {"a": 2, "b": 1}, ""), (3.0, {"b": 4}, ""))
    assert requests.latest_slots("a", 2) == [2]
    assert requests.latest_slots("b", 2) == [1, 4]
    assert requests.slots_since("a", 1.0) == [9, 2]
    assert requests.slots_since("a", 1.5) == [2]


def test_a_log_reaches_back_to_its_oldest_request() -> None:
    assert not RequestLog().reaches_back_to(5.0)
    assert log((2.0, {}, "")).reaches_back_to(2.0)
    assert not log((2.0, {}, "")).reaches_back_to(1.9)


def test_a_component_stays_uneven_only_if_every_one_of_the_latest_requests_says_so() -> None:
    requests = log((1.0, {}, "b"), (2.0, {}, "ab"), (3.0, {}, "ab"))
    assert requests.stays_uneven("a", 2)
    assert not requests.stays_uneven("a", 3)
    assert requests.stays_uneven("b", 3)
    assert not requests.stays_uneven("b", 4), "three requests do not confirm four"
    assert not requests.without_uneven().stays_uneven("b", 1)


def test_a_kind_of_change_is_blocked_for_its_component_until_a_time() -> None:
    memory = Memory(blocked={("a", OUT): 10.0})
    assert memory.is_blocked("a", OUT, 9.9)
    assert not memory.is_blocked("a", OUT, 10.0)
    assert not memory.is_blocked("a", MOVE, 9.9)
    assert not memory.is_blocked("b", OUT, 9.9)


def test_the_kind_of_a_change_is_more_or_fewer_slots_or_other_shards() -> None:
    route = even_route(8, 4)
    assert kind_of(Resize(component="a", route=route, before=2, expected=NOTHING)) == OUT
    assert kind_of(Resize(component="a", route=route, before=8, expected=NOTHING)) == IN
    assert kind_of(Reroute(component="a", route=route, moved=1, expected=NOTHING)) == MOVE
