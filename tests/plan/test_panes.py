"""Panes against windows that are found by trying every start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan import Panes, panes_of
from anabranch.plan.panes import FIRST_US, LAST_US
from anabranch.topology import Window, tumbling
from anabranch.topology.calendar import UNITS, calendar
from anabranch.topology.windows import AlignedWindow, sliding

windows = st.builds(
    lambda length, every, offset: Window(
        name="w", length_us=length, every_us=every, offset_us=offset % every
    ),
    st.integers(1, 24),
    st.integers(1, 24),
    st.integers(0, 23),
)
sets = st.lists(windows, min_size=1, max_size=4)
SPAN = range(-60, 60)


def instances(window: Window, low: int, high: int) -> list[tuple[int, int]]:
    """All windows that touch an interval, by trying every start."""
    starts = range(low - window.length_us, high + 1)
    return [
        (s, s + window.length_us) for s in starts if (s - window.offset_us) % window.every_us == 0
    ]


@given(sets)
def test_every_window_starts_and_ends_at_the_edge_of_a_pane(chosen: list[Window]) -> None:
    panes = panes_of(chosen)
    for window in chosen:
        for start, end in instances(window, -50, 50):
            assert panes.start_of(start) == start
            assert panes.start_of(end) == end


@given(sets, st.integers(-50, 50))
def test_the_last_end_of_a_pane_is_that_of_the_last_window_over_it(
    chosen: list[Window], at: int
) -> None:
    panes = panes_of(chosen)
    pane = panes.start_of(at)
    ends = [
        end for window in chosen for start, end in instances(window, -60, 60) if start <= pane < end
    ]
    assert panes.last_end(pane) == max(ends, default=None)


@given(
    sets,
    st.sets(st.integers(-50, 50), max_size=6),
    st.integers(-60, 60) | st.none(),
    st.integers(-60, 60),
)
def test_closings_are_the_windows_over_held_panes_that_end_in_the_interval(
    chosen: list[Window], at: set[int], after: int | None, until: int
) -> None:
    panes = panes_of(chosen)
    held = {panes.start_of(each) for each in at}
    expected = sorted(
        (end, start, index)
        for index, window in enumerate(chosen)
        for start, end in instances(window, -120, 120)
        if any(start <= pane < end for pane in held)
        and end <= until
        and (after is None or end > after)
    )
    assert [
        (c.end_us, c.start_us, c.window) for c in panes.closings(held, after, until)
    ] == expected


@given(sets, st.sets(st.integers(-50, 50), max_size=6), st.integers(-60, 60) | st.none())
def test_the_next_end_is_the_first_end_that_is_still_open(
    chosen: list[Window], at: set[int], after: int | None
) -> None:
    panes = panes_of(chosen)
    held = {panes.start_of(each) for each in at}
    open_ends = [
        end
        for window in chosen
        for start, end in instances(window, -120, 120)
        if any(start <= pane < end for pane in held) and (after is None or end > after)
    ]
    assert panes.next_end(held, after) == min(open_ends, default=None)


def test_times_that_can_be_shown_are_so_in_every_time_zone() -> None:
    panes = panes_of([tumbling("1 hour"), tumbling("1 day")])
    times = np.array([FIRST_US, FIRST_US + panes.reach_us, LAST_US - panes.reach_us, LAST_US])
    assert panes.can_show(times).tolist() == [False, True, True, False]
    for zone in (timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))):
        for us in (FIRST_US, LAST_US):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
            assert moment.astimezone(zone).utcoffset() == zone.utcoffset(None)


def test_panes_are_as_wide_as_the_windows_allow() -> None:
    minute = 60_000_000
    chosen = [
        Window(name=str(m), length_us=m * minute, every_us=m * minute) for m in (5, 10, 15, 20)
    ]
    assert panes_of(chosen) == Panes(width_us=5 * minute, offset_us=0, windows=tuple(chosen))
    sliding = [Window(name=str(m), length_us=m * minute, every_us=minute) for m in (5, 10, 60)]
    assert panes_of(sliding).width_us == minute


HOUR = 3_600_000_000
MARCH = 1_711_000_000_000_000  # 2024-03-21: clocks change in Berlin ten days later
BESIDE = (tumbling("7 hours"), sliding("2 days", every="9 hours"))
calendars = st.builds(
    lambda unit, zone: calendar(unit, timezone=zone),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from(["Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia"]),
)
mixed = st.lists(calendars | st.sampled_from(BESIDE), min_size=1, max_size=4)
near = st.integers(-900 * HOUR, 900 * HOUR).map(lambda at: MARCH + at)


def spans(window: AlignedWindow, low: int, high: int) -> list[tuple[int, int]]:
    """All windows that end between two times, one after the other."""
    found, end = [], window.first_end(low)
    while end <= high:
        found.append((window.start_of(end), end))
        end = window.first_end(end)
    return found


@settings(max_examples=40)
@given(mixed, st.lists(near, min_size=1, max_size=8))
def test_no_edge_of_a_window_is_inside_a_pane(chosen: list[AlignedWindow], at: list[int]) -> None:
    panes = panes_of(chosen)
    starts = panes.starts(np.array(at)).tolist()
    for time, start in zip(at, starts, strict=True):
        assert panes.start_of(start) == start <= time < panes.end_of(start)
        assert panes.start_of(panes.end_of(start) - 1) == start
        edges = {e for w in chosen for span in spans(w, start, time + w.longest_us) for e in span}
        assert not [edge for edge in edges if start < edge <= time]
        ends = [
            end
            for window in chosen
            for first, end in spans(window, time, time + 2 * window.longest_us)
            if first <= time < end
        ]
        assert panes.last_end(start) == max(ends, default=None)


@settings(max_examples=40)
@given(mixed, st.sets(near, max_size=5), near | st.none(), near)
def test_windows_of_any_lengths_close_in_order(
    chosen: list[AlignedWindow], at: set[int], after: int | None, until: int
) -> None:
    panes = panes_of(chosen)
    held = {panes.start_of(each) for each in at}
    low = min(held, default=until)
    expected = sorted(
        (end, start, index)
        for index, window in enumerate(chosen)
        for start, end in spans(window, low, until)
        if any(start <= pane < end for pane in held) and (after is None or end > after)
    )
    found = [(c.end_us, c.start_us, c.window) for c in panes.closings(held, after, until)]
    assert found == expected
    following = panes.next_end(held, until)
    final = panes.final_end(held)
    assert (following is None) == (final is None or final <= until)
    if following is not None and final is not None:
        assert until < following <= final


@settings(max_examples=40)
@given(mixed, near, near)
def test_rows_are_late_where_every_window_with_them_has_closed(
    chosen: list[AlignedWindow], at: int, watermark: int
) -> None:
    panes = panes_of(chosen)
    if panes.takes_all_from(at, watermark):
        later = panes.last_ends(np.array([at, at + HOUR, at + 10**13]))
        assert (later > watermark).all()
    else:
        ends = [int(w.last_ends(np.array([at]))[0]) for w in chosen if w.gapless]
        assert all(end <= watermark for end in ends)


def test_only_the_windows_that_need_it_cut_panes() -> None:
    berlin = [calendar(unit, timezone="Europe/Berlin") for unit in ("month", "year", "week")]
    panes = panes_of([tumbling("10 minutes"), *berlin])
    assert [each.name for each in panes.cuts] == ["month in Europe/Berlin", "week in Europe/Berlin"]
    assert str(panes) == "10 minutes cut by month in Europe/Berlin cut by week in Europe/Berlin"
    assert str(panes_of(berlin[:2])) == "month in Europe/Berlin"
    day = calendar("day", timezone="Europe/Berlin")
    assert panes_of([*berlin, day]).cuts == [day]
    assert 6 < panes.per_hour < 6.01
    assert panes.outside_sql() == "false"
    assert panes.late_sql(None).endswith(" and (false))")
    assert "t < get(array(" in panes.late_sql(MARCH)
