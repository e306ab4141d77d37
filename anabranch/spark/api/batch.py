"""Runs a topology over static rows: one batch and one closing step, with results in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from anabranch.elastic.settings import OFF, Elastic
from anabranch.errors import TopologyError, unknown
from anabranch.observer import Observers
from anabranch.plan.model import Plan
from anabranch.runtime.tasks import StateSettings
from anabranch.spark.compile.schemas import fields_of
from anabranch.spark.driver.context import RunContext
from anabranch.spark.driver.control import Controller
from anabranch.spark.driver.observe import Conditions, NoQuery
from anabranch.spark.driver.opening import first_state, fit_run, open_run, settings_of
from anabranch.spark.driver.step import Stepper
from anabranch.spark.outlets import Outlet
from anabranch.spark.sinks import MemoryTarget, apply_maps
from anabranch.spark.tuning import step_settings_on, tune
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.statistics import Statistics
from anabranch.topology.graph import Graph, Map

_RETRIES = 3


def run_static(
    graph: Graph, plan: Plan, frames: Mapping[str, DataFrame], slots: int | None, shards: int
) -> dict[str, DataFrame]:
    """The results and late rows of a topology over static rows, by name."""
    user = frames[plan.sources[0].name].sparkSession
    session = user.newSession()
    directory = tempfile.mkdtemp(prefix="anabranch-batch-")
    outlets = _outlets(plan)
    try:
        tune(session)
        opening = fit_run(Files(f"{directory}/checkpoint"), None, plan, shards)
        opened = open_run(session, opening, outlets, frames, slots)
        state = StateSettings(root=f"{directory}/state", wait_s=60.0, limit_bytes=None)
        context = RunContext(
            session=session,
            checkpoint=opened.checkpoint,
            outlets=tuple(outlets),
            settings=settings_of(_RETRIES, state),
            statistics=Statistics(),
        )
        stepper = Stepper(
            context,
            first_state(opened),
            Controller(Elastic(mode=OFF)),
            Observers(),
            Conditions(cores=session.sparkContext.defaultParallelism),
        )
        with step_settings_on(user):
            stepper.batch(opened.compiled.rows, 0, NoQuery(opened.compiled.clock_us))
        stepper.close(NoQuery(), finish=True)
        return _results(graph, stepper, outlets, user)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def static_frames(
    plan: Plan,
    inputs: Mapping[str, DataFrame] | DataFrame | None,
    own: Mapping[str, DataFrame],
) -> dict[str, DataFrame]:
    """The rows of each source: those given, or its own. They must be static and fit the source."""
    names = [source.name for source in plan.sources]
    if isinstance(inputs, DataFrame):
        if len(names) > 1:
            raise TopologyError(
                f"run_batch() needs a DataFrame for each source: {', '.join(names)}"
            )
        inputs = {names[0]: inputs}
    given = dict(inputs or {})
    for each in given:
        if each not in names:
            raise TopologyError(unknown("source", each, names))
    frames = {name: given.get(name, own[name]) for name in names}
    for source in plan.sources:
        frame = frames[source.name]
        if frame.isStreaming:
            raise TopologyError(f"run_batch() needs a static DataFrame for source {source.name!r}")
        found = fields_of(frame.schema)
        if found != source.fields:
            want = ", ".join(f"{field.name}: {field.type}" for field in source.fields)
            have = ", ".join(f"{field.name}: {field.type}" for field in found)
            raise TopologyError(
                f"source {source.name!r} has columns ({want}); the DataFrame given has ({have})"
            )
    return frames


def _outlets(plan: Plan) -> list[Outlet]:
    """Outlets in memory for all results, late rows and failed rows of a topology."""
    wanted = [(node.operator, False, node.operator) for node in plan.nodes]
    late = [node.operator for node in plan.nodes if plan.late_nodes(node.operator)]
    wanted += [(operator, True, f"{operator}.late") for operator in late]
    for each in plan.applies:
        wanted.append((each.name, False, each.name))
        if each.work.dead_letters:
            wanted.append((each.name, True, f"{each.name}.failed"))
    return [
        Outlet(name=name, operator=operator, late=late, target=MemoryTarget())
        for operator, late, name in dict.fromkeys(wanted)
    ]


def _results(
    graph: Graph, stepper: Stepper, outlets: Sequence[Outlet], user: SparkSession
) -> dict[str, DataFrame]:
    """The rows in the outlets, and the results of the maps after them."""
    found: dict[str, DataFrame] = {}
    for outlet in outlets:
        assert isinstance(outlet.target, MemoryTarget)
        plan = stepper.state.plan
        schema, _ = stepper.outputs.schemas(plan, outlet.operator, late=outlet.late)
        found[outlet.name] = user.createDataFrame(outlet.target.table(), schema=schema)
    for node in graph.operators:
        if isinstance(node, Map):
            stream, maps = graph.stream_of(node.name)
            if stream.name in found:
                found[node.name] = apply_maps(found[stream.name], [each.fn for each in maps])
    return found
