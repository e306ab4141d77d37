"""A running topology: Spark's streaming query runs batches, a thread of ours runs closing steps.

A lock keeps them from running at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.elastic.observation import Decision
from anabranch.errors import AnabranchError, TopologyError
from anabranch.metrics import Progress
from anabranch.observer import Event, RecentSteps
from anabranch.plan.planners.registry import AUTO
from anabranch.spark.api.trigger import Trigger
from anabranch.spark.compile.ahead import observed_micros
from anabranch.spark.driver.causes import cause_of
from anabranch.spark.driver.changes import Changes
from anabranch.spark.driver.control import Planning
from anabranch.spark.driver.observe import SparkQuery
from anabranch.spark.driver.opening import Compiled
from anabranch.spark.driver.source_progress import (
    BatchProgress,
    batch_progress,
    logged_clock_ms,
)
from anabranch.spark.driver.step import Stepper
from anabranch.spark.jvm import batch_clock_ms
from anabranch.spark.quiet import EndsQueryError, quiet_callbacks
from anabranch.state.checkpoint.files import Files
from anabranch.state.store.local import ClaimedState
from anabranch.topology.durations import Duration, duration_us

_POLL_S = 0.1
_SOURCES_S, _SOURCES_PAUSE_S = 30.0, 0.002


class Run:
    """A started topology. It has what Spark's `StreamingQuery` has, under the same names.

    `query` is Spark's own query, which runs the batches.
    """

    query: StreamingQuery
    _spark: StartedQuery

    def __init__(
        self,
        stepper: Stepper,
        recent: RecentSteps,
        make_plan: Planning,
        trigger: Trigger,
        idle_s: float | None,
        state: ClaimedState,
    ) -> None:
        self._stepper, self._recent, self._make_plan = stepper, recent, make_plan
        self._trigger, self._idle_s, self._state = trigger, idle_s, state
        self._finishing = False
        self._lock = threading.Lock()
        self._started = threading.Event()
        self._done = threading.Event()
        self._stopping = False
        self._error: BaseException | None = None
        self._last_step_at = time.monotonic()

    def begin(self, compiled: Compiled, location: str) -> None:
        """Starts Spark's query and the thread that closes windows when no rows come.

        `Topology.start()` calls it.
        """
        writer = compiled.rows.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", location
        )
        if self._trigger.arguments:
            writer = writer.trigger(**self._trigger.arguments)
        quiet_callbacks()
        self.query = writer.start()
        _wait_for_sources(self.query)
        files = self._stepper.context.checkpoint.files
        self._spark = StartedQuery(self.query, compiled.metrics, files)
        self._started.set()
        threading.Thread(target=self._watch, name="anabranch-run", daemon=True).start()

    @property
    def id(self) -> str:
        """The id of the query. A restart from the same checkpoint keeps it."""
        return str(self.query.id)

    @property
    def runId(self) -> str:  # noqa: N802 - as in Spark
        """The id of this start of the query. Every start has a new one."""
        return str(self.query.runId)

    @property
    def name(self) -> str:
        """The name of the topology."""
        return self._stepper.state.plan.topology

    @property
    def isActive(self) -> bool:  # noqa: N802 - as in Spark
        """True until the run has ended."""
        return not self._done.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """What Spark's query is doing now: `message`, `isDataAvailable` and `isTriggerActive`."""
        return self.query.status

    @property
    def lastProgress(self) -> Progress | None:  # noqa: N802 - as in Spark
        """The newest committed step; None before the first.

        It is an `ab.Progress`. Spark's own progress of a batch is `run.query.lastProgress`.
        """
        return next(reversed(self._recent.progress), None)

    @property
    def recentProgress(self) -> list[Progress]:  # noqa: N802 - as in Spark
        """The newest committed steps of this run, oldest first, one `ab.Progress` per step."""
        return list(self._recent.progress)

    @property
    def events(self) -> list[Event]:
        """The newest events, oldest first.

        They report decisions and their effects, resizes, retries, restored shards and so on.
        """
        return list(self._recent.events)

    @property
    def decision(self) -> Decision | None:
        """What the controller decided last, with the reason; None before its first decision."""
        return self._stepper.controller.decision

    @property
    def slots(self) -> int:
        """The number of slots that was asked for last; else the number that the run has.

        Where components have different numbers, it is the largest.
        """
        return self._stepper.requests.waiting.slots or self._stepper.state.slots

    def exception(self) -> BaseException | None:
        """The error that ended the run, without Spark's wrapping.

        None while it runs, or if it ended without an error.
        """
        return self._error

    def resize(self, slots: int) -> None:
        """Changes the number of slots before the next step. No state moves and nothing restarts.

        - slots: of every component, from 1 to the number of shards; else a `TopologyError`.
        """
        self._stepper.requests.resize(slots)

    def reroute(self, slot_of: Sequence[int], component: str | None = None) -> None:
        """Assigns shards to slots before the next step. No state moves and nothing restarts.

        - slot_of: the slot of each shard, in the order of shards.
        - component: the name of the component; by default all components.

        Raises a `TopologyError` if the list does not fit, or if there is no such component.
        """
        self._stepper.requests.reroute(slot_of, component, self._stepper.state.routes)

    def replan(self, planner: str = AUTO) -> None:
        """Divides the topology into components again, before the next step.

        It uses what was measured so far. Results do not change.

        - planner: "auto", "unfused" or another planner.
        """
        plan = self._make_plan(planner, self._stepper.context.statistics.rates())
        self._stepper.requests.add(Changes(plan=plan))

    def awaitTermination(  # noqa: N802 - as in Spark
        self, timeout: float | Duration | None = None
    ) -> bool | None:
        """Waits until the run has ended. If an error ended it, raises that error.

        - timeout: the most seconds to wait, or a time such as "2 minutes"; by default there is no
          limit. With a timeout the result is True if the run has ended, else False.
        """
        ended = self._done.wait(None if timeout is None else _seconds(timeout))
        if ended and (error := self._reason()) is not None:
            raise error from None
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:  # noqa: N802 - as in Spark
        """Waits until all rows that sources have now are in committed steps. It is for tests.

        Then it closes the windows that the watermark allows, unless the run has `idle=None`. If an
        error ended the run, raises that error.
        """
        try:
            self.query.processAllAvailable()
        except Exception:
            if self.query.exception() is not None:
                self.awaitTermination()  # raises the cause without Spark's wrapping
            raise
        by_itself = self._trigger.ends_by_itself  # then the end of the run closes windows
        if self.query.isActive and not by_itself:
            with self._lock:  # a step that runs now ends first
                if self._idle_s is not None:
                    self._close_windows()
            self._stop_after_error()
        if self._error is not None or by_itself or not self.query.isActive:
            self.awaitTermination()

    def stop(self) -> None:
        """Ends the run after the current step. Open windows stay open for the next start."""
        self._stopping = True
        # Wait for the current step. Do not stop Spark under the lock: a batch may wait for it.
        with self._lock:
            pass
        self.query.stop()
        self._done.wait()

    def finish(self) -> None:
        """Ends the run after the current step and closes every open window.

        Node-local state is removed. The checkpoint has what a later start needs. If an error ended
        the run, raises that error.
        """
        self._finishing = True
        self.stop()
        try:
            if (error := self._reason()) is not None:
                raise error from None
            self._state.hold()
            with self._lock:
                self._stepper.close(self._spark, finish=True)
                self._stepper.compact()
                self._stepper.flush(self._spark)
        except BaseException:
            self._state.release()
            raise
        self._state.remove()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        self._started.wait()
        with self._lock:
            if self._stopping or self._error is not None:
                raise EndsQueryError("the run ends")
            try:
                self._stepper.batch(rows, batch_id, self._spark)
            except BaseException as error:  # noqa: BLE001 - kept for the user
                self._error = error
                raise EndsQueryError(f"{type(error).__name__}: {error}") from None
            self._last_step_at = time.monotonic()

    def _watch(self) -> None:
        """Closes windows when no batch comes for a while, and when the input has ended."""
        try:
            while self.query.isActive:
                self.query.awaitTermination(_POLL_S)  # type: ignore[arg-type]  # it takes fractions
                if self._idle_s is not None and not self._trigger.ends_by_itself:
                    self._close_when_idle(self._idle_s)
        except Exception as error:  # noqa: BLE001 - kept for the user
            self._error = self._error or self._plain(error)
        try:
            if self._error is None and not self._stopping and self._trigger.ends_by_itself:
                with self._lock:
                    if self._stepper.watermark_advances():
                        self._stepper.close(self._spark)
                    self._stepper.compact()
            with self._lock:
                self._stepper.flush(self._spark)
        except Exception as error:  # noqa: BLE001 - kept for the user
            self._error = self._error or error
        if not self._finishing:
            self._state.release()
        self._done.set()

    def _close_when_idle(self, idle_s: float) -> None:
        if time.monotonic() - self._last_step_at < idle_s or not self._lock.acquire(blocking=False):
            return
        try:
            self._close_windows()
        finally:
            self._lock.release()
        self._stop_after_error()

    def _close_windows(self) -> None:
        """Runs a closing step if it would close a window. The caller holds the lock."""
        try:
            if not self._stopping and (self._stepper.can_close() or self._stepper.idle_advances()):
                self._stepper.close(self._spark)
                self._last_step_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - kept for the user
            self._error = error

    def _stop_after_error(self) -> None:
        """Stops Spark's query after a closing step that failed.

        Do not call it under the lock: a batch may wait for the lock.
        """
        if self._error is not None:
            self.query.stop()

    def _plain(self, error: Exception) -> BaseException | None:
        """An error without Spark's wrapping; None if the run was stopped on purpose."""
        if self._stopping:
            return None
        deleted = self._stepper.context.checkpoint.deleted()
        return deleted or AnabranchError(f"Spark ended the query: {cause_of(error)[0]}")

    def _reason(self) -> BaseException | None:
        """The error that ended the run. Ours has no traceback: its message says where and why,
        and the frames are those of another thread.
        """
        error = self._error
        return error.with_traceback(None) if isinstance(error, AnabranchError) else error


