"""The entry point of the API: `Topology` makes a graph of DataFrames and functions, and runs it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from anabranch.elastic.settings import Elastic
from anabranch.errors import TopologyError
from anabranch.observer import Observers, RecentSteps
from anabranch.plan import explain, make_plan
from anabranch.plan.lifting import AUTO
from anabranch.plan.make import plan_again
from anabranch.plan.model import Plan
from anabranch.plan.operators.joins import join_input, join_plan
from anabranch.plan.planners.cost import Adaptation
from anabranch.plan.planners.measured import Measures
from anabranch.plan.planners.registry import AUTO as PLAN_AUTO
from anabranch.runtime.tasks import StateSettings
from anabranch.spark.api.batch import run_static, static_frames
from anabranch.spark.api.run import Run
from anabranch.spark.api.sources import timed_rows, without_delay_text
from anabranch.spark.api.streams import Joined, Stream
from anabranch.spark.api.trigger import TriggerOptions, trigger_of
from anabranch.spark.compile.applies import applied_to_results
from anabranch.spark.compile.schemas import fields_of
from anabranch.spark.driver.context import Notice, RunContext
from anabranch.spark.driver.control import Controller, Planning, Rates
from anabranch.spark.driver.observe import Conditions
from anabranch.spark.driver.opening import (
    SHARDS,
    checked_elastic,
    claim_state,
    first_state,
    fit_run,
    gave_way_text,
    located,
    open_run,
    settings_of,
    spark_location,
)
from anabranch.spark.driver.step import Stepper
from anabranch.spark.jvm import check_session
from anabranch.spark.outlets import Outlet
from anabranch.spark.session import missing_settings, missing_text, say_once
from anabranch.spark.sinks import FileTarget, MappedTarget, Target
from anabranch.spark.tuning import step_settings_on, tune
from anabranch.state.checkpoint.commits import Checkpoint, open_checkpoint
from anabranch.state.checkpoint.events import EventLog
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.header import (
    components_of,
    fit_checkpoint,
    over_checkpoint,
    sharing_of,
)
from anabranch.state.checkpoint.history import HistoryLog
from anabranch.state.checkpoint.statistics import Statistics, read_statistics
from anabranch.state.store.host import open_host
from anabranch.state.store.local import INACTIVE, check_inactive
from anabranch.topology import graph as g
from anabranch.topology.durations import Duration, duration_us

_log = logging.getLogger("anabranch")  # prints to standard error unless users configure it


Maps: TypeAlias = tuple[Callable[[DataFrame], DataFrame], ...]


class Topology:
    """A graph of named operators over streams.

    Build it with `source()` and the calls of streams, look at it with `explain()`, run it with
    `start()` or `run_batch()`.

    - name: a non-empty string; else a `TopologyError`.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip():
            raise TopologyError(f"topology name {name!r} must be a non-empty string")
        self.graph = g.Graph(name=name)
        self._frames: dict[str, DataFrame] = {}
        self._said_delay = False  # whether the warning about a missing delay was logged

    @property
    def name(self) -> str:
        return self.graph.name

    def source(  # noqa: PLR0913 - every argument has a default that works
        self,
        rows: DataFrame,
        *,
        event_time: str | None = None,
        delay: Duration | None = None,
        unit: str | None = None,
        idle_after: Duration | None = None,
        ahead: Duration | None = "1 day",
        name: str | None = None,
    ) -> Stream:
        """Adds a source. Returns its rows as a stream.

        Event time and delay may also come with the rows: `rows.withWatermark("at", "10 minutes")`.
        Of several sources, the slowest decides how far the watermark is.

        - rows: any DataFrame, streaming for `start()` or static for `run_batch()`.
        - event_time: the event-time column.
        - delay: how late a row may come after newer ones; by default "0 seconds", with a warning.
        - unit: of a numeric event time: "seconds", "milliseconds", "microseconds" or "nanoseconds"
          since 1970.
        - idle_after: a source that is silent for this long does not hold back the watermark; by
          default it always does.
        - ahead: rows whose event time is further ahead of the clock are left out, so that one bad
          row cannot move the watermark. `.late` has them, with the reason "ahead". None: no limit.
        - name: of the source; by default "source". A second source needs a name.

        Raises a `TopologyError` if there is no event time, or if an argument is not valid.
        """
        if not isinstance(rows, DataFrame):
            raise TopologyError(f"source {rows!r} is not a DataFrame")
        check_session(rows.sparkSession)
        timed = timed_rows(rows, event_time, delay, unit)
        node = g.Source(
            name=self.name_for(name, "source"),
            fields=fields_of(timed.rows.schema),
            event_time=timed.event_time,
            unit_us=timed.unit_us,
            delay_us=timed.delay_us or 0,
            idle_us=None if idle_after is None else duration_us(idle_after, "idle_after"),
            ahead_us=None if ahead is None else duration_us(ahead, "ahead", zero=True),
        )
        self.add(node)
        self._frames[node.name] = timed.rows
        if timed.delay_us is None and rows.isStreaming and not self._said_delay:
            self._said_delay = True
            _log.warning(without_delay_text(node.name))
        return Stream(self, node.name, timed.rows)

    def fuse(self, *operators: Stream) -> None:
        """Asks the planner to put these operators into one component.

        They need keys in common, and streams that connect them. Raises a `TopologyError` for fewer
        than two operators, or for one without state.
        """
        self.graph = self.graph.hinted([each.name for each in operators], fuse=True)

    def keep_apart(self, *operators: Stream) -> None:
        """Asks the planner to put each of these operators into a different component.

        Raises a `TopologyError` for fewer than two operators, or for one without state.
        """
        self.graph = self.graph.hinted([each.name for each in operators], fuse=False)

    def explain(
        self,
        format: str = "text",
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        planner: str = PLAN_AUTO,
        adaptation: Adaptation = Adaptation(),  # noqa: B008, it is frozen
    ) -> str:
        """The plan of components, with its reasons.

        - format: "text", "json" or "mermaid".
        - checkpoint: show the plan that a start from it would use, with what it has measured; by
          default there are no measurements.
        - planner: "auto", "unfused" or another planner.
        - adaptation: what it costs to move state between slots. The default is nothing, as all
          slots are on one host.

        Raises a `CheckpointError` if the checkpoint does not fit the topology, or a
        `TopologyError` if an argument is not valid.
        """
        found = None if checkpoint is None else open_checkpoint(Files(located(checkpoint)))
        measures, groupings = Measures(shards=SHARDS), Statistics().groupings
        if found is not None:
            keys_in, measured = (
                found.last.keys_in if found.last else {},
                read_statistics(found.files),
            )
            measures, groupings = (
                measured.measures(found.header.shards, keys_in),
                measured.groupings,
            )
        plan = make_plan(
            self.graph, planner, measures=measures, adaptation=adaptation, shared=sharing_of(found)
        )
        if found is not None:
            fitted, _ = fit_checkpoint(found, found.files, plan, found.header.shards)
            plan = over_checkpoint(plan, fitted)
        return explain(self.graph, plan, format, measures, groupings)

    def start(  # noqa: PLR0913 - every argument has a default that works
        self,
        *,
        checkpoint: str | os.PathLike[str],
        slots: int | None = None,
        shards: int | None = None,
        idle: Duration | None = "1 second",
        retries: int = 3,
        state_root: str | os.PathLike[str] | None = None,
        state_limit: int | None = None,
        inactive_state: float = INACTIVE,
        shard_wait: Duration = "60 seconds",
        lift: str = AUTO,
        planner: str | None = None,
        elastic: Elastic | None = None,
        **trigger: Unpack[TriggerOptions],
    ) -> Run:
        """Starts the topology. It continues where the checkpoint ended.

        - checkpoint: a directory or URI.
        - slots: the number of parallel tasks per component; by default as in the checkpoint, and in
          a new one as many as there are cores.
        - shards: the number of pieces of the key space. It cannot change later. The default is 64.
        - idle: windows are closed when no batch comes for this long; None: never.
        - retries: how many times a failed job is tried again before the run ends.
        - state_root: the directory for node-local state; by default shared memory.
        - state_limit: the most bytes of state per shard.
        - inactive_state: how much node-local state of inactive runs may stay, in bytes or as a
          share of the file system. The oldest is removed first.
        - shard_wait: how long to wait for a shard that another process holds.
        - lift: "lift first" combines rows before they are sent to their slots, "route first" after
          that; "auto" chooses by what is measured.
        - planner: what divides the topology into components: "auto", "unfused" or another one. By
          default components stay as in the checkpoint, and a new one uses "auto". State is
          rewritten if another plan needs other shards.
        - elastic: how slots, their shards and components adapt while it runs, such as
          `ab.Elastic(latency="2 seconds")`; by default they do not.
        - trigger: when batches are taken, by a keyword of Spark's `trigger`:
          `processingTime="10 seconds"`, `availableNow=True` or `once=True`. By default each batch
          follows the one before at once.

        Raises a `TopologyError` if an argument is not valid, or a `CheckpointError` if the
        checkpoint cannot be used.
        """
        elastic = checked_elastic(elastic)
        chosen = trigger_of(trigger, _OPTIONS)
        idle_s = None if idle is None else duration_us(idle, "idle", zero=True) / 1e6
        state = StateSettings(
            root=None if state_root is None else os.fspath(state_root),
            wait_s=duration_us(shard_wait, "shard_wait") / 1e6,
            limit_bytes=state_limit,
            inactive=check_inactive(inactive_state),
        )
        open_host(state.root)  # refuses a directory that other users could read or write
        settings = settings_of(retries, state, lift)
        files = Files(located(checkpoint))
        found = open_checkpoint(files)
        statistics = read_statistics(files)
        planning = self._planning(found)
        if planner is None and found is not None and found.last is not None:
            plan = plan_again(self.graph, components_of(found), shared=sharing_of(found))
        else:
            plan = planning(planner or PLAN_AUTO, statistics.rates())
        user = self._streaming_session(plan)
        session = user.newSession()
        outlets = self._outlets(found.last.step + 1 if found and found.last else 1)
        opening = fit_run(files, found, plan, shards)
        opened = open_run(session, opening, outlets, self._frames, slots, elastic.most_slots)
        context = RunContext(
            session=session,
            checkpoint=opened.checkpoint,
            outlets=tuple(outlets),
            settings=settings,
            statistics=statistics,
        )
        recent = RecentSteps()
        stepper = Stepper(
            context,
            first_state(opened),
            Controller(elastic, planning),
            Observers(recent, EventLog(files), HistoryLog(files)),
            Conditions(cores=session.sparkContext.defaultParallelism, interval_s=chosen.interval_s),
        )
        if opened.changed is not None:
            text = f"the topology has changed since the checkpoint was made: {opened.changed}"
            stepper.notify(Notice("changed", text))
        if missing := missing_settings(user):
            stepper.notify(Notice("session", missing_text(missing)))
            say_once(user, missing_text(missing))
        tune(session)
        claimed = claim_state(opened.checkpoint, state)
        if claimed.gave_way:
            stepper.notify(Notice("state", gave_way_text(claimed.gave_way)))
        run = Run(stepper, recent, planning, chosen, idle_s, claimed)
        try:
            with step_settings_on(user, local_query=files.local):
                run.begin(opened.compiled, spark_location(opened.checkpoint))
        except BaseException:
            claimed.release()
            raise
        return run

    def run_batch(
        self,
        inputs: Mapping[Stream | str, DataFrame] | DataFrame | None = None,
        *,
        slots: int | None = None,
        shards: int = 8,
        planner: str = PLAN_AUTO,
    ) -> dict[str, DataFrame]:
        """Runs the topology over static rows and closes every window. Returns DataFrames by name.

        The names are those of operators and of maps after them, "<name>.late" for late rows, and
        "<name>.failed" for rows that failed.

        - inputs: a static DataFrame for each source, by its name or stream, or one DataFrame for
          the only source; by default the sources' own DataFrames.
        - slots: the number of parallel tasks per component; by default as many as there are cores,
          and at most one per shard.
        - shards: the number of pieces of the key space.
        - planner: "auto", "unfused" or another planner.

        Raises a `TopologyError` if a DataFrame is streaming, or has other columns than its source.
        """
        given: Mapping[str, DataFrame] | DataFrame | None
        if isinstance(inputs, Mapping):
            given = {
                each.name if isinstance(each, Stream) else each: rows
                for each, rows in inputs.items()
            }
        else:
            given = inputs
        plan = make_plan(self.graph, planner)
        frames = static_frames(plan, given, self._frames)
        return run_static(self.graph, plan, frames, slots, shards)

    def joined(
        self,
        left: Stream,
        right: Stream,
        by: object,
        windows: list[Any],
        how: str,
        name: str | None,
    ) -> Joined:
        """Adds a join of two streams of this topology."""
        if right.app is not self:
            raise TopologyError(
                f"stream {right.name!r} belongs to another topology than {left.name!r}"
            )
        inputs = [
            join_input(s.name, self.graph.fields_of(s.name), self.graph.clock_of(s.name))
            for s in (left, right)
        ]
        keys = left.own_names([by] if isinstance(by, str) else by)
        roots = [self.graph.stream_of(each.name)[0].name for each in (left, right)]
        chosen = self.name_for(name, roots[0], "with", roots[1])
        plan = join_plan(chosen, inputs[0], inputs[1], keys, windows, how)
        for each in (*plan.left, *plan.right):
            if "map<" in each.type:
                raise TopologyError(
                    f"a join cannot carry column {each.name!r} of type {each.type}; drop it in a "
                    "map()"
                )
        self.add(
            g.Join(
                name=chosen,
                input=left.name,
                right=right.name,
                by=plan.keys,
                windows=plan.panes.windows,
                how=plan.how,
                fields=plan.result_fields,
            )
        )
        return Joined(self, chosen, self.empty(chosen))

    def add(self, node: g.Operator) -> None:
        self.graph = self.graph.add(node)

    def empty(self, operator: str) -> DataFrame:
        """A DataFrame without rows, with the columns of an operator's results, for checks."""
        fields = self.graph.fields_of(operator)
        schema = StructType(
            [StructField(each.name, DataType.fromDDL(each.type)) for each in fields]
        )
        session = next(iter(self._frames.values())).sparkSession
        return session.createDataFrame(session.sparkContext.emptyRDD(), schema)

    def check_results(self, stream: str, target: Target) -> None:
        """Refuses a file format that cannot hold the results."""
        if isinstance(target, FileTarget) and target.format == "csv":
            for field in self.graph.fields_of(stream):
                if field.type.startswith(("array<", "struct<", "map<")) and field.name != "window":
                    valid = "valid: ab.parquet, ab.json, ab.memory"
                    raise TopologyError(
                        f"csv cannot hold {field.name!r} of type {field.type}; {valid}"
                    )

    def add_sink(self, operator: str, target: Any, *, late: bool, name: str | None) -> None:
        for other in self.graph.sinks:
            if (
                isinstance(target, FileTarget)
                and isinstance(other.target, FileTarget)
                and target.location == other.target.location
            ):
                raise TopologyError(
                    f"sink {other.name!r} writes to {target.path} already; each sink needs a "
                    "directory of its own"
                )
        wish = f"sink_{len(self.graph.sinks) + 1}" if name is None else name
        self.graph = self.graph.add_sink(
            g.Sink(name=wish, input=operator, late=late, target=target)
        )

    def name_for(self, name: str | None, *parts: str) -> str:
        """The name of an operator: the one given, or one made from what it does."""
        return self.graph.derived_name(*parts) if name is None else name

    def _planning(self, found: Checkpoint | None) -> Planning:
        """A function that makes plans of this topology which continue a checkpoint."""
        graph, shared = self.graph, sharing_of(found)

        def planning(by: str, rates: Rates | None) -> Plan:
            return make_plan(graph, by, rates=rates, shared=shared)

        return planning

    def _streaming_session(self, plan: Plan) -> SparkSession:
        """The session of the sources, which must be streaming."""
        for source in plan.sources:
            if not self._frames[source.name].isStreaming:
                raise TopologyError(
                    f"source {source.name!r} is not a streaming DataFrame; run_batch() takes "
                    "static ones"
                )
        return self._frames[plan.sources[0].name].sparkSession

    def _outlets(self, next_step: int) -> list[Outlet]:
        """The sinks of this topology; refuses locations that hold results of another run."""
        found = []
        for sink in self.graph.sinks:
            outlet = self._outlet(sink, sink.input)
            outlet.target.check(next_step)
            found.append(outlet)
        return found

    def _outlet(self, sink: g.Sink, name: str, after: Maps = ()) -> Outlet:
        """The operator and window whose results a sink takes, with the maps and applies before the
        sink.
        """
        stream, maps = self.graph.stream_of(name)
        passed = (*(each.fn for each in maps if each.window is None), *after)
        apply = stream.in_sinks(self.graph)
        if apply is not None:
            applied = applied_to_results(apply, self.graph.fields_of(apply.input))
            return self._outlet(sink, apply.input, (applied, *passed))
        return Outlet(
            name=sink.name,
            operator=stream.name,
            late=sink.late,
            target=MappedTarget(sink.target, passed) if passed else sink.target,
            window=maps[0].window if maps else None,
        )


_OPTIONS = ("checkpoint", *(Topology.start.__kwdefaults__ or ()))
