"""Opens a checkpoint for a run: checks that it fits the topology, and chooses slots and shards.

The check changes nothing, so what cannot run is refused first. Then the run takes over the
checkpoint and gives each component its slots.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.elastic.settings import OFF, Elastic
from anabranch.errors import TopologyError, unknown
from anabranch.faults import from_environment
from anabranch.plan.ids import ComponentId
from anabranch.plan.lifting import AUTO, WAYS
from anabranch.plan.model import Plan
from anabranch.plan.route import Route, even_route
from anabranch.runtime.tasks import StateSettings
from anabranch.spark.compile.levels import Levels
from anabranch.spark.driver.changes import groupings_for
from anabranch.spark.driver.context import RunState, Settings
from anabranch.spark.driver.resharding import reshard
from anabranch.spark.outlets import Outlet, late_nodes
from anabranch.spark.workers import warm_up
from anabranch.state.checkpoint.commits import Checkpoint, Commit
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import fit_checkpoint, over_checkpoint, write_header
from anabranch.state.store.host import open_host
from anabranch.state.store.local import ClaimedState, LocalState

SHARDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A checkpoint as a run will use it, and the plan over its panes. Nothing is written yet."""

    found: Checkpoint | None  # as it was opened; None if there is none yet
    planned: Plan  # before it is fitted to the checkpoint's panes
    checkpoint: Checkpoint
    plan: Plan
    changed: str | None  # what has changed in the topology since the checkpoint was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A plan as Spark runs it, and the rows of its sources as steps take them."""

    levels: Levels
    rows: DataFrame
    metrics: Mapping[str, str]  # the name of Spark's observation of each source
    clock_us: int | None  # of static rows; in a stream each batch has its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A checkpoint that belongs to this driver, with a compiled plan and a route per component."""

    checkpoint: Checkpoint
    plan: Plan
    compiled: Compiled
    routes: Mapping[ComponentId, Route]
    first_step: int  # an attempt that died may have written this step or later ones to sinks
    changed: str | None


def open_run(
    session: SparkSession,
    opening: Opening,
    outlets: Sequence[Outlet],
    frames: Mapping[str, DataFrame],
    slots: int | None,
    most: int | None = None,
) -> Opened:
    """Takes over a checkpoint for a run, once its plan is known to compile.

    slots: of every component. None: as before; in a new checkpoint one per core, at most `most`.
    """
    check_slots(slots, opening.checkpoint.header.shards)
    compiled = compile_run(session, opening, outlets, frames)
    warm_up(session)
    taken = take_over(opening)
    if taken is not opening:  # another driver was alive and has committed meanwhile
        compiled = compile_run(session, taken, outlets, frames)
    checkpoint, changed = taken.checkpoint, taken.changed
    last = checkpoint.last
    first_step = last.step + 1 if last else 1
    cores = session.sparkContext.defaultParallelism
    shards = checkpoint.header.shards
    fresh = even_route(shards, slots or min(shards, most or shards, cores))
    routes = routes_of_run(taken.plan, last, fresh, slots)
    moved = reshard(session, checkpoint, taken.plan, routes)
    if moved:
        names = ", ".join(map(str, moved))
        text = (
            f"the state of {names} was moved to other shards, because it is partitioned by other "
            "attributes"
        )
        changed = f"{changed}; {text}" if changed else text
    return Opened(
        checkpoint=checkpoint,
        plan=taken.plan,
        compiled=compiled,
        routes=routes,
        first_step=first_step,
        changed=changed,
    )


def fit_run(files: Files, found: Checkpoint | None, plan: Plan, shards: int | None) -> Opening:
    """Fits a plan to an opened checkpoint. Refuses what does not fit before anything changes."""
    known = found.header.shards if found else SHARDS
    count = known if shards is None else shards
    if not isinstance(count, int) or not 1 <= count <= 32768:
        raise TopologyError(f"shards={count!r}; valid: 1 to 32768")
    checkpoint, changed = fit_checkpoint(found, files, plan, count)
    return Opening(
        found=found,
        planned=plan,
        checkpoint=checkpoint,
        plan=over_checkpoint(plan, checkpoint),
        changed=changed,
    )


def take_over(opening: Opening) -> Opening:
    """Makes this driver the only one, and writes the header.

    Returns another opening if the previous driver has committed or changed the header meanwhile.
    """
    found = opening.found
    if found is None:
        write_header(opening.checkpoint, None)
        opening.checkpoint.take_over()
        return opening
    found.take_over()
    if found.catch_up():
        files, shards = found.files, opening.checkpoint.header.shards
        opening = fit_run(files, found, opening.planned, shards)
    opening.checkpoint.epoch = found.epoch
    write_header(opening.checkpoint, found)
    return opening


