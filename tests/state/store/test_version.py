"""Fences order attempts; tokens distinguish them."""

from __future__ import annotations

from anabranch.state.store.version import Fence, Version


def test_a_later_driver_job_or_attempt_wins_in_this_order() -> None:
    attempts = [Fence(2, 0, 0), Fence(1, 2, 0), Fence(1, 1, 1), Fence(1, 1, 0)]
    assert sorted(attempts) == attempts[::-1]
    assert Fence(2, 1) > Fence(1, 9, 9)


def test_two_attempts_of_one_fence_have_different_tokens_and_so_different_versions() -> None:
    fence = Fence(3, 7, 1)
    first, second = fence.new_token(), fence.new_token()
    assert first.startswith("3.7.1.")
    assert "/" not in first, "it is a part of file names"
    assert Version(5, first) != Version(5, second)
    assert str(Version(5, "t")) == "5/t"
