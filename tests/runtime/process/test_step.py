"""`process` in a slot: random programs against plain Python, whatever crashes or gets lost, and what a step costs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import StepError
from anabranch.state.codec.cells import (
    Head,
    decoded_keys,
    encoded_keys,
    head_of,
    replayed,
    sealed_cell,
)
from anabranch.testing.process import ProcessTester
from tests.runtime.process.process_slot import Slot, plan_of

if TYPE_CHECKING:
    import anabranch as ab

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ZERO_US = int(EPOCH.timestamp()) * 1_000_000
SCHEMA = "k string, at timestamp, op string, x int"


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def us(second: int | None) -> int | None:
    return None if second is None else ZERO_US + second * 1_000_000


@dataclass
class Noted:
    seen: list[int] = field(default_factory=list)
    by: dict[str, int] = field(default_factory=dict)


class Program:
    """Does what its rows say; remembers and tells all that happens to it."""

    state: Noted
    output = "what string, at timestamp, seen array<int>"
    event_time = "at"

    def process(self, key: str, rows: ab.Rows, state: Noted, ctx: ab.Context) -> Any:
        for row in rows:
            state.seen.append(row.x)
            state.by[row.op] = state.by.get(row.op, 0) + 1
            if row.op == "timer" and (
                ctx.watermark is None or row.at + timedelta(seconds=row.x) > ctx.watermark
            ):
                ctx.timer(row.at + timedelta(seconds=row.x), name=str(row.x % 2))
            elif row.op == "cancel":
                ctx.cancel(str(row.x % 2))
            elif row.op == "forget":
                ctx.forget()
                return
            elif row.op == "replace":
                ctx.replace(Noted([row.x]))
                return
        yield "rows", ctx.time, list(state.seen)

    def on_timer(self, key: str, state: Noted, ctx: ab.Context) -> Any:
        yield f"timer {ctx.name}", ctx.time, list(state.seen)
        if len(state.seen) % 3 == 0:
            state.seen.append(-1)
            ctx.timer(ctx.time + timedelta(seconds=4), name=ctx.name)


class Brief(Program):
    """The same, and a key is forgotten 7 seconds after its last row or timer."""

    ttl = "7 seconds"


@dataclass
class _Key:
    seen: list[int] | None = None
    timers: dict[str, int] = field(default_factory=dict)
    expires: int | None = None


class Plain:
    """What `Program` does, written down once more in seconds and lists, without cells or alarms."""

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


class Total:
    state = {"n": "bigint", "top": ("double", -1.0)}
    output = "n bigint, top double"

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        state.n += np.bincount(rows.key, minlength=len(state))
        np.maximum.at(state.top, rows.key, rows["v"])
        ctx.forget(state.n > 5)
        return {"n": state.n, "top": state.top}


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
    """Counts rows, key by key, for as long as there are some."""

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


class Count:
    state: int
    output = "n bigint"

    def process(self, key: Any, rows: ab.Rows, state: int, ctx: ab.Context) -> Any:
        ctx.replace(state + len(rows))
        yield (state + len(rows),)


def test_the_log_holds_a_small_multiple_of_the_state_and_a_restore_needs_nothing_else(
    tmp_path: Path,
) -> None:
    slot = Slot(plan_of(Count, "k bigint, at timestamp", ["k"]), tmp_path, shards=1)
    slot.run([(key, at(0)) for key in range(5_000)], None)
    state, sizes, rng = slot.log_bytes(), [], np.random.default_rng(1)
    counts = dict.fromkeys(range(5_000), 1)
    for i in range(60):
        keys = rng.integers(0, 5_000, 40).tolist()
        for key in set(keys):
            counts[key] += keys.count(key)
        slot.run(
            [(key, at(0)) for key in keys],
            None,
            crashes=int(i % 5 == 1),
            lose=[0] if i % 7 == 3 else [],
        )
        sizes.append(slot.chains[0][-1].delta[1])
        assert slot.log_bytes() < 4 * state
    assert max(sizes) < state / 5, "no step writes all of the state"
    assert len(slot.chains[0]) < 60, "what a pass through all cells has made needless is gone"
    cells, _ = replayed(slot.files.read(each.file, *each.delta) for each in slot.chains[0])
    keys = decoded_keys(list(cells), slot.plan.keys)["k0"].to_pylist()
    assert {key: cell[1:] for key, cell in zip(keys, cells.values(), strict=True)} == {
        key: np.uint8(n).tobytes() for key, n in counts.items()
    }
    found = slot.run([(key, at(0)) for key in range(5_000)], None, lose=[0])
    assert {row["k"]: row["n"] for row in found} == {key: n + 1 for key, n in counts.items()}


@pytest.mark.parametrize("crashes", [0, 1])
def test_a_step_that_changes_all_cells_is_all_that_a_restore_needs(
    tmp_path: Path, crashes: int
) -> None:
    slot = Slot(plan_of(Count, "k bigint, at timestamp", ["k"]), tmp_path, shards=1)
    slot.run([(key, at(0)) for key in range(900)], None)
    for key in range(5):
        slot.run([(key, at(0))], None)
    assert len(slot.chains[0]) > 1
    slot.run([(key, at(0)) for key in range(901)], None, crashes=crashes)  # one of them new
    assert len(slot.chains[0]) == 1
    assert slot.chains[0][0].since == slot.step
    slot.run([(900, at(0))], None)
    found = slot.run([(key, at(0)) for key in range(901)], None, lose=[0])
    assert {row["k"]: row["n"] for row in found} == {key: 4 if key < 5 else 3 for key in range(901)}
    assert slot.keys == 901


def test_keys_that_get_no_rows_and_no_timer_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.state.store.cell_shard import CellShard

    slot = Slot(plan_of(Count, "k bigint, at timestamp", ["k"]), tmp_path)
    slot.run([(key, at(0)) for key in range(500)], None)
    read: list[bytes] = []
    get = CellShard.get
    monkeypatch.setattr(
        CellShard,
        "get",
        lambda self, keys: get(self, [key for key in keys if not read.append(key)]),
    )
    slot.run([(7, at(1)), (7, at(2)), (9, at(2))], None)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("kind", "key"), [("bigint", 7), ("date", EPOCH.date()), ("timestamp", EPOCH)]
)
def test_a_key_is_the_same_beside_null_and_without_it(tmp_path: Path, kind: str, key: Any) -> None:
    slot = Slot(plan_of(Count, f"at timestamp, k {kind}", ["k"]), tmp_path, shards=1)
    counts = [
        {row["k"]: row["n"] for row in slot.run([(at(step), each) for each in keys], None)}
        for step, keys in enumerate(([key], [key, None], [None], [key]))
    ]
    assert counts == [{key: 1}, {key: 2, None: 1}, {None: 2}, {key: 3}]


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        ("k bigint", [(1,), (-5,), (None,), (2**62,)]),
        ("k string, g date", [("a", EPOCH.date()), (None, None), ("", EPOCH.date())]),
        ("k double", [(1.5,), (None,), (-2.25,)]),
        ("k timestamp", [(EPOCH,), (None,)]),
        ("k decimal(10,2)", [(None,)]),
        ("k int", [(5,), (None,), (-7,), (0,)]),
        ("k date", [(date(2026, 1, 1),), (None,), (date(1900, 1, 1),)]),
        ("k timestamp_ntz", [(datetime(2026, 1, 1),), (datetime(1969, 1, 1),)]),  # noqa: DTZ001
        ("k struct<a:int,b:string>", [({"a": 1, "b": "x"},), ({"a": None, "b": None},)]),
        ("k array<int>", [([1, 2],), ([],)]),
        ("k boolean, b binary", [(True, b"\0"), (None, b"")]),
    ],
)
def test_keys_of_any_type_become_bytes_and_come_back(
    schema: str, keys: list[tuple[Any, ...]]
) -> None:
    import pyarrow as pa

    from anabranch.topology.process import columns_of
    from anabranch.types import column_type

    fields = columns_of(schema, "schema")
    kinds = [column_type(each.type) for each in fields]
    table = pa.table(
        [
            pa.array(list(values), kind)
            for values, kind in zip(zip(*keys, strict=True), kinds, strict=True)
        ],
        names=[f"k{i}" for i in range(len(kinds))],
    )
    encoded = encoded_keys(table)
    assert len(set(encoded)) == len(keys)
    assert decoded_keys(encoded, fields).to_pylist() == table.to_pylist()
    assert [encoded_keys(table.slice(i, 1))[0] for i in range(len(keys))] == encoded, (
        "whatever other keys there are"
    )
    assert [decoded_keys([each], fields).to_pylist()[0] for each in encoded] == table.to_pylist()


def test_floats_are_one_key_where_spark_takes_them_for_one() -> None:
    import pyarrow as pa

    encoded = encoded_keys(pa.table({"k0": pa.array([0.0, -0.0, float("nan"), -float("nan")])}))
    assert len(set(encoded)) == 2


def test_a_cell_with_many_timers_is_read_as_it_was_written() -> None:
    head = Head({f"timer {i}": i for i in range(100)}, 7, 5)
    assert head_of(sealed_cell(head, b"state")) == (head, b"state")


class Broken:
    """Fails in the way that a row names."""

    state: Noted
    output = "n int, at timestamp"

    def process(self, key: str, rows: ab.Rows, state: Noted, ctx: ab.Context) -> Any:
        for row in rows:
            if row.op == "raise":
                raise RuntimeError("no luck\nat all")
            if row.op == "text":
                yield "one", row.at
            elif row.op == "short":
                yield (1,)
            elif row.op == "names":
                yield {"n": 1, "when": row.at}
            elif row.op == "state":
                state.seen.append("x")  # type: ignore[arg-type]
            elif row.op == "strange":
                state.by = object()  # type: ignore[assignment]
            elif row.op == "past":
                ctx.timer(at(1))
            elif row.op == "soon":
                ctx.timer("soon")  # type: ignore[arg-type]
            elif row.op == "column":
                assert rows.price
            else:
                state.seen.append(row.x)
                yield len(state.seen), row.at

    def on_timer(self, key: str, state: Noted, ctx: ab.Context) -> Any:
        raise AssertionError((key, state, ctx))


@pytest.mark.parametrize(
    ("op", "told"),
    [
        ("raise", "process() raised RuntimeError: no luck at all"),
        ("text", "it returned ('one', "),
        ("short", "it returned (1,), which is no row of (n int, at timestamp): 1 values"),
        ("names", "its columns are [n, when]"),
        (
            "state",
            "its state does not fit the declared type Noted: Expected `int`, got `str` - at `$.seen[1]`",
        ),
        (
            "strange",
            "its state does not fit the declared type Noted: a value of type object cannot be kept",
        ),
        (
            "past",
            "process() raised ValueError: a timer in the past: 2026-01-01 00:00:01+00:00, and the watermark is 2026-01-01 00:00:03",
        ),
        ("soon", "process() raised TypeError: 'soon' is not a time"),
        ("column", "rows have no column 'price'; they have k, at, op, x"),
    ],
)
def test_a_mistake_in_a_class_names_operator_key_and_cause_and_changes_nothing(
    tmp_path: Path, op: str, told: str
) -> None:
    slot = Slot(plan_of(Broken, SCHEMA, ["k"]), tmp_path)
    slot.run([("good", at(0), "add", 1), ("bad", at(0), "add", 1)], us(3))
    with pytest.raises(StepError) as error:
        slot.run([("good", at(3), "add", 2), ("bad", at(4), op, 2)], us(3))
    assert str(error.value).startswith("operator 'p', key 'bad': ")
    assert told in str(error.value)
    slot.step -= 1
    found = slot.run([("good", at(3), "add", 2), ("bad", at(4), "add", 2)], us(3))
    assert sorted((row["k"], row["n"]) for row in found) == [("bad", 2), ("good", 2)]


class WrongColumns(Total):
    what = ""

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        wrong: dict[str, Any] = {
            "raise": lambda: rows["price"],
            "shape": lambda: setattr(state, "n", np.zeros(7)),
            "type": lambda: setattr(state, "n", state.n + 0.5),
        }
        if self.what in wrong:
            wrong[self.what]()
        columns = {"n": state.n, "top": state.top}
        return {
            "names": {"n": state.n},
            "count": {**columns, "top": [1.0]},
            "other": 5,
            "keys": ([9], columns),
        }.get(self.what, columns)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("raise", "process() raised KeyError: \"rows have no column 'price'"),
        ("shape", "state column 'n' does not fit its type bigint: its shape is (7,); valid: (2,)"),
        ("type", "state column 'n' does not fit its type bigint: Cannot cast"),
        ("names", "process() returned columns [n]; declared: [n, top]"),
        ("count", "column 'top' that process() returned has 1 values; valid: 2"),
        ("other", "process() returned int; valid: a dict of columns"),
        ("keys", "numbers of keys that are not from 0 to 1"),
    ],
)
def test_a_mistake_in_a_vectorised_class_says_what_is_valid(
    tmp_path: Path, what: str, told: str
) -> None:
    cls = WrongColumns()
    cls.what = what
    slot = Slot(plan_of(cls, "k bigint, at timestamp, v double", ["k"]), tmp_path)
    with pytest.raises(StepError) as error:
        slot.run([(1, at(0), 1.0), (2, at(0), 1.0)], None)
    assert told in str(error.value)
    assert "operator 'p'" in str(error.value)


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
