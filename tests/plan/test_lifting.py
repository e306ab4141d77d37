"""Lift first or route first: chosen by measurements, not at every change, and measured again."""

from __future__ import annotations

import itertools

from anabranch.plan.lifting import LIFT_FIRST, ROUTE_FIRST, LiftCounts, Lifting

REDUCES = LiftCounts(rows=100_000, arrived=10_000, distinct=5_000)
SAME_KEYS_EVERYWHERE = LiftCounts(rows=100_000, arrived=90_000, distinct=5_000)
EVERY_ROW_ITS_OWN_KEY = LiftCounts(rows=100_000, arrived=100_000, distinct=100_000)


def routed(seen: LiftCounts) -> LiftCounts:
    """The same input in a step that routes first: every key and pane arrives once."""
    return LiftCounts(seen.rows, seen.distinct, seen.distinct)


def test_rows_are_combined_first_where_that_leaves_few() -> None:
    assert Lifting().way == LIFT_FIRST
    assert Lifting().next(REDUCES).way == LIFT_FIRST


def test_rows_are_sent_first_where_every_partition_has_the_same_keys() -> None:
    chosen = Lifting().next(SAME_KEYS_EVERYWHERE)
    assert chosen.way == ROUTE_FIRST
    assert chosen.reason == (
        "of 100 rows 90 remain where each partition combines its own, 5 in all: "
        "0.56 us per row against 1.44"
    )
    assert chosen.next(routed(SAME_KEYS_EVERYWHERE)).way == ROUTE_FIRST


def test_a_small_gain_changes_nothing() -> None:
    assert Lifting().next(EVERY_ROW_ITS_OWN_KEY).way == LIFT_FIRST


def test_small_steps_do_not_change_the_way_to_lift() -> None:
    assert Lifting().next(LiftCounts(rows=100, arrived=100, distinct=1)) == Lifting()


def test_the_other_way_to_lift_is_measured_again_after_a_while() -> None:
    state = Lifting().next(SAME_KEYS_EVERYWHERE)
    ways = []
    for _ in range(120):
        seen = REDUCES if len(ways) > 60 else SAME_KEYS_EVERYWHERE
        ways.append(state.way)
        state = state.next(seen if state.way == LIFT_FIRST else routed(seen))
    lengths = [(way, len(list(group))) for way, group in itertools.groupby(ways)]
    assert lengths == [(ROUTE_FIRST, 50), (LIFT_FIRST, 1), (ROUTE_FIRST, 50), (LIFT_FIRST, 19)]
