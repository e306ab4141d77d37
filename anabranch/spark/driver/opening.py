"""Opening a checkpoint for a run: is it of this topology, over which panes, with how many slots and shards?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.elastic.settings import OFF, Elastic
from anabranch.errors import TopologyError, unknown
from anabranch.faults import from_environment
from anabranch.plan.ids import ComponentId
from anabranch.plan.lifting import AUTO, WAYS
from anabranch.plan.model import Plan
from anabranch.plan.route import Route, even_route
from anabranch.runtime.tasks import StateSettings
from anabranch.spark.driver.resharding import reshard
from anabranch.spark.driver.step import Settings
from anabranch.state.checkpoint.commits import Checkpoint, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import open_or_create, over_checkpoint

SHARDS = 64


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint as a run goes on with it: the plan over its panes, a route for each component, and what has changed."""

    checkpoint: Checkpoint
    routes: dict[ComponentId, Route]
    plan: Plan
    changed: str | None
    first_step: int


def open_run(
    files: Files,
    plan: Plan,
    slots: int | None,
    shards: int | None,
    session: SparkSession,
    most: int | None = None,
) -> Opened:
    """Opens or makes the checkpoint of a run, and takes it over from whoever ran before. `most` bounds slots that nobody chose."""
    before = open_checkpoint(files)
    count = shards if shards is not None else before.header.shards if before else SHARDS
    if not isinstance(count, int) or not 1 <= count <= 32768:
        raise TopologyError(f"shards={count!r}; valid: 1 to 32768")
    if slots is not None and (not isinstance(slots, int) or not 1 <= slots <= count):
        raise TopologyError(
            f"slots={slots!r}; valid: 1 to {count}, the number of shards (fixed for a checkpoint)"
        )
    if before is not None:
        before.take_over()
    checkpoint, changed = open_or_create(files, plan, count)
    if before is None:
        checkpoint.take_over()
    else:
        checkpoint.epoch = before.epoch
    last = checkpoint.last
    first_step = last.step + 1 if last else 1
    routes = {}
    for name in plan.routed:
        route = last.routes.get(name) if last else None
        if route is None:
            route = even_route(
                count, slots or min(count, most or count, session.sparkContext.defaultParallelism)
            )
        routes[name] = (
            route if slots in {None, route.slots} else route.resized(slots or route.slots)
        )
    plan = over_checkpoint(plan, checkpoint)
    moved = reshard(session, checkpoint, plan, routes)
    if moved:
        told = f"the state of {', '.join(map(str, moved))} has other shards, because it is partitioned by other attributes"
        changed = f"{changed}; {told}" if changed else told
    return Opened(checkpoint, routes, plan, changed, first_step)


def settings_of(retries: int, state: StateSettings, lift: str = AUTO) -> Settings:
    """How a run behaves; refuses what makes no sense."""
    if lift not in WAYS:
        raise TopologyError(unknown("lift", lift, WAYS))
    if not isinstance(retries, int) or retries < 0:
        raise TopologyError(f"retries={retries!r}; valid: 0 or more")
    return Settings(retries=retries, state=state, lift=lift, faults=from_environment())


def checked_elastic(elastic: object) -> Elastic:
    """How a run adapts; not at all where nothing is said."""
    if elastic is None:
        return Elastic(mode=OFF)
    if not isinstance(elastic, Elastic):
        raise TopologyError(
            f'elastic={elastic!r}; valid: None, or ab.Elastic(latency="2 seconds", max_slots=8)'
        )
    return elastic


def located(checkpoint: str | os.PathLike[str]) -> str:
    """The directory or URI of a checkpoint; a directory in full, since workers may run in another one than this process."""
    text = os.fspath(checkpoint)
    if not isinstance(text, str) or not text:
        raise TopologyError(f"checkpoint {checkpoint!r} is not a directory or URI")
    text = text.rstrip("/") or "/"
    return text if text.startswith("file:") or "://" in text else str(Path(text).absolute())


def spark_location(checkpoint: Checkpoint) -> str:
    """Where Spark keeps its own part of a checkpoint."""
    files = checkpoint.files
    return f"file://{files.path('spark')}" if files.local else f"{files.location}/spark"
