"""Keys: their shares, and when they change."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.workloads import (
    constant,
    hot_spot,
    zipf,
)
from anabranch.workloads.keys import permutation
from tests.workloads.loads import load


def test_zipf_keys_are_exchanged_omega_times_per_minute() -> None:
    work = load(constant(20_000), zipf(40, 1.0, omega=4), "1 minute", seed=9)
    keys, second = work.table()["key"].to_numpy(), work.due_us(np.arange(work.total)) // 1_000_000
    weights = 1 / np.arange(1, 41)
    weights /= weights.sum()
    orders = []
    for epoch in range(4):
        counts = np.bincount(
            keys[(second >= 15 * epoch) & (second < 15 * (epoch + 1))], minlength=40
        )
        shares = work.key_shares(15 * epoch + 7)
        assert np.abs(counts / counts.sum() - shares).max() < 0.004, "rows come as the shares say"
        assert np.allclose(np.sort(shares)[::-1], weights)
        orders.append(np.argsort(-shares).tolist())
    assert orders[0] == list(range(40)), "at first key 0 is the most frequent"
    assert len({tuple(order) for order in orders}) == 4
    assert sorted(permutation(40, 9, 3).tolist()) == list(range(40))


def test_keys_stay_where_omega_is_zero() -> None:
    shares = [load(keys=zipf(40, 1.0)).key_shares(second) for second in (0, 1e5)]
    assert np.array_equal(*shares)


def test_a_hot_spot_takes_its_share_and_moves() -> None:
    work = load(
        constant(5_000), hot_spot(1_000, 0.3, width=5, every="20 seconds"), "1 minute", seed=2
    )
    keys, second = work.table()["key"].to_numpy(), work.due_us(np.arange(work.total)) // 1_000_000
    places = [int(work.keys.hot_place(2, at)) for at in (0, 20, 40)]
    assert len(set(places)) == 3
    for at, place in zip((0, 20, 40), places, strict=True):
        spot = (place + np.arange(5)) % 1_000
        inside = keys[(second >= at) & (second < at + 20)]
        assert np.isin(inside, spot).mean() == pytest.approx(0.3 + 0.7 * 5 / 1_000, abs=0.01)
        shares = work.key_shares(at)
        assert shares.sum() == pytest.approx(1)
        assert shares[spot] == pytest.approx(0.3 / 5 + 0.7 / 1_000)
