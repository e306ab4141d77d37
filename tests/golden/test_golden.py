"""The bytes of a checkpoint: a change of the format must show here first.

The files beside this one are made from fixed inputs. Re-make them with

    ANABRANCH_GOLDEN=write pytest tests/golden
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from anabranch.aggregates import functions as f
from anabranch.errors import CheckpointError
from anabranch.plan.make import make_plan
from anabranch.plan.model import Node, Plan
from anabranch.plan.notes import note_of
from anabranch.plan.operators.base import key_schema
from anabranch.plan.operators.joins import JoinInput, JoinPlan, join_plan
from anabranch.plan.operators.sessions import SessionNode
from anabranch.plan.operators.windows import WindowsNode
from anabranch.plan.route import Route
from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.header import open_or_create
from anabranch.state.checkpoint.log import LogFile
from anabranch.state.checkpoint.records import FORMAT, Commit
from anabranch.state.codec.blob import Entries, decode, encode
from anabranch.state.codec.cells import (
    NO_HEAD,
    Blob,
    Head,
    encoded_keys,
    sealed_blob,
    sealed_cell,
    unsealed_blob,
)
from anabranch.state.codec.joins import JoinEntries, SideRows, decode_join, encode_join
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.testing import MemoryFiles
from anabranch.topology import (
    Compute,
    Consolidate,
    Field,
    Graph,
    Source,
    calendar,
    session,
    tumbling,
)
from anabranch.topology.graph import Clock, Join, Named, Process
from anabranch.topology.process import logic_of
from anabranch.types import objects

HERE = Path(__file__).parent
WRITE = os.environ.get("ANABRANCH_GOLDEN") == "write"
CHANGED = (
    "{name}: the format of checkpoints has changed. If that is meant, raise FORMAT (in "
    "anabranch/state/checkpoint) and re-make the golden files: "
    "ANABRANCH_GOLDEN=write pytest tests/golden"
)
SECOND = 1_000_000
EVENTS = (Field("user", "bigint"), Field("at", "timestamp"), Field("amount", "double"))
ORDERS = (Field("user", "bigint"), Field("ordered", "timestamp"), Field("item", "string"))
KEYS = pa.table({"k0": pa.array([7, None, -1], pa.int64())})


def golden(name: str, made: bytes) -> bytes:
    """The committed bytes of a name; written first when the golden files are re-made."""
    path = HERE / name
    if WRITE:
        path.write_bytes(made)
    assert path.exists(), CHANGED.format(name=name)
    return path.read_bytes()


def golden_json(name: str, encoded: bytes) -> bytes:
    """Compares JSON with its golden file, in which it has lines, so that a change can be read."""
    made = msgspec.json.format(encoded, indent=1) + b"\n"
    kept = golden(name, made)
    assert made.decode() == kept.decode(), CHANGED.format(name=name)
    return kept


def golden_tables(name: str, made: bytes) -> bytes:
    """Compares a blob of Arrow tables with its golden file.

    Another release of Arrow may write the same tables with other bytes. If bytes differ, the
    contents are compared: the kind of blob, columns, types and values.
    """
    kept = golden(name, made)
    if made != kept:
        assert _tables(made) == _tables(kept), CHANGED.format(name=name)
    return kept


def _tables(blob: bytes) -> tuple[bytes, list[tuple[str, list[Any]]]]:
    count = 3 if blob.startswith(b"abj") else 2
    sizes = [int.from_bytes(blob[8 + 8 * i : 16 + 8 * i], "little") for i in range(count)]
    parts, at = [], 8 + 8 * count
    for size in sizes:
        table = pa.ipc.open_stream(blob[at : at + size]).read_all()
        parts.append((table.schema.to_string(show_schema_metadata=True), table.to_pylist()))
        at += size
    return blob[:4], parts


@dataclass
class Spent:
    """The state of a key."""

    total: float = 0.0
    items: dict[str, int] = field(default_factory=dict)


class Spending:
    """A class with state per key."""

    state = Spent
    output = "total double"
    ttl = "1 hour"

    def process(self, key: Any, rows: Any, state: Any, ctx: Any) -> Any:
        """Is never called here."""

    def on_timer(self, key: Any, state: Any, ctx: Any) -> Any:
        """Is never called here."""


def plan() -> Plan:
    """Windows, sessions, a join and a user's class, over two sources."""
    by = EVENTS[:1]
    named = (
        Named(name="n", aggregate=f.count(), input_type="int"),
        Named(name="total", aggregate=f.sum("amount"), input_type="double"),
        Named(name="most", aggregate=f.max("amount"), input_type="double"),
        Named(name="amounts", aggregate=f.count_distinct("amount"), input_type="double"),
    )
    graph = (
        Graph(name="golden")
        .add(Source(name="events", fields=EVENTS, event_time="at", unit_us=None, delay_us=SECOND))
        .add(Source(name="orders", fields=ORDERS, event_time="ordered", unit_us=None, delay_us=0))
        .add(Compute(name="by_user", input="events", by=by, aggregates=named))
        .add(
            Consolidate(
                name="windows",
                input="by_user",
                windows=(
                    tumbling("5 minutes"),
                    tumbling("1 hour"),
                    calendar("month", timezone="Asia/Kathmandu"),
                    session("30 seconds"),
                ),
            )
        )
        .add(
            Join(
                name="joined",
                input="events",
                right="orders",
                by=by,
                windows=(tumbling("1 minute"),),
                how="left",
                fields=(*EVENTS, *ORDERS[1:]),
            )
        )
        .add(
            Process(
                name="spending",
                input="events",
                by=by,
                logic=logic_of(Spending, "event_time", by, EVENTS),
                fields=(Field("user", "bigint"), Field("total", "double")),
            )
        )
    )
    return make_plan(graph)


