"""Consolidation plans: parts tile their intervals exactly, and cost what the paper counts."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.plan.consolidation import PANE, Consolidation, Family, plan_consolidation
from anabranch.plan.panes import Panes, panes_of
from anabranch.topology.windows import Window, hopping, sliding, tumbling

MINUTE = 60_000_000


def by_minutes(*windows: Window) -> Panes:
    """Panes of one minute, whatever the windows."""
    return Panes(width_us=MINUTE, offset_us=0, windows=windows)


def lengths(plan: Consolidation, family: Family) -> list[list[int]]:
    """The lengths of the parts of each way, oldest first."""
    return [
        [
            length
            for p in way
            for length in ([1] * p.count if p.family == PANE else [plan.families[p.family].length])
        ]
        for way in family.ways
    ]


def check_tiles(plan: Consolidation) -> None:
    for number, family in enumerate(plan.families):
        for turn in range(2 * len(family.ways)):
            end = family.phase + turn * family.every
            at = end - family.length
            for part in family.parts(end):
                if part.family == PANE:
                    assert end - part.back - part.count == at
                else:
                    other = plan.families[part.family]
                    assert part.family < number, "a family is formed from earlier ones"
                    assert end - part.back - other.length == at
                    assert (end - part.back - other.phase) % other.every == 0, (
                        "an interval that the other family has"
                    )
                at = end - part.back
            assert at == end


def test_the_papers_case_merges_86_partials_per_hour_instead_of_240() -> None:
    plan = plan_consolidation(by_minutes(*(tumbling(f"{m} minutes") for m in (5, 10, 15, 20))))
    assert (plan.merges_per_hour, plan.naive_per_hour) == (86, 240)
    assert not plan.helpers
    assert [lengths(plan, family) for family in plan.families[2:3]] == [[[5, 10], [10, 5]]]


def test_sliding_windows_are_formed_from_earlier_ones() -> None:
    plan = plan_consolidation(
        panes_of([sliding(f"{m} minutes", every="1 minute") for m in (5, 10, 15, 20, 30, 60)])
    )
    assert plan.merges_per_hour == 60 * (5 + 5 * 2)
    assert lengths(plan, plan.families[-1]) == [[30, 30]]
    seven = plan_consolidation(
        panes_of([sliding(f"{m} minutes", every="1 minute") for m in (3, 4, 7)])
    )
    assert lengths(seven, seven.families[-1]) == [[4, 3]]


def test_a_window_of_many_panes_gets_helpers() -> None:
    plan = plan_consolidation(panes_of([sliding("6 hours", every="10 seconds")]))
    assert [family.length for family in plan.helpers] == [2**i for i in range(1, 12)]
    assert plan.naive_per_hour == 360 * 2160
    assert plan.merges_per_hour == 360 * (11 * 2 + 4)


def test_of_ways_with_equally_many_parts_the_one_with_fewest_keys_is_chosen() -> None:
    windows = by_minutes(*(tumbling(f"{m} minutes") for m in (5, 10, 15, 20)))
    plan = plan_consolidation(
        windows, lambda length: float(np.interp(length, [1, 10, 15, 20], [10, 100, 105, 110]))
    )
    assert plan.measured
    assert [sorted(way) for way in lengths(plan, plan.families[-1])] == [[5, 15], [5, 15], [10, 10]]


windows = st.builds(
    lambda length, every, start: hopping(
        f"{length} minutes", every=f"{every} minutes", start=f"{start} minutes"
    ),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 20),
)


@given(st.lists(windows, min_size=1, max_size=6, unique_by=lambda w: w.name), st.booleans())
def test_parts_tile_every_interval_of_every_family(chosen: list[Window], measured: bool) -> None:
    plan = plan_consolidation(
        panes_of(chosen), (lambda length: float(min(length, 7))) if measured else None
    )
    check_tiles(plan)
    assert sorted(i for family in plan.families for i in family.windows) == list(range(len(chosen)))
    assert measured or plan.merges_per_hour <= plan.naive_per_hour * (1 + 1e-9)


def test_windows_whose_panes_are_tiny_are_planned_in_no_time() -> None:
    apart = [
        tumbling("1 hour"),
        tumbling("1 hour", start=timedelta(microseconds=1)),
        sliding("3 hours", every="20 minutes"),
    ]
    plan = plan_consolidation(panes_of(apart))
    check_tiles(plan)
    assert sum(len(way) for family in plan.families for way in family.ways) < 1000
    check_tiles(
        plan_consolidation(
            panes_of([tumbling("1 day"), tumbling("1 millisecond"), tumbling("17 microseconds")])
        )
    )


@pytest.mark.parametrize("hours", [12, 24 * 7])
def test_very_long_windows_are_planned_in_no_time(hours: int) -> None:
    plan = plan_consolidation(panes_of([sliding(f"{hours} hours", every="1 second")]))
    check_tiles(plan)
    assert plan.merges_per_hour < 60 * 3600
