"""The job of a step. It runs until every task has reported, with missing shards restored."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from anabranch.errors import StepError
from anabranch.plan.ids import APPLIES
from anabranch.plan.lifting import AUTO
from anabranch.runtime.reports import StepReports
from anabranch.spark.batches import SUMMED, Batches, JobForm, large_row
from anabranch.spark.driver.causes import cause_of
from anabranch.spark.driver.context import Notice, RunContext, RunState
from anabranch.spark.driver.tasks import Missing, StepTasks
from anabranch.spark.quiet import quiet_expressions

_TRUSTING_ATTEMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a job reported, and how many attempts it took."""

    reports: StepReports
    attempts: int
    restored: int = 0  # shards


class JobRunner:
    """Runs the jobs of a run. Each attempt has a number of its own."""

    def __init__(self, context: RunContext, notify: Callable[[Notice], None]) -> None:
        self._context, self._notify = context, notify
        self._numbers = itertools.count(1)
        self._batches = Batches()

    def run(self, rows: DataFrame | None, tasks: StepTasks, state: RunState) -> JobResult:
        """Runs the job until it succeeds, or until there are no retries left.

        Node-local state may be so damaged that reading it crashes the process. So attempts after
        the second do not open it.
        """
        retries = self._context.settings.retries
        attempt = 1
        while True:
            distrust = attempt > min(retries, _TRUSTING_ATTEMPTS)
            tried = tasks.attempt(next(self._numbers), distrust=distrust)
            try:
                return JobResult(reports=self._collect(rows, tried, state), attempts=attempt)
            except Exception as error:  # noqa: BLE001 - a job may fail for any reason
                if self._makes_smaller_batches(tasks.step, large_row(error)):
                    continue
                cause, permanent = cause_of(error)
                if attempt > retries or permanent:
                    times = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                    raise StepError(
                        f"step {tasks.step} of {state.plan.topology!r} failed after {times}: "
                        f"{cause}"
                    ) from None
                text = f"step {tasks.step}: attempt {attempt} failed: {cause}"
                self._notify(Notice("retry", text))
                attempt += 1

    def _makes_smaller_batches(self, step: int, row_bytes: int | None) -> bool:
        """Whether the job can run again with smaller batches, because a row was too large."""
        if row_bytes is None or not self._batches.lower(row_bytes):
            return False
        limit = self._batches.limit
        most = f"{limit.bytes >> 20} MB" if limit.row_bytes is None else f"{limit.rows} rows"
        text = f"step {step}: a row has {row_bytes:,} bytes; batches now have at most {most}"
        self._notify(Notice("batches", text))
        return True

    def restore(
        self, rows: DataFrame | None, tasks: StepTasks, state: RunState, missing: Missing
    ) -> StepReports:
        """Runs the step again, and restores missing shards from the durable log first.

        The whole step runs again, not only the rows of these shards: later levels need what these
        shards send them. If more shards are lost meanwhile, the next turn restores them.
        """
        found = sum(map(len, missing.values()))
        checkpoint = self._context.checkpoint
        for _ in range(1 + self._context.settings.retries):
            reports = self.run(rows, tasks.restoring(missing, checkpoint), state).reports
            missing = reports.missing()
            if not missing:
                text = f"step {tasks.step}: {found} shards restored from the durable log"
                self._notify(Notice("restore", text))
                return reports
        names = "; ".join(f"{list(shards)} of {f'{name}'!r}" for name, shards in missing.items())
        raise StepError(
            f"step {tasks.step}: shards {names} could not be restored from "
            f"{checkpoint.files.location}"
        )

    def _collect(self, rows: DataFrame | None, tasks: StepTasks, state: RunState) -> StepReports:
        """Runs one Spark job with one action. Returns its reports; raises if one is missing."""
        levels, limit = state.levels, SUMMED if rows is None else self._batches.limit
        if tasks.applies and rows is not None:
            slots = state.routes[APPLIES].slots
            rows = levels.stages(rows, tasks.applies, state.groupings, slots, limit)
        lift = self._context.settings.lift
        frame = levels.job(
            self._context.session,
            rows,
            tasks.slots,
            state.routes,
            tasks.marks,
            JobForm(state.lifting.way if lift == AUTO else lift, limit),
        )
        with quiet_expressions():
            reports = StepReports.decoded(row.report for row in frame.collect())
        reports.check_complete(tasks.expected())
        if rows is not None:
            self._batches.step_done()
        return reports
