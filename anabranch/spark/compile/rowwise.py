"""Maps as expressions, so that different rows of one DataFrame can pass different maps.

Several operators may have different maps on one stream. A DataFrame that is read twice is computed
twice: its source is read again, and tasks that change state would run again. So each map is split
into a condition and columns, and a row gets those of the operator that it is for. If a map
multiplies rows (`explode` and others), only the rows of its operator are multiplied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.errors import TopologyError
from anabranch.spark.jvm import Expressions, analyzed, each_of, optimized

_BY_ROW = {"Project", "Filter", "Generate"}
_INLINE = "spark.sql.optimizer.collapseProjectAlwaysInline"
_NOW = ("current_timestamp(", "now(", "current_date(", "localtimestamp(", "current_time(")


@dataclass(frozen=True, slots=True)
class Taken:
    """A map, split into its steps, a condition and columns. The condition says which rows stay."""

    stays: Column | None  # None: all rows
    columns: Mapping[str, Column]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a map: a condition, more columns, or one row per element of an array."""

    stays: Column | None = None
    columns: tuple[tuple[Column, Any], ...] = ()  # with the ids that later steps refer to
    elements: Column | None = None
    kind: str = "Explode"
    ids: tuple[Any, ...] = ()  # of the parts of an element

    def parts(self, rows: DataFrame, place: str) -> list[tuple[Column, Any]]:
        """The parts of an element, with their ids."""
        if self.kind == "Explode" and len(self.ids) == 1:
            return [(F.col(place), self.ids[0])]
        if self.kind != "PosExplode":
            names = rows.schema[place].dataType.fieldNames()  # type: ignore[attr-defined]
            return [
                (F.col(place)[name], number) for name, number in zip(names, self.ids, strict=True)
            ]
        at, *others = self.ids
        element = F.col(place)["it"]
        values = [element] if len(others) == 1 else [element["key"], element["value"]]
        return [(F.col(place)["at"], at), *zip(values, others, strict=True)]


