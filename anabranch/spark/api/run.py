"""A running topology: Spark's streaming query brings batches, this brings closing steps, and both exclude each other."""

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
from anabranch.plan.planners.registry import AUTO
from anabranch.spark.compile.columns import observed_micros
from anabranch.spark.driver.progress import Event, Progress
from anabranch.spark.driver.source_progress import BatchProgress, batch_progress
from anabranch.spark.driver.steering import Planning
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
    """A trigger as in Spark: None, an interval, "availableNow", or the arguments of DataStreamWriter.trigger as a dict."""
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
        f'trigger {value!r}; valid: "10 seconds", "availableNow", or a dict with one of {sorted(valid)}'
    )


class Run:
    """A started topology. `query` is Spark's own streaming query."""

    query: StreamingQuery

    def __init__(
        self, stepper: Stepper, idle_s: float | None, trigger: Trigger, make_plan: Planning
    ) -> None:
        self._stepper, self._idle_s, self._trigger, self._make_plan = (
            stepper,
            idle_s,
            trigger,
            make_plan,
        )
        self._lock = threading.Lock()
        self._started = threading.Event()
        self._done = threading.Event()
        self._stopping = False
        self._error: BaseException | None = None
        self._last_step_at = time.monotonic()
        self._metrics: Mapping[str, str] = {}

    def begin(self, prepared: DataFrame, metrics: Mapping[str, str], location: str) -> None:
        """Starts Spark's query over the prepared rows, and the thread that closes windows when no rows come."""
        self._metrics = metrics
        writer = prepared.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", location
        )
        if self._trigger.arguments:
            writer = writer.trigger(**self._trigger.arguments)
        self.query = writer.start()
        if self._stepper.steering is not None:
            self._stepper.steering.told = self._told
        self._started.set()
        threading.Thread(target=self._watch, name="anabranch-run", daemon=True).start()

    @property
    def progress(self) -> list[Progress]:
        """One entry a committed step of this run, oldest first."""
        return list(self._stepper.progress)

    @property
    def events(self) -> list[Event]:
        """What a person should know: decisions and their effects, resizes, retries, restored shards, batches seen twice."""
        return list(self._stepper.events)

    @property
    def decision(self) -> Decision | None:
        """What the controller said last, and why; None where there is none or it has not spoken yet."""
        return self._stepper.steering.decision if self._stepper.steering is not None else None

    @property
    def exception(self) -> BaseException | None:
        """Why the run ended, None while it runs or when it ended well."""
        return self._error

    @property
    def active(self) -> bool:
        return not self._done.is_set()

    @property
    def slots(self) -> int:
        return self._stepper.slots

    def resize(self, slots: int) -> None:
        """Changes the number of slots before the next step; no state moves and nothing restarts."""
        self._stepper.pending.resize(slots, self._stepper.checkpoint.header.shards)

    def reroute(self, slot_of: Sequence[int], component: str | None = None) -> None:
        """Gives each shard of a component, or of all, another slot before the next step; no state moves and nothing restarts."""
        self._stepper.pending.reroute(
            slot_of, component, self._stepper.routes, self._stepper.checkpoint.header.shards
        )

    def replan(self, planner: str = AUTO) -> None:
        """Cuts the topology into components anew before the next step, going by what was measured; results do not change."""
        self._stepper.pending.plan = self._make_plan(planner, self._stepper.statistics.rates())

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the run has ended; False when the time is over before. Raises what ended the run."""
        ended = self._done.wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Ends after the current step; windows that are open stay open for the next start."""
        self._stopping = True
        with self._lock:  # the current step ends; Spark must not be stopped under the lock, a batch may be waiting for it
            pass
        self.query.stop()
        self._done.wait()

    def finish(self) -> None:
        """Ends after the current step and closes every window that is open, whatever the watermark."""
        self.stop()
        if self._error is not None:
            raise self._error
        with self._lock:
            self._stepper.close(finish=True)
            self._stepper.tidy()
            self._stepper.rest()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        self._started.wait()
        with self._lock:
            if self._stopping:
                raise _StoppedError
            try:
                self._stepper.batch(rows, batch_id, self._observed)
            except BaseException as error:
                self._error = error
                raise
            self._last_step_at = time.monotonic()

    def _observed(self) -> dict[str, int]:
        """The largest event time in the rows of each source, from Spark's observation of the running batch."""
        metrics = self.query._jsq.streamingQuery().lastExecution().observedMetrics()
        found = {source: observed_micros(metrics, name) for source, name in self._metrics.items()}
        return {source: us for source, us in found.items() if us is not None}

    def _told(self) -> BatchProgress | None:
        """Spark's own progress of the last batch."""
        progress = self.query._jsq.lastProgress()
        return None if progress is None else batch_progress(progress.json())

    def _watch(self) -> None:
        """Closes windows when no batch comes for a while, and once more when the input has ended."""
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
                        self._stepper.close()
                    self._stepper.tidy()
            with self._lock:
                self._stepper.rest()
        except Exception as error:  # noqa: BLE001 - kept for the user
            self._error = error
        self._done.set()

    def _close_when_idle(self, idle_s: float) -> None:
        if time.monotonic() - self._last_step_at < idle_s or not self._lock.acquire(blocking=False):
            return
        try:
            if not self._stopping and (self._stepper.can_close() or self._stepper.idle_advances()):
                self._stepper.close()
                self._last_step_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - kept for the user
            self._error = error
            self.query.stop()
        finally:
            self._lock.release()

    def _plain(self, error: Exception) -> BaseException | None:
        """Spark's wrapping of an error is of no use to anyone; stopping on purpose is no error."""
        return (
            None
            if self._stopping
            else AnabranchError(f"the query ended: {str(error).splitlines()[0]}")
        )


class _StoppedError(Exception):
    """Ends a batch that came while the run was being stopped."""
