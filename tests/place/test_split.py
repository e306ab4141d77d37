"""Split or combine: the costs of the paper, and the choice between them."""

from __future__ import annotations

import pytest

from anabranch.place.split import (
    COMBINE,
    SPLIT,
    Period,
    PeriodCost,
    choose,
    combine_cost,
    split_cost,
)

PERIOD = Period(
    rows=1000,
    row_cost_s=0.001,
    windows=5,
    partials=10,
    shards=16,
    moved=4,
    state_cost_s=0.01,
    move_s=0.2,
)


def test_the_costs_of_split_and_combine() -> None:
    assert split_cost(PERIOD) == PeriodCost(pytest.approx(1 + 1.6 + 0.04), 0.0)
    assert combine_cost(PERIOD) == PeriodCost(pytest.approx(5 + 0.4), pytest.approx(0.8))


def test_the_cheaper_way_is_chosen_within_the_latency() -> None:
    assert choose(PERIOD, COMBINE).way == SPLIT
    dear = Period(
        rows=1000,
        row_cost_s=0.001,
        windows=2,
        partials=10,
        shards=64,
        moved=4,
        state_cost_s=0.01,
        move_s=0.2,
    )
    assert choose(dear, SPLIT).way == COMBINE
    bounded = choose(dear, SPLIT, latency_s=0.5)
    assert bounded.way == SPLIT
    assert bounded.reason == "4 moved shards would hold rows up for 0.8 s, more than 0.5 s"
    even = Period(
        rows=1000,
        row_cost_s=0.001,
        windows=2.6,
        partials=10,
        shards=16,
        moved=0,
        state_cost_s=0.01,
        move_s=0.2,
    )
    assert {choose(even, way).way for way in (SPLIT, COMBINE)} == {SPLIT, COMBINE}, (
        "a change must be worth it"
    )
