"""Moves state to other shards, where a new plan partitions an operator by other attributes.

The state is read from the durable log. Spark computes the shard of each key, as it does for rows.
Then the state is written as snapshots. One commit record makes the change; a crash before it
leaves everything as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, LongType, StructField, StructType

from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.model import Node, Plan
from anabranch.plan.route import Route
from anabranch.spark.compile.columns import shard_sql
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.log import Stored, log_file
from anabranch.state.kinds import STATES
from anabranch.state.store.version import Fence, Version
from anabranch.types import Array


def attributes_of(plan: Plan) -> dict[PartId, tuple[str, ...]]:
    """The attributes that decide the shard of a row, by operator, in the order of hashing."""
    return {
        node.name: tuple(each.name for each in plan.component_of(node.name).attributes)
        for node in plan.nodes
    }


def moved_operators(checkpoint: Checkpoint, plan: Plan) -> list[Node]:
    """The operators whose state is partitioned by other attributes than the plan's."""
    before = checkpoint.last.attributes if checkpoint.last else {}
    wanted = attributes_of(plan)
    stateful = [node for node in plan.nodes if node.plan.holds_state]
    return [
        node
        for node in stateful
        if node.name in before and tuple(before[node.name]) != wanted[node.name]
    ]


def reshard(
    session: SparkSession, checkpoint: Checkpoint, plan: Plan, routes: Mapping[ComponentId, Route]
) -> list[PartId]:
    """Moves state to the shards that the plan wants, and commits the plan to the checkpoint.

    Returns the operators whose state was moved. If there are none, nothing is committed.
    """
    moved, last = moved_operators(checkpoint, plan), checkpoint.last
    if not moved or last is None:
        return []
    token = Fence(checkpoint.epoch, 0).new_token()
    version = Version(last.step + 1, token)
    stored: dict[PartId, dict[int, Stored]] = {}
    for number, node in enumerate(moved):
        log = log_file(version.step, f"plan-{number}", token)
        shards_of = functools.partial(_shards, session, plan, node, checkpoint.header.shards)
        state = STATES[node.plan.kind]
        stored[node.name] = state.moved(checkpoint, node.plan, shards_of, version, log)
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


def _shards(session: SparkSession, plan: Plan, node: Node, shards: int, keys: pa.Table) -> Array:
    """The shard of each key, by the attributes of the plan."""
    if not len(keys):
        return np.empty(0, dtype=np.int32)
    fields = [
        StructField(f"k{i}", DataType.fromDDL(each.type)) for i, each in enumerate(node.plan.keys)
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
