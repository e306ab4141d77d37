"""Windows as users write them: their names, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from anabranch.errors import TopologyError
from anabranch.topology import cumulative, hopping, session, sliding, tumbling
from anabranch.topology.graph import check_windows


def test_a_window_keeps_the_name_that_was_given_or_what_was_written() -> None:
    for window, name in (
        (tumbling("24 hours"), "24 hours"),
        (tumbling(" 24  hours"), "24 hours"),
        (tumbling("24 hours", name="day"), "day"),
        (tumbling(timedelta(hours=24)), "1 day"),
        (sliding("10m", every="1m"), "10m every 1m"),
        (sliding("10m", every="600 seconds"), "10m"),
        (hopping("5m", every=timedelta(minutes=7), start="1m"), "5m every 7 minutes starting 1m"),
        (tumbling("1 day", start="-2 hours"), "1 day starting -2 hours"),
        (tumbling("1 day", start="24h"), "1 day"),
        (cumulative("24h", every="10m", start="2h")[0], "24h so far every 10m starting 2h"),
        (session("30m"), "session 30m"),
        (session("30m", name="visit"), "visit"),
    ):
        assert window.name == name
    assert tumbling("1h", start="-10 minutes").offset_us == 50 * 60_000_000


def test_a_checkpoint_knows_a_window_by_what_it_is() -> None:
    assert {
        each.key
        for each in (tumbling("24 hours"), tumbling("1 day", name="x"), hopping("1d", every="24h"))
    } == {"1 day"}
    assert (
        sliding("1h", every="60s", start="-10s").key == "1 hour every 1 minute starting 50 seconds"
    )
    assert session("90s", name="visit").key == session("1.5 minutes").key == "session 90 seconds"
    assert len({each.key for each in cumulative("1 day", every="1 hour")}) == 24


def test_the_same_window_under_two_names_is_refused() -> None:
    for one, other in (
        (tumbling("24 hours"), tumbling("1 day")),
        (session("90s", name="visits"), session("90s")),
        (cumulative("1 day", every="1h"), cumulative("1 day", every="1h", name="so far")),
    ):
        with pytest.raises(TopologyError, match=r"are the same .*; remove one"):
            check_windows([one, other])
    day = cumulative("1 day", every="6 hours")
    whole = (*day, tumbling("1 day"))  # the last step of the one is the other
    assert check_windows([day, tumbling("1 day")]) == check_windows(whole) == whole


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
    with pytest.raises(TopologyError, match="1,440 steps per period; valid: up to 300"):
        cumulative("1 day", every="1 minute")


def test_sessions_and_windows_go_together_if_their_names_differ() -> None:
    given = [
        session("5 minutes"),
        tumbling("5 minutes"),
        session("90s", name="visits"),
        session("91s"),
    ]
    assert check_windows(given) == tuple(given)
    assert [each.name for each in given] == [
        "session 5 minutes",
        "5 minutes",
        "visits",
        "session 91s",
    ]
    assert given[0].gap_us == 300_000_000
    for twice in (
        session("300s", name="visits"),
        session("1h", name="session 5 minutes"),
        tumbling("1h", name="visits"),
    ):
        with pytest.raises(TopologyError, match=f"two windows are named '{twice.name}'"):
            check_windows([*given, twice])
    for bad in ("0 seconds", "-1 minute"):
        with pytest.raises(TopologyError, match=f"session gap '{bad}'"):
            session(bad)
    with pytest.raises(TopologyError, match="window name '' must be a non-empty string"):
        session("1m", name="")


def test_invalid_windows_are_refused() -> None:
    with pytest.raises(TopologyError, match="longer than its length"):
        sliding("1 minute", every="2 minutes")
    with pytest.raises(TopologyError, match="at least one window"):
        check_windows([])
    with pytest.raises(TopologyError, match="two windows are named 'x'"):
        check_windows([tumbling("1h", name="x"), tumbling("2h", name="x")])
    with pytest.raises(TopologyError, match="not a window"):
        check_windows(["1 hour"])
