"""The slot task by itself, without Spark: shards that are damaged are reported missing, and restored over whatever is there."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from anabranch.plan.ids import ComponentId
from anabranch.plan.make import make_plan
from anabranch.plan.operators.base import OperatorPlan
from anabranch.runtime import operator as operator_state
from anabranch.runtime.reports import NodeReport, Report
from anabranch.runtime.slot import ComponentTask, SlotTask, _Attempt
from anabranch.runtime.tasks import ArrivingRows, NodeTask, StateSettings, Watermarks
from anabranch.state.checkpoint.files import Files
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, count, tumbling
from anabranch.topology.graph import Named

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = (Field("k", "bigint"), Field("at", "timestamp"))
SHARDS = 4


def plan() -> OperatorPlan:
    graph = (
        Graph(name="t")
        .add(Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(
            Compute(
                name="c",
                input="s",
                by=FIELDS[:1],
                aggregates=(Named(name="n", aggregate=count(), input_type="int"),),
            )
        )
        .add(Consolidate(name="w", input="c", windows=(tumbling("1 minute"),)))
    )
    return make_plan(graph).nodes[0].plan


@pytest.fixture
def task(tmp_path: Path) -> SlotTask:
    files = Files(str(tmp_path / "chk"))
    files.make()
    return SlotTask(
        components=(component(),),
        checkpoint=files,
        checkpoint_id="c",
        state=StateSettings(root=str(tmp_path / "state"), wait_s=5, limit_bytes=None),
        step=1,
        epoch=1,
        job=1,
        marks=Watermarks(late_before_us=None, close_until_us=None),
    )


def component(**changed: Any) -> ComponentTask:
    rows = ArrivingRows(columns={"k0": "k0", "c0": "c0"}, combined=True)
    node = replace(NodeTask(number=0, operator="w", plan=plan(), rows=rows), **changed)
    return ComponentTask(name=ComponentId(("w",)), route=(0,) * SHARDS, slots=1, nodes=(node,))


def attempt(task: SlotTask, *keys: int) -> tuple[Report, NodeReport]:
    report = _Attempt(task, task.components[0], 0, 0).run({0: lifted(*keys)} if keys else {})
    return report, report.nodes[0]


def lifted(*keys: int) -> pa.Table:
    columns = {"k0": keys, "pane": [0] * len(keys), "part": [0] * len(keys), "c0": [1] * len(keys)}
    return pa.table({**columns, "shard": [key % SHARDS for key in keys]})


def after(task: SlotTask, report: NodeReport) -> SlotTask:
    """The task of the next step."""
    before = task.components[0].nodes[0].committed
    committed = {
        **before,
        **{shard: each.stored.version for shard, each in report.shards.items() if each.stored},
    }
    return replace(
        task, step=task.step + 1, job=task.job + 1, components=(component(committed=committed),)
    )


def spoil(file: Path, damage: str) -> None:
    """What another process may do to a shard's file; here nothing may be mapped meanwhile."""
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