class StartedQuery(SparkQuery):
    """What steps need to know about Spark's streaming query."""

    def __init__(self, query: StreamingQuery, metrics: Mapping[str, str], files: Files) -> None:
        self._query, self._files = query, files
        self._metrics = metrics  # names of Spark's observations, by source

    def clock_us(self, batch_id: int) -> int:
        """When Spark made a batch. Spark logs it before the batch runs, so it is the same if the
        batch runs again.
        """
        logged = batch_clock_ms(self._query, batch_id)
        if logged is None:
            logged = logged_clock_ms(self._files.read(f"spark/offsets/{batch_id}"))
        return 1000 * logged

    def event_times(self) -> dict[str, int]:
        metrics = self._query._jsq.streamingQuery().lastExecution().observedMetrics()
        found = {source: observed_micros(metrics, name) for source, name in self._metrics.items()}
        return {source: us for source, us in found.items() if us is not None}

    def last_progress(self) -> BatchProgress | None:
        progress = self._query._jsq.lastProgress()
        return None if progress is None else batch_progress(progress.json())


def _seconds(timeout: object) -> float:
    """The seconds to wait, from a number of seconds, as in Spark, or a time such as "2 minutes"."""
    if isinstance(timeout, str | timedelta):
        return duration_us(timeout, "timeout") / 1e6
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise TopologyError(
            f"timeout={timeout!r}; valid: a positive number of seconds, or a time such as "
            "'2 minutes'"
        )
    return float(timeout)


def _wait_for_sources(query: StreamingQuery) -> None:
    """Waits until a query has made its sources.

    They take settings of the user's session, among them how their log is written, when they are
    made: in a thread of the query, some time after its start.
    """
    deadline = time.monotonic() + _SOURCES_S
    while query.isActive and time.monotonic() < deadline:
        if not str(query.status["message"]).startswith("Initializing"):
            return
        time.sleep(_SOURCES_PAUSE_S)
