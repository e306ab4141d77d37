"""Values group by group: cut, filtered, reduce_groups and merge_groups, with groups that have none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.aggregates.groups import keep_some, merge_groups, reduce_groups, split
from anabranch.types import Array

GROUPS = st.lists(st.lists(st.integers(-9, 9), max_size=9), max_size=9)


def flat(groups: list[list[int]]) -> tuple[Array, Array]:
    values = np.array([value for each in groups for value in each], dtype=np.int64)
    return values, np.array([len(each) for each in groups], dtype=np.int64)


@given(GROUPS)
def test_groups_are_cut_as_they_were_put_together(groups: list[list[int]]) -> None:
    values, lengths = flat(groups)
    assert [each.tolist() for each in split(values, lengths)] == groups


@given(GROUPS)
def test_a_filter_keeps_the_groups_even_those_that_lose_all(groups: list[list[int]]) -> None:
    values, lengths = flat(groups)
    kept, counts = keep_some(pa.array(values), values > 0, lengths)
    assert [list(each) for each in split(kept.to_pylist(), counts)] == [
        [value for value in each if value > 0] for each in groups
    ]


@given(GROUPS)
def test_one_value_of_each_group_and_what_was_there_for_empty_ones(
    groups: list[list[int]],
) -> None:
    values, lengths = flat(groups)
    into = np.full(len(groups), 99)
    expected = [max(each, default=99) for each in groups]
    assert reduce_groups(np.maximum, values, lengths, into).tolist() == expected


@given(GROUPS)
def test_merging_by_halves_merges_each_value_once_and_in_order(groups: list[list[int]]) -> None:
    values, lengths = flat(groups)
    texts = np.array([*map(str, values.tolist()), ""], dtype=object)[:-1]
    merges = []

    def join(columns: list[Array], at: Array, other: list[Array]) -> None:
        merges.append(len(at))
        columns[0][at] = columns[0][at] + "," + other[0]

    into = [np.array(["none"] * len(groups) + [""], dtype=object)[:-1]]
    found = merge_groups(join, [texts], lengths, into)[0].tolist()
    assert found == [",".join(map(str, each)) or "none" for each in groups]
    assert sum(merges) == sum(max(len(each) - 1, 0) for each in groups)
