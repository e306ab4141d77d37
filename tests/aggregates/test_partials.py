"""Merging partials in any grouping gives what one pass over all values gives."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.aggregates.partials import (
    Count,
    Greatest,
    Least,
    Moments,
    Partial,
    Total,
)
from anabranch.errors import StepError
from anabranch.types import Array

floats = st.floats(allow_nan=True, allow_infinity=False, width=32)


def merged(partial: Partial, parts: list[list[Array]]) -> list[object]:
    into = [column.empty(1) for column in partial.columns]
    for part in parts:
        partial.merge(into, np.array([0]), part)
    return [column[0] for column in into]


def single(partial: Partial, *values: object) -> list[Array]:
    return [
        np.array([value], dtype=column.dtype)
        for value, column in zip(values, partial.columns, strict=True)
    ]


@given(st.lists(floats, min_size=1, max_size=8))
def test_nan_is_the_largest_value_in_least_and_greatest(values: list[float]) -> None:
    numbers = [v for v in values if not math.isnan(v)]
    least = merged(Least("double"), [single(Least("double"), v) for v in values])[0]
    greatest = merged(Greatest("double"), [single(Greatest("double"), v) for v in values])[0]
    assert np.array_equal([least], [min(numbers) if numbers else math.nan], equal_nan=True)
    assert np.array_equal(
        [greatest], [max(numbers) if len(numbers) == len(values) else math.nan], equal_nan=True
    )


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=5), min_size=1, max_size=5))
def test_moments_merge_to_the_variance_of_all_values(groups: list[list[float]]) -> None:
    partial = Moments("double")
    parts = []
    for group in groups:
        mean = statistics.fmean(group) if group else 0.0
        parts.append(single(partial, len(group), mean, math.fsum((v - mean) ** 2 for v in group)))
    n, _, squares = merged(partial, parts)
    everything = [v for group in groups for v in group]
    assert n == len(everything)
    if everything:
        expected = statistics.pvariance(everything) * len(everything)
        assert squares == pytest.approx(expected, rel=1e-6, abs=1e-4)


def test_a_sum_of_whole_numbers_that_overflows_is_an_error_and_not_another_number() -> None:
    largest = np.iinfo(np.int64).max
    with pytest.raises(StepError, match="exceeds bigint"):
        merged(Total("bigint"), [single(Total("bigint"), largest), single(Total("bigint"), 1)])


def test_decimals_are_added_exactly_and_text_is_compared() -> None:
    total = Total("decimal(38,2)")
    large = Decimal("12345678901234567890123456789012345.67")
    assert merged(total, [single(total, large), single(total, Decimal("0.01"))])[0] == Decimal(
        "12345678901234567890123456789012345.68"
    )
    least = Least("string")
    assert merged(least, [single(least, "b"), single(least, None), single(least, "ä")])[0] == "b"


def test_merging_works_on_slices_and_on_chosen_rows() -> None:
    into = [Count("bigint").columns[0].empty(4)]
    Count("bigint").merge(into, slice(0, 2), [np.array([1, 2])])
    Count("bigint").merge(into, np.array([3, 1]), [np.array([5, 6])])
    assert into[0].tolist() == [1, 8, 0, 5]
