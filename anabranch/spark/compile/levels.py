"""The job of a step: a chain of levels with one exchange before each, so that every task runs once.

Level 1 takes the combined rows of the sources. Results that an operator of a later level needs
leave their slot task as rows. They pass the maps of that operator in the JVM, and the exchange
sends them to its slot. Combined rows of a source for a later level pass through the levels before
it. Reports pass through to the end of the chain.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from anabranch.plan.exchange import Packed, later_rows, raw
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.make import plain_column
from anabranch.plan.model import Component, Node, Plan
from anabranch.plan.operators.base import EVERYTHING
from anabranch.plan.route import Route
from anabranch.runtime.passing import APPLY_REPORT, REPORT, WRAPPED
from anabranch.runtime.slot import SlotTask
from anabranch.runtime.tasks import ArrivingRows, Emitted, FusedRows, Watermarks
from anabranch.spark.batches import PASSING, BatchLimit, JobForm, guarded_sql
from anabranch.spark.compile.applies import ApplyStages
from anabranch.spark.compile.columns import mapped, needs, partition_sql, shard_sql
from anabranch.spark.compile.lift import Lift
from anabranch.spark.compile.rowwise import RowWise, Taken, chosen_sql
from anabranch.spark.compile.shared_columns import SharedColumns, ready_columns
from anabranch.spark.compile.template import Template
from anabranch.spark.jvm import select
from anabranch.spark.task import SparkTask
from anabranch.types import column_type

# A StructType: Spark would parse a string in every step.
REPORT_SCHEMA = StructType([StructField("report", BinaryType())])


@dataclass(frozen=True, slots=True)
class Inflow:
    """How the rows of a node come to its slot tasks, and where its results go."""

    rows: FusedRows | ArrivingRows
    emits: tuple[Emitted, ...]


class Levels:
    """Compiles the job of each step of a plan."""

    def __init__(
        self, plan: Plan, shards: int, late: frozenset[PartId], before: Lift | None = None
    ) -> None:
        self.plan, self._shards = plan, shards
        self.lift = Lift(plan, shards, late)
        if before is not None:  # the running query has rows as the lift before prepared them
            self.lift.adopt_prepared_rows(before)
        self.stages = ApplyStages(plan, self.lift)
        self._number: dict[PartId | str, int] = {node.name: i for i, node in enumerate(plan.nodes)}
        self._packed: Packed = later_rows(plan)
        self._rowwise: dict[
            int, RowWise
        ] = {}  # one per level: rows cannot be bound twice to the same one
        self._taken: dict[PartId, Taken] = {}
        self._columns = SharedColumns()
        self._limit: BatchLimit | None = None  # the one that the stream's session has now
        self._template: tuple[object, Template | None] = (
            None,
            None,
        )  # what identifies the last query, and its template if it can have one

    @property
    def onward(self) -> dict[str, pa.DataType]:
        """The columns of rows between levels. Rows that only pass through have their shard here."""
        return {"shard": pa.int32()} | {
            each.name: column_type(each.type) for each in self._packed.columns
        }

    @property
    def _between(self) -> str:
        return ", ".join(
            each for each in ("to int, report binary, shard int", self._packed.types()) if each
        )

    def inflow(self, node: Node) -> Inflow:
        """How the rows of a node come, and where its results go."""
        plan = self.plan
        users = [
            each
            for each in plan.nodes
            if each.feed.stream == node.operator and not plan.is_fused(each)
        ]
        if not node.plan.holds_state:  # another part of the operator has the results
            users = []
        emits = tuple(
            Emitted(number=self._number[u.name], columns=self._packed.places[raw(u.name)])
            for u in users
        )
        rows: FusedRows | ArrivingRows
        if plan.is_fused(node):
            rows = FusedRows(
                operator=node.feed.stream,
                keys=tuple(each.name for each in node.plan.keys if each != EVERYTHING),
                inputs=tuple(_columns_of(each.expression, node) for each in node.inputs),
                payload=tuple(each.name for each in node.plan.payload),
                time=node.feed.clock.column,
                window=node.feed.window,
            )
        elif node in self.lift.nodes:
            rows = ArrivingRows(columns=self.lift.arrives(node), combined=True)
        else:
            rows = ArrivingRows(columns=self._packed.places[node.name], combined=False)
        return Inflow(rows, emits)

    def job(
        self,
        session: SparkSession,
        rows: DataFrame | None,
        tasks: Sequence[SlotTask],
        routes: Mapping[ComponentId, Route],
        marks: Watermarks,
        form: JobForm,
    ) -> DataFrame:
        """The reports of a step, computed level by level. Without rows it is a closing step."""
        if rows is not None and self._limit != form.limit:
            self._limit = form.limit
            for name, value in form.limit.settings.items():
                rows.sparkSession.conf.set(name, value)
        if not self.plan.components:  # applies only: their reports are all that is left
            if rows is None:
                return session.range(0)
            return rows.select(F.col(APPLY_REPORT).alias(WRAPPED))

        def made() -> DataFrame:
            slots = sum(routes[each.name].slots for each in self.plan.at(1))
            frame = (
                session.range(0, slots, 1, slots)
                if rows is None
                else self.lift(rows, marks, routes, form)
            )
            for level, task in enumerate(tasks, 1):
                if level > 1:
                    frame = self._exchanged(frame, self.plan.at(level), routes, form.limit)
                frame = frame.mapInArrow(SparkTask(task), self._gives(task, tasks))
            return frame

        if rows is None or self.plan.applies or not self.lift.is_reusable:
            return made()
        query = (form, *((name, each.slots, each.slot_of) for name, each in routes.items()))
        known, template = self._template
        found = None
        if known == query and template is not None:
            functions = [(SparkTask(task), self._gives(task, tasks)) for task in tasks]
            found = template.over(rows, self.lift.judging(marks), functions)
        frame = made() if found is None else found
        if known != query:
            self._template = query, Template.of(frame, rows, self.lift.judging(marks))
        return frame

    def _gives(self, task: SlotTask, tasks: Sequence[SlotTask]) -> StructType:
        """The schema of what the tasks of a level return: reports, and rows for later levels if
        there are any.
        """
        return REPORT_SCHEMA if task is tasks[-1] else self._between_schema

    @functools.cached_property
    def _between_schema(self) -> StructType:
        schema = StructType.fromDDL(self._between)
        assert isinstance(schema, StructType)
        return schema

    def _exchanged(
        self,
        frame: DataFrame,
        components: Sequence[Component],
        routes: Mapping[ComponentId, Route],
        limit: BatchLimit,
    ) -> DataFrame:
        """Prepares rows for the operators of a level and sends them to their slots.

        Rows for later levels stay as they are.
        """
        rowwise = self._bound(frame.sparkSession, components[0].level)
        nodes = [
            (c, node)
            for c in components
            for node in c.nodes
            if not self.plan.is_fused(node) and node not in self.lift.nodes
        ]
        taken = {
            self._number[node.name]: self._take(rowwise, component, node)
            for component, node in nodes
        }
        places = {
            self._number[node.name]: {**self._packed.places[node.name], "shard": "shard"}
            for _, node in nodes
        }
        shared = [each.name for each in self._packed.columns]
        stays, columns = self._columns.once(
            ("columns", components[0].level),
            lambda: ready_columns(frame, ["to", "report", "shard", *shared], taken, places),
        )
        rows = rowwise.stepped(rowwise.bind(frame), taken, "to")
        if stays is not None:
            rows = rows.filter(stays)
        ready = select(rows, columns)
        slots = sum(routes[each.name].slots for each in components)
        numbers: dict[PartId | str, int] = {
            node.name: self._number[node.name]
            for c in components
            for node in c.nodes
            if not self.plan.is_fused(node)
        }
        slot = chosen_sql("to", {**partition_sql(components, routes, numbers), -2: "null"})
        # Reports go to a fixed slot, so that the report of a task that runs again replaces its
        # first one.
        spread = ", ".join(["shard", *(each.name for each in self._packed.columns)])
        passing = f"if(to = {REPORT}, 0, pmod(hash({spread}), {slots}))"
        text = self._guarded(f"coalesce({slot}, {passing})", limit)
        return ready.repartitionById(slots, self._columns.once(text, lambda: F.expr(text)))

    def _guarded(self, text: str, limit: BatchLimit) -> str:
        """The expression, made to fail for a row that is too large for a batch."""
        sizes = {each.name: each.type for each in self._packed.columns}
        passing = PASSING if limit.row_bytes is not None else limit
        return guarded_sql(guarded_sql(text, sizes, limit), {WRAPPED: "binary"}, passing)

    def check(self, session: SparkSession) -> None:
        """Before anything runs, refuses maps on results that do not work row by row."""
        self.stages.check(session)
        for component in self.plan.components:
            for node in component.nodes:
                if (
                    component.level > 1
                    and not self.plan.is_fused(node)
                    and node not in self.lift.nodes
                ):
                    self._take(self._bound(session, component.level), component, node)

    def _bound(self, session: SparkSession, level: int) -> RowWise:
        if level not in self._rowwise:
            self._rowwise[level] = RowWise(session, self._between_schema)
        return self._rowwise[level]

    def _take(self, rowwise: RowWise, component: Component, node: Node) -> Taken:
        """What a node needs of the results that it reads, as expressions. It is made once."""
        if node.name not in self._taken:
            places = self._packed.places[raw(node.name)]
            keys = {f"k{i}": f"k{i}" for i in range(len(node.plan.keys))}
            shard = shard_sql(component, node, keys, self._shards)

            def ready(rows: DataFrame) -> DataFrame:
                results = rows.select(*(F.col(place).alias(name) for name, place in places.items()))
                return needs(mapped(results, node.feed.maps), node).selectExpr(
                    "*", f"{shard} as shard"
                )

            maps = ", ".join(each.name for each in node.feed.maps)
            what = f"operator {node.name!r} after {maps or node.feed.stream}"
            self._taken[node.name] = rowwise.take(ready, what)
        return self._taken[node.name]


def _columns_of(expression: object, node: Node) -> str | tuple[str, ...] | None:
    """The columns of the results that are an input."""
    if expression is None:
        return None
    if isinstance(expression, tuple):
        return tuple(_plain(each, node) for each in expression)
    return _plain(expression, node)


def _plain(expression: object, node: Node) -> str:
    name = plain_column(expression, node.feed.fields)
    assert name is not None, "an operator runs fused only if it reads plain columns"
    return name
