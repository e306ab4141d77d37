"""State of every kind in the durable log: moved to other shards, and shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from anabranch.plan.model import Node
from anabranch.plan.notes import note_of
from anabranch.plan.route import even_route
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create
from anabranch.state.checkpoint.log import Stored, log_file
from anabranch.state.checkpoint.records import Commit
from anabranch.state.codec.blob import Entries
from anabranch.state.codec.cells import NO_HEAD, Blob, encoded_keys, sealed_blob, sealed_cell
from anabranch.state.kinds import STATES
from anabranch.state.memory.kinds import encoded, state_of
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Version
from anabranch.testing import MemoryFiles
from anabranch.types import Array
from tests.plan.every_kind import nodes, plan

KEYS = pa.table({"k0": pa.array([1, 2, 3], pa.int64())})
ONE, TWO = Version(1, "t"), Version(2, "t")


def stored(kind: str) -> Node:
    """A node with the names that its columns have in state."""
    node = nodes()[kind]
    return node.continued(note_of(node), {})


def blob(kind: str) -> bytes:
    """Three keys in the first shard."""
    given = stored(kind).plan
    if kind == "process":
        cells = [sealed_cell(NO_HEAD, b"\x81\xa4rows" + bytes([n])) for n in (5, 6, 7)]
        return sealed_blob(Blob(encoded_keys(KEYS), cells, [], [], 1, b""))
    if kind == "join":
        return encoded(given, state_of(given).nothing())
    columns = tuple(np.ones(3).astype(each.empty(0).dtype) for each in given.columns)
    return encoded(given, Entries(KEYS, np.arange(3, dtype=np.int32), np.zeros(3, int), columns))


def checkpoint(kind: str) -> Checkpoint:
    files: Files = MemoryFiles()
    made, _ = open_or_create(files, plan(), 4)
    made.take_over()
    log = log_file(1, "0", "t")
    part = nodes()[kind].name
    stored = {part: {0: log.add(Write(ONE, b"", blob(kind)))}}
    log.write(files)
    made.commit(committed(1, {part: stored[part]}))
    return made


def committed(step: int, stored: dict[object, dict[int, Stored]]) -> Commit:
    return Commit(
        step=step,
        epoch=1,
        batch_id=0,
        watermark_us=None,
        next_us=None,
        seen={},
        routes={each.name: even_route(4, 1) for each in plan().components},
        stored=stored,  # type: ignore[arg-type]
    )


def by_key(keys: pa.Table) -> Array:
    found: Array = keys.column(0).to_numpy()
    return found


def test_every_kind_that_holds_state_is_in_the_registry() -> None:
    assert set(STATES) == set(nodes())


@pytest.mark.parametrize("kind", ["windows", "sessions", "process"])
def test_state_that_moves_is_in_the_shards_of_its_keys_and_nowhere_else(kind: str) -> None:
    made, node = checkpoint(kind), stored(kind)
    log = log_file(2, "plan", "t")
    places = STATES[kind].moved(made, node.plan, by_key, TWO, log)
    log.write(made.files)
    made.commit(replace(committed(2, {}), stored={node.name: places}))
    shown = [STATES[kind].shown(made, node.name, shard, 9, str) for shard in range(4)]
    assert [each.total for each in shown] == [0, 1, 1, 1]
    assert [[row["k"] for row in each.rows] for each in shown] == [[], [1], [2], [3]]


@pytest.mark.parametrize(
    ("kind", "pane"), [("windows", "1 minute"), ("sessions", "5 seconds"), ("process", None)]
)
def test_at_most_so_many_rows_are_shown_and_all_are_counted(kind: str, pane: str | None) -> None:
    shown = STATES[kind].shown(checkpoint(kind), nodes()[kind].name, 0, 2, str)
    assert (shown.pane, shown.total, len(shown.rows)) == (pane, 3, 2)


def test_a_join_without_rows_is_shown_as_nothing() -> None:
    shown = STATES["join"].shown(checkpoint("join"), nodes()["join"].name, 0, 2, str)
    assert (shown.total, shown.rows) == (0, [])
