"""The reference of sessions against results by hand, and its two computations compared."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings

from anabranch.testing import (
    SessionSteps,
    WindowQuery,
    differences,
    expected_late,
    expected_results,
    sessions_at_once,
)
from anabranch.testing.strategies import RandomCase, cases

QUERY = WindowQuery(
    keys=["k"],
    event_time="at",
    windows=(),
    sessions=[("visit", 10)],
    aggregates=[("n", "count", "*")],
)


def rows(*given: tuple[str | None, int | None]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _ in given], pa.string()),
            "at": pa.array([at for _, at in given], pa.int64()),
        }
    )


def listed(table: pa.Table) -> list[tuple[object, ...]]:
    found = [(r["k"], r["window_start"], r["window_end"], r["n"]) for r in table.to_pylist()]
    return sorted(found, key=lambda each: each[1:])


def test_a_row_a_gap_after_another_is_in_its_session_and_one_later_is_not() -> None:
    together = rows(("a", 0), ("a", 10), ("b", 0), ("b", 11), (None, 3), (None, 3), (None, None))
    expected = [("b", 0, 10, 1), ("a", 0, 20, 2), (None, 3, 13, 2), ("b", 11, 21, 1)]
    assert listed(sessions_at_once(together, QUERY)) == expected
    assert listed(expected_results([together], QUERY, final_watermark="finish")) == expected
    assert listed(expected_results([together], QUERY)) == expected[:1]
    assert listed(expected_results([together], QUERY, final_watermark=20)) == expected[:3]


def test_a_row_near_a_closed_session_begins_another_and_one_whose_own_end_has_passed_is_late() -> (
    None
):
    # Rows of the third step are judged by the latest time of the first: 15.
    steps = [
        rows(("a", 0), ("b", 15)),
        rows(("a", 1)),
        rows(("a", 6), ("a", 5)),
        None,
        rows(("b", 16)),
    ]
    assert listed(expected_results(steps, QUERY, final_watermark="finish")) == [
        ("a", 0, 11, 2),
        ("a", 6, 16, 1),
        ("b", 15, 26, 2),
    ]
    assert expected_late(steps, QUERY).to_pylist() == [{"k": "a", "at": 5, "reason": "late"}]


def test_a_row_that_a_window_takes_is_not_late_though_no_session_takes_it() -> None:
    steps = [rows(("a", 50)), rows(("a", 50)), rows(("a", 1), ("a", None))]
    query = replace(QUERY, windows=[("long", 100, 100, 0)])
    assert expected_late(steps, QUERY).column("reason").to_pylist() == ["late", "no event time"]
    assert expected_late(steps, query).column("reason").to_pylist() == ["no event time"]
    results = expected_results(steps, query, final_watermark="finish").to_pylist()
    assert [(r["window_name"], r["window_start"], r["n"]) for r in results] == [
        ("long", 0, 3),
        ("visit", 50, 2),
    ]


def test_the_model_closes_only_what_the_watermark_reaches() -> None:
    model = SessionSteps(10)
    assert model.step([("a", 0, 0), ("a", 30, 1)], None) == ([], [])
    closed, late = model.step([("a", -99, 2)], 10)
    assert [(each.start_us, each.end_us, each.rows) for each in closed] == [
        (0, 10, (0,)),
        (-99, -89, (2,)),
    ][::-1]
    assert late == []
    assert model.step([("a", 0, 3), ("a", 1, 4)], 10) == ([], [3])
    assert [each.rows for each in model.open()] == [(4,), (1,)]


@settings(max_examples=40)
@given(cases())
def test_with_a_very_long_delay_steps_make_no_difference(case: RandomCase) -> None:
    sessions = [("short", 1_000_000), ("long", 61_000_000)]
    query = replace(case.query, windows=(), sessions=sessions, delay_us=10**15)
    steps = expected_results(case.steps, query, final_watermark="finish")
    at_once = sessions_at_once(pa.concat_tables(case.steps), query)
    assert (
        differences(steps, at_once, [*query.keys, "window_name", "window_start", "window_end"])
        == []
    )
