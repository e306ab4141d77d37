"""The windows of a slot against a plain dictionary, whatever the steps, moves and restarts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.aggregates.functions import count, sum
from anabranch.plan.make import make_plan
from anabranch.plan.operators.base import OperatorPlan
from anabranch.runtime.results import result_table
from anabranch.state.codec.blob import decode, encode
from anabranch.state.memory.keys import KeyTable
from anabranch.state.memory.windows import WindowsState
from anabranch.testing import flatten_window
from anabranch.topology import (
    Compute,
    Consolidate,
    Field,
    Graph,
    Source,
    hopping,
    sliding,
    tumbling,
)
from anabranch.topology.calendar import UNITS, calendar
from anabranch.topology.graph import Named
from anabranch.topology.windows import AlignedWindow

FIELDS = (Field("k", "bigint"), Field("at", "timestamp"), Field("v", "bigint"))
SCHEMA = pa.schema([("k0", pa.int64())])
SECOND = 1_000_000


def plan_of(*windows: AlignedWindow) -> OperatorPlan:
    named = (
        Named(name="n", aggregate=count(), input_type="int"),
        Named(name="s", aggregate=sum("v"), input_type="bigint"),
    )
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="s", by=FIELDS[:1], aggregates=named))
        .add(Consolidate(name="w", input="c", windows=windows))
    )
    return make_plan(graph).nodes[0].plan


PLANS = [
    plan_of(tumbling("4s")),
    plan_of(sliding("6s", every="2s"), tumbling("2s")),
    plan_of(hopping("3s", every="7s", start="1s"), sliding("10s", every="5s")),
    plan_of(tumbling("1s"), *(sliding(f"{n}s", every="1s") for n in (3, 6, 13)), tumbling("12s")),
    plan_of(sliding("40s", every="1s")),
]
HOUR, MARCH = 3600 * SECOND, 475_296 * 3600 * SECOND  # 2024-03-22
CALENDARS = [
    plan_of(tumbling("10 minutes"), calendar("month", timezone="Europe/Berlin")),
    plan_of(tumbling("1 hour"), *(calendar(unit, timezone="Asia/Kathmandu") for unit in UNITS)),
    plan_of(calendar("day", timezone="Europe/Berlin"), calendar("week")),
]
rows = st.lists(
    st.tuples(st.integers(-3, 40) | st.none(), st.integers(0, 60), st.integers(-9, 9)), max_size=25
)


def combine(
    plan: OperatorPlan, batch: list[tuple[int | None, int, int]]
) -> tuple[pa.Table, np.ndarray, np.ndarray, list[np.ndarray]]:
    """What the lift gives: one row per key and pane; the shard is the key modulo 4."""
    grouped: dict[tuple[int | None, int], list[int]] = {}
    for key, at, value in batch:
        if plan.panes.last_end(plan.panes.start_of(at * SECOND)) is not None:
            grouped.setdefault((key, plan.panes.start_of(at * SECOND)), []).append(value)
    keys = pa.table({"k0": pa.array([key for key, _ in grouped], pa.int64())})
    shards = np.array([(key or 0) % 4 for key, _ in grouped], dtype=np.int64)
    pane = np.array([pane for _, pane in grouped], dtype=np.int64)
    sizes = np.array([len(values) for values in grouped.values()], dtype=np.int64)
    totals = np.array([int(np.sum(values)) for values in grouped.values()], dtype=np.int64)
    return keys, shards, pane, [sizes, totals, sizes.copy()]


def fresh(plan: OperatorPlan) -> WindowsState:
    return WindowsState(plan, KeyTable(SCHEMA))


def reborn(plan: OperatorPlan, state: WindowsState) -> WindowsState:
    """The state after writing and reading snapshots of its shards."""
    again = fresh(plan)
    blobs = {
        shard: encode(entries, plan.stored_columns)
        for shard, entries in state.snapshot(range(4)).items()
    }
    again.absorb([(shard, decode(blob, plan.stored_columns)) for shard, blob in blobs.items()])
    return again


def rerouted(plan: OperatorPlan, state: WindowsState, shards: set[int]) -> None:
    """Some shards leave and come back: they are forgotten, and read from their snapshots."""
    blobs = {
        shard: encode(entries, plan.stored_columns)
        for shard, entries in state.snapshot(shards).items()
    }
    state.leave(shards)
    assert not shards & state.rows_by_shard().keys()
    state.absorb([(shard, decode(blob, plan.stored_columns)) for shard, blob in blobs.items()])


def closed(
    plan: OperatorPlan, state: WindowsState, after: int | None, until: int
) -> dict[tuple[int | None, int, int], tuple[int, int]]:
    keys = state.keys.table().column(0).to_pylist()
    found = {}
    for each in state.close(after, until):
        for row, n, total in zip(each.rows, each.columns[0], each.columns[1], strict=True):
            key = (keys[row], each.closing.window, each.closing.start_us)
            assert key not in found
            found[key] = (int(n), int(total))
    return found


@settings(max_examples=10)
@given(st.sampled_from(CALENDARS), st.data())
def test_calendar_windows_equal_a_plain_computation(
    plan: OperatorPlan, data: st.DataObject
) -> None:
    """Over three weeks, a few days at a time, with late rows: helpers are formed on the way."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000), "rows"))
    state, wanted, found = fresh(plan), {}, {}
    after: int | None = None
    for number in range(8):
        at = MARCH + number * 60 * HOUR + rng.integers(-50 * HOUR, 60 * HOUR, 40)
        ends = [window.last_ends(at) for window in plan.panes.windows]
        taken = np.max(ends, axis=0) > (-(2**62) if after is None else after)
        for index, window in enumerate(plan.panes.windows):
            for time, end in zip(at[taken].tolist(), ends[index][taken].tolist(), strict=True):
                if after is None or end > after:
                    key = (time % 3, index, window.start_of(end))
                    n, total = wanted.get(key, (0, 0))
                    wanted[key] = (n + 1, total + 2)
        panes = plan.panes.starts(at[taken])
        held, counts = np.unique(np.stack([at[taken] % 3, panes]), axis=1, return_counts=True)
        keys = pa.table({"k0": pa.array(held[0], pa.int64())})
        rows_of = state.number(keys, held[0] % 4)
        state.add(rows_of, held[1], [counts, 2 * counts, counts > 0][: len(plan.columns)])
        if data.draw(st.booleans(), "restart"):
            state = reborn(plan, state)
        until = MARCH + number * 60 * HOUR + int(rng.integers(-30 * HOUR, 20 * HOUR))
        until = until if after is None else max(until, after)
        found |= closed(plan, state, after, until)
        state.drop(until)
        after = until
    found |= closed(plan, state, after, MARCH + 10_000 * HOUR)
    assert found == wanted


