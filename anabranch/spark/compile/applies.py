"""The stages of applies in the job of a step, between the sources and the first level.

A stage gives rows their slots, exchanges them, calls the functions, and applies maps. Rows of all
operators pass through all stages. Each row has the number of its reader, and only rows for an
apply of the stage enter its function. Returned rows get the number of their reader, and pass its
maps in the JVM. After the last stage, rows have the form of source rows. The reports of the
stages are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.elastic.grouping.steps import Grouping
from anabranch.plan.exchange import raw
from anabranch.plan.model import Plan
from anabranch.plan.operators.applies import ApplyPlan, stages_of
from anabranch.runtime.apply.calls import ApplyCalls
from anabranch.runtime.apply.task import (
    ORDER,
    SLOT,
    VALUE,
    ApplyTask,
    ApplyWork,
    ResultsTask,
    ScheduleTask,
)
from anabranch.runtime.passing import APPLY_REPORT
from anabranch.runtime.tasks import Emitted
from anabranch.spark.batches import BatchLimit, guarded_sql
from anabranch.spark.compile.columns import Reader, mapped
from anabranch.spark.compile.lift import Lift
from anabranch.spark.compile.rowwise import RowWise, Taken, chosen_sql
from anabranch.spark.compile.schemas import arrow_of, struct_of
from anabranch.spark.compile.shared_columns import SharedColumns, ready_columns
from anabranch.spark.jvm import select
from anabranch.spark.outlets import WrittenRows
from anabranch.spark.task import SparkTask
from anabranch.topology.apply import HASH, OSG
from anabranch.topology.graph import Apply, Field

_ROW_NUMBER = "(monotonically_increasing_id() & 8589934591L)"  # in its partition


def applied_to_results(apply: Apply, given: Sequence[Field]) -> Callable[[DataFrame], DataFrame]:
    """An apply on results that go to a sink, as a function of a DataFrame."""
    task = ResultsTask(ApplyCalls(apply.name, apply.work, arrow_of(given), arrow_of(apply.fields)))
    schema = struct_of(apply.fields)
    return lambda rows: rows.mapInArrow(SparkTask(task), schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyStage:
    """The applies of one stage, and the readers of the rows that they return."""

    applies: tuple[ApplyPlan, ...]
    readers: tuple[tuple[ApplyPlan, Reader], ...]
    alone: bool  # all rows are for its only apply, and have the order of the source


class ApplyStages:
    """Compiles the stages of applies of each step of a plan."""

    def __init__(self, plan: Plan, lift: Lift) -> None:
        self._plan, self._lift = plan, lift
        self.stages = [
            ApplyStage(
                applies=applies,
                readers=tuple(
                    (a, reader) for a in applies for reader in lift.readers.get(a.name, ())
                ),
                alone=i == 0
                and len(applies) == 1
                and sum(len(lift.readers.get(s.name, ())) for s in plan.sources) == 1,
            )
            for i, applies in enumerate(stages_of(plan.applies))
        ]
        rows = (Field("to", "int"), Field("t", "bigint"), *lift.packed.columns)
        self._source_names = tuple(each.name for each in rows)
        # A string: with a binary grouping key an aggregate does not have Spark's fast hash map.
        self._columns = (*rows, Field(APPLY_REPORT, "string"))
        self._names = tuple(each.name for each in self._columns)
        self._ddl = ", ".join(f"{each.name} {each.type}" for each in self._columns)
        self._shared = SharedColumns()
        self._calls: dict[str, ApplyCalls] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of rows between stages."""
        schema: pa.Schema = self._shared.once("schema", lambda: arrow_of(self._columns))
        return schema

    def work(self, applied: ApplyPlan, grouping: Grouping, written: WrittenRows) -> ApplyWork:
        """What a task needs to know about an apply."""
        if applied.name not in self._calls:
            given, made = arrow_of(applied.feed.fields), arrow_of(applied.fields)
            self._calls[applied.name] = ApplyCalls(applied.name, applied.work, given, made)
        places = self._lift.packed.places
        names = [each.name for each in applied.fields]
        return ApplyWork(
            number=self._lift.number[applied.name],
            calls=self._calls[applied.name],
            places=dict(
                zip(
                    [f.name for f in applied.feed.fields],
                    places[applied.name].values(),
                    strict=True,
                )
            ),
            emits=tuple(
                Emitted(
                    number=reader.number,
                    columns=dict(zip(names, places[raw(reader.name)].values(), strict=True)),
                )
                for reader in self._lift.readers.get(applied.name, ())
            ),
            written=written.results,
            letters=written.late,
            grouping=grouping,
        )

    def __call__(
        self,
        rows: DataFrame,
        tasks: Sequence[ApplyTask],
        groupings: Mapping[str, Grouping],
        slots: int,
        limit: BatchLimit,
    ) -> DataFrame:
        """The rows after all applies, in the form that the first level takes, and the reports."""
        for i, (stage, task) in enumerate(zip(self.stages, tasks, strict=True)):
            valued = self._valued(rows, stage, limit, first=i == 0)
            sent = self._given_slots(valued, stage, groupings, slots, first=i == 0).repartitionById(
                slots, SLOT
            )
            rows = sent.mapInArrow(SparkTask(task), self._ddl)
            if stage.readers:
                rows = self._read(rows, i, stage)
        return rows

    def _valued(
        self, rows: DataFrame, stage: ApplyStage, limit: BatchLimit, *, first: bool
    ) -> DataFrame:
        """Rows with the hash of the value that decides their cost. Rows that are too large for a
        batch fail.
        """
        number, names = self._lift.number, self._source_names if first else self._names
        value = chosen_sql("to", {number[a.name]: self._value_sql(a) for a in stage.applies})
        sizes = {each.name: each.type for each in self._columns if each.name in self._source_names}
        guarded = f"{guarded_sql(value, sizes, limit)} as {VALUE}"
        order = [] if first else [f"xxhash64({', '.join(self._hashed())}) as {ORDER}"]
        return rows.selectExpr(*names, guarded, *order)

    def _given_slots(
        self,
        rows: DataFrame,
        stage: ApplyStage,
        groupings: Mapping[str, Grouping],
        slots: int,
        *,
        first: bool,
    ) -> DataFrame:
        """Rows with their slot."""
        number, names = self._lift.number, self._source_names if first else self._names
        way = groupings[stage.applies[0].name].way
        if stage.alone and way != OSG:
            slot = (
                f"pmod({VALUE}, {slots}L)"
                if way == HASH
                else f"pmod({_ROW_NUMBER} + spark_partition_id(), {slots}L)"
            )
            return rows.selectExpr("*", f"cast({slot} as int) as {SLOT}")
        task = ScheduleTask(
            groupings={number[a.name]: (groupings[a.name], a.work.osg) for a in stage.applies},
            slots=slots,
            names=names,
            unordered=not first,
        )
        given = ", ".join(f"{each.name} {each.type}" for each in self._columns[: len(names)])
        return rows.mapInArrow(SparkTask(task), f"{given}, {VALUE} bigint, {SLOT} int")

    def _value_sql(self, applied: ApplyPlan) -> str:
        fields = [each.name for each in applied.feed.fields]
        places = list(self._lift.packed.places[applied.name].values())
        columns = [places[fields.index(name)] for name in applied.work.cost_by]
        return f"xxhash64({', '.join(columns)})" if columns else "0L"

    def _hashed(self) -> list[str]:
        return [
            each.name
            for each in self._columns
            if "map<" not in each.type and "variant" not in each.type
        ]

    def _read(self, rows: DataFrame, number: int, stage: ApplyStage) -> DataFrame:
        """The rows from the applies of a stage, after the maps of their readers.

        Other rows do not change.
        """

        def made() -> tuple[RowWise, dict[int, Taken], Column | None, Any]:
            rowwise = RowWise(rows.sparkSession, struct_of(self._columns))
            taken = {
                r.number: rowwise.take(self._maps(applied, r), r.what)
                for applied, r in stage.readers
            }
            places = {reader.number: reader.places for _, reader in stage.readers}
            return (rowwise, taken, *ready_columns(rows, self._names, taken, places))

        rowwise, taken, stays, columns = self._shared.once(("read", number), made)
        bound = rowwise.stepped(rowwise.bind(rows), taken, "to")
        if stays is not None:
            bound = bound.filter(stays)
        return select(bound, columns)

    def _maps(self, applied: ApplyPlan, reader: Reader) -> Callable[[DataFrame], DataFrame]:
        places = self._lift.packed.places[raw(reader.name)].values()
        names = [each.name for each in applied.fields]

        def ready(rows: DataFrame) -> DataFrame:
            made = rows.select(
                *(F.col(place).alias(name) for name, place in zip(names, places, strict=True))
            )
            return reader.ready(mapped(made, reader.maps))

        return ready

    def check(self, session: SparkSession) -> None:
        """Before anything runs, refuses maps after applies that do not work row by row."""
        for stage in self.stages:
            rowwise = RowWise(session, struct_of(self._columns))
            for applied, reader in stage.readers:
                rowwise.take(self._maps(applied, reader), reader.what)
