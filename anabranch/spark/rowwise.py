"""Maps as expressions: what Spark SQL does row by row can be done for some rows and not for others, in one pass.

Several operators may want different maps of one stream, and a DataFrame that is read twice is computed twice: its source is read
again, and tasks that change state would run again. So the maps are taken apart into a condition and columns, and a row is given those
of the operator that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.errors import TopologyError
from anabranch.spark.inspect import each_of

_INLINE = "spark.sql.optimizer.collapseProjectAlwaysInline"
_NOW = ("current_timestamp(", "now(", "current_date(", "localtimestamp(", "current_time(")


@dataclass(frozen=True, slots=True)
class Taken:
    """What a map makes of a row: whether it stays, and its columns."""

    stays: Column | None  # None: all do
    columns: Mapping[str, Column]


class RowWise:
    """Takes maps over rows of one schema apart. Columns that it gives fit rows that are bound to it, and no others."""

    def __init__(self, session: SparkSession, schema: StructType) -> None:
        self._template = session.createDataFrame(session.sparkContext.emptyRDD(), schema)
        output = each_of(self._template._jdf.queryExecution().analyzed().output())
        self._output = [(each.name(), each.exprId()) for each in output]
        jvm: Any = session._jvm
        self._column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
        self._alias = jvm.org.apache.spark.sql.catalyst.expressions.Alias
        self._nil = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
        self._none = getattr(getattr(jvm.scala, "None$"), "MODULE$")

    def take(self, fn: Callable[[DataFrame], DataFrame], what: str) -> Taken:
        """The condition and the columns of a function of a DataFrame; refuses what is not done row by row."""
        mapped = fn(self._template)
        execution = mapped._jdf.queryExecution()
        text = execution.analyzed().toString()
        if any(each in text for each in _NOW):
            raise TopologyError(
                f"{what}: the current time can only be taken in maps that all operators of a source have in common; "
                "take it there, as a column"
            )
        with _always_inline(self._template.sparkSession):
            node = execution.optimizedPlan()
        columns: dict[str, Any] | None = None
        stays: list[Any] = []
        while node.nodeName() in {"Project", "Filter"}:
            if node.nodeName() == "Filter":
                stays.append(node.condition())
            elif columns is None and not stays:
                columns = {each.name(): each for each in each_of(node.projectList())}
            else:
                break
            node = node.children().apply(0)
        if node.nodeName() == "LocalRelation":  # a condition that no row meets
            kinds = {field.name: field.dataType for field in mapped.schema.fields}
            return Taken(F.lit(False), {name: F.lit(None).cast(kind) for name, kind in kinds.items()})
        if not node.children().isEmpty():
            raise TopologyError(
                f"{what} is not done row by row (it has {node.nodeName()}), and other operators need the same rows: only select, "
                "withColumn, filter and the like can stand there"
            )
        if columns is None:
            columns = {each.name(): each for each in each_of(node.output())}
        conditions = [self._as_column(each) for each in stays]
        met = None if not conditions else conditions[0]
        for each in conditions[1:]:
            assert met is not None
            met = met & each
        return Taken(met, {name: self._as_column(each) for name, each in columns.items()})

    def bind(self, rows: DataFrame) -> DataFrame:
        """Rows of the schema, as those that the columns were taken from."""
        names, output = rows.columns, rows._jdf.queryExecution().analyzed().output()
        columns = [
            self._as_column(self._alias(output.apply(names.index(name)), name, number, self._nil, self._none, self._nil))
            for name, number in self._output
        ]
        return rows.select(*columns)

    def _as_column(self, expression: Any) -> Column:
        try:
            return Column(self._column(expression))
        except Py4JError as error:
            raise TopologyError(f"this version of Spark cannot be given expressions: {str(error).splitlines()[0]}") from error


@contextmanager
def _always_inline(session: SparkSession) -> Iterator[None]:
    """Spark's optimiser leaves a projection of its own for what is dear and used twice; a map must become one projection."""
    before = session.conf.get(_INLINE, None)
    session.conf.set(_INLINE, "true")
    try:
        yield
    finally:
        session.conf.unset(_INLINE) if before is None else session.conf.set(_INLINE, before)


def chosen(to: str, by_number: Mapping[int, Column], otherwise: Column | None = None) -> Column:
    """The column of the node that a row is for; null, or another, where it is for none of these."""
    numbers = list(by_number)
    found = F.when(F.col(to) == numbers[0], by_number[numbers[0]])
    for number in numbers[1:]:
        found = found.when(F.col(to) == number, by_number[number])
    return found if otherwise is None else found.otherwise(otherwise)


def chosen_sql(to: str, by_number: Mapping[int, str]) -> str:
    """The expression of the node that a row is for, as text; one text for all where they are the same."""
    texts = set(by_number.values())
    if len(texts) == 1:
        return texts.pop()
    return f"case {to} " + " ".join(f"when {number} then {text}" for number, text in by_number.items()) + " end"
