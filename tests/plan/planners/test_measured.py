"""What a run has measured, as planners get it."""

from __future__ import annotations

from anabranch.plan.planners.measured import Measures, OperatorMeasures
from tests.plan.planners.component_graphs import operator

KNOWN = Measures(
    shards=3,
    operators={
        "a": OperatorMeasures(rate=6.0, loads=[[1, 2, 0], [3, 0, 0], [4, 0, 0]], state=9.0),
        "b": OperatorMeasures(rate=2.0, loads=[[5, 5, 5], [6, 6, 6]]),
        "c": OperatorMeasures(rate=1.0),
    },
)


def test_rates_are_by_operator() -> None:
    assert KNOWN.rates() == {"a": 6.0, "b": 2.0, "c": 1.0}


def test_shards_that_never_had_rows_are_not_loaded() -> None:
    loaded = {name: each.loaded_shards for name, each in KNOWN.operators.items()}
    assert loaded == {"a": 2, "b": 3, "c": None}
    assert OperatorMeasures(rate=1.0, loads=[[0, 0]]).loaded_shards is None


def test_histograms_cover_the_newest_windows_that_all_operators_have() -> None:
    a, b, c, new = KNOWN.of([operator(name, "x") for name in ("a", "b", "c", "new")])
    assert a.loads is not None
    assert b.loads is not None
    assert a.loads.tolist() == [[3, 0, 0], [4, 0, 0]]
    assert b.loads.tolist() == [[5, 5, 5], [6, 6, 6]]
    assert (a.state, a.attributes) == (9.0, {"x"})
    assert (c.loads, new.loads) == (None, None)
