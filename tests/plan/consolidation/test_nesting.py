"""How months and days are formed: parts tile them exactly, and few are merged at once."""

from __future__ import annotations

import pytest

from anabranch.plan.consolidation import PANE, Consolidation, plan_consolidation
from anabranch.plan.panes import panes_of
from anabranch.topology.calendar import calendar
from anabranch.topology.windows import AlignedWindow, Window, tumbling

BERLIN = {unit: calendar(unit, timezone="Europe/Berlin") for unit in ("day", "week", "month")}
AT = 1_711_000_000_000_000  # 2024-03-21
SETS: list[list[AlignedWindow]] = [
    [tumbling("10 minutes"), BERLIN["month"]],
    [tumbling("1 second"), BERLIN["day"], calendar("month", timezone="Asia/Kathmandu")],
    [tumbling("7 hours"), BERLIN["week"], BERLIN["month"]],
    [tumbling("10 minutes"), tumbling("1 hour"), BERLIN["month"], calendar("year")],
    [BERLIN["month"], calendar("year", timezone="Europe/Berlin")],
]


def inside(plan: Consolidation, number: int, windows: list[AlignedWindow]) -> AlignedWindow:
    """The window of a family, nested or not."""
    if number >= len(plan.families):
        return plan.nested[number - len(plan.families)].window
    return windows[plan.families[number].windows[0]]


@pytest.mark.parametrize("windows", SETS, ids=lambda each: each[-1].name)
def test_parts_tile_their_intervals_and_are_few(windows: list[AlignedWindow]) -> None:
    panes = panes_of(windows)
    plan = plan_consolidation(panes)
    for j, family in enumerate(plan.nested):
        end = AT
        for _ in range(4):
            end = family.window.first_end(end)
            at = family.window.start_of(end)
            pieces = plan.pieces(len(plan.families) + j, end)
            assert len(pieces) <= 366
            for piece in pieces:
                assert piece.start_us == at
                if piece.family != PANE:
                    assert piece.family < len(plan.families) + j
                    other = inside(plan, piece.family, windows)
                    assert other.start_of(piece.end_us) == piece.start_us
                elif panes.width_us is not None and family.inside is not None:
                    assert piece.end_us - piece.start_us < family.inside.mean_us + 1
                at = piece.end_us
            assert at == end


def test_a_month_over_ten_minutes_is_formed_from_days_and_these_from_four_hours() -> None:
    plan = plan_consolidation(panes_of(SETS[0]))
    names = [(e.window.name, e.inside.name if e.inside else None) for e in plan.nested]
    assert names == [
        ("4 hours", None),
        ("day in Europe/Berlin", "4 hours"),
        ("month in Europe/Berlin", "day in Europe/Berlin"),
    ]
    assert [window.name for _, window in plan.formed_early] == ["4 hours", "day in Europe/Berlin"]
    assert plan.merges_per_hour < 1.03 * plan.naive_per_hour
    march = BERLIN["month"].first_end(AT)
    assert [piece.family for piece in plan.pieces(3, march)] == [2] * 31


def test_windows_of_the_user_are_used_before_helpers() -> None:
    plan = plan_consolidation(
        panes_of([tumbling("10 minutes"), tumbling("1 hour"), *BERLIN.values()])
    )
    names = {e.window.name: e.inside.name for e in plan.nested if e.inside}
    assert names == {
        "day in Europe/Berlin": "1 hour",
        "week in Europe/Berlin": "day in Europe/Berlin",
        "month in Europe/Berlin": "day in Europe/Berlin",
    }
    assert plan.formed_early == []


def test_a_formed_window_is_kept_until_the_windows_made_of_it_end() -> None:
    plan = plan_consolidation(panes_of(SETS[0]))
    day = BERLIN["day"].first_end(AT)
    assert plan.kept_until(2, day, day) == BERLIN["month"].first_end(AT)
    assert plan.kept_until(3, BERLIN["month"].first_end(AT), AT) is None
    alone = plan_consolidation(panes_of([tumbling("10 minutes")]))
    assert alone.kept_until(0, AT, AT) is None


def test_without_equal_panes_there_are_no_helpers() -> None:
    plan = plan_consolidation(panes_of(SETS[-1]))
    assert (plan.families, plan.formed_early, plan.of_window) == ((), [], (0, 1))
    assert [e.inside.name if e.inside else None for e in plan.nested] == [
        None,
        "month in Europe/Berlin",
    ]
    assert isinstance(tumbling("1 hour"), Window)
