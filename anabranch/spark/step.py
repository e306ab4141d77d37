"""The step protocol: one job, then missing shards, sinks, commit. Exactly once, whatever crashes where.

A step is numbered by us; state is versioned by step. Rows are judged late by the previous step's watermark, windows close by this
step's, and both come from the commit record before, so that a step that runs again is the same step.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from anabranch.errors import CheckpointError, StepError, TopologyError
from anabranch.faults import Faults
from anabranch.plan.component import Component
from anabranch.plan.lifting import AUTO, Lifted, Lifting
from anabranch.plan.route import Route, snapshots_due
from anabranch.spark.lift import Lift
from anabranch.spark.progress import Event, Progress
from anabranch.spark.reports import Report
from anabranch.spark.schemas import late_schema, spark_schema
from anabranch.spark.sinks import StepResults, Target
from anabranch.spark.slot_task import REPORT_SCHEMA, SlotTask, StateSettings
from anabranch.state.commits import Checkpoint, Commit, Stored

_CLEAN_EVERY = 8
_KEPT_PROGRESS = 10_000
_TRUSTING_ATTEMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """A sink of a component: where its results, or its late rows, go to."""

    name: str
    late: bool
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run behaves; what the topology does not say."""

    retries: int
    state: StateSettings
    lift: str = AUTO
    faults: Faults = field(default_factory=Faults)


