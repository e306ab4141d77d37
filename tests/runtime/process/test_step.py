"""Steps of `process`: random programs against plain Python, whatever crashes or gets lost."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan.panes import AHEAD, LEFT_OUT, OUT_OF_RANGE
from anabranch.runtime.process.ordered import Incoming
from anabranch.runtime.process.step import process_step
from anabranch.state.codec.cells import Span, encoded_keys
from anabranch.testing.process import ProcessTester
from tests.runtime.process.process_slot import (
    SCHEMA,
    Program,
    Slot,
    Total,
    at,
    plan_of,
    us,
)

if TYPE_CHECKING:
    import anabranch as ab


class Brief(Program):
    """The same, but a key is forgotten 7 seconds after its last row or timer."""

    ttl = "7 seconds"


@dataclass
class _Key:
    seen: list[int] | None = None
    timers: dict[str, int] = field(default_factory=dict)
    expires: int | None = None


class Plain:
    """`Program` once more, in seconds and lists, without cells or alarms."""

    def __init__(self, ttl: int | None, order: str) -> None:
        self.ttl, self.by_time = ttl, order == "event_time"
        self.keys: dict[str, _Key] = {}
        self.after: int | None = None

    def step(
        self, rows: list[tuple[str, int, str, int]], until: int | None, *, finish: bool = False
    ) -> set[tuple[Any, ...]]:
        out: list[tuple[Any, ...]] = []
        if self.by_time:
            rows = sorted(
                (row for row in rows if self.after is None or row[1] >= self.after),
                key=lambda row: row[1],
            )
        last = until
        for key in {row[0] for row in rows} | set(self.keys):
            mine = [row for row in rows if row[0] == key]
            held = self.keys.setdefault(key, _Key())
            fired = self._key(key, held, mine, until, out, finish=finish)
            last = max((each for each in (last, fired) if each is not None), default=None)
            if held.seen is None:
                del self.keys[key]
        self.after = last
        return {(key, what, at(time), tuple(seen)) for key, what, time, seen in out}

    def _key(
        self,
        key: str,
        held: _Key,
        rows: list[Any],
        until: int | None,
        out: list[Any],
        *,
        finish: bool,
    ) -> int | None:
        now, fired = self.after, None
        limit = until
        if finish and not rows:
            limit = max(held.timers.values(), default=until)
        while True:
            alarms = [(time, name) for name, time in held.timers.items()]
            if held.expires is not None:
                alarms.append((held.expires, "~"))
            due = min(
                (each for each in alarms if limit is not None and each[0] <= limit), default=None
            )
            ready = (
                [row for row in rows if due is None or row[1] < due[0]] if self.by_time else rows
            )
            if ready and not self.by_time and held.expires is not None and limit is not None:
                ready = [] if held.expires <= min(limit, *(row[1] for row in rows)) else ready
            if ready:
                self._rows(key, held, ready, now, out)
                rows = rows[len(ready) :]
                if finish and not rows:
                    limit = max(held.timers.values(), default=until)
            elif due is None:
                return fired
            elif due[1] == "~":
                held.seen, held.timers, held.expires, now = None, {}, None, due[0]
            else:
                now, name = due
                fired = now if fired is None else max(fired, now)
                del held.timers[name]
                held.seen = [] if held.seen is None else held.seen
                out.append((key, f"timer {name}", now, list(held.seen)))
                if len(held.seen) % 3 == 0:
                    held.seen.append(-1)
                    held.timers[name] = now + 4
                held.expires = None if self.ttl is None else now + self.ttl

    def _rows(self, key: str, held: _Key, rows: list[Any], now: int | None, out: list[Any]) -> None:
        held.seen = [] if held.seen is None else held.seen
        newest = max(row[1] for row in rows)
        if self.ttl is not None:
            held.expires = max(newest, newest if now is None else now) + self.ttl
        for _, time, op, x in rows:
            held.seen.append(x)
            if op == "timer" and (now is None or time + x > now):
                held.timers[str(x % 2)] = time + x
            elif op == "cancel":
                held.timers.pop(str(x % 2), None)
            elif op == "forget":
                held.seen, held.timers = None, {}
                return
            elif op == "replace":
                held.seen = [x]
                return
        out.append((key, "rows", newest, list(held.seen)))


ROW = st.tuples(
    st.sampled_from(["a", "b", "c", "d" * 600]),
    st.integers(0, 12),
    st.sampled_from(["add", "add", "timer", "timer", "cancel", "forget", "replace"]),
    st.integers(1, 12),
)
STEP = st.fixed_dictionaries(
    {
        "rows": st.lists(ROW, max_size=8),
        "ahead": st.integers(0, 9),
        "crashes": st.sampled_from([0, 0, 0, 1, 2]),
        "lose": st.sampled_from([(), (), (), (0,), (1, 2)]),
    }
)


def bag(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["what"], row["at"], tuple(row["seen"])) for row in results)


@settings(max_examples=100)
@given(
    st.lists(STEP, min_size=1, max_size=8),
    st.sampled_from([Program, Brief]),
    st.booleans(),
    st.sampled_from(["event_time", "arrival"]),
)
def test_random_programs_do_what_plain_python_does_whatever_crashes_or_is_lost(
    steps: list[Mapping[str, Any]], cls: type[Program], knows: bool, order: str
) -> None:
    plan = plan_of(cls, SCHEMA, ["k"], order=order)
    plain = Plain(7 if cls is Brief else None, order)
    tester = ProcessTester(cls, by="k", schema=SCHEMA, event_time="at", order=order)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        slot = Slot(plan, Path(root))
        watermark = 0 if knows else None
        for i, step in enumerate(steps):
            base = i * 4
            rows = [(key, base + time, op, x) for key, time, op, x in step["rows"]]
            watermark = None if watermark is None else watermark + step["ahead"]
            given = [(key, at(time), op, x) for key, time, op, x in rows]
            found = slot.run(given, us(watermark), crashes=step["crashes"], lose=step["lose"])
            wanted = sorted(plain.step(rows, watermark))
            assert bag(found) == wanted
            assert (
                bag(tester.step(given, watermark=None if watermark is None else at(watermark)))
                == wanted
            )
            assert slot.keys == len(plain.keys) == len(tester)
            alarms = [time for held in plain.keys.values() for time in held.timers.values()]
            if cls is Program:
                assert slot.next_us == us(min(alarms, default=None))
            if watermark is None and i == 2:
                watermark = 0
        for key, held in plain.keys.items():
            assert tester.state(key).seen == held.seen
            assert {name: at(time) for name, time in held.timers.items()} == tester.timers(key)
        last = slot.run([], us(watermark), finish=True, lose=(0, 1, 2))
        assert bag(last) == sorted(plain.step([], watermark, finish=True)) == bag(tester.finish())


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 99)), max_size=12),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_a_vectorised_class_keeps_its_columns_whatever_crashes_or_is_lost(
    steps: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    plan = plan_of(Total, "k bigint, at timestamp, v double", ["k"], order="arrival")
    held: dict[int, tuple[int, float]] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        slot = Slot(plan, Path(root))
        for rows in steps:
            chaos = {
                "crashes": data.draw(st.integers(0, 1)),
                "lose": data.draw(st.sampled_from([(), (0, 2)])),
            }
            found = slot.run([(key, at(0), float(v)) for key, v in rows], None, **chaos)
            wanted = {}
            for key, v in rows:
                n, top = wanted.get(key, held.get(key, (0, -1.0)))
                wanted[key] = (n + 1, max(top, float(v)))
            assert {row["k"]: (row["n"], row["top"]) for row in found} == wanted
            assert len(found) == len(wanted)
            held = {key: each for key, each in {**held, **wanted}.items() if each[0] <= 5}
            assert slot.keys == len(held)


class Brief2:
    """Counts rows, key by key, while there are some."""

    state: int
    output = "n bigint"
    ttl = "5 seconds"

    def process(self, key: Any, rows: ab.Rows, state: int, ctx: ab.Context) -> Any:
        ctx.replace(state + len(rows))
        yield (state + len(rows),)


class BriefTotal(Total):
    """The same, for all keys at once."""

    ttl = "5 seconds"
    output = "n bigint"

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        state.n += np.bincount(rows.key, minlength=len(state))
        return {"n": state.n}


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6),
            st.integers(0, 16),
            st.booleans(),
        ),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from(["event_time", "arrival"]),
)
@settings(max_examples=60)
def test_keys_of_both_forms_live_equally_long(
    steps: list[tuple[list[tuple[int, int]], int, bool]], order: str
) -> None:
    schema = "k bigint, at timestamp, v double"
    testers = [
        ProcessTester(cls, by="k", schema=schema, event_time="at", order=order)
        for cls in (Brief2, BriefTotal)
    ]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        slot = Slot(plan_of(BriefTotal, schema, ["k"], order=order), Path(root))
        watermark = 0
        for i, (rows, ahead, lost) in enumerate(steps):
            given = [(key, at(8 * i + time), 1.0) for key, time in rows]
            watermark += ahead
            one, other = (
                [tuple(row.values()) for row in tester.step(given, watermark=at(watermark))]
                for tester in testers
            )
            assert sorted(one) == sorted(other)
            assert sorted(
                tuple(row.values())
                for row in slot.run(given, us(watermark), lose=[0] if lost else [])
            ) == sorted(one)
            assert len(testers[0]) == len(testers[1]) == slot.keys


def test_late_rows_are_left_out_by_event_time_and_given_by_arrival(tmp_path: Path) -> None:
    rows = [("a", at(9), "add", 1), ("a", at(2), "add", 2), ("a", None, "add", 3)]
    by_time = ProcessTester(Program, by="k", schema=SCHEMA, event_time="at")
    by_time.step(watermark=at(5))
    assert [row["seen"] for row in by_time.step(rows)] == [[1]]
    assert [(row["x"], row["reason"]) for row in by_time.late] == [
        (2, "late"),
        (3, "no event time"),
    ]
    by_arrival = ProcessTester(Program, by="k", schema=SCHEMA, event_time="at", order="arrival")
    by_arrival.step(watermark=at(5))
    assert [row["seen"] for row in by_arrival.step(rows)] == [[1, 2, 3]]
    assert by_arrival.late == []
    slot = Slot(plan_of(Program, SCHEMA, ["k"]), tmp_path)
    slot.run([], us(5))
    slot.run(rows, us(5))
    assert slot.left_out == {"late": 1, "no event time": 1}


@pytest.mark.parametrize("order", ["event_time", "arrival"])
def test_rows_with_a_mark_instead_of_a_time_are_left_out_in_every_order(order: str) -> None:
    plan = plan_of(Program, SCHEMA, ["k"], order=order)
    keys = ["a", "b", "a", "b"]
    values = {"k": keys, "at": [at(1), at(2), at(3), None], "op": ["add"] * 4, "x": [1, 2, 3, 4]}
    columns = pa.table({each.name: values[each.name] for each in plan.fields})
    t = np.array([us(1), AHEAD, OUT_OF_RANGE, LEFT_OUT])
    rows = Incoming(pa.table({"k0": keys}), columns, t, np.zeros(4, np.int64), np.arange(4))
    made = process_step(plan, rows, NoCells(), Span(after_us=None, until_us=None, finish=False))
    left_out = {"ahead": 1, "out of range": 1}
    if order == "event_time":
        left_out |= {"no event time": 1}
    assert made.left_out == left_out
    assert made.late is not None
    assert Counter(made.late["reason"].to_pylist()) == left_out
    assert made.rows_in == {0: 4}
    taken = ["a"] if order == "event_time" else ["a", "b"]
    assert set(made.after[0]) == set(encoded_keys(pa.table({"k0": taken})))


class NoCells:
    """A slot without state."""

    def get(self, shard: int, keys: Sequence[bytes]) -> list[None]:
        return [None] * len(keys)

    def due(self, until_us: int | None) -> list[tuple[int, bytes]]:
        return []
