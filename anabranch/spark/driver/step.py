"""The step protocol: one job, then missing shards, sinks, commit. Exactly once, whatever crashes where.

A step is numbered by us; state is versioned by step. Rows are judged late by the previous step's watermark, windows close by this
step's, and both come from the commit record before, so that a step that runs again is the same step.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from anabranch.errors import CheckpointError, StepError
from anabranch.faults import Faults
from anabranch.plan.ids import APPLIES, ComponentId, PartId
from anabranch.plan.lifting import AUTO, LiftCounts, Lifting
from anabranch.plan.model import Component, Node, Plan
from anabranch.plan.operators.base import Travel
from anabranch.plan.route import Route, routes_for, snapshots_due
from anabranch.plan.watermark import watermark_after
from anabranch.runtime.reports import (
    Report,
    check_complete,
    missing_in,
    moving_mean,
    nodes_in,
    seen_in,
)
from anabranch.runtime.slot import ComponentTask, SlotTask
from anabranch.runtime.tasks import NodeTask, StateSettings, Watermarks
from anabranch.spark.compile.levels import Levels
from anabranch.spark.compile.schemas import late_schema, spark_schema
from anabranch.spark.driver.applies import Applying
from anabranch.spark.driver.causes import cause_of
from anabranch.spark.driver.changes import Pending, told_of
from anabranch.spark.driver.progress import Event, Progress, progress_of
from anabranch.spark.driver.resharding import attributes_of, reshard
from anabranch.spark.driver.steering import Steering
from anabranch.spark.outlets import Outlet, late_nodes
from anabranch.spark.sinks import StepResults
from anabranch.state.checkpoint.commits import Checkpoint, Commit, Stored
from anabranch.state.checkpoint.events import EventLog
from anabranch.state.checkpoint.header import over_checkpoint
from anabranch.state.checkpoint.statistics import read_statistics

_CLEAN_EVERY = 8
_KEPT_PROGRESS = 10_000
_TRUSTING_ATTEMPTS = 2


Missing: TypeAlias = Mapping[PartId, Sequence[int]]  # shards by operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run behaves; what the topology does not say."""

    retries: int
    state: StateSettings
    lift: str = AUTO
    faults: Faults = field(default_factory=Faults)