class Stepper:
    """Runs steps of one component, one at a time. Not for several threads at once."""

    def __init__(
        self,
        session: SparkSession,
        component: Component,
        checkpoint: Checkpoint,
        outlets: Sequence[Outlet],
        settings: Settings,
        route: Route,
    ) -> None:
        self.session, self.component, self.checkpoint = session, component, checkpoint
        self.outlets, self.settings, self.route = tuple(outlets), settings, route
        self.wanted_slots: int | None = None
        self.progress: deque[Progress] = deque(maxlen=_KEPT_PROGRESS)
        self.events: deque[Event] = deque(maxlen=_KEPT_PROGRESS)
        self.next_end_us: int | None = None
        self._jobs = itertools.count(1)
        self._lift = Lift(component)
        self.lifting = Lifting()
        self._early_at = time.monotonic()
        self._phases: dict[str, float] = {}

    @property
    def last(self) -> Commit | None:
        return self.checkpoint.last

    def watermark(self) -> int | None:
        """The watermark of the next step: what has been seen up to the last one, minus the delay."""
        last = self.last
        if last is None or last.max_event_us is None:
            return None if last is None else last.watermark_us
        seen = last.max_event_us - self.component.source.delay_us
        return seen if last.watermark_us is None else max(last.watermark_us, seen)

    def can_close(self) -> bool:
        """True when a closing step would close a window."""
        watermark = self.watermark()
        return watermark is not None and self.next_end_us is not None and self.next_end_us <= watermark

    def watermark_advances(self) -> bool:
        """True when a step without input would have a later watermark than the last one."""
        return self.last is not None and self.watermark() != self.last.watermark_us

    def batch(self, rows: DataFrame, batch_id: int, observed: Callable[[], int | None]) -> Progress | None:
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
        return self._step(None, None, lambda: None, finish=finish)

    def _step(
        self, rows: DataFrame | None, batch_id: int | None, observed: Callable[[], int | None], *, finish: bool = False
    ) -> Progress:
        started, last = time.time(), self.last
        step = 1 if last is None else last.step + 1
        self._phases, mark = {}, time.perf_counter()
        self._fault("step.begin", step)
        self._apply_pending(step)
        task = self._task(step, finish=finish)
        self._fault("job.before", step)
        reports, attempts = self._run(rows, task)
        mark = self._phase("job", mark)
        self._fault("job.after", step)
        missing = sorted(shard for report in reports for shard in report.missing)
        if missing:
            self._fault("restore.before", step)
            reports += self._restore(rows, task, missing)
            mark = self._phase("restore", mark)
        self._write_sinks(step, reports)
        mark = self._phase("sinks", mark)
        commit = self._commit(task, reports, batch_id, observed())
        self._fault("commit.before", step)
        self.checkpoint.commit(commit)
        self._fault("commit.after", step)
        mark = self._phase("commit", mark)
        if step % _CLEAN_EVERY == 0:
            self.checkpoint.clean()
        self._fault("clean.after", step)
        self._phase("clean", mark)
        if rows is not None:
            self._learn(reports)
        ends = [report.next_end_us for report in reports if report.next_end_us is not None]
        self.next_end_us = min(ends, default=None)
        progress = _progress(commit, reports, attempts, len(missing), closing=rows is None)
        progress = replace(progress, duration_s=time.time() - started, phases_s=dict(self._phases), finished_at=time.time())
        self.progress.append(progress)
        return progress

    def _task(self, step: int, *, finish: bool) -> SlotTask:
        checkpoint = self.checkpoint
        chains = {
            shard: [(s.delta[1], s.snapshot[1] if s.snapshot else None) for s in chain]
            for shard, chain in checkpoint.chains.items()
        }
        committed = {shard: version for shard in checkpoint.chains if (version := checkpoint.version(shard))}
        return SlotTask(
            plan=self.component.slotted,
            checkpoint=checkpoint.files,
            checkpoint_id=checkpoint.header.id,
            state=self.settings.state,
            step=step,
            epoch=checkpoint.epoch,
            job=0,
            route=self.route.slot_of,
            committed=committed,
            snapshot=frozenset(snapshots_due(chains, checkpoint.header.shards)),
            after_us=self.last.watermark_us if self.last else None,
            until_us=self.watermark(),
            finish=finish,
            early=not finish and self._early_due(step),
            faults=self.settings.faults,
        )

    def _early_due(self, step: int) -> bool:
        """Whether this step writes early results. A step that runs again replaces all that it wrote, so it may decide anew."""
        early = self.component.consolidate.early
        if early is None:
            return False
        if early.steps is not None:
            return step % early.steps == 0
        now = time.monotonic()
        due = early.us is not None and now - self._early_at >= early.us / 1e6
        self._early_at = now if due else self._early_at
        return due

    def _run(self, rows: DataFrame | None, task: SlotTask) -> tuple[list[Report], int]:
        """Runs the job until it succeeds, a few times at most.

        What crashed two attempts may be node-local state that kills its readers: later ones do not open it any more.
        """
        for attempt in itertools.count(1):
            last_chance = attempt > self.settings.retries
            distrust = attempt > min(self.settings.retries, _TRUSTING_ATTEMPTS)
            tried = replace(task, job=next(self._jobs), distrust=distrust)
            try:
                collected = self._job(rows, tried).collect()
                return [msgspec.json.decode(row.report, type=Report) for row in collected], attempt
            except Exception as error:
                cause, permanent = cause_of(error)
                if last_chance or permanent:
                    raise StepError(f"step {task.step} of {self.component.name!r} failed {attempt} times: {cause}") from error
                self.event("retry", f"step {task.step}: attempt {attempt} failed: {cause}")
        raise AssertionError

    def _job(self, rows: DataFrame | None, task: SlotTask) -> DataFrame:
        slots = self.route.slots
        if rows is None:
            return self.session.range(0, slots, 1, slots).mapInArrow(task, REPORT_SCHEMA)
        only = None if task.restore is None else list(task.restore)
        return self._lift(rows, task.after_us, self.route, self.way, only).mapInArrow(task, REPORT_SCHEMA)

    @property
    def way(self) -> str:
        """Whether the next step lifts or routes first."""
        return self.lifting.way if self.settings.lift == AUTO else self.settings.lift

    def _learn(self, reports: Sequence[Report]) -> None:
        """Chooses the way of the next step by what this one has measured."""
        rows = sum(shard.rows_in for report in reports for shard in report.shards.values())
        seen = Lifted(rows, sum(report.arrived for report in reports), sum(report.distinct for report in reports))
        before, self.lifting = self.lifting, self.lifting.next(seen)
        if self.settings.lift == AUTO and self.lifting.way != before.way:
            self.event("lift", f"{self.lifting.way}: {self.lifting.reason}")

    def _restore(self, rows: DataFrame | None, task: SlotTask, missing: Sequence[int]) -> list[Report]:
        """Restores missing shards from the durable log and processes their rows of this step; what is lost meanwhile, again."""
        found: list[Report] = []
        left = list(missing)
        for _ in range(1 + self.settings.retries):
            chains: dict[int, list[Stored]] = {shard: self.checkpoint.chains.get(shard, []) for shard in left}
            reports, _attempts = self._run(rows, replace(task, restore=chains))
            found += reports
            left = sorted(shard for report in reports for shard in report.missing)
            if not left:
                self.event("restore", f"step {task.step}: {len(missing)} shards restored from the durable log")
                return found
        raise StepError(f"step {task.step}: shards {left} could not be restored from {self.checkpoint.files.location}")

    def _write_sinks(self, step: int, reports: Sequence[Report]) -> None:
        self._fault("sinks.before", step)
        half = (len(self.outlets) - 1) // 2
        for i, outlet in enumerate(self.outlets):
            written = [report.late if outlet.late else report.results for report in reports]
            names = tuple(each.path for each in written if each is not None)
            try:
                outlet.target.write(self.results(step, names, late=outlet.late))
            except Exception as error:
                raise StepError(f"sink {outlet.name!r} failed in step {step}: {error}") from error
            if i == half:
                self._fault("sinks.half", step)
        self._fault("sinks.after", step)

    def results(self, step: int, names: tuple[str, ...], *, late: bool) -> StepResults:
        """The results, or the late rows, of a step as sinks see them."""
        spark, arrow = self._late_schema if late else self._schema
        return StepResults(step, self.checkpoint.files, names, spark, arrow, self.session, again=not self.progress)

    @functools.cached_property
    def _schema(self) -> tuple[StructType, pa.Schema]:
        return spark_schema(self.component)

    @functools.cached_property
    def _late_schema(self) -> tuple[StructType, pa.Schema]:
        return late_schema(self.component)

    def _commit(self, task: SlotTask, reports: Sequence[Report], batch_id: int | None, seen_us: int | None) -> Commit:
        last = self.last
        stored = {shard: each.stored for report in reports for shard, each in report.shards.items() if each.stored}
        known = [us for us in (last.max_event_us if last else None, seen_us) if us is not None]
        closed = [report.until_us for report in reports if report.until_us is not None]
        totals = dict(last.rows) if last else {}
        for name, count in _counts(reports).items():
            totals[name] = totals.get(name, 0) + count
        return Commit(
            step=task.step,
            epoch=self.checkpoint.epoch,
            batch_id=(last.batch_id if last else None) if batch_id is None else batch_id,
            watermark_us=max(closed, default=task.until_us) if task.finish else task.until_us,
            max_event_us=max(known, default=None),
            slots=self.route.slots,
            route=self.route.slot_of,
            route_version=self.route.version,
            stored=stored,
            rows=totals,
            keys_in=_moving_mean(last.keys_in if last else {}, reports),
        )

    def _apply_pending(self, step: int) -> None:
        """Decisions take effect here, between two steps."""
        wanted, self.wanted_slots = self.wanted_slots, None
        if wanted is not None and wanted != self.route.slots:
            before = self.route
            self.route = before.resized(wanted)
            moved = sum(a != b for a, b in zip(before.slot_of, self.route.slot_of, strict=True))
            text = (
                f"slots {before.slots} -> {wanted}: {moved} of {len(before.slot_of)} shards have another slot, no state moved"
            )
            self.event("resize", text, step=step)

    def resize(self, slots: int) -> None:
        """Asks for another number of slots from the next step on."""
        shards = self.checkpoint.header.shards
        if not isinstance(slots, int) or not 1 <= slots <= shards:
            raise TopologyError(f"slots={slots!r}; valid: 1 to {shards}, the number of shards of this checkpoint")
        self.wanted_slots = slots

    def event(self, kind: str, text: str, step: int | None = None) -> None:
        """Tells what a person should know."""
        number = step if step is not None else (self.last.step + 1 if self.last else 1)
        self.events.append(Event(at=time.time(), step=number, kind=kind, text=text))

    def _fault(self, point: str, step: int) -> None:
        self.settings.faults.at(point, step)

    def _phase(self, name: str, mark: float) -> float:
        now = time.perf_counter()
        self._phases[name] = self._phases.get(name, 0.0) + now - mark
        return now


