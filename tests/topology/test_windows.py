"""Windows as users write them: their names, and what is refused."""

from __future__ import annotations

import pytest

from anabranch.errors import TopologyError
from anabranch.topology import cumulative, hopping, session, sliding, tumbling
from anabranch.topology.graph import check_windows


def test_windows_are_named_by_what_they_are() -> None:
    assert tumbling("10 minutes").name == "10 minutes"
    assert sliding("1 hour", every="10m").name == "1 hour every 10 minutes"
    assert (
        hopping("5m", every="7m", start="1 minute").name
        == "5 minutes every 7 minutes starting 1 minute"
    )
    assert tumbling("1h", start="-10 minutes").offset_us == 50 * 60_000_000


def test_a_cumulative_window_is_one_window_for_each_step_under_one_name() -> None:
    day = cumulative("1 day", every="10 minutes")
    assert len(day) == 144
    assert {(w.name, w.every_us, w.offset_us) for w in day} == {
        ("1 day so far every 10 minutes", 86_400_000_000, 0)
    }
    assert [w.length_us for w in day[:2]] + [day[-1].length_us] == [
        600_000_000,
        1_200_000_000,
        86_400_000_000,
    ]
    assert check_windows([day, tumbling("5m")]) == (*day, tumbling("5m"))
    with pytest.raises(TopologyError, match="two windows are named '1 day so far"):
        check_windows([day, *day])
    with pytest.raises(TopologyError, match="not a multiple"):
        cumulative("1 hour", every="7 minutes")
    with pytest.raises(TopologyError, match="1,440 steps a period; valid: up to 300"):
        cumulative("1 day", every="1 minute")


def test_sessions_stand_beside_windows_and_no_name_is_there_twice() -> None:
    given = [
        session("5 minutes"),
        tumbling("5 minutes"),
        session("90s", name="visits"),
        session("90s"),
    ]
    assert check_windows(given) == tuple(given)
    assert [each.name for each in given] == [
        "session 5 minutes",
        "5 minutes",
        "visits",
        "session 90 seconds",
    ]
    assert given[0].gap_us == 300_000_000
    for twice in (
        session("5m"),
        session("1h", name="session 5 minutes"),
        tumbling("1h", name="visits"),
    ):
        with pytest.raises(TopologyError, match=f"two windows are named '{twice.name}'"):
            check_windows([*given, twice])
    for bad in ("0 seconds", "-1 minute"):
        with pytest.raises(TopologyError, match=f"session gap '{bad}'"):
            session(bad)
    with pytest.raises(TopologyError, match="window name '' is not a text"):
        session("1m", name="")


def test_invalid_windows_are_refused() -> None:
    with pytest.raises(TopologyError, match="longer than its length"):
        sliding("1 minute", every="2 minutes")
    with pytest.raises(TopologyError, match="at least one window"):
        check_windows([])
    with pytest.raises(TopologyError, match="two windows are named '1 hour'"):
        check_windows([tumbling("1h"), tumbling("60m")])
    with pytest.raises(TopologyError, match="not a window"):
        check_windows(["1 hour"])
