"""The decoded state of a join against DuckDB: the same rows whatever the steps and restarts."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan.operators.joins import HOWS, SIDES, JoinInput, JoinPlan, Side, join_plan
from anabranch.state.codec.joins import SideRows, decode_join, encode_join, no_rows
from anabranch.state.memory.joins import JoinState
from anabranch.state.memory.keys import KeyTable
from anabranch.testing import JoinQuery, bag_differences, expected_join
from anabranch.topology import Field, Window, hopping, sliding, tumbling
from anabranch.topology.graph import Clock
from anabranch.types import column_type

SECOND = 1_000_000
SHARDS = 4
LEFT = (Field("at", "timestamp"), Field("s", "string"), Field("d", "decimal(10,2)"))
RIGHT = (
    Field("ts", "timestamp"),
    Field("x", "double"),
    Field("both", "struct<a:int,b:string>"),
    Field("many", "array<bigint>"),
)
TIMES: Mapping[Side, str] = {"left": "at", "right": "ts"}
KEYS: dict[str, tuple[Field, ...]] = {
    "whole": (Field("k", "bigint"),),
    "text": (Field("k", "string"),),
    "float": (Field("k", "double"),),
    "several": (Field("k", "int"), Field("name", "string")),
    "nested": (Field("k", "struct<a:int,b:string>"),),
}
VALUES: dict[str, Sequence[Any]] = {
    "bigint": (0, 1, 2, -5, 2**40, None),
    "string": ("ash", "", "\u00f6", None),
    "double": (0.0, -0.0, float("nan"), 1.5, None),
    "int": (0, 1, None),
    "decimal(10,2)": (Decimal("1.50"), Decimal("-0.01"), None),
    "struct<a:int,b:string>": ({"a": 1, "b": "x"}, {"a": None, "b": None}, None),
    "array<bigint>": ([1, None], [], None),
}
WINDOWS: list[tuple[Window, ...]] = [
    (tumbling("4s"),),
    (sliding("6s", every="2s"), tumbling("2s")),
    (hopping("3s", every="7s", start="1s"), sliding("10s", every="5s")),
    (tumbling("1s"), sliding("13s", every="1s"), tumbling("12s")),
]

Row = dict[str, Any]


def plan_of(
    key: str,
    windows: Sequence[Window],
    how: str,
    left: Sequence[Field] = LEFT,
    right: Sequence[Field] = RIGHT,
) -> JoinPlan:
    keys = KEYS[key]
    inputs = [
        JoinInput(stream=name, fields=(*keys, *fields), clock=Clock(time, "timestamp"))
        for name, fields, time in (("l", left, "at"), ("r", right, "ts"))
    ]
    return join_plan("j", *inputs, [each.name for each in keys], windows, how)


def fresh(plan: JoinPlan) -> JoinState:
    return JoinState(plan, KeyTable(plan.key_schema()))


def shard_of(key: Iterable[Any]) -> int:
    return (
        zlib.crc32(
            repr(
                [0.0 if each == 0.0 and isinstance(each, float) else each for each in key]
            ).encode()
        )
        % SHARDS
    )


def table_of(plan: JoinPlan, side: Side, rows: Sequence[Row]) -> pa.Table:
    fields = (*plan.keys, *plan.payload(side))
    columns = {each.name: [row[each.name] for row in rows] for each in fields}
    return pa.table(
        {
            each.name: pa.array(columns[each.name], column_type(each.type, maps=True))
            for each in fields
        }
    )


def numbered(state: JoinState, side: Side, rows: pa.Table, times: Sequence[int]) -> SideRows:
    """What a slot task makes of rows whose time is in some window."""
    plan = state.plan
    keys = pa.Table.from_arrays(
        [rows.column(each.name) for each in plan.keys], schema=plan.key_schema()
    )
    shards = np.array([shard_of(row.values()) for row in keys.to_pylist()], dtype=np.int64)
    at = rows.column(TIMES[side]).cast(pa.int64()).to_numpy()
    pane = at - (at - plan.panes.offset_us) % plan.panes.width_us
    payload = rows.select([each.name for each in plan.payload(side)])
    return SideRows(state.number(keys, shards), pane, np.array(times, dtype=np.int64), payload)


@dataclass
class Run:
    """Slots that hold the shards of a join, and the log from which they can be restored."""

    plan: JoinPlan
    after: int | None = None
    slots: dict[frozenset[int], JoinState] = field(default_factory=dict)
    log: dict[int, list[bytes]] = field(default_factory=dict)
    found: list[pa.Table] = field(default_factory=list)

    def route(self, slots: Iterable[Iterable[int]]) -> None:
        """Sets other slots: each continues from one with some of its shards, or reads them all."""
        before, self.slots = self.slots, {}
        for shards in map(frozenset, slots):
            near = next((had for had in before if len(had & shards) * 2 >= len(shards)), None)
            if near is None:
                self.slots[shards] = self.read(shards)
                continue
            state = before.pop(near)
            state.leave(near - shards)
            assert state.rows_by_shard().keys() <= shards
            state.absorb(self.read(shards - near).snapshot(shards - near).items())
            self.slots[shards] = state

    def read(self, shards: frozenset[int]) -> JoinState:
        """Shards as a slot task reads them, snapshot first and layer by layer."""
        state = fresh(self.plan)
        logs = {
            shard: [decode_join(blob, self.plan) for blob in self.log.get(shard, [])]
            for shard in shards
        }
        for layer in range(max(map(len, logs.values()), default=0)):
            state.absorb([(shard, log[layer]) for shard, log in logs.items() if layer < len(log)])
        state.drop(self.after)
        return state

    def step(
        self,
        arrived: Mapping[Side, tuple[pa.Table, list[int]]],
        until: int | None,
        snapshot: set[int],
    ) -> None:
        for shards, state in self.slots.items():
            mine = {side: self._mine(state, side, shards, *arrived[side]) for side in SIDES}
            for side, rows in mine.items():
                state.add(side, rows)
            deltas = state.entries(mine)
            self.take(state, until)
            state.drop(until)
            for shard, entries in deltas.items():
                assert shard in shards
                self.log.setdefault(shard, []).append(encode_join(entries, self.plan))
            for shard, entries in state.snapshot(snapshot & shards).items():
                self.log[shard] = [encode_join(entries, self.plan)]
        self.after = until if until is not None else self.after

    def _mine(
        self, state: JoinState, side: Side, shards: frozenset[int], rows: pa.Table, times: list[int]
    ) -> SideRows:
        panes = self.plan.panes
        kept = []
        for i, row in enumerate(rows.to_pylist()):
            at = rows.column(TIMES[side])[i].cast(pa.int64()).as_py()
            if at is not None and not panes.is_over(panes.start_of(at), self.after):
                kept += [i] if shard_of(row[each.name] for each in self.plan.keys) in shards else []
        return numbered(
            state, side, rows.take(pa.array(kept, pa.int64())), [times[i] for i in kept]
        )

    def take(self, state: JoinState, until: int | None) -> None:
        table, shards = state.close(self.after, until)
        assert table.schema == self.plan.result_schema()
        assert [
            shard_of(row.values()) for row in table.select(range(len(self.plan.keys))).to_pylist()
        ] == shards.tolist()
        self.found.append(table)


@st.composite
def side_rows(
    draw: st.DrawFn, plan: JoinPlan, side: Side, upto: int
) -> tuple[list[Row], list[int]]:
    rows = []
    for _ in range(draw(st.integers(0, 10))):
        row = {
            each.name: draw(st.sampled_from(VALUES[each.type]))
            for each in (*plan.keys, *plan.payload(side)[1:])
        }
        seconds = draw(
            st.none() | st.integers(-3, upto)
            if draw(st.integers(0, 15)) == 0
            else st.integers(max(upto - 20, -3), upto)
        )
        row[TIMES[side]] = (
            None
            if seconds is None
            else seconds * SECOND + draw(st.sampled_from((0, 0, 1, 999_999)))
        )
        rows.append(row)
    return rows, [draw(st.sampled_from((1, 1, 1, 2, 3))) for _ in rows]


def repeated(rows: Sequence[Any], times: Sequence[int]) -> list[Any]:
    return [row for row, n in zip(rows, times, strict=True) for _ in range(n)]


@settings(max_examples=120)
@given(st.data())
def test_joined_rows_equal_those_of_another_engine(data: st.DataObject) -> None:
    draw = data.draw
    plan = plan_of(
        draw(st.sampled_from(sorted(KEYS))),
        draw(st.sampled_from(WINDOWS)),
        draw(st.sampled_from(HOWS)),
    )
    run = Run(plan)
    tables: dict[Side, list[pa.Table]] = {side: [] for side in SIDES}
    watermarks: list[int | None] = []
    for number in range(draw(st.integers(1, 6), "steps")):
        if number == 0 or draw(st.integers(0, 2), "another route?") == 0:
            slots = draw(st.lists(st.integers(0, 1), min_size=SHARDS, max_size=SHARDS), "route")
            run.route(
                [
                    [shard for shard in range(SHARDS) if slots[shard] == slot]
                    for slot in sorted({*slots})
                ]
            )
        arrived: dict[Side, tuple[pa.Table, list[int]]] = {}
        for side in SIDES:
            rows, times = draw(side_rows(plan, side, upto=12 * (number + 1)), side)
            tables[side].append(table_of(plan, side, repeated(rows, times)))
            if draw(st.booleans(), "rows one by one?"):
                rows, times = repeated(rows, times), [1] * sum(times)
            arrived[side] = table_of(plan, side, rows), times
        until = run.after
        if draw(st.integers(0, 3), "does the watermark move?"):
            until = max(
                run.after or 0, draw(st.integers(0, 12 * (number + 1)), "watermark") * SECOND
            )
        run.step(arrived, until, draw(st.sets(st.integers(0, SHARDS - 1)), "snapshots"))
        watermarks.append(until)
    if finish := draw(st.booleans(), "finish?"):
        for state in run.slots.values():
            run.take(state, state.final_end())
    windows = [
        (each.name, each.length_us, each.every_us, each.offset_us) for each in plan.panes.windows
    ]
    keys = [each.name for each in plan.keys]
    query = JoinQuery(keys=keys, left_time="at", right_time="ts", windows=windows, how=plan.how)
    expected = expected_join(tables["left"], tables["right"], query, watermarks, finish=finish)
    assert not bag_differences(pa.concat_tables(run.found), expected)


def test_rows_that_came_often_are_joined_as_often() -> None:
    plan = plan_of("whole", (tumbling("4s"),), "full")
    state = fresh(plan)
    left = [{"k": k, "at": SECOND, "s": "a", "d": None} for k in (1, 2)]
    right = [{"k": k, "ts": SECOND, "x": 1.0, "both": None, "many": None} for k in (1, 3)]
    state.add("left", numbered(state, "left", table_of(plan, "left", left), [2, 3]))
    state.add("right", numbered(state, "right", table_of(plan, "right", right), [5, 4]))
    table, _ = state.close(None, 4 * SECOND)
    assert Counter((row["k"], row["s"], row["x"]) for row in table.to_pylist()) == {
        (1, "a", 1.0): 10,
        (2, "a", None): 3,
        (3, None, 1.0): 4,
    }


def test_a_row_late_for_one_window_is_joined_in_a_longer_one() -> None:
    plan = plan_of("whole", (tumbling("2s"), tumbling("10s")), "inner")
    state = fresh(plan)
    right = [{"k": 1, "ts": SECOND, "x": 1.0, "both": None, "many": None}]
    state.add("right", numbered(state, "right", table_of(plan, "right", right), [1]))
    assert state.close(None, 4 * SECOND)[0].num_rows == 0
    state.drop(4 * SECOND)
    left = [{"k": 1, "at": 0, "s": "late", "d": None}]
    state.add("left", numbered(state, "left", table_of(plan, "left", left), [1]))
    found = state.close(4 * SECOND, 10 * SECOND)[0].to_pylist()
    assert [(row["window_name"], row["s"], row["x"]) for row in found] == [("10s", "late", 1.0)]


@pytest.mark.parametrize("how", HOWS)
def test_rows_with_a_null_in_their_key_wait_only_where_they_come_out(how: str) -> None:
    plan = plan_of("several", (tumbling("4s"),), how)
    state = fresh(plan)
    key = {"k": None, "name": "n"}
    left = table_of(plan, "left", [{**key, "at": 0, "s": "l", "d": None}])
    right = table_of(plan, "right", [{**key, "ts": 0, "x": 1.0, "both": None, "many": None}])
    arrived = {
        "left": numbered(state, "left", left, [1]),
        "right": numbered(state, "right", right, [1]),
    }
    for side, rows in arrived.items():
        state.add(side, rows)
    kept = {"inner": 0, "left": 1, "right": 1, "full": 2}[how]
    assert sum(state.rows_by_shard().values()) == kept
    assert sum(map(len, state.entries(arrived).values())) == kept
    table, _ = state.close(None, 4 * SECOND)
    outer = [("l", None)] * (how in {"left", "full"}) + [(None, 1.0)] * (how in {"right", "full"})
    assert [(row["s"], row["x"]) for row in table.to_pylist()] == outer
    assert all((row["k"], row["name"]) == (None, "n") for row in table.to_pylist())


def test_a_null_inside_a_struct_equals_another_as_in_spark() -> None:
    plan = plan_of("nested", (tumbling("4s"),), "inner", right=(Field("ts", "timestamp"),))
    state = fresh(plan)
    keys = [{"a": 1, "b": None}, {"a": None, "b": None}, None]
    for side in SIDES:
        rows = table_of(
            plan, side, [{"k": key, "at": 0, "s": None, "d": None, "ts": 0} for key in keys]
        )
        state.add(side, numbered(state, side, rows, [1, 1, 1]))
    assert state.close(None, 4 * SECOND)[0].column("k").to_pylist() == keys[:2]


def test_payload_of_every_type_survives_snapshots_and_comes_out() -> None:
    kinds = {
        "p_map": ("map<string,array<int>>", [("a", [1, None])]),
        "p_deep": (
            "array<struct<m:map<int,string>,t:timestamp_ntz>>",
            [{"m": [(1, "x")], "t": None}],
        ),
        "p_bin": ("binary", b"\xff"),
        "p_bool": ("boolean", True),
        "p_date": ("date", None),
        "p_small": ("tinyint", 3),
        "p_float": ("float", 1.5),
        "p_dec": ("decimal(38,18)", Decimal("1." + "1" * 18)),
    }
    fields = (Field("at", "timestamp"), *(Field(name, kind) for name, (kind, _) in kinds.items()))
    plan = plan_of("text", (tumbling("4s"),), "full", left=fields)
    state = fresh(plan)
    values = {name: value for name, (_, value) in kinds.items()}
    rows = table_of(
        plan,
        "left",
        [{"k": "a", "at": 0, **values}, {"k": "b", "at": 5 * SECOND, **dict.fromkeys(values)}],
    )
    state.add("left", numbered(state, "left", rows, [1, 1]))
    again = fresh(plan)
    blobs = {
        shard: encode_join(entries, plan)
        for shard, entries in state.snapshot(range(SHARDS)).items()
    }
    again.absorb([(shard, decode_join(blob, plan)) for shard, blob in blobs.items()])
    for each in (state, again):
        found = each.close(None, 8 * SECOND)[0]
        assert found.select(rows.column_names).sort_by("k").to_pylist() == rows.to_pylist()
        assert found.column("x").null_count == 2


def test_payload_arrives_as_spark_hands_it_over() -> None:
    fields = (Field("at", "timestamp"), Field("many", "array<int>"), Field("s", "string"))
    plan = plan_of(
        "whole", (tumbling("4s"),), "left", left=fields, right=(Field("ts", "timestamp"),)
    )
    state = fresh(plan)
    spark = pa.schema(
        [
            pa.field("at", pa.timestamp("us", tz="Etc/UTC"), nullable=False),
            pa.field(
                "many", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False
            ),
            pa.field("s", pa.large_string()),
        ]
    )
    columns = [
        pa.array(values, each.type)
        for values, each in zip(([0], [[1, 2]], ["x"]), spark, strict=True)
    ]
    batch = pa.Table.from_arrays(columns, schema=spark)
    key = state.number(pa.table({"k0": pa.array([7])}), np.zeros(1, dtype=np.int64))
    state.add("left", SideRows(key, np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64), batch))
    table, _ = state.close(None, 4 * SECOND)
    assert table.schema == plan.result_schema()
    assert table.select(["k", "many", "s"]).to_pylist() == [{"k": 7, "many": [1, 2], "s": "x"}]


def test_sides_without_other_columns_are_joined_by_their_keys() -> None:
    plan = plan_of("whole", (tumbling("4s"),), "full", left=(), right=())
    state = fresh(plan)
    for side, keys in (("left", [1, 1, 2]), ("right", [1, 3])):
        numbers = state.number(
            pa.table({"k0": pa.array(keys)}), np.zeros(len(keys), dtype=np.int64)
        )
        state.add(
            side,
            SideRows(
                numbers,
                np.zeros(len(keys), dtype=np.int64),
                np.ones(len(keys), dtype=np.int64),
                pa.table({}),
            ),
        )
    again = fresh(plan)
    again.absorb([(0, decode_join(encode_join(state.snapshot([0])[0], plan), plan))])
    for each in (state, again):
        assert sorted(each.close(None, 4 * SECOND)[0].column("k").to_pylist()) == [1, 1, 2, 3]


def test_expired_rows_are_dropped_and_their_key_numbers_used_again() -> None:
    plan = plan_of("whole", (tumbling("4s"),), "full", right=(Field("ts", "timestamp"),))
    state = fresh(plan)
    for step in range(30):
        keys = np.arange(step * 1000, step * 1000 + 1000)
        rows = [
            {"k": int(k), "at": step * 4 * SECOND, "s": None, "d": None, "ts": step * 4 * SECOND}
            for k in keys
        ]
        for side in SIDES:
            state.add(side, numbered(state, side, table_of(plan, side, rows), [1] * 1000))
        table, _ = state.close((step - 1) * 4 * SECOND, step * 4 * SECOND)
        assert table.num_rows == (1000 if step else 0)
        state.drop(step * 4 * SECOND)
        assert len(state.keys) <= 3000
        assert sum(state.rows_by_shard().values()) == 2000
    assert state.next_end(29 * 4 * SECOND) == state.final_end() == 30 * 4 * SECOND
    table, _ = state.close(29 * 4 * SECOND, 30 * 4 * SECOND)
    assert table.column("k").to_pylist() == list(range(29_000, 30_000))
    state.forget(30 * 4 * SECOND)
    assert state.rows_by_shard() == {}
    assert state.next_end(None) is None


def test_many_steps_into_one_long_pane_stay_few_chunks() -> None:
    plan = plan_of("whole", (tumbling("1 day"),), "inner")
    state = fresh(plan)
    left = table_of(plan, "left", [{"k": k, "at": 0, "s": "x", "d": None} for k in range(3)])
    for _ in range(100):
        state.add("left", numbered(state, "left", left, [1, 1, 1]))
    assert len(state.sides["left"][0]) <= 8
    assert sum(map(len, state.sides["left"][0])) == 300


def test_a_state_that_dropped_open_rows_does_not_reach() -> None:
    state = fresh(plan_of("whole", (tumbling("4s"),), "inner"))
    assert state.reaches(None)
    state.drop(4 * SECOND)
    assert state.reaches(4 * SECOND)
    assert not state.reaches(3 * SECOND)
    assert not state.reaches(None)


def test_windows_that_were_added_later_are_named_incomplete() -> None:
    plan = replace(plan_of("whole", (tumbling("4s"),), "left"), complete_from={0: 4 * SECOND})
    state = fresh(plan)
    rows = table_of(
        plan, "left", [{"k": 1, "at": at * SECOND, "s": "x", "d": None} for at in (0, 4)]
    )
    state.add("left", numbered(state, "left", rows, [1, 1]))
    names = state.close(None, 8 * SECOND)[0].column("window_name").to_pylist()
    assert names == ["4s (incomplete)", "4s"]


def test_a_side_without_rows_has_no_entries() -> None:
    plan = plan_of("whole", (tumbling("4s"),), "inner")
    state = fresh(plan)
    assert state.entries({side: no_rows(plan, side) for side in SIDES}) == {}
    assert state.snapshot([1, 2])[1].rows["left"].payload.schema == plan.payload_schema("left")
    assert state.close(None, None)[0].schema == plan.result_schema()
