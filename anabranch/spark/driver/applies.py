"""The applies of a run, in the driver: how each groups its rows in the next step, the tasks of a step, and what they have told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from anabranch.elastic.grouping.steps import Grouping, after_step, new_grouping, with_slots
from anabranch.plan.ids import APPLIES, ComponentId
from anabranch.plan.model import Plan
from anabranch.plan.route import Route
from anabranch.runtime.apply.task import ApplyReport, ApplyTask, Told
from anabranch.runtime.slot import SlotTask
from anabranch.spark.compile.applies import ApplyStages
from anabranch.spark.compile.schemas import arrow_of, struct_of
from anabranch.spark.driver.progress import ApplyProgress
from anabranch.spark.outlets import Outlet, wanted_of
from anabranch.topology.graph import failed_fields


class Telling(AccumulatorParam[Told]):
    """Reports by job, operator and slot: the last one counts."""

    def zero(self, value: Told) -> Told:  # noqa: ARG002 - Spark's interface
        return {}

    def addInPlace(self, value1: Told, value2: Told) -> Told:  # noqa: N802 - Spark's interface
        value1.update(value2)
        return value1


class Applying:
    """Runs the applies of a plan, step by step."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        outlets: Sequence[Outlet],
        routes: Mapping[ComponentId, Route],
    ) -> None:
        self.plan, self._outlets = plan, outlets
        self._slots = slots = routes[APPLIES].slots if plan.applies else 0
        self._waiting = False  # for reports of a job
        self.groupings: dict[str, Grouping] = {
            each.name: new_grouping(each.work.grouping, slots, each.work.osg)
            for each in plan.applies
        }
        self._ways: dict[str, str] = {}  # of the step that runs
        self._reports: dict[tuple[str, int], ApplyReport] = {}
        first: Told = {}
        self._told = session.sparkContext.accumulator(first, Telling()) if plan.applies else None

    def frame(
        self,
        rows: DataFrame | None,
        stages: ApplyStages,
        task: SlotTask,
        routes: Mapping[ComponentId, Route],
    ) -> DataFrame | None:
        """The rows of a step behind all applies; a closing step has none."""
        self._reports, self._waiting = {}, rows is not None and self._told is not None
        if rows is None or self._told is None:
            return rows
        self._told.value = {}
        self._slots = slots = routes[APPLIES].slots
        for each in self.plan.applies:
            self.groupings[each.name] = with_slots(self.groupings[each.name], slots, each.work.osg)
            self._ways[each.name] = self.groupings[each.name].way
        tasks = [
            ApplyTask(
                works=tuple(
                    stages.work(
                        each, self.groupings[each.name], wanted_of(self._outlets, each.name)
                    )
                    for each in stage.applies
                ),
                checkpoint=task.checkpoint,
                step=task.step,
                epoch=task.epoch,
                job=task.job,
                schema=stages.schema,
                told=self._told,
                faults=task.faults,
            )
            for stage in stages.stages
        ]
        return stages(rows, tasks, self.groupings, slots)

    def hear(self, job: int) -> None:
        """Takes what the tasks of a job have told; every slot of every apply must have told its part."""
        if self._told is None or not self._waiting:
            return
        names = {
            number: each.name for number, each in enumerate(self.plan.applies, len(self.plan.nodes))
        }
        told = self._told.value
        self._reports = {
            (names[number], slot): each for (of, number, slot), each in told.items() if of == job
        }
        missing = [
            (each, slot)
            for each in names.values()
            for slot in range(self._slots)
            if (each, slot) not in self._reports
        ]
        if missing:
            raise RuntimeError(
                f"slots of applies that have not reported: {', '.join(f'{n} {slot}' for n, slot in missing)}"
            )

    def learn(self) -> Iterator[str]:
        """Steers the next step by what this one has measured; tells where the grouping has changed."""
        for each in self.plan.applies:
            before = self.groupings[each.name]
            seen = {slot: report.seen for slot, report in self._of(each.name).items()}
            if not seen:
                continue
            self.groupings[each.name] = after = after_step(before, seen)
            if after.way != before.way:
                yield f"apply {each.name!r} groups rows by {after.way}: {after.reason}"

    def _of(self, name: str) -> dict[int, ApplyReport]:
        return {
            slot: report for (each, slot), report in sorted(self._reports.items()) if each == name
        }

    def files(self, name: str, *, letters: bool) -> list[str]:
        """The files that a step wrote: results, or rows that failed."""
        found = [
            report.letters if letters else report.results for report in self._of(name).values()
        ]
        return [each.path for each in found if each is not None]

    def schemas(self, name: str, *, letters: bool) -> tuple[StructType, pa.Schema]:
        """The columns of results, or of rows that failed, for Spark and for Arrow."""
        applied = self.plan.applied(name)
        assert applied is not None
        fields = failed_fields(applied.feed.fields) if letters else applied.fields
        return struct_of(fields), arrow_of(fields)

    def progress(self) -> dict[str, ApplyProgress]:
        """What each apply did in the last step."""
        found = {}
        for each in self.plan.applies:
            reports: Sequence[ApplyReport] = list(self._of(each.name).values())
            if reports:
                grouping = self.groupings[each.name]
                found[each.name] = ApplyProgress(
                    rows_in=sum(report.seen.rows for report in reports),
                    rows_out=sum(report.rows_out for report in reports),
                    failed=sum(report.failed for report in reports),
                    grouping=self._ways[each.name],
                    slot_s=tuple(report.seen.seconds for report in reports),
                    started_at=(started := min(report.started for report in reports)),
                    makespan_s=max(report.ended for report in reports) - started,
                    estimate_error=grouping.error,
                )
        return found

    def counts(self, written: Collection[str]) -> dict[str, int]:
        """Rows that applies took from sources, rows that they made for sinks, and rows that failed in them."""
        counts = {"in": 0, "out": 0}
        for name, each in self.progress().items():
            applied = self.plan.applied(name)
            counts["in"] += each.rows_in if applied is not None and applied.stage == 1 else 0
            counts["out"] += each.rows_out if name in written else 0
            if each.failed:
                counts["failed"] = counts.get("failed", 0) + each.failed
        return counts
