"""Sketches: counts and times within their error, whatever the order of rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.elastic.grouping.osg import (
    costs_of,
)
from anabranch.elastic.grouping.sketches import (
    Osg,
    add_rows,
    cells_of,
    empty_sketches,
    frequency,
    merge_sketches,
    relative_change,
    times_of,
    variation,
)

SMALL = Osg(epsilon=0.05, delta=0.05, window=8, mu=0.2)


values_64 = st.integers(-(2**63), 2**63 - 1)


def array(values: object) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_hash_functions_are_near_two_universal_and_differ_by_row_and_seed() -> None:
    near = np.arange(4000)  # neighbours, the worst case for a weak hash
    for seed in range(5):
        cells = cells_of(near, Osg(seed=seed))
        assert cells.shape == (3, 4000)
        assert cells.min() >= 0
        assert cells.max() < 54
        for row in cells:
            counts = np.bincount(row, minlength=54)
            collisions = (counts * (counts - 1)).sum() / (4000 * 3999)
            assert collisions < 1.1 / 54
        assert (cells[0] != cells[1]).mean() > 0.9
    assert (cells_of(near, Osg(seed=1)) != cells_of(near, Osg(seed=2))).mean() > 0.9


@given(st.lists(st.tuples(values_64, st.floats(0, 1e3)), min_size=1, max_size=200))
def test_a_sketch_never_counts_less_than_there_was_and_pieces_merge_to_the_whole(
    rows: list[tuple[int, float]],
) -> None:
    values, seconds = array([v for v, _ in rows]), np.array([s for _, s in rows])
    half = len(rows) // 2
    whole = add_rows(empty_sketches(SMALL), values, seconds, SMALL)
    parts = [
        add_rows(empty_sketches(SMALL), values[cut], seconds[cut], SMALL)
        for cut in (slice(half), slice(half, None))
    ]
    both = merge_sketches(parts)
    assert both is not None
    np.testing.assert_allclose(both.frequencies, whole.frequencies)
    np.testing.assert_allclose(both.times, whole.times, atol=1e-6)
    for value, count in Counter(values.tolist()).items():
        assert frequency(whole, array([value]), SMALL)[0] >= count
    assert whole.rows == len(rows)
    assert whole.seconds == pytest.approx(seconds.sum())
    estimates = times_of(whole, values, SMALL)
    assert (estimates >= seconds.min() - 1e-9).all()
    assert (estimates <= seconds.max() + 1e-9).all()


def test_the_error_of_counts_is_within_epsilon_but_for_delta() -> None:
    rng = np.random.default_rng(5)
    misses = []
    for seed in range(20):
        values = array(rng.zipf(1.5, 5000).clip(max=10**12))
        sketch = add_rows(empty_sketches(Osg(seed=seed)), values, np.ones(5000), Osg(seed=seed))
        known, counts = np.unique(values, return_counts=True)
        off = frequency(sketch, known, Osg(seed=seed)) - counts
        misses.append((off >= 0.05 * (5000 - counts)).mean())
    assert np.mean(misses) <= 0.05


def test_the_time_of_a_value_without_collisions_is_its_mean_and_one_never_seen_is_unknown() -> None:
    sketch = add_rows(empty_sketches(SMALL), array([7, 7, 9]), np.array([1.0, 3.0, 10.0]), SMALL)
    np.testing.assert_allclose(times_of(sketch, array([7, 9]), SMALL), [2.0, 10.0])
    unseen = next(
        v
        for v in range(10**6)
        if not sketch.frequencies[np.arange(3), cells_of(array([v]), SMALL)[:, 0]].any()
    )
    assert np.isnan(times_of(sketch, array([unseen]), SMALL)[0])
    costs = costs_of([sketch, None], array([7, 9, unseen]), SMALL)
    np.testing.assert_allclose(costs, [[2.0, 10.0, 14 / 3]] * 2)


def test_the_relative_change_follows_equation_14() -> None:
    settings = Osg(epsilon=0.9, delta=0.5)  # 1 x 3
    first = add_rows(empty_sketches(settings), array([1]), np.array([4.0]), settings)
    assert relative_change(first.ratios(), first) == 0.0
    later = add_rows(
        first, array([1]), np.array([2.0]), settings
    )  # 4 -> 3 in the only cell that is used
    assert relative_change(first.ratios(), later) == pytest.approx(0.25)
    assert relative_change(empty_sketches(settings).ratios(), later) == np.inf


def test_variation_is_none_for_equal_costs_and_large_for_unlike_ones() -> None:
    values = np.arange(40)
    assert variation(
        add_rows(empty_sketches(SMALL), values, np.full(40, 0.5), SMALL)
    ) == pytest.approx(0.0, abs=1e-9)
    unlike = np.where(values % 2, 1.0, 0.0)
    assert 0.3 < variation(add_rows(empty_sketches(SMALL), values, unlike, SMALL)) <= 1.0
    assert variation(empty_sketches(SMALL)) == 0.0
