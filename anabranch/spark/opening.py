"""Opening a checkpoint for a run: is it of this topology, over which panes, with how many slots and shards?"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark.sql import SparkSession

from anabranch.errors import TopologyError, unknown
from anabranch.faults import from_environment
from anabranch.plan.component import Component
from anabranch.plan.fingerprint import fingerprint
from anabranch.plan.lifting import AUTO, WAYS
from anabranch.plan.route import Route, even_route
from anabranch.spark.slot_task import StateSettings
from anabranch.spark.step import Settings
from anabranch.state.commits import Checkpoint, contents_of, open_checkpoint, open_or_create, over_checkpoint
from anabranch.state.files import Files

SHARDS = 64


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint as a run goes on with it: the component over its panes, and what of the topology has changed."""

    checkpoint: Checkpoint
    route: Route
    component: Component
    changed: str | None


def open_run(
    files: Files, topology: str, component: Component, slots: int | None, shards: int | None, session: SparkSession
) -> Opened:
    """Opens or makes the checkpoint of a run, and takes it over from whoever ran before."""
    before = open_checkpoint(files)
    count = shards if shards is not None else before.header.shards if before else SHARDS
    if not isinstance(count, int) or not 1 <= count <= 32768:
        raise TopologyError(f"shards={count!r}; valid: 1 to 32768")
    last = before.last if before else None
    wanted = slots if slots is not None else last.slots if last else min(count, session.sparkContext.defaultParallelism)
    if not isinstance(wanted, int) or not 1 <= wanted <= count:
        raise TopologyError(f"slots={wanted!r}; valid: 1 to {count}, the number of shards (fixed for a checkpoint)")
    checkpoint, changed = open_or_create(
        files, topology, fingerprint(component, count), count, contents_of(component), component.slotted.panes
    )
    checkpoint.take_over()
    component = over_checkpoint(component, checkpoint)
    if last is None:
        return Opened(checkpoint, even_route(count, wanted), component, changed)
    route = Route(last.route, last.slots, last.route_version)
    return Opened(checkpoint, route if route.slots == wanted else route.resized(wanted), component, changed)


def settings_of(retries: int, state: StateSettings, lift: str = AUTO) -> Settings:
    """How a run behaves; refuses what makes no sense."""
    if lift not in WAYS:
        raise TopologyError(unknown("lift", lift, WAYS))
    if not isinstance(retries, int) or retries < 0:
        raise TopologyError(f"retries={retries!r}; valid: 0 or more")
    return Settings(retries=retries, state=state, lift=lift, faults=from_environment())


def located(checkpoint: str | os.PathLike[str]) -> str:
    """The directory or URI of a checkpoint."""
    text = os.fspath(checkpoint)
    if not isinstance(text, str) or not text:
        raise TopologyError(f"checkpoint {checkpoint!r} is not a directory or URI")
    return text.rstrip("/") or "/"


def spark_location(checkpoint: Checkpoint) -> str:
    """Where Spark keeps its own part of a checkpoint."""
    files = checkpoint.files
    return f"file://{files.path('spark')}" if files.local else f"{files.location}/spark"