@settings(max_examples=60)
@given(st.sampled_from(PLANS), st.lists(rows, max_size=6), st.data())
def test_closed_windows_equal_a_plain_computation(
    plan: OperatorPlan, batches: list[list[tuple[int | None, int, int]]], data: st.DataObject
) -> None:
    state, everything = fresh(plan), {}
    found: dict[tuple[int | None, int, int], tuple[int, int]] = {}
    after: int | None = None
    for batch in batches:
        kept = [
            r
            for r in batch
            if after is None or not plan.panes.is_over(plan.panes.start_of(r[1] * SECOND), after)
        ]
        for key, at, value in kept:
            for index, window in enumerate(plan.panes.windows):
                for start in range(-40 * SECOND, 70 * SECOND, SECOND):
                    inside = start <= at * SECOND < start + window.length_us
                    open_still = after is None or start + window.length_us > after
                    if inside and open_still and (start - window.offset_us) % window.every_us == 0:
                        n, total = everything.get((key, index, start), (0, 0))
                        everything[key, index, start] = (n + 1, total + value)
        parts = data.draw(st.integers(1, 3), "input partitions")
        lifted = [combine(plan, kept[i::parts]) for i in range(parts)]
        part = np.repeat(np.arange(parts), [len(shards) for _, shards, _, _ in lifted])
        numbers = state.number(
            pa.concat_tables([keys for keys, *_ in lifted]),
            np.concatenate([each[1] for each in lifted]),
        )
        columns = [
            np.concatenate(group) for group in zip(*(each[3] for each in lifted), strict=True)
        ]
        combined = state.combine(
            numbers, np.concatenate([each[2] for each in lifted]), part, columns
        )
        assert len({*zip(combined[0].tolist(), combined[1].tolist(), strict=True)}) == len(
            combined[0]
        )
        state.add(*combined)
        if data.draw(st.booleans(), "restart"):
            state = reborn(plan, state)
        rerouted(plan, state, data.draw(st.sets(st.integers(0, 3), max_size=3), "rerouted"))
        until = max(after or 0, data.draw(st.integers(0, 70), "watermark") * SECOND)
        found |= closed(plan, state, after, until)
        state.drop(until)
        after = until
    last = plan.panes.final_end(state.panes)
    if last is not None:
        found |= closed(plan, state, after, last)
    assert found == everything


