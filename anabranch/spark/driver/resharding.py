"""Another plan on the state that is there: where an operator is partitioned by other attributes, its state gets other shards.

The state is read from the durable log, the shard of each key is computed by Spark as for every row, and the state is written again as
snapshots. One commit record makes it happen; a crash before it leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StructField, StructType

from anabranch.plan.model import Node, Plan
from anabranch.plan.route import Route
from anabranch.spark.compile.lift import shard_sql
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.log import LogFile, Stored, log_file
from anabranch.state.checkpoint.moved_cells import cell_snapshots, whole_cells
from anabranch.state.codec.cells import decoded_keys
from anabranch.state.memory.keyed import NumberedState
from anabranch.state.memory.kinds import decoded, encoded, state_of
from anabranch.state.store.shard import Write
from anabranch.state.store.version import Fence, Version
from anabranch.types import Array


def attributes_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The attributes that each operator's shards are found by, in the order in which they are hashed."""
    return {
        node.name: tuple(each.name for each in plan.component_of(node.name).attributes)
        for node in plan.nodes
    }


def moved_operators(checkpoint: Checkpoint, plan: Plan) -> list[Node]:
    """The operators whose state lies in shards by other attributes than those of a plan."""
    before = checkpoint.last.attributes if checkpoint.last else {}
    wanted = attributes_of(plan)
    stateful = [node for node in plan.nodes if node.side != "right"]
    return [
        node
        for node in stateful
        if node.name in before and tuple(before[node.name]) != wanted[node.name]
    ]


def reshard(
    session: SparkSession, checkpoint: Checkpoint, plan: Plan, routes: Mapping[str, Route]
) -> list[str]:
    """Commits the plan to the checkpoint: state that lies in other shards than it wants is written anew. Gives the operators."""
    moved, last = moved_operators(checkpoint, plan), checkpoint.last
    if not moved or last is None:
        return []
    token = Fence(checkpoint.epoch, 0).new_token()
    version, shards = Version(last.step + 1, token), checkpoint.header.shards
    stored: dict[str, dict[int, Stored]] = {}
    for number, node in enumerate(moved):
        log = log_file(version.step, f"plan-{number}", token)
        if node.process is not None:
            cells = whole_cells(checkpoint, node.name)
            keys = decoded_keys(list(cells), node.slotted.keys)
            placed = _shards(session, keys, plan, node, shards)
            stored[node.name] = cell_snapshots(cells, placed, version, log, shards)
        else:
            state = _whole(checkpoint, node)
            state.shard_of = _shards(session, state.keys.table(), plan, node, shards)
            stored[node.name] = _snapshots(state, node, version, log, shards)
        log.write(checkpoint.files)
    checkpoint.commit(
        replace(
            last,
            step=version.step,
            epoch=checkpoint.epoch,
            routes=dict(routes),
            stored=stored,
            attributes=attributes_of(plan),
            replans=last.replans + 1,
        )
    )
    return [node.name for node in moved]


def _whole(checkpoint: Checkpoint, node: Node) -> NumberedState[Any, Any]:
    """All state of an operator, from the durable log."""
    state = state_of(node.slotted)
    for shard in checkpoint.chains.get(node.name, {}):
        for write in checkpoint.writes(node.name, shard):
            state.absorb([(shard, decoded(node.slotted, write.snapshot or write.delta))])
    state.forget(node.slotted.forgotten_us)
    state.drop(checkpoint.last.watermark_us if checkpoint.last else None)
    return state


def _shards(session: SparkSession, keys: pa.Table, plan: Plan, node: Node, shards: int) -> Array:
    """The shard of each key by the plan's attributes."""
    if not len(keys):
        return np.empty(0, dtype=np.int32)
    fields = [
        StructField(f"k{i}", DataType.fromDDL(each.type))
        for i, each in enumerate(node.slotted.keys)
    ]
    numbered = keys.append_column("n", pa.array(np.arange(len(keys)), pa.int64()))
    frame = session.createDataFrame(
        numbered, schema=StructType([*fields, StructField("n", LongType())])
    )
    names = {each.name: each.name for each in fields}
    found = frame.selectExpr(
        "n", f"{shard_sql(plan.component_of(node.name), node, names, shards)} as shard"
    ).toArrow()
    placed = np.empty(len(keys), dtype=np.int32)
    placed[found["n"].to_numpy()] = found["shard"].to_numpy()
    return placed


def _snapshots(
    state: NumberedState[Any, Any], node: Node, version: Version, log: LogFile, shards: int
) -> dict[int, Stored]:
    """Adds a snapshot of every shard to a file; a shard that holds nothing gets an empty one."""
    return {
        shard: log.add(Write(version, b"", encoded(node.slotted, entries)))
        for shard, entries in sorted(state.snapshot(range(shards)).items())
    }
