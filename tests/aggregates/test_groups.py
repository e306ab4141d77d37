"""Values by group: split, filtered, reduced and merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.aggregates.groups import keep_some, merge_groups, reduce_groups, split, valid

LENGTHS = st.lists(st.integers(0, 9), max_size=12).map(lambda each: np.array(each, dtype=np.int64))


def test_values_are_split_by_the_lengths_of_groups() -> None:
    assert list(split([1, 2, 3, 4], np.array([2, 0, 1, 1]))) == [[1, 2], [], [3], [4]]


def test_keeping_some_values_shortens_their_groups() -> None:
    values, lengths = pa.array([1, None, 3, None]), np.array([2, 0, 2])
    kept, left = keep_some(values, valid(values), lengths)
    assert (kept.to_pylist(), left.tolist()) == ([1, 3], [1, 0, 1])
    whole = pa.array([1, 2])
    assert keep_some(whole, valid(whole), lengths) == (whole, lengths), "nothing is copied"


@given(LENGTHS)
def test_groups_are_reduced_and_empty_ones_keep_what_is_given(lengths: np.ndarray) -> None:
    values = np.arange(lengths.sum())
    found = reduce_groups(np.add, values, lengths, np.full(len(lengths), -1))
    assert found.tolist() == [sum(each) if len(each) else -1 for each in split(values, lengths)]


@given(LENGTHS)
def test_every_partial_of_a_group_is_merged_once_in_few_rounds(lengths: np.ndarray) -> None:
    rounds = []

    def merge(into: Sequence[np.ndarray], at: np.ndarray, values: Sequence[np.ndarray]) -> None:
        assert len(set(at.tolist())) == len(at), "each place once per round"
        rounds.append(len(at))
        into[0][at] += values[0]

    values = np.arange(1, lengths.sum() + 1)
    [found] = merge_groups(merge, [values], lengths, [np.zeros(len(lengths), dtype=np.int64)])
    assert found.tolist() == [sum(each) for each in split(values, lengths)]
    assert values.tolist() == list(range(1, len(values) + 1)), "the input stays as it was"
    longest = int(lengths.max(initial=0))
    assert len(rounds) == (longest - 1).bit_length() if longest else not rounds
    assert sum(rounds) == sum(max(0, each - 1) for each in lengths.tolist())


@given(st.lists(st.lists(st.integers(-9, 9), max_size=9), max_size=9))
def test_a_filter_keeps_the_groups_even_those_that_lose_all(groups: list[list[int]]) -> None:
    values = np.array([value for each in groups for value in each], dtype=np.int64)
    lengths = np.array([len(each) for each in groups], dtype=np.int64)
    kept, left = keep_some(pa.array(values), values > 0, lengths)
    assert [list(each) for each in split(kept.to_pylist(), left)] == [
        [value for value in each if value > 0] for each in groups
    ]


def test_partials_of_a_group_are_merged_in_their_order() -> None:
    def join(into: Sequence[np.ndarray], at: np.ndarray, values: Sequence[np.ndarray]) -> None:
        into[0][at] = into[0][at] + values[0]

    letters, lengths = np.array(list("abcdefgh"), dtype=object), np.array([5, 0, 3])
    [found] = merge_groups(join, [letters], lengths, [np.array(["none"] * 3, dtype=object)])
    assert found.tolist() == ["abcde", "none", "fgh"]
