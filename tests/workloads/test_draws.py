"""Random draws without a state."""

from __future__ import annotations

import numpy as np

from anabranch.workloads.draws import shares, words

PINNED = [5035849093882966749, 248382218779318986, 9868181917628090661]


def test_a_draw_depends_on_the_seed_the_salt_and_its_number_alone() -> None:
    numbers = np.arange(1000)
    drawn = words(7, 3, numbers)
    assert np.array_equal(drawn[400:410], words(7, 3, numbers[400:410]))
    assert np.array_equal(drawn[::-1], words(7, 3, numbers[::-1]))
    for other in (words(8, 3, numbers), words(7, 4, numbers)):
        assert not (drawn == other).any()


def test_draws_of_one_seed_are_pinned() -> None:
    """Workloads of earlier runs must be the same rows."""
    assert words(1, 2, np.arange(3)).tolist() == PINNED


def test_shares_are_even_and_below_one() -> None:
    drawn = shares(5, 1, np.arange(100_000))
    assert 0 <= drawn.min() < drawn.max() < 1
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    assert abs(counts - 5000).max() < 5 * np.sqrt(5000)


def test_draws_have_the_shape_of_their_numbers() -> None:
    assert words(1, 1, np.arange(6).reshape(2, 3)).shape == (2, 3)
    assert words(1, 1, np.int64(4)).shape == ()