def test_shards_that_leave_take_their_panes_and_in_the_end_their_keys_along() -> None:
    plan = PLANS[0]
    state = fresh(plan)
    for first in (0, 4_000):
        keys, shards, pane, columns = combine(
            plan, [(k, 1 + first // 100, k) for k in range(first, first + 4_000)]
        )
        state.add(state.number(keys, shards), pane, columns)
    state.leave([1])
    assert state.rows_by_shard() == {0: 2_000, 2: 2_000, 3: 2_000}
    assert len(state.keys) == 8_000
    state.leave([0, 3])
    assert (len(state.keys), state.rows_by_shard()) == (2_000, {2: 2_000})
    assert closed(plan, state, None, 4 * SECOND) == {(k, 0, 0): (1, k) for k in range(2, 4_000, 4)}
    state.leave([2])
    assert (state.panes, state.final_end()) == ({}, None)


def test_numbers_of_keys_that_no_pane_holds_are_used_again() -> None:
    plan = PLANS[0]
    state = fresh(plan)
    for step in range(30):
        keys = pa.table({"k0": pa.array(np.arange(step * 1000, step * 1000 + 1000))})
        numbers = state.number(keys, np.zeros(1000, dtype=np.int64))
        ones = np.ones(1000, dtype=np.int64)
        state.add(numbers, np.full(1000, step * 4 * SECOND), [ones, ones.copy(), ones.copy()])
        state.drop(step * 4 * SECOND)
        assert len(state.keys) <= 3000
    assert max(state.keys.table().column(0).to_pylist()) == 29_999


def test_many_steps_into_one_long_pane_stay_few_chunks() -> None:
    plan = plan_of(tumbling("1 day"))
    state = fresh(plan)
    for _ in range(50):
        keys = pa.table({"k0": pa.array([1, 2, 3])})
        ones = np.ones(3, dtype=np.int64)
        state.add(
            state.number(keys, np.zeros(3, dtype=np.int64)),
            np.zeros(3, dtype=np.int64),
            [ones, ones.copy(), ones.copy()],
        )
    assert len(state.panes[0]) <= 5
    assert closed(plan, state, None, 86_400 * SECOND) == {(k, 0, 0): (50, 50) for k in (1, 2, 3)}


def test_results_have_the_edges_of_their_window_and_say_where_it_lacks_rows() -> None:
    plan = replace(plan_of(tumbling("2s"), tumbling("4s")), complete_from={1: 4 * SECOND})
    state = fresh(plan)
    keys, shards, pane, columns = combine(plan, [(7, 1, 5), (8, 5, 6), (8, 6, 1)])
    state.add(state.number(keys, shards), pane, columns)
    assert (state.next_end(None), state.final_end()) == (2 * SECOND, 8 * SECOND)
    table, row_shards = result_table(state, state.close(None, 9 * SECOND))
    assert table is not None
    rows = [
        (r["k"], r["window_name"], r["window_start"], r["window_end"], r["s"])
        for r in flatten_window(table).to_pylist()
    ]
    assert rows == [
        (7, "2s", 0, 2 * SECOND, 5),
        (7, "4s (incomplete)", 0, 4 * SECOND, 5),
        (8, "2s", 4 * SECOND, 6 * SECOND, 6),
        (8, "4s", 4 * SECOND, 8 * SECOND, 7),
        (8, "2s", 6 * SECOND, 8 * SECOND, 1),
    ]
    assert sorted(row_shards.tolist()) == [0, 0, 0, 3, 3]
