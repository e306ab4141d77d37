"""Workloads: rates integrate to counts, keys change as they should, and a row is the same whoever asks for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import TopologyError
from anabranch.workloads import (
    Keys,
    Rate,
    Workload,
    constant,
    erratic,
    hot_spot,
    progressive,
    sine,
    stepped,
    uniform,
    zipf,
)
from anabranch.workloads.keys import permutation

MINUTE = 60
RATES = {
    "constant": constant(37.5),
    "stepped": stepped(10, ("20 seconds", 200), ("40500 ms", 0), ("90 seconds", 55)),
    "progressive": progressive(10, 500, "2 minutes"),
    "erratic": erratic(10, 500, "2 minutes"),
    "drawn": erratic(10, 500, "2 minutes", seed=5),
    "sine": sine(100, 80, "17 seconds"),
    "sum": 0.5
    * (
        progressive(10, 500, "2 minutes") + stepped(3, ("1 minute", 40)) + sine(50, 50, "7 seconds")
    ),
}


def load(
    rate: Rate = RATES["sum"], keys: Keys | None = None, lasting: str = "2 minutes", **more: int
) -> Workload:
    return Workload(rate=rate, keys=keys or zipf(100), lasting=lasting, **more)


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


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_rows_are_due_when_their_times_say(rate: Rate) -> None:
    work = load(rate)
    times = work.due_us(np.arange(work.total))
    assert (np.diff(times) >= 0).all()
    assert np.bincount(times // 1_000_000, minlength=120).tolist() == work.counts().tolist()
    for us in np.random.default_rng(0).integers(0, 120_000_000, 200).tolist() + times[:50].tolist():
        assert work.due((us + 0.5) / 1e6) == (times <= us).sum()
    assert work.due(-1) == 0
    assert work.due(120) == work.due(1e9) == work.total


@settings(max_examples=20)
@given(
    st.data(),
    st.sampled_from(
        [zipf(50, 1.2, omega=7), hot_spot(50, 0.4, width=3, every="9 seconds"), uniform(3)]
    ),
)
def test_a_row_is_the_same_in_whatever_batch_it_comes(data: st.DataObject, keys: Keys) -> None:
    work = load(keys=keys, seed=3, payload=13)
    cuts = sorted(data.draw(st.lists(st.integers(0, work.total), max_size=6)))
    pieces = [
        work.batch(start, end) for start, end in zip([0, *cuts], [*cuts, work.total], strict=True)
    ]
    again = load(keys=keys, seed=3, payload=13)
    assert pa.Table.from_batches(pieces).equals(again.table().combine_chunks())
    assert not load(keys=keys, seed=4, payload=13).table()["key"].equals(again.table()["key"])
    payloads = again.table()["payload"].to_pylist()
    assert {len(each) for each in payloads} == {13}
    assert len(set(payloads)) == len(payloads)


def test_event_times_begin_at_the_start_and_follow_the_rate() -> None:
    table = load(constant(4), lasting="3 seconds", start_us=7_000_000).table()
    assert table["at"].cast(pa.int64()).to_pylist() == [7_000_000 + i * 250_000 for i in range(12)]
    assert table["value"].to_pylist() == list(range(12))


def test_zipf_keys_are_exchanged_omega_times_a_minute() -> None:
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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sine(10, 11, "1 minute"), "goes down to -1"),
        (lambda: constant(-5), "goes down to -5"),
        (lambda: constant(float("nan")), "0 or more"),
        (lambda: stepped(1, ("2 minutes", 5), ("1 minute", 7)), "must not go back"),
        (lambda: Rate(((3.0, 1.0),)), "second 0"),
        (lambda: progressive(1, 2, "soon"), "'soon' is not a time"),
        (lambda: zipf(0), "0 keys; valid: 1 to"),
        (lambda: zipf(10, -1), "skew is -1"),
        (lambda: hot_spot(10, 1.5), "share is 1.5; valid: 0 to 1"),
        (lambda: hot_spot(10, 0.5, width=11), "11 keys wide; valid: 1 to 10"),
        (lambda: load(seed=-1), "seed -1 is negative"),
        (lambda: load(payload=-1), "payload of -1 bytes"),
        (lambda: load(lasting="1500 ms"), "whole seconds"),
        (lambda: load(lasting="32 days"), "'32 days'; valid: whole seconds, up to 31 days"),
    ],
)
def test_what_cannot_be_is_refused_by_its_value(make: object, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        make()  # type: ignore[operator]


def test_rows_are_made_faster_than_any_stream_takes_them() -> None:
    """Rows are cheap: a second of 200,000 rows takes some 20 ms, so that the source is not what is measured."""
    import time

    work = load(constant(200_000), zipf(10_000, 0.5, omega=4), "1 minute")
    work.batch(0, 1_000)
    started = time.perf_counter()
    work.batch(3_000_000, 3_200_000)
    assert time.perf_counter() - started < 0.5
