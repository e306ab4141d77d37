"""Rows of a workload: due times, repeatability, speed, and what is refused."""

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
    constant,
    hot_spot,
    progressive,
    sine,
    stepped,
    uniform,
    zipf,
)
from tests.workloads.loads import RATES, load


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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sine(10, 11, "1 minute"), "goes down to -1"),
        (lambda: constant(-5), "goes down to -5"),
        (lambda: constant(float("nan")), "never be below 0"),
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
def test_an_invalid_workload_is_refused_with_its_value(make: object, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        make()  # type: ignore[operator]


def test_rows_are_made_faster_than_any_stream_takes_them() -> None:
    """Rows are cheap.

    A second of 200,000 rows takes some 20 ms, so the source does not limit a measurement.
    """
    import time

    work = load(constant(200_000), zipf(10_000, 0.5, omega=4), "1 minute")
    work.batch(0, 1_000)
    started = time.perf_counter()
    work.batch(3_000_000, 3_200_000)
    assert time.perf_counter() - started < 0.5