class RowWise:
    """Splits maps over rows of one schema. Its columns only fit rows that are bound to it."""

    def __init__(self, session: SparkSession, schema: StructType) -> None:
        self._template = session.createDataFrame(session.sparkContext.emptyRDD(), schema)
        output = each_of(analyzed(self._template).output())
        self._output = [(each.name(), each.exprId()) for each in output]
        self._expressions = Expressions(session)

    def take(self, fn: Callable[[DataFrame], DataFrame], what: str) -> Taken:
        """The steps, condition and columns of a map. Refuses one that does not work row by row."""
        mapped = fn(self._template)
        text = analyzed(mapped).toString()
        if any(each in text for each in _NOW):
            raise TopologyError(
                f"{what}: the current time can only be used in maps that all operators of a "
                "source have in common; make it a column there"
            )
        with _always_inline(self._template.sparkSession):
            operators = _chain(optimized(mapped))
        if operators[-1].nodeName() == "LocalRelation":  # no row meets the condition
            kinds = {field.name: field.dataType for field in mapped.schema.fields}
            return Taken(
                F.lit(False), {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
            )
        if not operators[-1].children().isEmpty():
            raise TopologyError(
                f"{what} does not work row by row (it has {operators[-1].nodeName()}), and other "
                "operators read the same rows; valid: "
                "select, withColumn, filter, explode and others that work row by row"
            )
        top, columns, stays = 0, list(each_of(operators[0].output())), list[Any]()
        if operators[0].nodeName() == "Project":
            top, columns = 1, list(each_of(operators[0].projectList()))
        while operators[top].nodeName() == "Filter":
            stays.append(operators[top].condition())
            top += 1
        steps = [self._step(each, what) for each in reversed(operators[top:-1])]
        return Taken(
            self._all(stays),
            {each.name(): self._expressions.column(each) for each in columns},
            tuple(steps),
        )

    def _step(self, node: Any, what: str) -> Step:
        """The step for one operator of the plan."""
        if node.nodeName() == "Filter":
            return Step(stays=self._expressions.column(node.condition()))
        if node.nodeName() == "Project":
            return Step(
                columns=tuple(
                    (self._expressions.column(each.child()), each.exprId())
                    for each in each_of(node.projectList())
                    if each.nodeName() == "Alias"
                )
            )
        generator = node.generator()
        name, outer = generator.nodeName(), bool(node.outer())
        if name not in {"Explode", "PosExplode", "Inline"}:
            raise TopologyError(
                f"{what} has {name.lower()}, and other operators read the same rows; valid: "
                "explode, posexplode, inline and "
                "their outer forms"
            )
        given = self._expressions.column(generator.child())
        if "Map" in generator.child().dataType().getClass().getSimpleName():
            given = F.map_entries(given)
        ids = [each.exprId() for each in each_of(node.generatorOutput())]
        elements = given
        if name == "PosExplode":
            elements = F.transform(given, lambda each, i: F.struct(i.alias("at"), each.alias("it")))
        if outer:
            elements = F.when(F.coalesce(F.size(elements) > 0, F.lit(False)), elements).otherwise(
                F.array(F.lit(None))
            )
        return Step(elements=elements, kind=name, ids=tuple(ids))

    def stepped(self, rows: DataFrame, taken: Mapping[int, Taken], to: str) -> DataFrame:
        """Bound rows after the steps of each operator's maps. Steps may multiply rows."""
        for number, each in taken.items():
            if not each.steps:
                continue
            mine = F.col(to) == number
            for i, step in enumerate(each.steps):
                place = f"__{number}_{i}"
                if step.stays is not None:
                    rows = rows.filter(~mine | step.stays)
                if step.columns:
                    named = [
                        self._expressions.named(F.when(mine, column), f"{place}_{n}", at)
                        for n, (column, at) in enumerate(step.columns)
                    ]
                    rows = rows.select("*", *named)
                if step.elements is not None:
                    others = F.array(F.lit(None))
                    rows = rows.select(
                        "*", F.explode(F.when(mine, step.elements).otherwise(others)).alias(place)
                    )
                    rows = rows.select(
                        "*",
                        *(
                            self._expressions.named(part, f"{place}_{n}", at)
                            for n, (part, at) in enumerate(step.parts(rows, place))
                        ),
                    )
        return rows

    def _all(self, conditions: Sequence[Any]) -> Column | None:
        columns = [self._expressions.column(each) for each in conditions]
        return functools.reduce(lambda a, b: a & b, columns) if columns else None

    def bind(self, rows: DataFrame) -> DataFrame:
        """Rows of the schema, with the ids that the columns of this object refer to."""
        names, output = rows.columns, analyzed(rows).output()
        columns = [
            self._expressions.named(output.apply(names.index(name)), name, number)
            for name, number in self._output
        ]
        return rows.select(*columns)


def _chain(plan: Any) -> list[Any]:
    """The operators of a query plan, last to first, down to the first that is not row by row."""
    found = [plan]
    while found[-1].nodeName() in _BY_ROW:
        found.append(found[-1].children().apply(0))
    return found


@contextmanager
def _always_inline(session: SparkSession) -> Iterator[None]:
    """Makes Spark merge all projections. It would keep one for values that are used twice."""
    before = session.conf.get(_INLINE, None)
    session.conf.set(_INLINE, "true")
    try:
        yield
    finally:
        session.conf.unset(_INLINE) if before is None else session.conf.set(_INLINE, before)


def chosen(to: str, by_number: Mapping[int, Column], otherwise: Column | None = None) -> Column:
    """The column of the node that a row is for. Other rows get `otherwise`, or null."""
    numbers = list(by_number)
    found = F.when(F.col(to) == numbers[0], by_number[numbers[0]])
    for number in numbers[1:]:
        found = found.when(F.col(to) == number, by_number[number])
    return found if otherwise is None else found.otherwise(otherwise)


def chosen_sql(to: str, by_number: Mapping[int, str]) -> str:
    """SQL that chooses the expression of the node that a row is for. If all expressions are the
    same, it is that one.
    """
    texts = set(by_number.values())
    if len(texts) == 1:
        return texts.pop()
    return (
        f"case {to} "
        + " ".join(f"when {number} then {text}" for number, text in by_number.items())
        + " end"
    )
