"""AutoScale+ against the equations of the paper."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch.elastic.policies.autoscale as plus
from anabranch.elastic import AutoScale
from anabranch.plan.route import even_route
from tests.elastic.policies.evaluations import evaluation, loaded


@pytest.mark.parametrize(
    ("law", "ahead"),
    [
        (lambda t: 100 + 5 * t, 167.5),
        (lambda t: 100 + 50 * log(t), None),
        (lambda t: 100 * exp(0.02 * t), None),
    ],
    ids=["linear", "logarithmic", "exponential"],
)
def test_the_best_regression_finds_the_law(law, ahead) -> None:  # type: ignore[no-untyped-def]
    past = [(float(t), law(t + 1)) for t in range(10)]
    coming = float(np.mean([law(t + 1) for t in range(10, 16)]))
    assert plus.forecast(past, 6.0) == pytest.approx(coming)
    if ahead is not None:
        assert coming == ahead


def test_a_forecast_stays_in_bounds() -> None:
    assert plus.forecast([], 10) == 0
    assert plus.forecast([(0, 5.0)], 10) == 5
    assert plus.forecast([(0, 300.0), (1, 200.0), (2, 100.0)], 10) == 0
    assert plus.forecast([(float(t), 2.0**t) for t in range(10)], 60) == 2 * 2.0**9


def test_usable_cpu_is_what_is_reserved_in_part_and_a_share_of_what_others_leave() -> None:
    """Fig. 3 of the paper, three threads on one core.

    0.3 * 0.6 + (1 - 0.4) / 3, 0.3 * 0.3 + (1 - 0.8) / 3.
    """
    assert plus.usable_cpu([0.6, 0.2, 0.2], [0.4, 0.3, 0.3]) == pytest.approx(
        [0.38, 0.09 + 0.2 / 3, 0.09 + 0.2 / 3]
    )
    assert plus.usable_cpu([0.5], [1.0]) == [1.0]


def test_slots_are_chosen_by_the_papers_working_interval() -> None:
    assert plus.capacity(10, 0.002, 0.5) == 2500
    assert plus.new_slots(10, 900, 100, 90) == 10  # 9 is within [8, 10]
    assert plus.new_slots(10, 800, 100, 90) == 10  # its lower end
    assert plus.new_slots(10, 1010, 100, 90) == 12
    assert plus.new_slots(10, 500, 100, 90) == 6


@given(
    st.integers(1, 300),
    st.floats(0, 1e6),
    st.floats(1, 1e4),
    st.floats(0.1, 1.0),
    st.floats(0.1, 1.0),
)
def test_slots_change_only_outside_the_working_interval(
    k: int, needed: float, usable: float, part: float, beta: float
) -> None:
    new = plus.new_slots(k, needed, usable, part * usable, beta)
    ideal = needed / usable
    if beta * k <= ideal <= k:
        assert new == k
    if new > k:
        assert ideal > k
    if new < k:
        assert ideal < beta * k
        assert new >= ideal * 0.999


def test_autoscale_takes_the_larger_of_the_own_past_and_the_parents_output() -> None:
    parent = loaded(
        rates=tuple((float(t), 1000.0 * (t + 1)) for t in range(10)),
        route=even_route(64, 16),
        selectivity=0.5,
    )
    child = loaded("b", level=1, parents=("a",))
    wanted = AutoScale().wanted(evaluation(parent, child), None, 32)
    # a: 11,000 to 20,000 rows per second, 15,500 on average; b: half of that, 7,750, although
    # 3,000 arrive now.
    assert wanted.figures["a: input"] == pytest.approx(155_000)
    assert wanted.figures["b: input"] == pytest.approx(77_500)
    assert wanted.slots == {"a": 16, "b": 9}
    assert AutoScale(combine=min).wanted(evaluation(parent, child), None, 32).slots["b"] == 4


def test_pending_rows_are_added_to_the_estimated_input() -> None:
    assert AutoScale().estimated_input(loaded(pending=500.0), 0.0) == pytest.approx(35_000)
