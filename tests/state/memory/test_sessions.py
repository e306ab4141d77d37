"""The sessions of a slot against a plain model and DuckDB, whatever the steps and restarts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.aggregates import functions as f
from anabranch.plan.make import make_plan
from anabranch.plan.operators.sessions import SessionPlan
from anabranch.runtime.results import result_table
from anabranch.state.codec.blob import Entries, decode, encode
from anabranch.state.memory import keyed, sessions
from anabranch.state.memory.keyed import Formed
from anabranch.state.memory.keys import KeyTable
from anabranch.state.memory.sessions import SessionState
from anabranch.testing import SessionSteps, WindowQuery, flatten_window, sessions_at_once
from anabranch.testing.reference.sessions import SessionRows
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, session
from anabranch.topology.graph import Named
from anabranch.types import Array

Row = tuple[int | None, int, int]  # key, time, value
Result = tuple[int | None, int, int, tuple[object, ...]]  # key, start, end, aggregates

FIELDS = (
    Field("k", "bigint"),
    Field("at", "timestamp"),
    Field("v", "bigint"),
    Field("w", "string"),
)
SCHEMA = pa.schema([("k0", pa.int64())])
SHARDS = 4
GAPS = (1, 3, 10, 10)
KEYS = (-3, 0, 4, None)


def plan_of(gap: int, width: int | None = None, offset: int = 0) -> SessionPlan:
    named = (
        Named(name="n", aggregate=f.count(), input_type="int"),
        Named(name="s", aggregate=f.sum("v"), input_type="bigint"),
        Named(name="m", aggregate=f.avg("v"), input_type="bigint"),
        Named(name="hi", aggregate=f.max("v"), input_type="bigint"),
        Named(name="lo", aggregate=f.min("w"), input_type="string"),
    )
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="s", by=FIELDS[:1], aggregates=named))
        .add(Consolidate(name="w", input="c", windows=(session(f"{gap} us"),)))
    )
    plan = make_plan(graph).nodes[0].plan
    assert isinstance(plan, SessionPlan)
    return replace(plan, panes=replace(plan.panes, width_us=width or gap, offset_us=offset))


def text(value: int) -> str:
    return f"{value:+04d}"


def lift(plan: SessionPlan, rows: list[Row]) -> tuple[pa.Table, Array, Array, list[Array]]:
    """What the lift gives of one input partition, one row per key and pane."""
    grouped: dict[tuple[int | None, int], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row[0], plan.panes.start_of(row[1])), []).append(row)
    lifted = {
        "Count": len,
        "Total": lambda rows: sum(v for _, _, v in rows),
        "Greatest": lambda rows: max(v for _, _, v in rows),
        "Least": lambda rows: min(text(v) for _, _, v in rows),
        "FirstTime": lambda rows: min(t for _, t, _ in rows),
        "LastTime": lambda rows: max(t for _, t, _ in rows),
    }
    keys = pa.table({"k0": pa.array([key for key, _ in grouped], pa.int64())})
    shards = np.array([shard_of(key) for key, _ in grouped], dtype=np.int64)
    columns = [
        np.array(
            [lifted[type(kept.partial).__name__](held) for held in grouped.values()],
            dtype=kept.partial.columns[0].dtype,
        )
        for kept in plan.kept
    ]
    return keys, shards, np.array([pane for _, pane in grouped], dtype=np.int64), columns


def shard_of(key: int | None) -> int:
    return 3 if key is None else key % SHARDS


def fresh(plan: SessionPlan) -> SessionState:
    return SessionState(plan, KeyTable(SCHEMA))


def added(state: SessionState, parts: list[list[Row]]) -> dict[int, Entries]:
    """Adds the rows of a step from several input partitions; returns the delta of each shard."""
    lifted = [lift(state.plan, rows) for rows in parts]
    numbers = state.number(
        pa.concat_tables([each[0] for each in lifted]), np.concatenate([each[1] for each in lifted])
    )
    part = np.repeat(np.arange(len(parts)), [len(each[1]) for each in lifted])
    columns = [np.concatenate(group) for group in zip(*(each[3] for each in lifted), strict=True)]
    rows, pane, combined = state.combine(
        numbers, np.concatenate([each[2] for each in lifted]), part, columns
    )
    assert len({*zip(rows.tolist(), pane.tolist(), strict=True)}) == len(rows)
    state.add(rows, pane, combined)
    return state.entries(rows, pane, combined)


def plain(state: SessionState, formed: list[Formed]) -> list[Result]:
    """Results as plain values, sorted."""
    table, by_shard = result_table(state, formed)
    if table is None:
        return []
    rows = flatten_window(table).to_pylist()
    counted: dict[int, int] = {}
    for row in rows:
        counted[shard_of(row["k"])] = counted.get(shard_of(row["k"]), 0) + 1
    assert counted == {
        int(shard): int(count)
        for shard, count in zip(*np.unique(by_shard, return_counts=True), strict=True)
    }
    assert {row["window_name"] for row in rows} == {state.plan.session.name}
    names = [each.named.name for each in state.plan.results]
    return ordered(
        [
            (r["k"], r["window_start"], r["window_end"], tuple(r[name] for name in names))
            for r in rows
        ]
    )


def wanted(found: list[SessionRows], rows: list[Row]) -> list[Result]:
    results = []
    for each in found:
        values = [rows[number][2] for number in each.rows]
        total = sum(values)
        aggregates = (len(values), total, total / len(values), max(values), min(map(text, values)))
        results.append((each.key, each.start_us, each.end_us, aggregates))
    return ordered(results)


def ordered(results: list[Result]) -> list[Result]:
    return sorted(results, key=lambda each: (each[2], each[1], each[0] is None, each[0] or 0))


@dataclass
class Log:
    """What is stored of each shard: a delta per step, and now and then a snapshot."""

    plan: SessionPlan
    deltas: dict[int, dict[int, bytes]] = field(
        default_factory=lambda: {shard: {} for shard in range(SHARDS)}
    )
    snapshots: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def write(self, step: int, deltas: dict[int, Entries], snapshots: dict[int, Entries]) -> None:
        for shard, entries in deltas.items():
            self.deltas[shard][step] = encode(entries, self.plan.stored_columns)
        for shard, entries in snapshots.items():
            self.snapshots[shard] = step, encode(entries, self.plan.stored_columns)

    def read(self, shards: list[int], watermark: int | None) -> SessionState:
        """From the last snapshots on: the first blobs of all shards together, then the second."""
        chains = []
        for shard in shards:
            since, base = self.snapshots.get(shard, (0, None))
            blobs = ([] if base is None else [base]) + [
                d for step, d in sorted(self.deltas[shard].items()) if step > since
            ]
            chains.append([(shard, decode(blob, self.plan.stored_columns)) for blob in blobs])
        state = fresh(self.plan)
        for layer in itertools.zip_longest(*chains):
            state.absorb([each for each in layer if each is not None])
        state.drop(watermark)
        return state

    def catch_up(
        self, state: SessionState, since: int, shards: list[int], watermark: int | None
    ) -> SessionState:
        """A state that missed all steps after one reads their deltas, step by step."""
        for step in sorted(
            {step for shard in shards for step in self.deltas[shard] if step > since}
        ):
            blobs = {
                shard: self.deltas[shard][step] for shard in shards if step in self.deltas[shard]
            }
            state.absorb(
                [(shard, decode(blob, self.plan.stored_columns)) for shard, blob in blobs.items()]
            )
        state.drop(watermark)
        return state


class Slots:
    """All slots of an operator: kept, read again, caught up or tried twice, as the test draws."""

    def __init__(self, plan: SessionPlan, data: st.DataObject) -> None:
        self.plan, self.data, self.log = plan, data, Log(plan)
        self.states: list[SessionState] = []
        self.idle: dict[int, tuple[int, SessionState]] = {}
        self.after: int | None = None
        self.steps = 0

    def step(self, rows: list[Row], until: int | None) -> tuple[list[Result], list[Result]]:
        """The results of a step, and the early ones."""
        draw = self.data.draw
        count = draw(st.integers(1, 3), "slots")
        if count != len(self.states):
            near = draw(st.booleans(), "from the slots of the route before")
            before, states = len(self.states), self.states
            self.states = [
                self._moved(states[i], i, before, count)
                if near and i < before
                else self.log.read(self._shards(i, count), self.after)
                for i in range(count)
            ]
            self.idle = {}
        self.steps += 1
        fits = draw(st.sampled_from([0, sessions._FITS]), "row and time in one number")
        with mock.patch.object(keyed, "_SMALL", 2), mock.patch.object(sessions, "_FITS", fits):
            results = [self._slot(i, count, rows, until) for i in range(count)]
        self.after = until
        found, early = ([row for each in results for row in each[which]] for which in range(2))
        return ordered(found), ordered(early)

    def _slot(
        self, i: int, count: int, rows: list[Row], until: int | None
    ) -> tuple[list[Result], list[Result]]:
        draw = self.data.draw
        shards = self._shards(i, count)
        mine = [row for row in rows if shard_of(row[0]) in shards]
        state = self.states[i] = self._prepared(i, shards, mine, until)
        parts = draw(st.integers(1, 3), "input partitions")
        deltas = added(state, [mine[part::parts] for part in range(parts)])
        assert all(entries.after_us == self.after for entries in deltas.values())
        found, early = (
            plain(state, state.close(self.after, until)),
            plain(state, state.open_windows(until)),
        )
        state.drop(until)
        due = draw(
            st.sets(st.sampled_from(shards), max_size=draw(st.sampled_from([0, 0, 1, SHARDS]))),
            "snapshots",
        )
        snapshots = state.snapshot(due)
        assert {shard: n for shard, n in state.rows_by_shard().items() if shard in due} == {
            shard: len(entries) for shard, entries in snapshots.items() if len(entries)
        }
        self.log.write(self.steps, deltas, snapshots)
        assert len(state.keys) == len(state.shard_of) <= max(2, 2 * len({*state.rows.tolist()}))
        if draw(st.sampled_from([False, False, True]), "leave a copy idle"):
            self.idle[i] = self.steps, self.log.read(shards, until)
        return found, early

    def _moved(self, state: SessionState, slot: int, before: int, now: int) -> SessionState:
        """A slot that continues under another route: shards leave it, and others come."""
        had, wanted = set(self._shards(slot, before)), set(self._shards(slot, now))
        state.leave(had - wanted)
        assert state.rows_by_shard().keys() <= wanted
        state.absorb(self.log.read(sorted(wanted - had), self.after).snapshot(wanted - had).items())
        return state

    def _shards(self, slot: int, slots: int) -> list[int]:
        return [shard for shard in range(SHARDS) if shard % slots == slot]

    def _prepared(
        self, slot: int, shards: list[int], rows: list[Row], until: int | None
    ) -> SessionState:
        how = self.data.draw(st.sampled_from(["keep", "read", "catch up", "fail first"]), "state")
        state = self.states[slot]
        if how == "fail first":
            added(state, [rows])
            state.close(self.after, until)
            state.drop(until)
            assert state.reaches(until)
            assert state.reaches(self.after) == (self.after == until)
        if how == "catch up" and slot in self.idle:
            since, state = self.idle.pop(slot)
            assert state.reaches(self.after)
            return self.log.catch_up(state, since, shards, self.after)
        if how in {"read", "fail first"}:
            return self.log.read(shards, self.after)
        assert state.reaches(self.after)
        return state

    def ends(self) -> tuple[list[int], list[int]]:
        nexts = [end for state in self.states if (end := state.next_end(self.after)) is not None]
        finals = [end for state in self.states if (end := state.final_end()) is not None]
        return nexts, finals


def row_lists(first: int, last: int, most: int) -> st.SearchStrategy[list[Row]]:
    return st.lists(
        st.tuples(st.sampled_from(KEYS), st.integers(first, last), st.integers(-9, 9)),
        max_size=most,
    )


STEPS = st.integers(3, 8).flatmap(
    lambda n: st.tuples(*(row_lists(7 * i - 30, 7 * i - 15, 8) for i in range(n)))
)
"""Batches at advancing times; few rows, so that sessions close and others come near."""


@st.composite
def plans(draw: st.DrawFn) -> SessionPlan:
    gap = draw(st.sampled_from(GAPS))
    width = draw(st.integers(1, gap))
    return plan_of(gap, width, draw(st.integers(0, width - 1)))


@settings(max_examples=100)
@given(plans(), STEPS, st.data())
def test_steps_close_what_a_plain_model_closes(
    plan: SessionPlan, steps: tuple[list[Row], ...], data: st.DataObject
) -> None:
    slots, model = Slots(plan, data), SessionSteps(plan.session.gap_us)
    rows: list[Row] = []
    for batch in steps:
        low = -30 if slots.after is None else slots.after
        until = data.draw(
            st.integers(low, low + 15)
            if slots.after is not None
            else st.none() | st.integers(low, low + 15),
            "watermark",
        )
        # Rows at or before the watermark are late: even alone, their session would have ended.
        bound = None if slots.after is None else slots.after - plan.session.gap_us
        found, early = slots.step([row for row in batch if bound is None or row[1] > bound], until)
        arrived = [(key, at, len(rows) + i) for i, (key, at, _) in enumerate(batch)]
        rows += batch
        closed, late = model.step(arrived, until)
        assert {rows[number] for number in late} == {
            row for row in batch if bound is not None and row[1] <= bound
        }
        assert found == wanted(closed, rows)
        assert early == wanted(model.open(), rows)
        ends = sorted(each.end_us for each in model.open())
        nexts, finals = slots.ends()
        assert (sorted(nexts)[:1], sorted(finals)[-1:]) == (ends[:1], ends[-1:])
    if slots.states and finals:
        assert slots.step([], ends[-1]) == (wanted(model.step((), ends[-1])[0], rows), [])
        assert slots.ends() == ([], [])


@settings(max_examples=40)
@given(plans(), row_lists(-30, 30, 80).filter(len), st.data())
def test_without_late_rows_sessions_are_those_of_all_rows(
    plan: SessionPlan, rows: list[Row], data: st.DataObject
) -> None:
    slots = Slots(plan, data)
    # Rows come more or less in order; each watermark is before all rows that are still to come.
    disorder = data.draw(st.sampled_from([1, 5, 20]), "disorder")
    rows = sorted(rows, key=lambda row: row[1] // disorder)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5), "cuts"))
    results: list[Result] = []
    for low, high in itertools.pairwise([0, *cuts, len(rows)]):
        ahead = [at for _, at, _ in rows[high:]]
        before = min(ahead) - 1 - data.draw(st.integers(0, 3), "slack") if ahead else None
        until = slots.after if before is None else before
        if slots.after is not None and until is not None:
            until = max(until, slots.after)
        results += slots.step(rows[low:high], until)[0]
    finals = slots.ends()[1]
    results += slots.step([], max(finals))[0] if finals else []
    table = pa.table(
        {
            "k": pa.array([key for key, _, _ in rows], pa.int64()),
            "at": [at for _, at, _ in rows],
            "v": [value for _, _, value in rows],
            "w": [text(value) for _, _, value in rows],
        }
    )
    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=(),
        sessions=[(plan.session.name, plan.session.gap_us)],
        aggregates=[
            ("n", "count", "*"),
            ("s", "sum", "v"),
            ("m", "avg", "v"),
            ("hi", "max", "v"),
            ("lo", "min", "w"),
        ],
    )
    reference = sessions_at_once(table, query).to_pylist()
    expected = [
        (
            r["k"],
            r["window_start"],
            r["window_end"],
            tuple(r[name] for name in ("n", "s", "m", "hi", "lo")),
        )
        for r in reference
    ]
    assert ordered(results) == ordered(expected)


def run(
    gap: int, *steps: tuple[list[tuple[int, int]], int | None]
) -> list[list[tuple[int, int, int, int]]]:
    """Key, start, end and rows of the sessions that each step closes."""
    state, after, found = fresh(plan_of(gap)), None, []
    for rows, until in steps:
        state.drop(after)
        added(state, [[(key, at, 0) for key, at in rows]])
        found.append(
            [
                (key, start, end, values[0])
                for key, start, end, values in plain(state, state.close(after, until))
            ]
        )
        state.drop(until)
        after = until
    return found


def test_a_row_exactly_a_gap_after_another_is_in_its_session() -> None:
    rows = [(0, 0), (0, 10), (1, 0), (1, 11), (2, 20), (2, 10), (2, 0)]
    assert run(10, (rows, 100)) == [[(1, 0, 10, 1), (0, 0, 20, 2), (1, 11, 21, 1), (2, 0, 30, 3)]]


def test_a_session_closes_when_the_watermark_reaches_its_end() -> None:
    assert run(10, ([(0, 0)], 9), ([], 10), ([], 11)) == [[], [(0, 0, 10, 1)], []]


def test_a_row_after_a_closed_session_begins_another_however_near_it_is() -> None:
    assert run(10, ([(0, 4)], 14), ([(0, 5)], 15), ([], 99)) == [
        [(0, 4, 14, 1)],
        [(0, 5, 15, 1)],
        [],
    ]


def test_a_row_between_two_sessions_connects_them() -> None:
    assert run(10, ([(0, 0), (0, 15)], 5), ([(0, 9)], 5), ([], 25)) == [[], [], [(0, 0, 25, 3)]]


def test_older_sessions_of_a_key_close_while_another_is_open() -> None:
    steps = ([(0, 0), (0, 20), (0, 40)], 35), ([(0, 45)], 50), ([], 55)
    assert run(10, *steps) == [[(0, 0, 10, 1), (0, 20, 30, 1)], [], [(0, 40, 55, 2)]]


def test_a_delta_is_not_merged_with_what_had_closed_before_it() -> None:
    plan = plan_of(10)
    state = fresh(plan)
    first = added(state, [[(0, 4, 1), (1, 4, 1)]])
    state.drop(14)
    second = added(state, [[(0, 5, 2)]])
    assert (first[0].after_us, second[0].after_us) == (None, 14)
    again = fresh(plan)
    again.absorb(first.items())
    again.absorb(second.items())
    assert [row[:3] for row in plain(again, again.open_windows(None))] == [(1, 4, 14), (0, 5, 15)]
    again.drop(14)  # shard 1 has no later delta: what has closed there is removed only now
    assert plain(again, again.open_windows(None)) == plain(state, state.open_windows(None))


def test_shards_are_read_each_in_the_order_of_its_own_steps() -> None:
    plan = plan_of(10)
    state, log = fresh(plan), Log(plan)
    steps: list[tuple[int | None, list[Row]]] = [
        (None, [(0, 0, 1), (1, 0, 1)]),
        (5, [(0, 8, 1)]),
        (15, [(0, 16, 1)]),
        (20, [(1, 21, 1)]),
    ]
    for step, (after, rows) in enumerate(steps, 1):
        state.drop(after)
        log.write(step, added(state, [rows]), {})
    # The second delta of shard 1 came at a time when the first session of shard 0 would have been
    # over without its second and third row.
    again = log.read([0, 1], 20)
    assert [row[:3] for row in plain(again, again.open_windows(20))] == [(0, 0, 26), (1, 21, 31)]
    assert plain(again, again.open_windows(20)) == plain(state, state.open_windows(20))


def test_times_as_far_apart_as_can_be_are_not_one_session() -> None:
    far = 8 * 10**18
    assert run(1, ([(0, far), (0, -far), (0, 0)], far + 1)) == [
        [(0, -far, -far + 1, 1), (0, 0, 1, 1), (0, far, far + 1, 1)]
    ]


def test_a_long_chain_of_panes_is_one_session() -> None:
    rows = [(key, at) for key in range(3) for at in range(0, 7000 * (key + 1), 10)]
    assert run(10, (rows[::-1], 10**6)) == [
        [(key, 0, 7000 * (key + 1), 700 * (key + 1)) for key in range(3)]
    ]


def test_open_sessions_are_one_row_each_however_long_they_last() -> None:
    state = fresh(plan_of(10))
    for step in range(100):
        added(state, [[(0, step * 7, 1), (1, step * 11, 1)]])
    assert state.rows_by_shard() == {0: 1, 1: 100}


def test_numbers_of_keys_without_open_sessions_are_used_again() -> None:
    plan = plan_of(1000)
    state = fresh(plan)
    for step in range(30):
        added(state, [[(key, step * 2000, 1) for key in range(step * 1000, step * 1000 + 1000)]])
        state.drop(step * 2000)
        assert len(state.keys) <= 3000
    assert [row[:3] for row in plain(state, state.close(None, 10**9))] == [
        (key, 58_000, 59_000) for key in range(29_000, 30_000)
    ]


def test_sessions_that_start_before_a_time_can_be_forgotten() -> None:
    state = fresh(plan_of(10))
    added(state, [[(0, 0, 1), (1, 5, 1), (2, 6, 1)]])
    state.forget(None)
    state.forget(5)
    assert [row[0] for row in plain(state, state.open_windows(None))] == [1, 2]


@pytest.mark.parametrize("early", [False, True])
def test_results_say_which_sessions_are_still_open(early: bool) -> None:
    plan = replace(plan_of(10), early=early)
    state = fresh(plan)
    added(state, [[(0, 0, 1), (1, 15, 1)]])
    table, _ = result_table(state, [*state.close(None, 10), *state.open_windows(10)])
    assert table is not None
    assert table.column("k").to_pylist() == [0, 1]
    assert ("early" in table.column_names) == early
    if early:
        assert table.column("early").to_pylist() == [False, True]


def test_a_session_that_was_added_later_is_named_incomplete_where_it_may_lack_rows() -> None:
    plan = replace(plan_of(10), complete_from={0: 15})
    state = fresh(plan)
    added(state, [[(0, 0, 1), (1, 15, 1), (2, 14, 1)]])
    table, _ = result_table(state, state.close(None, 99))
    assert table is not None
    named = dict(
        zip(table.column("k").to_pylist(), table.column("window_name").to_pylist(), strict=True)
    )
    name = plan.session.name
    assert named == {0: f"{name} (incomplete)", 1: name, 2: f"{name} (incomplete)"}