class Stepper:
    """Runs the steps of a plan, one at a time. Not for several threads at once."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        checkpoint: Checkpoint,
        outlets: Sequence[Outlet],
        settings: Settings,
        routes: Mapping[ComponentId, Route],
    ) -> None:
        self.session, self.plan, self.checkpoint = session, plan, checkpoint
        self.outlets, self.settings = tuple(outlets), settings
        self.routes: dict[ComponentId, Route] = dict(routes)
        self.pending = Pending()
        self.steering: Steering | None = None
        self.log: EventLog | None = None
        self.progress: deque[Progress] = deque(maxlen=_KEPT_PROGRESS)
        self.events: deque[Event] = deque(maxlen=_KEPT_PROGRESS)
        self.next_end_us: int | None = None
        self._late = late_nodes(plan, outlets)
        self.levels = Levels(plan, checkpoint.header.shards, self._late)
        self.applying = Applying(session, plan, outlets, self.routes)
        self.lifting = Lifting()
        # An attempt that died may have written to sinks from here on.
        self.first_step = checkpoint.last.step + 1 if checkpoint.last else 1
        self.statistics = read_statistics(checkpoint.files)
        self._jobs = itertools.count(1)
        self._early_at: dict[PartId, float] = {}
        self._heard_at = dict.fromkeys((source.name for source in plan.sources), time.monotonic())
        self._phases: dict[str, float] = {}
        self._schemas: dict[
            tuple[str, bool], tuple[StructType, pa.Schema]
        ] = {}  # Spark takes calls into the JVM to make one

    @property
    def last(self) -> Commit | None:
        return self.checkpoint.last

    def watermark(self) -> int | None:
        """The watermark of the next step, as the last one left it."""
        return self.last.next_us if self.last else None

    def can_close(self) -> bool:
        """True when a closing step would close a window."""
        watermark = self.watermark()
        return (
            watermark is not None and self.next_end_us is not None and self.next_end_us <= watermark
        )

    def watermark_advances(self) -> bool:
        """True when a step without input would have a later watermark than the last one, and there is state that it may close."""
        return (
            bool(self.plan.nodes)
            and self.last is not None
            and self.watermark() != self.last.watermark_us
        )

    def idle_advances(self) -> bool:
        """True when a source has been silent for so long that the watermark goes on without it."""
        last = self.last
        return (
            bool(self.plan.nodes)
            and last is not None
            and self._ahead(last.seen, last.watermark_us) != last.next_us
        )

    def _ahead(self, seen: Mapping[str, int], watermark_us: int | None) -> int | None:
        now = time.monotonic()
        silent_us = {source: round(1e6 * (now - at)) for source, at in self._heard_at.items()}
        return watermark_after(self.plan.sources, seen, silent_us, watermark_us)

    def batch(
        self, rows: DataFrame, batch_id: int, observed: Callable[[], Mapping[str, int]]
    ) -> Progress | None:
        """Runs the step of a batch; one that is committed already returns at once."""
        done = self.last.batch_id if self.last else None
        if done is not None and batch_id == done:
            self.event("batch again", f"batch {batch_id} is committed already; nothing to do")
            return None
        expected = 0 if done is None else done + 1
        if batch_id != expected:
            raise CheckpointError(
                f"Spark brings batch {batch_id}, checkpoint {self.checkpoint.files.location} expects batch {expected}: Spark's "
                "own checkpoint (the directory 'spark' in it) does not belong to it. Restore both, or start with a new one"
            )
        return self._step(rows, batch_id, observed)

    def close(self, *, finish: bool = False) -> Progress:
        """Runs a closing step: closes what the watermark allows, or everything."""
        return self._step(None, None, dict, finish=finish)

    def _step(
        self,
        rows: DataFrame | None,
        batch_id: int | None,
        observed: Callable[[], Mapping[str, int]],
        *,
        finish: bool = False,
    ) -> Progress:
        started = time.time()
        self._phases, mark = {}, time.perf_counter()
        self._fault("step.begin", self.last.step + 1 if self.last else 1)
        self._apply_pending()
        last = self.last
        step = last.step + 1 if last else 1
        marks = Watermarks(
            late_before_us=last.watermark_us if last else None,
            close_until_us=self.watermark(),
            finish=finish,
        )
        tasks = self._tasks(step, marks)
        self._fault("job.before", step)
        reports, attempts = self._run(rows, tasks)
        mark = self._phase("job", mark)
        self._fault("job.after", step)
        missing = missing_in(reports)
        if missing:
            self._fault("restore.before", step)
            reports = self._restore(rows, tasks, missing)
            mark = self._phase("restore", mark)
        self._write_sinks(step, reports)
        mark = self._phase("sinks", mark)
        seen = {**observed(), **seen_in(reports, self.levels.lift.watched)}
        commit = self._commit(tasks[0], reports, batch_id, seen)
        self._fault("commit.before", step)
        self.checkpoint.commit(commit)
        self._fault("commit.after", step)
        mark = self._phase("commit", mark)
        if step % _CLEAN_EVERY == 0:
            self.tidy()
        self._fault("clean.after", step)
        self._phase("clean", mark)
        if rows is not None:
            self._learn(reports)
            self._measure(reports)
        ends = [each.next_end_us for _, each in nodes_in(reports) if each.next_end_us is not None]
        self.next_end_us = min(ends, default=None)
        restored = sum(map(len, missing.values()))
        progress = progress_of(
            commit, reports, self._counts(reports), attempts, restored, closing=rows is None
        )
        progress = replace(
            progress,
            duration_s=time.time() - started,
            phases_s=dict(self._phases),
            finished_at=time.time(),
        )
        progress = replace(progress, applies=self.applying.progress())
        self.progress.append(progress)
        if self.steering is not None:
            self.steering.after(self, commit, progress, reports)
        return progress

    def _tasks(self, step: int, marks: Watermarks) -> list[SlotTask]:
        """The tasks of a step, one for each level."""
        checkpoint, levels = (
            self.checkpoint,
            max(self.plan.levels, 1),
        )  # without any state, one with nothing to do
        return [
            SlotTask(
                components=tuple(
                    self._component(each, step, marks) for each in self.plan.at(level)
                ),
                checkpoint=checkpoint.files,
                checkpoint_id=checkpoint.header.id,
                state=self.settings.state,
                step=step,
                epoch=checkpoint.epoch,
                job=0,
                marks=marks,
                onward=self.levels.onward if level < levels else None,
                faults=self.settings.faults.behind(self.last.replans if self.last else 0),
            )
            for level in range(1, levels + 1)
        ]

    def _component(self, component: Component, step: int, marks: Watermarks) -> ComponentTask:
        route = self.routes[component.name]
        nodes = tuple(self._node(node, step, marks) for node in component.nodes)
        return ComponentTask(
            name=component.name, route=route.slot_of, slots=route.slots, nodes=nodes
        )

    def _node(self, node: Node, step: int, marks: Watermarks) -> NodeTask:
        inflow = self.levels.inflow(node)
        chains = {
            shard: [(s.delta[1], s.snapshot[1] if s.snapshot else None) for s in chain]
            for shard, chain in self.checkpoint.chains.get(node.name, {}).items()
            if node.plan.needs_snapshots
        }
        return NodeTask(
            number=next(i for i, each in enumerate(self.plan.nodes) if each.name == node.name),
            operator=node.operator,
            plan=node.plan,
            rows=inflow.rows,
            emits=inflow.emits,
            written=any(each.operator == node.operator and not each.late for each in self.outlets),
            late=any(each.operator == node.operator and each.late for each in self.outlets),
            committed=self.checkpoint.versions(node.name),
            snapshot=frozenset(snapshots_due(chains, self.checkpoint.header.shards)),
            others=tuple(
                each.plan for each in self.plan.sibling_parts(node) if each.name != node.name
            ),
            first=self.plan.is_first_part(node),
            early=not marks.finish and self._early_due(node, step),
            seen=self.levels.lift.seen_in(node) if node in self.levels.lift.nodes else None,
        )

    def _early_due(self, node: Node, step: int) -> bool:
        """Whether this step writes early results. A step that runs again replaces all that it wrote, so it may decide anew."""
        early = node.early
        if early is None:
            return False
        if early.steps is not None:
            return step % early.steps == 0
        now = time.monotonic()
        due = (
            early.us is not None
            and now - self._early_at.setdefault(node.name, now) >= early.us / 1e6
        )
        self._early_at[node.name] = now if due else self._early_at[node.name]
        return due

    def _run(self, rows: DataFrame | None, tasks: Sequence[SlotTask]) -> tuple[list[Report], int]:
        """Runs the job until it succeeds, a few times at most.

        What crashed two attempts may be node-local state that kills its readers: later ones do not open it any more.
        """
        step, marks = tasks[0].step, tasks[0].marks
        for attempt in itertools.count(1):
            last_chance = attempt > self.settings.retries
            distrust = attempt > min(self.settings.retries, _TRUSTING_ATTEMPTS)
            job = next(self._jobs)
            tried = [replace(task, job=job, distrust=distrust) for task in tasks]
            try:
                ready = self.applying.frame(rows, self.levels.stages, tried[0], self.routes)
                frame = self.levels.job(
                    self.session, ready, tried, self.routes, marks.late_before_us, self.way
                )
                reports = [msgspec.json.decode(row.report, type=Report) for row in frame.collect()]
                self.applying.hear(job)
                check_complete(
                    reports,
                    [
                        (c.name, n)
                        for task in tried
                        for c in task.components
                        for n in range(c.slots)
                    ],
                )
                return reports, attempt
            except Exception as error:
                cause, permanent = cause_of(error)
                if last_chance or permanent:
                    raise StepError(
                        f"step {step} of {self.plan.topology!r} failed {attempt} times: {cause}"
                    ) from error
                self.event("retry", f"step {step}: attempt {attempt} failed: {cause}")
        raise AssertionError

    @property
    def way(self) -> str:
        """Whether the next step lifts or routes first."""
        return self.lifting.way if self.settings.lift == AUTO else self.settings.lift

    def _learn(self, reports: Sequence[Report]) -> None:
        """Chooses the way of the next step by what this one has measured."""
        lifted = {
            node.name
            for node in self.levels.lift.nodes
            if node.plan.travel is not Travel.ROW_BY_ROW
        }
        nodes = [each for name, each in nodes_in(reports) if name in lifted]
        rows = sum(shard.rows_in for each in nodes for shard in each.shards.values())
        seen = LiftCounts(
            rows, sum(each.arrived for each in nodes), sum(each.distinct for each in nodes)
        )
        before, self.lifting = self.lifting, self.lifting.next(seen)
        if self.settings.lift == AUTO and self.lifting.way != before.way:
            self.event("lift", f"{self.lifting.way}: {self.lifting.reason}")
        for text in self.applying.learn():
            self.event("grouping", text)
        self.statistics.groupings = {
            name: f"{g.way}: {g.reason}" for name, g in self.applying.groupings.items()
        }

    def tidy(self) -> None:
        """Deletes what nothing needs any more, and saves what was measured."""
        self.checkpoint.clean()
        if self.last is not None:
            self.statistics.save(self.checkpoint.files)
        if self.steering is not None:
            self.steering.save(self)
        if self.log is not None:
            self.log.flush()

    def rest(self) -> None:
        """Saves what waits to be saved when no step follows for now."""
        if self.steering is not None:
            self.steering.end(self)
        if self.log is not None:
            self.log.flush()

    def _measure(self, reports: Sequence[Report]) -> None:
        """Keeps what planners go by: rows of each operator, by shard, and its state."""
        for node in self.plan.nodes:
            mine = [each.shards for name, each in nodes_in(reports) if name == node.name]
            loads = {shard: s.rows_in for each in mine for shard, s in each.items()}
            out = sum(s.rows_out for each in mine for s in each.values())
            size = sum(s.state_bytes for each in mine for s in each.values())
            if self.plan.is_first_part(node) and node.plan.holds_state:
                by = tuple(each.name for each in self.plan.component_of(node.name).attributes)
                shards = range(self.checkpoint.header.shards)
                self.statistics.add(
                    node.operator, by, [loads.get(shard, 0) for shard in shards], out, size
                )

    def _restore(
        self, rows: DataFrame | None, tasks: Sequence[SlotTask], missing: Missing
    ) -> list[Report]:
        """Runs the step again, with missing shards taken from the durable log first; what is lost meanwhile, again.

        All of it runs again, not only the rows of these shards: what they had to give to later levels is part of the step.
        """
        found = sum(map(len, missing.values()))
        for _ in range(1 + self.settings.retries):
            reports, _attempts = self._run(rows, [self._restoring(task, missing) for task in tasks])
            missing = missing_in(reports)
            if not missing:
                self.event(
                    "restore", f"step {tasks[0].step}: {found} shards restored from the durable log"
                )
                return reports
        names = "; ".join(f"{list(shards)} of {name!r}" for name, shards in missing.items())
        raise StepError(
            f"step {tasks[0].step}: shards {names} could not be restored from {self.checkpoint.files.location}"
        )

    def _restoring(self, task: SlotTask, missing: Missing) -> SlotTask:
        def restored(node: NodeTask) -> NodeTask:
            chains = self.checkpoint.chains.get(node.plan.part, {})
            lost: dict[int, list[Stored]] = {
                shard: chains.get(shard, []) for shard in missing.get(node.plan.part, ())
            }
            return replace(node, restore=lost)

        components = (
            replace(each, nodes=tuple(restored(node) for node in each.nodes))
            for each in task.components
        )
        return replace(task, components=tuple(components))

    def _write_sinks(self, step: int, reports: Sequence[Report]) -> None:
        self._fault("sinks.before", step)
        half = (len(self.outlets) - 1) // 2
        for i, outlet in enumerate(self.outlets):
            parts = {node.name for node in self.plan.parts_of(outlet.operator)}
            mine = [each for name, each in nodes_in(reports) if name in parts]
            written = [each.late if outlet.late else each.results for each in mine]
            names = tuple(each.path for each in written if each is not None)
            if self.plan.applied(outlet.operator):
                names = tuple(self.applying.files(outlet.operator, letters=outlet.late))
            try:
                outlet.target.write(self.results(outlet.operator, step, names, late=outlet.late))
            except Exception as error:
                raise StepError(f"sink {outlet.name!r} failed in step {step}: {error}") from error
            if i == half:
                self._fault("sinks.half", step)
        self._fault("sinks.after", step)

    def results(
        self, operator: str, step: int, names: tuple[str, ...], *, late: bool
    ) -> StepResults:
        """The results, or the late rows, of an operator in a step as sinks see them."""
        if (operator, late) not in self._schemas and self.plan.applied(operator):
            self._schemas[operator, late] = self.applying.schemas(operator, letters=late)
        if (operator, late) not in self._schemas:
            self._schemas[operator, late] = (late_schema if late else spark_schema)(
                self.plan.parts_of(operator)[0]
            )
        spark, arrow = self._schemas[operator, late]
        first = None if self.progress else self.first_step
        return StepResults(
            step, self.checkpoint.files, names, spark, arrow, self.session, again=first
        )

    def _commit(
        self,
        task: SlotTask,
        reports: Sequence[Report],
        batch_id: int | None,
        seen: Mapping[str, int],
    ) -> Commit:
        last, now = self.last, time.monotonic()
        stored: dict[PartId, dict[int, Stored]] = {}
        for name, each in nodes_in(reports):
            stored.setdefault(name, {}).update(
                {shard: s.stored for shard, s in each.shards.items() if s.stored}
            )
        known = dict(last.seen) if last else {}
        for source, us in seen.items():
            self._heard_at[source] = now
            known[source] = max(us, known.get(source, us))
        closed = [each.until_us for _, each in nodes_in(reports) if each.until_us is not None]
        totals = dict(last.rows) if last else {}
        for what, count in self._counts(reports).items():
            totals[what] = totals.get(what, 0) + count
        until_us = task.marks.close_until_us
        watermark_us = max(closed, default=until_us) if task.marks.finish else until_us
        return Commit(
            step=task.step,
            epoch=self.checkpoint.epoch,
            batch_id=(last.batch_id if last else None) if batch_id is None else batch_id,
            watermark_us=watermark_us,
            next_us=self._ahead(known, watermark_us),
            seen=known,
            routes=dict(self.routes),
            stored=stored,
            attributes=attributes_of(self.plan),
            replans=last.replans if last else 0,
            rows=totals,
            keys_in=moving_mean(last.keys_in if last else {}, reports),
        )

    def _counts(self, reports: Sequence[Report]) -> dict[str, int]:
        """Rows that operators took from sources, results that were written, and rows that were left out, by reason."""
        sources = {source.name for source in self.plan.sources}
        firsts = {
            self.plan.sibling_parts(n)[0].name
            for n in self.levels.lift.nodes
            if n.feed.stream in sources
        }
        sinks = {outlet.operator for outlet in self.outlets if not outlet.late}
        written = {node.name for node in self.plan.nodes if node.operator in sinks}
        counts = self.applying.counts(sinks)
        for name, each in nodes_in(reports):
            counts["in"] += (
                sum(shard.rows_in for shard in each.shards.values()) if name in firsts else 0
            )
            counts["out"] += (
                sum(shard.rows_out for shard in each.shards.values()) if name in written else 0
            )
            for reason, rows in each.left_out.items():
                counts[reason] = counts.get(reason, 0) + rows
        return counts

    @property
    def slots(self) -> int:
        """The slots of the component that has most."""
        return self.pending.slots or max(route.slots for route in self.routes.values())

    def _apply_pending(self) -> None:
        """Decisions take effect here, between two steps."""
        if self.steering is not None:
            self.steering.before(self)
        plan = self.pending.take_plan(self.plan)
        if plan is not None:
            self._replan(plan)
        for name, before, after in list(self.pending.take_routes(self.routes)):
            self.routes[name] = after
            if name == APPLIES:
                self.event("resize", f"slots of applies {before.slots} -> {after.slots}")
                continue
            self.event(*told_of(before, after, f" of {name!r}" if len(self.routes) > 1 else ""))

    def _replan(self, plan: Plan) -> None:
        """Goes on with other components; state that lies in other shards than they want is written anew."""
        before, cost = [c.name for c in self.plan.components], plan.fusion.communication
        slots = max(route.slots for route in self.routes.values())
        routes = routes_for(plan.routed, self.routes, self.checkpoint.header.shards, slots)
        plan = over_checkpoint(plan, self.checkpoint)
        moved = reshard(self.session, self.checkpoint, plan, routes)
        self.plan, self.routes = plan, routes
        self.levels = Levels(plan, self.checkpoint.header.shards, self._late, self.levels.lift)
        names = ", ".join(str(c.name) for c in plan.components)
        text = f"components {', '.join(map(str, before))} -> {names} by {plan.fusion.planner}, {cost:,.6g} rows a step between them"
        self.event("plan", f"{text}; state in other shards: {', '.join(map(str, moved)) or 'none'}")

    def event(self, kind: str, text: str, figures: Mapping[str, float] | None = None) -> None:
        """Tells what a person should know, and notes it beside the checkpoint."""
        number = self.last.step + 1 if self.last else 1
        event = Event(at=time.time(), step=number, kind=kind, text=text, figures=figures or {})
        self.events.append(event)
        if self.log is not None:
            try:
                self.log.add(event)
            except OSError as error:
                self.log = None
                self.event("log", f"events are not written beside the checkpoint any more: {error}")

    def _fault(self, point: str, step: int) -> None:
        self.settings.faults.at(point, step - (self.last.replans if self.last else 0))

    def _phase(self, name: str, mark: float) -> float:
        now = time.perf_counter()
        self._phases[name] = self._phases.get(name, 0.0) + now - mark
        return now
