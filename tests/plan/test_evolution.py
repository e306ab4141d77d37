"""Which windows the panes of a checkpoint serve, and from when on they are complete."""

from __future__ import annotations

from anabranch.plan.evolution import complete_from, forgotten_before, incomplete_windows, misfits
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
    assert misfits([FIVE, fits], width, 0) == []
    assert len(misfits([*wrong, fits], width, 0)) == len(wrong)
    assert misfits([tumbling("10 minutes", start="1 minute")], width, MINUTE) == []


def test_only_windows_that_were_added_later_are_incomplete() -> None:
    hour = tumbling("1 hour")
    assert incomplete_windows([FIVE, hour], {hour.key: 7, "one that is gone": 9}) == {1: 7}