def routes_of_run(
    plan: Plan, last: Commit | None, fresh: Route, slots: int | None
) -> dict[ComponentId, Route]:
    """The route of each component: as in the last step, else `fresh`; with `slots` if given."""
    routes = {}
    for name in plan.routed:
        route = last.routes.get(name, fresh) if last else fresh
        routes[name] = route if slots in {None, route.slots} else route.resized(slots or 1)
    return routes


def check_slots(slots: int | None, shards: int) -> None:
    """Refuses a number of slots that the shards do not allow."""
    if slots is not None and (not isinstance(slots, int) or not 1 <= slots <= shards):
        raise TopologyError(
            f"slots={slots!r}; valid: 1 to {shards}, the number of shards (fixed for a checkpoint)"
        )


def compile_run(
    session: SparkSession,
    opening: Opening,
    outlets: Sequence[Outlet],
    frames: Mapping[str, DataFrame],
) -> Compiled:
    """Compiles a plan. Refuses maps that Spark cannot run at their place.

    Only streaming rows have observations: the watermark of static rows does not matter.
    """
    plan, metrics, clock_us = opening.plan, dict[str, str](), None
    levels = Levels(plan, opening.checkpoint.header.shards, late_nodes(plan, outlets))
    if any(frame.isStreaming for frame in frames.values()):
        metrics = {source.name: f"anabranch-{uuid.uuid4().hex}" for source in plan.sources}
    else:
        clock_us = time.time_ns() // 1000
    rows = levels.lift.prepare(frames, metrics or None)
    levels.check(session)
    return Compiled(levels=levels, rows=rows, metrics=metrics, clock_us=clock_us)


def first_state(opened: Opened) -> RunState:
    """The state before the first step of a run."""
    plan = opened.plan
    return RunState(
        plan=plan,
        routes=opened.routes,
        levels=opened.compiled.levels,
        groupings=groupings_for(plan, opened.routes),
        rows_at=dict.fromkeys((source.name for source in plan.sources), time.monotonic()),
        written_from=opened.first_step,
    )


def claim_state(checkpoint: Checkpoint, settings: StateSettings) -> ClaimedState:
    """Claims the node-local state of a run. State of inactive runs may be removed for it."""
    files, header = checkpoint.files, checkpoint.header
    location = files.path("") if files.local else files.location
    claimed = ClaimedState(open_host(settings.root), header.id, settings.inactive)
    return claimed.claim(location, header.operators)


def gave_way_text(states: Sequence[LocalState]) -> str:
    """The message about node-local state that was removed to make space."""
    listed = ", ".join(f"{each.location or each.id} ({each.bytes >> 20} MiB)" for each in states)
    return (
        "node-local state of inactive runs was removed to make space; their checkpoints "
        f"have everything: {listed}"
    )


def settings_of(retries: int, state: StateSettings, lift: str = AUTO) -> Settings:
    """The settings of a run. Refuses values that are not valid."""
    if lift not in WAYS:
        raise TopologyError(unknown("lift", lift, WAYS))
    if not isinstance(retries, int) or retries < 0:
        raise TopologyError(f"retries={retries!r}; valid: 0 or more")
    return Settings(retries=retries, state=state, lift=lift, faults=from_environment())


def checked_elastic(elastic: object) -> Elastic:
    """How a run adapts; None means not at all."""
    if elastic is None:
        return Elastic(mode=OFF)
    if not isinstance(elastic, Elastic):
        raise TopologyError(
            f'elastic={elastic!r}; valid: None, or ab.Elastic(latency="2 seconds", max_slots=8)'
        )
    return elastic


def located(checkpoint: str | os.PathLike[str]) -> str:
    """The directory or URI of a checkpoint.

    A directory becomes an absolute path: workers may run in another directory than this process.
    """
    text = os.fspath(checkpoint)
    if not isinstance(text, str) or not text:
        raise TopologyError(f"checkpoint {checkpoint!r} is not a directory or URI")
    text = text.rstrip("/") or "/"
    return text if text.startswith("file:") or "://" in text else str(Path(text).absolute())


def spark_location(checkpoint: Checkpoint) -> str:
    """Where Spark keeps its own part of a checkpoint."""
    files = checkpoint.files
    return f"file://{files.path('spark')}" if files.local else f"{files.location}/spark"
