"""A running topology: Spark's streaming query brings batches, a thread of ours closing steps.

A lock keeps them apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.elastic.observation import Decision
from anabranch.errors import AnabranchError, TopologyError
from anabranch.metrics import Progress
from anabranch.observer import Event, RecentSteps
from anabranch.plan.planners.registry import AUTO
from anabranch.spark.compile.columns import observed_micros
from anabranch.spark.driver.changes import Changes
from anabranch.spark.driver.control import Planning
from anabranch.spark.driver.opening import Compiled
from anabranch.spark.driver.source_progress import BatchProgress, batch_progress
from anabranch.spark.driver.step import Stepper
from anabranch.topology.durations import duration_us

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Trigger:
    """When Spark takes a batch: the arguments of its own `trigger`."""

    arguments: Mapping[str, Any]

    @property
    def ends_by_itself(self) -> bool:
        return bool(self.arguments.get("availableNow") or self.arguments.get("once"))

    @property
    def interval_s(self) -> float:
        """The time between two batches, 0 where the next one follows at once."""
        try:
            return (
                duration_us(self.arguments.get("processingTime", "0 seconds"), "trigger", zero=True)
                / 1e6
            )
        except TopologyError:  # Spark knows other ways to write it
            return 0.0


def as_trigger(value: object) -> Trigger:
    """A trigger as in Spark: None, an interval, "availableNow", or a dict of Spark's arguments."""
    if value is None:
        return Trigger({})
    if value == "availableNow":
        return Trigger({"availableNow": True})
    if isinstance(value, str):
        return Trigger(
            {"processingTime": f"{duration_us(value, 'trigger', zero=True) // 1000} milliseconds"}
        )
    valid = {"processingTime", "once", "availableNow"}
    if isinstance(value, Mapping) and set(value) <= valid and len(value) == 1:
        return Trigger(dict(value))
    raise TopologyError(
        f'trigger {value!r}; valid: "10 seconds", "availableNow", or a dict with one of '
        f"{sorted(valid)}"
    )


class Run:
    """A started topology. `query` is Spark's own streaming query."""

    query: StreamingQuery

    def __init__(
        self,
        stepper: Stepper,
        recent: RecentSteps,
        make_plan: Planning,
        trigger: Trigger,
        idle_s: float | None,
    ) -> None:
        self._stepper, self._recent, self._make_plan = stepper, recent, make_plan
        self._trigger, self._idle_s = trigger, idle_s
        self._lock = threading.Lock()
        self._started = threading.Event()
        self._done = threading.Event()
        self._stopping = False
        self._error: BaseException | None = None
        self._last_step_at = time.monotonic()
        self._metrics: Mapping[str, str] = {}  # names of Spark's observations, by source

    def begin(self, compiled: Compiled, location: str) -> None:
        """Starts Spark's query, and the thread that closes windows when no rows come."""
        self._metrics = compiled.metrics
        writer = compiled.rows.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", location
        )
        if self._trigger.arguments:
            writer = writer.trigger(**self._trigger.arguments)
        self.query = writer.start()
        self._started.set()
        threading.Thread(target=self._watch, name="anabranch-run", daemon=True).start()

    @property
    def progress(self) -> list[Progress]:
        """One entry per committed step of this run, oldest first."""
        return list(self._recent.progress)

    @property
    def events(self) -> list[Event]:
        """Events: decisions and their effects, resizes, retries, restored shards."""
        return list(self._recent.events)

    @property
    def decision(self) -> Decision | None:
        """What the controller decided last, and why; None before its first decision."""
        return self._stepper.controller.decision

    @property
    def exception(self) -> BaseException | None:
        """Why the run ended, None while it runs or when it ended well."""
        return self._error

    @property
    def active(self) -> bool:
        return not self._done.is_set()

    @property
    def slots(self) -> int:
        return self._stepper.requests.waiting.slots or self._stepper.state.slots

    def resize(self, slots: int) -> None:
        """Changes the number of slots before the next step; no state moves and nothing restarts."""
        self._stepper.requests.resize(slots)

    def reroute(self, slot_of: Sequence[int], component: str | None = None) -> None:
        """Gives each shard of a component, or of all, another slot before the next step.

        No state moves and nothing restarts.
        """
        self._stepper.requests.reroute(slot_of, component, self._stepper.state.routes)

    def replan(self, planner: str = AUTO) -> None:
        """Cuts the topology into other components before the next step, by what was measured.

        Results do not change.
        """
        plan = self._make_plan(planner, self._stepper.context.statistics.rates())
        self._stepper.requests.add(Changes(plan=plan))

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the run has ended; False when the time is over. Raises what ended the run."""
        ended = self._done.wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Ends after the current step; windows that are open stay open for the next start."""
        self._stopping = True
        # The current step ends. Spark must not be stopped under the lock: a batch may wait for it.
        with self._lock:
            pass
        self.query.stop()
        self._done.wait()

    def finish(self) -> None:
        """Ends after the current step and closes every open window, whatever the watermark."""
        self.stop()
        if self._error is not None:
            raise self._error
        with self._lock:
            self._stepper.close(self, finish=True)
            self._stepper.compact()
            self._stepper.flush(self)

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        self._started.wait()
        with self._lock:
            if self._stopping:
                raise _StoppedError
            try:
                self._stepper.batch(rows, batch_id, self)
            except BaseException as error:
                self._error = error
                raise
            self._last_step_at = time.monotonic()

    def event_times(self) -> dict[str, int]:
        """The latest event time by source, from Spark's observation of the running batch."""
        metrics = self.query._jsq.streamingQuery().lastExecution().observedMetrics()
        found = {source: observed_micros(metrics, name) for source, name in self._metrics.items()}
        return {source: us for source, us in found.items() if us is not None}

    def last_progress(self) -> BatchProgress | None:
        """Spark's own progress of the last batch."""
        progress = self.query._jsq.lastProgress()
        return None if progress is None else batch_progress(progress.json())

    def _watch(self) -> None:
        """Closes windows when no batch comes for a while, and again when the input has ended."""
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
                        self._stepper.close(self)
                    self._stepper.compact()
            with self._lock:
                self._stepper.flush(self)
        except Exception as error:  # noqa: BLE001 - kept for the user
            self._error = error
        self._done.set()

    def _close_when_idle(self, idle_s: float) -> None:
        if time.monotonic() - self._last_step_at < idle_s or not self._lock.acquire(blocking=False):
            return
        try:
            if not self._stopping and (self._stepper.can_close() or self._stepper.idle_advances()):
                self._stepper.close(self)
                self._last_step_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - kept for the user
            self._error = error
            self.query.stop()
        finally:
            self._lock.release()

    def _plain(self, error: Exception) -> BaseException | None:
        """An error without Spark's wrapping; stopping on purpose is none."""
        if self._stopping:
            return None
        return AnabranchError(f"the query ended: {str(error).splitlines()[0]}")


class _StoppedError(Exception):
    """Ends a batch that came while the run was being stopped."""
