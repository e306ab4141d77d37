"""Which windows the panes of a checkpoint serve, and from when on they are complete."""

from __future__ import annotations

from dataclasses import replace

from anabranch.plan.evolution import (
    complete_after_cut,
    complete_from,
    forgotten_before,
    incomplete_windows,
    misfits,
)
from anabranch.plan.panes import Panes, panes_of
from anabranch.topology.calendar import calendar
from anabranch.topology.windows import hopping, sliding, tumbling

MINUTE = 60_000_000
FIVE = tumbling("5 minutes")


def test_rows_in_gaps_were_never_kept() -> None:
    gaps = (hopping("5 minutes", every="10 minutes"),)
    assert complete_from(gaps, 12 * MINUTE, 13 * MINUTE) == 13 * MINUTE + 1
    assert complete_from((*gaps, FIVE), 12 * MINUTE, 13 * MINUTE) == 10 * MINUTE
    assert complete_from((FIVE,), None, None) is None


def test_what_an_open_window_with_gaps_needs_is_not_forgotten() -> None:
    long = hopping("3 hours", every="4 hours")
    assert forgotten_before((long, FIVE), 62 * MINUTE) == 0
    assert forgotten_before((long, FIVE), 200 * MINUTE) == 200 * MINUTE
    assert forgotten_before((long,), None) is None


def test_length_step_and_start_must_each_be_an_edge_of_the_panes() -> None:
    width, fits = 5 * MINUTE, sliding("15 minutes", every="5 minutes")
    wrong = [
        tumbling("7 minutes"),
        sliding("15 minutes", every="3 minutes"),
        tumbling("10 minutes", start="1 minute"),
    ]
    held = Panes(width_us=width, offset_us=0, windows=())
    assert misfits([FIVE, fits], held) == []
    assert len(misfits([*wrong, fits], held)) == len(wrong)
    shifted = replace(held, offset_us=MINUTE)
    assert misfits([tumbling("10 minutes", start="1 minute")], shifted) == []


def test_panes_can_be_cut_for_a_calendar_window_but_not_made_equal_for_others() -> None:
    month = calendar("month", timezone="Europe/Berlin")
    assert misfits([FIVE, month], panes_of([FIVE])) == []
    [wrong] = misfits([FIVE, month], panes_of([month]))
    assert wrong.endswith(
        "'5 minutes' is not made of the checkpoint's panes of month in Europe/Berlin"
    )


def test_a_calendar_window_whose_edges_were_not_cut_is_complete_after_the_newest_row() -> None:
    held, edge = panes_of([tumbling("10 minutes")]), 1_711_908_900_000_000  # 18:15 UTC
    day = calendar("day", timezone="Asia/Kathmandu")
    assert day.start_of(day.first_end(edge)) == edge
    assert complete_after_cut(day, held, edge - 1, edge + 5) == edge + 6
    assert complete_after_cut(day, held, edge + 1, edge + 5) == edge + 1, "no edge in between"
    assert complete_after_cut(day, panes_of([day]), edge - 1, edge + 5) == edge - 1
    hourly = calendar("day", timezone="Europe/Berlin")
    assert complete_after_cut(hourly, held, edge - 1, edge + 10**12) == edge - 1
    assert complete_after_cut(day, held, None, edge) == edge + 1
    assert complete_after_cut(FIVE, held, 3, edge) == 3


def test_only_windows_that_were_added_later_are_incomplete() -> None:
    hour = tumbling("1 hour")
    assert incomplete_windows([FIVE, hour], {hour.key: 7, "one that is gone": 9}) == {1: 7}
