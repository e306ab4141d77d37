"""A small plan, its checkpoint, and steps that are committed to it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anabranch.aggregates.functions import count
from anabranch.plan import Plan, make_plan
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.route import even_route
from anabranch.state.checkpoint.commits import Checkpoint, Commit
from anabranch.state.checkpoint.log import Stored
from anabranch.state.store.version import Version
from anabranch.topology import Aggregate, Compute, Consolidate, Field, Graph, Source
from anabranch.topology.graph import Named
from anabranch.topology.windows import WindowDefinition, tumbling

MINUTE = 60_000_000
PART = PartId("o")
FIVE = tumbling("5 minutes")


def plan(
    *windows: WindowDefinition,
    key: str = "bigint",
    names: tuple[str, ...] = ("o",),
    aggregates: Mapping[str, Aggregate] = MappingProxyType({"n": count()}),
) -> Plan:
    """Some operators that count rows by a key."""
    fields = (Field("k", key), Field("at", "timestamp"), Field("v", "double"))
    counts = tuple(
        Named(name=name, aggregate=each, input_type="int" if each.expression is None else "double")
        for name, each in aggregates.items()
    )
    graph = Graph(name="t").add(
        Source(name="s", fields=fields, event_time="at", unit_us=None, delay_us=0)
    )
    for name in names:
        graph = graph.add(Compute(name=f"{name}_keys", input="s", by=fields[:1], aggregates=counts))
        graph = graph.add(Consolidate(name=name, input=f"{name}_keys", windows=windows or (FIVE,)))
    return make_plan(graph)


def commit(step: int, shards: dict[int, bool], epoch: int = 1) -> Commit:
    """A step that changed some shards, with a snapshot of those that are true."""
    stored = {
        shard: Stored(
            version=Version(step, "t"),
            file=f"state/{step:08d}/0-t.bin",
            delta=(0, 2),
            snapshot=(2, 2) if snapshot else None,
        )
        for shard, snapshot in shards.items()
    }
    return Commit(
        step=step,
        epoch=epoch,
        batch_id=step - 1,
        watermark_us=None,
        next_us=None,
        seen={"s": 5},
        routes={ComponentId(("o",)): even_route(2, 1)},
        stored={PART: stored},
    )


def run(checkpoint: Checkpoint, step: int, shards: dict[int, bool]) -> None:
    checkpoint.files.write(f"state/{step:08d}/0-t.bin", [b"dd", b"ss"])
    checkpoint.files.write(f"state/{step:08d}/0-orphan.bin", [b"of an attempt that died"])
    checkpoint.files.write(f"results/{step:08d}/results-0-t.parquet", [b""])
    checkpoint.commit(commit(step, shards))
