"""The slot task by itself, without Spark: shards that are damaged are reported missing, and restored over whatever is there."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from anabranch.plan.component import Slotted, make_plan
from anabranch.spark import slot_task
from anabranch.spark.reports import Report
from anabranch.spark.slot_task import SlotTask, StateSettings, _Attempt
from anabranch.state.files import Files
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, count, tumbling
from anabranch.topology.graph import Named

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = (Field("k", "bigint"), Field("at", "timestamp"))
SHARDS = 4


def plan() -> Slotted:
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c", input="s", by=FIELDS[:1], aggregates=(Named(name="n", aggregate=count(), input_type="int"),)))
        .add(Consolidate(name="w", input="c", windows=(tumbling("1 minute"),)))
    )
    return make_plan(graph).component.slotted


@pytest.fixture
def task(tmp_path: Path) -> SlotTask:
    files = Files(str(tmp_path / "chk"))
    files.make()
    return SlotTask(
        plan=plan(),
        checkpoint=files,
        checkpoint_id="c",
        state=StateSettings(root=str(tmp_path / "state"), wait_s=5, limit_bytes=None),
        step=1,
        epoch=1,
        job=1,
        route=(0,) * SHARDS,
        committed={},
        snapshot=frozenset(),
        after_us=None,
        until_us=None,
    )


def lifted(*keys: int) -> pa.RecordBatch:
    columns = {"k0": keys, "pane": [0] * len(keys), "part": [0] * len(keys), "c0": [1] * len(keys)}
    return pa.RecordBatch.from_pydict({**columns, "shard": [key % SHARDS for key in keys]})


def after(task: SlotTask, report: Report) -> SlotTask:
    """The task of the next step."""
    committed = {**task.committed, **{shard: each.stored.version for shard, each in report.shards.items() if each.stored}}
    return replace(task, step=task.step + 1, job=task.job + 1, committed=committed)


def spoil(file: Path, damage: str) -> None:
    """What another process may do to a shard's file; here nothing may be mapped meanwhile."""
    for shard in slot_task._shards.values():
        shard.close()
    slot_task._shards.clear()
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
    first = _Attempt(task, 0, 0).run([lifted(0, 1, 2, 3, 5, 9)])
    assert first.missing == ()
    [file] = tmp_path.glob("state/**/00001/data.mdb")
    second = replace(after(task, first), epoch=2)  # as after a restart: nothing is kept decoded

    spoil(file, damage)
    found = _Attempt(second, 0, 0).run([lifted(1, 2)])
    assert found.missing == (1,)
    stored = first.shards[1].stored
    assert stored is not None
    spoil(file, "overwritten")  # once more, before it is restored
    restoring = replace(second, job=second.job + 1, restore={1: [stored]})
    restored = _Attempt(restoring, 0, 0).run([lifted(1, 2)])
    assert restored.missing == ()
    assert {shard: each.rows_in for shard, each in {**found.shards, **restored.shards}.items() if each.rows_in} == {1: 1, 2: 1}
    closing = replace(after(after(second, found), restored), step=3, until_us=60_000_000)
    closed = _Attempt(closing, 0, 0).run([])
    assert closed.missing == ()
    assert sum(each.rows_out for each in closed.shards.values()) == 6
