"""The step protocol: changes, tasks, job, restore, sinks, commit, observation.

Every step happens exactly once, whatever crashes where.

Anabranch numbers steps itself, and state is versioned by step. A row is late by the watermark of
the step before. Windows close by the watermark of this step. Both come from the previous commit
record, so a step that runs again is the same step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from anabranch.elastic.observation import Observation
from anabranch.errors import CheckpointError
from anabranch.metrics import Progress
from anabranch.observer import Event, Observers
from anabranch.plan.ids import PartId
from anabranch.runtime.reports import StepReports
from anabranch.runtime.tasks import Watermarks
from anabranch.spark.driver.changes import Changes, Requests, apply_changes
from anabranch.spark.driver.context import Notice, RunContext, RunState
from anabranch.spark.driver.control import Controller
from anabranch.spark.driver.job import JobResult, JobRunner
from anabranch.spark.driver.learn import learned
from anabranch.spark.driver.observe import Conditions, SparkQuery, StepWatch, observe
from anabranch.spark.driver.outputs import Outputs
from anabranch.spark.driver.progress import apply_progress, progress_of
from anabranch.spark.driver.record import (
    StepOutcome,
    commit_of,
    counts_of,
    jump_notice,
    next_watermark,
)
from anabranch.spark.driver.tasks import StepTasks, apply_tasks, early_results, step_tasks
from anabranch.state.checkpoint.commits import Commit

_CLEAN_EVERY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInput:
    """The input of a step: the rows of a batch, or none in a closing step."""

    query: SparkQuery
    rows: DataFrame | None = None
    batch_id: int | None = None
    finish: bool = False  # close every window, whatever the watermark


class Timer:
    """The time of a step and of its phases."""

    def __init__(self) -> None:
        self.started = time.time()
        self.phases_s: dict[str, float] = {}
        self._mark = time.perf_counter()

    def ends(self, phase: str) -> None:
        """Ends a phase. It began where the last one ended."""
        now = time.perf_counter()
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + now - self._mark
        self._mark = now


class Stepper:
    """Runs the steps of a run, one at a time. It is not thread-safe."""

    def __init__(
        self,
        context: RunContext,
        state: RunState,
        controller: Controller,
        observers: Observers,
        conditions: Conditions,
    ) -> None:
        self.context, self.state = context, state
        self.controller, self.observers = controller, observers
        self.requests = Requests(context.shards)
        self.outputs = Outputs(context)
        self._jobs = JobRunner(context, self.notify)
        self._watch, self._conditions = StepWatch(), conditions

    def batch(self, rows: DataFrame, batch_id: int, query: SparkQuery) -> Progress | None:
        """Runs the step of a batch. If the batch is committed already, returns None at once."""
        last = self.context.checkpoint.last
        done = last.batch_id if last else None
        if done is not None and batch_id == done:
            text = f"batch {batch_id} is committed already; nothing to do"
            self.notify(Notice("batch again", text))
            return None
        expected = 0 if done is None else done + 1
        if batch_id != expected:
            raise CheckpointError(
                f"Spark runs batch {batch_id}, but checkpoint "
                f"{self.context.checkpoint.files.location} expects batch {expected}: Spark's own "
                "checkpoint (its directory 'spark') does not belong to it. Restore both, or "
                "start with a new checkpoint"
            )
        return self._step(StepInput(rows=rows, batch_id=batch_id, query=query))

    def close(self, query: SparkQuery, *, finish: bool = False) -> Progress:
        """Runs a closing step. It closes the windows that the watermark allows; `finish`: all."""
        return self._step(StepInput(query=query, finish=finish))

    def _step(self, given: StepInput) -> Progress:
        """One step, from the changes before it to what is learned from it."""
        timer, checkpoint = Timer(), self.context.checkpoint
        self._fault("step.begin")
        self.state = state = self._changed(given.query)
        tasks, state = self._tasks(state, given)
        self._fault("job.before")
        job = self._jobs.run(given.rows, tasks, state)
        timer.ends("job")
        self._fault("job.after")
        if missing := job.reports.missing():
            self._fault("restore.before")
            reports = self._jobs.restore(given.rows, tasks, state, missing)
            job = replace(job, reports=reports, restored=sum(map(len, missing.values())))
            timer.ends("restore")
        self.outputs.write(state, tasks.step, job.reports, self._fault)
        timer.ends("sinks")
        outcome = self._outcome(state, given, tasks, job.reports)
        state = _with_rows(state, outcome.event_us)
        commit = commit_of(self.context, state, outcome, _silent_s(state))
        jump = jump_notice(checkpoint.last, commit, outcome.event_us)
        self._fault("commit.before")
        checkpoint.commit(commit)
        self.notify(*jump, step=commit.step)
        self._fault("commit.after", committed=True)
        timer.ends("commit")
        if commit.step % _CLEAN_EVERY == 0:
            self.compact()
        self._fault("clean.after", committed=True)
        timer.ends("clean")
        return self._observed(state, commit, outcome, job, timer)

    def _changed(self, query: SparkQuery) -> RunState:
        """The state with the changes that users and the controller want before this step."""
        decided = Changes()
        seen = self._complete(query)
        if seen is not None:
            rates = self.context.statistics.rates()
            verdict = self.controller.decide(seen, self.state.plan, rates)
            self.notify(*verdict.notices)
            if verdict.pause_s:
                time.sleep(verdict.pause_s)
            decided = verdict.changes
        changes = self.requests.take().then(decided)
        state, notices = apply_changes(self.context, self.state, changes)
        self.notify(*notices)
        return state

    def _tasks(self, state: RunState, given: StepInput) -> tuple[StepTasks, RunState]:
        """The tasks of the step, and the state with the time of its early results."""
        last = self.context.checkpoint.last
        marks = Watermarks(
            late_before_us=last.watermark_us if last else None,
            close_until_us=last.next_us if last else None,
            finish=given.finish,
            clock_us=None if given.batch_id is None else given.query.clock_us(given.batch_id),
        )
        early: set[PartId] = set()
        if not given.finish:
            early, written_at = early_results(
                state.plan, self.context.next_step, state.early_at, time.monotonic()
            )
            state = replace(state, early_at=written_at)
        tasks = StepTasks(
            slots=step_tasks(self.context, state, marks, early),
            applies=() if given.rows is None else apply_tasks(self.context, state),
        )
        return tasks, state

    def _outcome(
        self, state: RunState, given: StepInput, tasks: StepTasks, reports: StepReports
    ) -> StepOutcome:
        observed = {} if given.rows is None else given.query.event_times()
        watched = reports.latest_event_us(state.levels.lift.watched)
        return StepOutcome(
            step=tasks.step,
            batch_id=given.batch_id,
            marks=tasks.marks,
            reports=reports,
            counts=counts_of(state.plan, self.context.outlets, reports),
            event_us={**observed, **watched},
        )

    def _observed(
        self,
        state: RunState,
        commit: Commit,
        outcome: StepOutcome,
        job: JobResult,
        timer: Timer,
    ) -> Progress:
        """Reports the step to observers, and keeps what later steps need."""
        reports, groupings = outcome.reports, state.groupings
        state = replace(state, next_end_us=reports.next_end_us(), written_from=None)
        if outcome.batch_id is not None:
            state, notices = learned(self.context, state, reports)
            self.notify(*notices)
        self.state = state
        progress = progress_of(
            commit,
            outcome,
            job,
            applies=apply_progress(reports, groupings, state.groupings),
            phases_s=timer.phases_s,
            times=(timer.started, time.time()),
        )
        seen = observe(state.plan, commit, progress, reports.slots, self._conditions)
        self._watch.keep(seen, progress.batch_id)
        self.observers.step(progress)
        self._report_failures()
        return progress

    def _complete(self, query: SparkQuery) -> Observation | None:
        """The observation of the last step, which observers get. None if they have got it."""
        seen = self._watch.complete(query)
        if seen is not None:
            self.observers.observation(seen)
        return seen

    def can_close(self) -> bool:
        """True when a closing step would close a window."""
        last, end_us = self.context.checkpoint.last, self.state.next_end_us
        if last is None or last.next_us is None or end_us is None:
            return False
        return end_us <= last.next_us

    def watermark_advances(self) -> bool:
        """True if a step without input would have a later watermark, and there is state."""
        last = self.context.checkpoint.last
        if last is None or not self.state.plan.nodes:
            return False
        return last.next_us != last.watermark_us

    def idle_advances(self) -> bool:
        """True if a source has been silent for so long that the watermark advances without it."""
        last, state = self.context.checkpoint.last, self.state
        if last is None or not state.plan.nodes:
            return False
        ahead = next_watermark(state.plan.sources, last.seen, _silent_s(state), last.watermark_us)
        return ahead != last.next_us

    def compact(self) -> None:
        """Deletes files that are not needed any more, and saves what was measured."""
        checkpoint = self.context.checkpoint
        checkpoint.clean()
        if checkpoint.last is not None:
            self.context.statistics.save(checkpoint.files)
        self.observers.flush()
        self._report_failures()

    def flush(self, query: SparkQuery) -> None:
        """Passes the last step to observers, and makes them write everything. Called at the end."""
        self._complete(query)
        self.observers.flush()
        self._report_failures()

    def notify(self, *notices: Notice, step: int | None = None) -> None:
        """Reports events. They belong to the next step, unless another step is given."""
        step = self.context.next_step if step is None else step
        for kind, text, figures in notices:
            self.observers.event(
                Event(at=time.time(), step=step, kind=kind, text=text, figures=figures)
            )
        self._report_failures()

    def _report_failures(self) -> None:
        """Reports observers that have failed and were detached."""
        while failures := self.observers.failures():
            self.notify(*(Notice("observer", each) for each in failures))

    def _fault(self, point: str, *, committed: bool = False) -> None:
        """A named point of the protocol. Steps that only rewrote state are not counted."""
        step = self.context.next_step - (1 if committed else 0)
        self.context.settings.faults.at(point, step - self.context.replans)


def _with_rows(state: RunState, event_us: Mapping[str, int]) -> RunState:
    """The state, with the current time for the sources that had rows in this step."""
    now = time.monotonic()
    return replace(state, rows_at={**state.rows_at, **dict.fromkeys(event_us, now)})


def _silent_s(state: RunState) -> dict[str, float]:
    """For how long each source has had no rows."""
    now = time.monotonic()
    return {source: now - at for source, at in state.rows_at.items()}
