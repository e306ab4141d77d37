"""A slot with one operator that counts rows by a key and a minute, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.aggregates.functions import count
from anabranch.plan.ids import ComponentId
from anabranch.plan.make import make_plan
from anabranch.plan.operators.base import OperatorPlan
from anabranch.runtime.reports import NodeReport, SlotReport
from anabranch.runtime.slot import ComponentTask, SlotTask, _Attempt
from anabranch.runtime.tasks import ArrivingRows, NodeTask, StateSettings, Watermarks
from anabranch.state.checkpoint.files import Files
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, tumbling
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


def new_task(root: Path) -> SlotTask:
    """The first step of a new checkpoint."""
    files = Files(str(root / "chk"))
    files.make()
    return SlotTask(
        components=(component(),),
        checkpoint=files,
        checkpoint_id="c",
        state=StateSettings(root=str(root / "state"), wait_s=5, limit_bytes=None),
        step=1,
        epoch=1,
        job=1,
        marks=Watermarks(late_before_us=None, close_until_us=None),
    )


def component(**changed: Any) -> ComponentTask:
    rows = ArrivingRows(columns={"k0": "k0", "c0": "c0"}, combined=True)
    node = replace(NodeTask(number=0, operator="w", plan=plan(), rows=rows), **changed)
    return ComponentTask(name=ComponentId(("w",)), route=(0,) * SHARDS, slots=1, nodes=(node,))


def attempt(task: SlotTask, *keys: int) -> tuple[SlotReport, NodeReport]:
    report = _Attempt(task, task.components[0], 0, 0).run({0: lifted(*keys)} if keys else {})
    [node] = report.nodes
    return report, node


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
