"""Rows of two sides with equal numbers: all pairs, and those without a partner."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.memory.pairs import by_number, match

few = st.lists(st.integers(0, 6), max_size=40)


wide = st.lists(st.integers(0, 6) | st.integers(0, 200_000), max_size=40)


@given(st.tuples(few, few) | st.tuples(wide, wide), st.sampled_from((0, 1 << 16)))
def test_pairs_are_those_of_a_plain_loop(sides: tuple[list[int], list[int]], shift: int) -> None:
    left, right = ([number + shift for number in side] for side in sides)
    for more in (0, 1 << 18):
        size = max([*left, *right, 0]) + 1 + more
        found = match(np.array(left, dtype=np.int32), np.array(right, dtype=np.int32), size)
        pairs = [
            (i, j) for i, mine in enumerate(left) for j, other in enumerate(right) if mine == other
        ]
        assert [*zip(found.left.tolist(), found.right.tolist(), strict=True)] == pairs
        assert found.left_only.tolist() == [i for i, mine in enumerate(left) if mine not in right]
        assert found.right_only.tolist() == [
            j for j, other in enumerate(right) if other not in left
        ]


def test_many_rows_are_in_the_order_of_their_numbers() -> None:
    numbers = np.random.default_rng(5).integers(0, 1 << 20, 100_000).astype(np.int32)
    assert by_number(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
