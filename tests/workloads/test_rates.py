"""Rates: shapes, sums and exact integrals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.workloads import (
    Rate,
    erratic,
    progressive,
    sine,
)
from tests.workloads.loads import RATES, load


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_a_rate_integrates_to_the_rows_of_each_second(rate: Rate) -> None:
    fine = np.arange(0, 120, 1e-3)
    summed = np.concatenate([[0.0], np.cumsum(rate.at(fine + 5e-4) * 1e-3)])[::1000]
    assert np.allclose(rate.rows_until(np.arange(121.0)), summed, rtol=1e-4, atol=0.3)
    counts = load(rate).counts()
    assert (np.abs(counts - np.diff(rate.rows_until(np.arange(121.0)))) < 1 + 1e-6).all(), (
        "a fraction of a row comes a second later"
    )
    assert counts.sum() == int(rate.rows_until(120.0) + 1e-6)


def test_rates_have_the_shapes_of_their_names() -> None:
    step = RATES["stepped"]
    assert step.at(np.array([0, 19.999, 20, 40.499, 40.5, 89, 90, 1e6])).tolist() == [
        10,
        10,
        200,
        200,
        0,
        0,
        55,
        55,
    ]
    rise = progressive(10, 500, "100 seconds").at(np.array([0, 10, 25, 40, 60, 75, 90, 200.0]))
    assert np.allclose(rise, [10, 10, 255, 500, 500, 255, 10, 10])
    peaks = erratic(10, 510, "100 seconds")
    changes = np.abs(np.diff(peaks.at(np.arange(0, 100, 0.01))))
    assert (changes > 0).sum() == 8, "four peaks, each begins and ends at once"
    assert changes.max() == pytest.approx(500)
    drawn = [erratic(10, 510, "100 seconds", seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    wave = sine(100, 80, "20 seconds").at(np.array([0, 5, 10, 15, 25.0]))
    assert np.allclose(wave, [100, 180, 100, 20, 180])


@given(
    st.lists(st.sampled_from(sorted(RATES)), min_size=1, max_size=3),
    st.floats(0, 4),
    st.floats(0, 200),
)
def test_a_sum_of_rates_is_the_sum_at_every_time(
    names: list[str], factor: float, time: float
) -> None:
    rates = [RATES[name] for name in names]
    total = rates[0]
    for each in rates[1:]:
        total = total + each
    total = factor * total
    assert float(total.at(time)) == pytest.approx(
        factor * sum(float(each.at(time)) for each in rates), abs=1e-6
    )
    assert float(total.rows_until(time)) == pytest.approx(
        factor * sum(float(each.rows_until(time)) for each in rates), rel=1e-9, abs=1e-6
    )