def window_node() -> Node:
    return _stored(next(node for node in plan().nodes if isinstance(node, WindowsNode)))


def session_node() -> Node:
    return _stored(next(node for node in plan().nodes if isinstance(node, SessionNode)))


def _stored(node: Node) -> Node:
    """A node with the names that its columns have in state."""
    return node.continued(note_of(node), {})


def entries(node: Node, *, after_us: int | None = None) -> Entries:
    """Partials of three keys: numbers, floats and sets, with nulls and a null key."""
    values = {
        "O": objects([frozenset({1, 2}), None, frozenset({-5}), frozenset({3})]),
        "i": np.array([1, 0, 3, -4]),
        "f": np.array([0.5, -1.0, 2.25, float("inf")]),
        "b": np.array([True, False, True, True]),
    }
    columns = []
    for column in node.plan.columns:
        empty = column.empty(4)
        columns.append(values[empty.dtype.kind].astype(empty.dtype))
    key = np.array([0, 1, 2, 0], dtype=np.int32)
    pane = np.array([0, 0, 300, 600]) * SECOND
    keys = KEYS.cast(key_schema(node.plan))
    return Entries(keys, key, pane, tuple(columns), after_us)


def test_the_fingerprints_of_operators_are_as_they_were() -> None:
    made = {str(node.name): node.fingerprint() for node in plan().nodes}
    golden_json("fingerprint.json", msgspec.json.encode(made))


def commit(log: LogFile) -> Commit:
    """A step that wrote a delta of one shard and a snapshot of another."""
    made, version = plan(), Version(12, "1.2.0.abcdef01")
    places = {
        0: log.add(Write(version, b"delta", None, 3)),
        1: log.add(Write(version, b"delta", b"snapshot")),
    }
    part = made.nodes[0].name
    return Commit(
        step=12,
        epoch=1,
        batch_id=11,
        watermark_us=60 * SECOND,
        next_us=61 * SECOND,
        seen={"events": 62 * SECOND},
        routes={each.name: Route((0, 1), 2, 3) for each in made.components},
        stored={part: places},
        attributes={part: ("user",)},
        replans=1,
        rows={"in": 5, "late": 1},
        keys_in={part: {1: 2.5, 12: 3.0}},
        clock_us=63 * SECOND,
    )


def checkpoint() -> MemoryFiles:
    """The files of a checkpoint with one step, as they are written; its id is always the same."""
    files, log = MemoryFiles(), LogFile("state/00000012/0-1-1.2.0.abcdef01.bin")
    made, _ = open_or_create(files, plan(), 2)
    made.take_over()
    step = commit(log)
    log.write(files)
    made.commit(step)
    header = files.read("anabranch.json").replace(made.header.id.encode(), b"0" * 32)
    files.replace("anabranch.json", header)
    return files


def test_the_header_the_commit_record_and_the_log_are_as_they_were_and_can_be_read() -> None:
    made, kept = checkpoint(), MemoryFiles()
    log = "state/00000012/0-1-1.2.0.abcdef01.bin"
    kept.write("anabranch.json", [golden_json("header.json", made.read("anabranch.json"))])
    record = "commits/00000012.json"
    kept.write(record, [golden_json("commit.json", made.read(record))])
    kept.write(log, [golden("log.bin", made.read(log))])
    assert made.read(log) == kept.read(log), CHANGED.format(name="log.bin")

    found, expected = open_checkpoint(kept), open_checkpoint(made)
    assert found is not None
    assert expected is not None
    assert found.header == expected.header
    assert found.last == expected.last == commit(LogFile(log))
    part, version = plan().nodes[0].name, Version(12, "1.2.0.abcdef01")
    assert found.writes(part, 0) == [Write(version, b"delta")]
    assert found.writes(part, 1) == [Write(version, b"", b"snapshot")]


