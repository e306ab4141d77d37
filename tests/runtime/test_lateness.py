"""Which rows no open window takes, and the reason that is reported."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.plan.panes import (
    AHEAD,
    ELSEWHERE,
    LEFT_OUT,
    OUT,
    OUT_OF_RANGE,
    TOO_LATE,
    Panes,
    panes_of,
)
from anabranch.runtime.lateness import (
    LATE,
    NO_TIME,
    NOT_SHOWN,
    OUTSIDE,
    TAKEN,
    TOO_FAR_AHEAD,
    all_taken,
    reasons,
)
from anabranch.topology import hopping, tumbling

SECOND = 1_000_000
GAPS = panes_of((hopping("2s", every="5s"),))  # rows in seconds 2, 3 and 4 are in no window
MARKED = {
    LEFT_OUT: NO_TIME,
    OUT: OUTSIDE,
    TOO_LATE: LATE,
    ELSEWHERE: TAKEN,
    AHEAD: TOO_FAR_AHEAD,
    OUT_OF_RANGE: NOT_SHOWN,
}


def panes(*seconds: int) -> np.ndarray:
    return np.array(seconds) * SECOND


def test_a_row_is_late_when_all_its_windows_have_closed() -> None:
    both = panes_of((tumbling("2s"), tumbling("4s")))
    found = reasons(panes(0, 2, 4), both, 2 * SECOND)
    assert found.tolist() == [None, None, None], "the longer window is still open"
    assert reasons(panes(0, 2, 4), both, 4 * SECOND).tolist() == [LATE, LATE, None]
    assert reasons(panes(0), both, None).tolist() == [None], "before the first watermark none is"


def test_a_row_between_windows_is_outside_however_late_it_is() -> None:
    width = GAPS.width_us
    seconds = [0, 2, 4, 5]
    pane = np.array([each * SECOND // width * width for each in seconds])
    assert reasons(pane, GAPS, 3 * SECOND).tolist() == [LATE, OUTSIDE, OUTSIDE, None]


@pytest.mark.parametrize("mark", MARKED)
def test_a_mark_instead_of_a_pane_says_the_reason(mark: int) -> None:
    assert reasons(np.array([mark, 0]), GAPS, None).tolist() == [MARKED[mark], None]
    assert not all_taken(np.array([mark, 0]), GAPS, None)


def test_sessions_take_all_rows_that_are_not_marked() -> None:
    sessions = Panes(width_us=SECOND, offset_us=0, windows=())
    assert all_taken(panes(0, 10**6), sessions, 5 * SECOND)
    assert reasons(panes(0), sessions, 5 * SECOND).tolist() == [None]


@pytest.mark.parametrize("watermark_s", [None, 0, 1, 2, 5, 6, 7, 100])
def test_the_short_check_agrees_with_the_reasons(watermark_s: int | None) -> None:
    after = None if watermark_s is None else watermark_s * SECOND
    width = GAPS.width_us
    for first in range(0, 12 * SECOND, width):
        pane = np.array([first, first + width])
        taken = all(each is None for each in reasons(pane, GAPS, after))
        assert all_taken(pane, GAPS, after) == taken
    assert all_taken(np.empty(0, dtype=np.int64), GAPS, after)
