"""Which results are null after aggregates have changed, on a few rows that can be counted by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.testing.reference.changes import Phase, expected_with_changes, parts_of
from anabranch.testing.reference.windows import WindowQuery

TEN = ("10 us", 10, 10, 0)
QUERY = WindowQuery(keys=["k"], event_time="at", windows=[TEN])


def rows(*given: tuple[int, int]) -> pa.Table:
    at, v = zip(*given, strict=True)
    times = pa.array(at, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"k": [1] * len(at), "at": times, "v": pa.array(v, pa.int64())})


def found(*phases: Phase) -> dict[int, dict[str, object]]:
    steps = [
        rows((1, 5), (12, 7)),
        None,
        rows((13, 1), (25, 2)),
        None,
        rows((31, 4), (60, 0)),
        None,
    ]
    table = expected_with_changes(steps, QUERY, phases, whole={"v"})
    by_start = {row.pop("window_start"): row for row in table.to_pylist()}
    for row in by_start.values():
        for name in ("k", "window_end", "window_name"):
            del row[name]
    return by_start


def test_what_is_new_is_null_in_windows_that_had_started() -> None:
    n, s = ("n", "count", "*"), ("s", "sum", "v")
    assert found(
        Phase(steps=2, aggregates=[n]),
        Phase(steps=2, aggregates=[n, s]),
        Phase(steps=2, aggregates=[s]),
    ) == {
        0: {"n": 1, "s": None},
        10: {"n": 2, "s": None},
        20: {"n": None, "s": 2},
        30: {"n": None, "s": 4},
    }


def test_another_filter_and_one_that_comes_back_start_empty() -> None:
    every, some = ("s", "sum", "v"), ("s", "sum", "v", "v > 1")
    assert found(
        Phase(steps=2, aggregates=[every]),
        Phase(steps=2, aggregates=[some]),
        Phase(steps=2, aggregates=[every]),
    ) == {0: {"s": 5}, 10: {"s": None}, 20: {"s": None}, 30: {"s": 4}}


@pytest.mark.parametrize(
    ("kept", "new", "complete"),
    [
        (("sum", "x"), ("avg", "x"), True),
        (("sum", "v"), ("avg", "v"), False),
        (("sum", "v"), ("count", "v"), True),
        (("count", "v"), ("sum", "v"), False),
        (("stddev", "v"), ("var_pop", "v"), True),
        (("min", "v"), ("max", "v"), False),
        (("count", "v", "v > 1"), ("count", "v"), False),
    ],
)
def test_what_is_kept_for_one_aggregate_serves_another(
    kept: tuple[str, ...], new: tuple[str, ...], complete: bool
) -> None:
    mine = parts_of(("a", *new), {"v"})  # type: ignore[arg-type]
    assert (mine <= parts_of(("b", *kept), {"v"})) == complete  # type: ignore[arg-type]