def _moving_mean(before: Mapping[int, float], reports: Sequence[Report]) -> dict[int, float]:
    """Keys in intervals of so many panes, over all slots: half the last mean, half this step."""
    now: dict[int, float] = {}
    for report in reports:
        for length, keys in report.keys_in.items():
            now[length] = now.get(length, 0.0) + keys
    return {**before, **{length: (before.get(length, keys) + keys) / 2 for length, keys in now.items()}}


def cause_of(error: BaseException) -> tuple[str, bool]:
    """What went wrong in a job, in one line, and whether trying again cannot help."""
    text = str(error)
    ours = re.findall(r"anabranch\.(?:errors|faults)\.(\w+): (.*)", text)
    if ours:
        return ours[-1][1].strip(), ours[-1][0] in {"StateFullError", "StepError"}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    return (raised or lines or [type(error).__name__])[0][:500], False


def _progress(commit: Commit, reports: Sequence[Report], attempts: int, restored: int, *, closing: bool) -> Progress:
    counts = _counts(reports)
    slot_phases: dict[str, float] = {}
    for report in reports:
        for name, seconds in report.phases.items():
            slot_phases[name] = slot_phases.get(name, 0.0) + seconds
    return Progress(
        step=commit.step,
        batch_id=None if closing else commit.batch_id,
        rows_in=counts.pop("in"),
        rows_out=counts.pop("out"),
        left_out=counts,
        slots=commit.slots,
        shards=len(commit.route),
        watermark_us=commit.watermark_us,
        max_event_us=commit.max_event_us,
        slot_s={report.slot: report.ended - report.started for report in reports},
        slot_phases_s=slot_phases,
        state_bytes=sum(each.state_bytes for report in reports for each in report.shards.values()),
        key_numbers=sum(report.key_numbers for report in reports),
        attempts=attempts,
        restored=restored,
    )


def _counts(reports: Sequence[Report]) -> dict[str, int]:
    counts = {"in": 0, "out": 0}
    for report in reports:
        counts["in"] += sum(each.rows_in for each in report.shards.values())
        counts["out"] += sum(each.rows_out for each in report.shards.values())
        for reason, rows in report.left_out.items():
            counts[reason] = counts.get(reason, 0) + rows
    return counts
