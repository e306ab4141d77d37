"""Share or not: the cheaper way, or the one that is asked for; and windows that are removed."""

from __future__ import annotations

import pytest

from anabranch.plan.sharing import share_or_not
from anabranch.topology import cumulative, sliding, tumbling


def test_windows_that_do_not_fit_each_other_share_only_where_rows_are_many() -> None:
    fitting = [tumbling("5 minutes"), tumbling("10 minutes"), sliding("1 hour", every="5 minutes")]
    assert share_or_not(fitting).shared
    odd = [tumbling("7 minutes"), tumbling("11 minutes")]
    few, many = share_or_not(odd, rows=60), share_or_not(odd, rows=100_000)
    assert (few.shared, many.shared) == (False, True)
    assert "panes of their own" in few.reason
    assert [len(group) for group in few.groups] == [1, 1]
    assert [len(group) for group in many.groups] == [2]


@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_asked_for_is_done(wanted: bool) -> None:
    sharing = share_or_not([tumbling("1 minute"), tumbling("2 minutes")], wanted=wanted)
    assert sharing.shared is wanted
    assert sharing.reason.startswith("as asked for")


def test_an_operator_that_did_not_share_goes_on_so_when_one_window_is_left() -> None:
    assert not share_or_not([tumbling("7 minutes")], wanted=False).shared
    assert share_or_not([tumbling("7 minutes")]).shared


def test_the_steps_of_a_cumulative_window_stay_together() -> None:
    sharing = share_or_not(
        [*cumulative("1 hour", every="10 minutes"), tumbling("7 minutes")], wanted=False
    )
    assert [len(group) for group in sharing.groups] == [6, 1]
