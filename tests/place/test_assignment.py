"""Cores of hosts.

Requests are met, little state moves, data-intensive components stay at home.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.place.assignment import Holder, assign, moved_bytes, naive, remote_bytes_per_s


def test_state_that_leaves_a_host_is_counted() -> None:
    holders = [Holder(wanted=3, home=0, state_bytes=60.0)]
    assert moved_bytes(np.array([[2], [0]]), np.array([[2], [1]]), holders) == pytest.approx(
        20
    )  # 60 -> 40 on host 0


def test_a_core_comes_from_where_it_costs_least() -> None:
    holders = [
        Holder(wanted=3, home=0, state_bytes=60.0),
        Holder(wanted=1, home=1, state_bytes=10.0),
    ]
    found = assign(np.array([[2, 1], [0, 2]]), holders, [3, 2])
    # On host 0: 10 * 2 / (3 * 2) + 60 * 0 / (2 * 3) = 3.3; on host 1: 10 * 1 / 6 + 60 * 2 / 6 =
    # 21.7.
    assert found is not None
    assert found.tolist() == [[3, 0], [0, 2]]


def test_a_data_intensive_component_takes_cores_of_its_host_only_until_that_cannot_be() -> None:
    held = np.array([[2, 0], [0, 1]])
    at_home = [Holder(wanted=3, home=0, bytes_per_s=1e6), Holder(wanted=1, home=1)]
    found = assign(held, at_home, [3, 3])
    assert found is not None
    assert found.tolist() == [[3, 0], [0, 1]]
    remote = assign(held, at_home, [2, 3])
    assert remote is not None
    assert remote.tolist() == [[2, 0], [1, 1]]


def test_there_is_no_assignment_with_too_few_cores() -> None:
    assert assign(np.array([[1]]), [Holder(wanted=3, home=0)], [2]) is None
    assert naive(np.array([[1]]), [Holder(wanted=3, home=0)], [2]) is None


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_all_get_what_they_want_within_the_cores(hosts: int, components: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    cores = [8] * hosts
    held = (
        chance.integers(0, 8 // components + 1, size=(hosts, components))
        if components <= 8
        else np.zeros((hosts, components), int)
    )
    spare = max(1, 8 * hosts // components)
    holders = [
        Holder(
            wanted=int(chance.integers(1, spare + 1)),
            home=int(chance.integers(hosts)),
            state_bytes=float(chance.uniform(0, 100)),
            bytes_per_s=float(chance.choice([0.0, 1e6, 1e7])),
        )
        for _ in range(components)
    ]
    for found in (assign(held, holders, cores), naive(held, holders, cores)):
        assert found is not None
        assert (found >= 0).all()
        assert (found.sum(axis=1) <= 8).all()
        assert all(found[:, j].sum() >= each.wanted for j, each in enumerate(holders))


def test_less_state_and_data_travel_than_naively_and_32_hosts_take_milliseconds() -> None:
    """Elasticutor's setting: 32 hosts of 8 cores, 32 components, wants that change."""
    chance = np.random.default_rng(5)
    held = np.zeros((32, 32), dtype=np.int64)
    np.fill_diagonal(held, 6)
    mine = theirs = held
    state = remote = np.zeros(2)
    taken = []
    for _ in range(10):
        wants = chance.integers(2, 11, size=32)
        wants = np.maximum(1, wants * min(1.0, 250 / wants.sum())).astype(int)
        holders = [
            Holder(wanted=int(k), home=j, state_bytes=8e6, bytes_per_s=2e5)
            for j, k in enumerate(wants)
        ]
        started = time.perf_counter()
        better = assign(mine, holders, [8] * 32)
        taken.append(time.perf_counter() - started)
        other = naive(theirs, holders, [8] * 32)
        assert better is not None
        assert other is not None
        state = state + np.array(
            [moved_bytes(mine, better, holders), moved_bytes(theirs, other, holders)]
        )
        remote = remote + np.array(
            [remote_bytes_per_s(better, holders), remote_bytes_per_s(other, holders)]
        )
        mine, theirs = better, other
    print(
        f"state moved {state[1] / state[0]:.1f}, remote data {remote[1] / remote[0]:.1f} times; "
        f"{1e3 * sorted(taken)[5]:.1f} ms"
    )
    assert state[1] > state[0]
    assert remote[1] > remote[0]
    assert sorted(taken)[5] < 0.5
