"""The shards of an operator in a slot: undone, reported missing, or restored over anything."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from anabranch.errors import FencedError
from anabranch.runtime import operator as operator_state
from anabranch.runtime.slot import SlotTask
from anabranch.runtime.tasks import Watermarks
from tests.runtime.one_slot import SHARDS, after, attempt, component

if TYPE_CHECKING:
    from pathlib import Path


def spoil(file: Path, damage: str) -> None:
    """What another process may do to a shard's file; nothing may be mapped meanwhile."""
    for shard in operator_state._shards.values():
        shard.close()
    operator_state._shards.clear()
    if damage == "deleted":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:4096])
    else:
        file.write_bytes(random.Random(1).randbytes(65_536))


@pytest.mark.parametrize("damage", ["deleted", "truncated", "overwritten"])
def test_a_damaged_shard_is_missing_and_then_restored_whatever_is_in_its_place(
    task: SlotTask, tmp_path: Path, damage: str
) -> None:
    _, first = attempt(task, 0, 1, 2, 3, 5, 9)
    assert first.missing == ()
    [file] = tmp_path.glob("state/**/00001/data.mdb")
    second = replace(after(task, first), epoch=2)  # as after a restart: nothing is kept decoded

    spoil(file, damage)
    _, found = attempt(second, 1, 2)
    assert found.missing == (1,)
    stored = first.shards[1].stored
    assert stored is not None
    spoil(file, "overwritten")  # once more, before it is restored
    node = replace(second.components[0].nodes[0], restore={1: [stored]})
    restoring = replace(
        second, job=second.job + 1, components=(replace(second.components[0], nodes=(node,)),)
    )
    _, restored = attempt(restoring, 1, 2)
    assert restored.missing == ()
    assert {shard: each.rows_in for shard, each in restored.shards.items() if each.rows_in} == {
        1: 1,
        2: 1,
    }
    closing = replace(
        after(second, restored),
        step=3,
        marks=Watermarks(late_before_us=None, close_until_us=60_000_000),
    )
    _, closed = attempt(closing)
    assert closed.missing == ()
    assert sum(each.rows_out for each in closed.shards.values()) == 6


def test_an_attempt_that_was_never_committed_is_undone_by_the_next_one(task: SlotTask) -> None:
    _, dead = attempt(task, 0, 0, 1)
    assert dead.missing == ()
    _, first = attempt(replace(task, job=2), 0, 1)
    closing = replace(
        after(replace(task, job=2), first),
        marks=Watermarks(late_before_us=None, close_until_us=60_000_000),
    )
    _, report = attempt(closing)
    [written] = report.results
    rows = pq.read_table(task.checkpoint.path(written.path)).to_pylist()
    assert sorted((row["k"], row["n"]) for row in rows) == [(0, 1), (1, 1)]


def test_an_older_attempt_that_wakes_up_cannot_write(task: SlotTask) -> None:
    attempt(replace(task, job=5), 0)
    with pytest.raises(FencedError):
        attempt(replace(task, job=4), 0)


def test_shards_without_state_and_rows_stay_closed(task: SlotTask, tmp_path: Path) -> None:
    _, found = attempt(task, 1, 1 + SHARDS)
    assert list(found.shards) == [1]
    assert [path.name for path in tmp_path.glob("state/c/*/*")] == ["00001"]


def test_a_snapshot_is_all_that_a_restore_needs(task: SlotTask, tmp_path: Path) -> None:
    _, first = attempt(task, 1)
    second = after(task, first)
    node = replace(second.components[0].nodes[0], snapshot=frozenset({1}))
    second = replace(second, components=(replace(second.components[0], nodes=(node,)),))
    _, snapped = attempt(second, 1 + SHARDS)
    stored = snapped.shards[1].stored
    assert stored is not None
    assert stored.snapshot is not None
    third = replace(
        after(second, snapped),
        epoch=2,
        marks=Watermarks(late_before_us=None, close_until_us=60_000_000),
    )
    [file] = tmp_path.glob("state/**/00001/data.mdb")
    spoil(file, "deleted")
    node = replace(third.components[0].nodes[0], restore={1: [stored]})
    _, closed = attempt(
        replace(third, components=(component(restore={1: [stored]}, committed=node.committed),))
    )
    assert closed.missing == ()
    assert sum(each.rows_out for each in closed.shards.values()) == 2