def test_the_header_has_the_format_and_another_one_is_refused_with_both_numbers() -> None:
    files = checkpoint()
    mine, other = f'"format":{FORMAT},'.encode(), f'"format":{FORMAT + 1},'.encode()
    assert mine in files.read("anabranch.json")
    files.replace("anabranch.json", files.read("anabranch.json").replace(mine, other))
    with pytest.raises(
        CheckpointError, match=f"has format {FORMAT + 1}; this version reads {FORMAT}"
    ):
        open_checkpoint(files)


@pytest.mark.parametrize(
    ("name", "make_node", "after_us"),
    [("windows", window_node, None), ("sessions", session_node, 30 * SECOND)],
)
def test_the_partials_of_windows_and_sessions_are_as_they_were(
    name: str, make_node: Callable[[], Node], after_us: int | None
) -> None:
    node = make_node()
    delta = entries(node, after_us=after_us)
    back = np.arange(4)[::-1]
    columns = tuple(column[back] for column in delta.columns)
    snapshot = Entries(delta.keys, delta.key[back], delta.pane[back], columns)
    for kind, made in (("delta", delta), ("snapshot", snapshot)):
        kept = golden_tables(f"{name}-{kind}.bin", encode(made, node.plan.stored_columns))
        found = decode(kept, node.plan.stored_columns)
        assert (found.keys, found.after_us) == (made.keys, made.after_us)
        assert found.key.tolist() == made.key.tolist()
        assert found.pane.tolist() == made.pane.tolist()
        for mine, theirs in zip(found.columns, made.columns, strict=True):
            assert mine.tolist() == theirs.tolist()


def joined() -> JoinPlan:
    left = JoinInput(stream="l", fields=EVENTS, clock=Clock("at", "timestamp"))
    right = JoinInput(stream="r", fields=ORDERS, clock=Clock("ordered", "timestamp"))
    return join_plan("j", left, right, ["user"], (tumbling("1 minute"),), "left")


def side_rows(plan: JoinPlan, side: Any, rows: list[tuple[Any, ...]]) -> SideRows:
    schema = plan.payload_schema(side)
    columns = list(zip(*rows, strict=True))
    payload = pa.table(
        [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)],
        schema=schema,
    )
    count = len(rows)
    key = np.arange(count, dtype=np.int32)
    return SideRows(key, np.arange(count) * 60 * SECOND, np.arange(1, count + 1), payload)


def test_the_rows_of_a_join_are_as_they_were() -> None:
    plan = joined()
    left = side_rows(plan, "left", [(0, 1.5), (60 * SECOND, None)])
    right = side_rows(plan, "right", [(5, "book"), (61 * SECOND, None), (125 * SECOND, "")])
    nothing = right.only(np.arange(0))
    for kind, rows in (
        ("delta", {"left": left, "right": nothing}),
        ("snapshot", {"left": left, "right": right}),
    ):
        made = JoinEntries(KEYS, rows)  # type: ignore[arg-type]
        kept = golden_tables(f"join-{kind}.bin", encode_join(made, plan))
        found = decode_join(kept, plan)
        assert found.keys == KEYS
        for side in ("left", "right"):
            mine, theirs = found.rows[side], made.rows[side]
            assert mine.payload == theirs.payload
            assert [mine.key.tolist(), mine.pane.tolist(), mine.times.tolist()] == [
                theirs.key.tolist(),
                theirs.pane.tolist(),
                theirs.times.tolist(),
            ]


def test_the_cells_of_a_process_are_as_they_were() -> None:
    keys = encoded_keys(KEYS) + encoded_keys(pa.table({"k0": ["text"], "k1": [1.5]}))
    cells = [
        sealed_cell(NO_HEAD, b"state"),
        sealed_cell(Head({"": 5, "second": 7}, 10, 9), b"state"),
        None,
        sealed_cell(Head({"long" * 70: 1}), b""),
    ]
    others: Any = cells[3:]
    delta = Blob(keys[:3], cells[:3], keys[3:], others, 4, b"c" + keys[3])
    snapshot = Blob(keys[:1], cells[:1], [], [], 12, b"")
    for kind, made in (("delta", delta), ("snapshot", snapshot)):
        name = f"process-{kind}.bin"
        kept = golden(name, sealed_blob(made))
        assert sealed_blob(made) == kept, CHANGED.format(name=name)
        assert unsealed_blob(kept) == made
