"""Uses of Spark's internals, beside `compile/template.py` and `local_files.py`. Each says what
happens without it.

They answer questions about sessions and query plans (usable? deterministic? which columns?), turn
expressions of plans into columns, and group rows without an exchange.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_seq
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.errors import AnabranchError, TopologyError
from anabranch.spark.versions import LOGICAL_RDD_REST, check_jvm
from anabranch.topology.graph import Clock

NOT_DETERMINISTIC = (
    "must be deterministic: with rand, uuid or shuffle a step that runs again would be different"
)


def check_session(session: SparkSession) -> None:
    """Refuses a session on which steps cannot run exactly once."""
    if not hasattr(session, "_jsparkSession"):
        raise TopologyError(
            "this is a Spark Connect session; Anabranch needs a classic session: "
            "SparkSession.builder.master(...)"
        )
    check_jvm(session.version)
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise TopologyError(
            "spark.speculation is true: two attempts at a task would run at once; valid: false"
        )


def check_map(
    fn: Callable[[DataFrame], DataFrame], frame: DataFrame, clock: Clock | None
) -> DataFrame:
    """The result of a map on a stream.

    Refuses a map that is not deterministic, is not stateless, or loses the event time.
    """
    if not callable(fn):
        raise TopologyError(f"map({fn!r}) is not a function of a DataFrame")
    try:
        mapped = fn(frame)
    except AnabranchError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything
        raise TopologyError(
            f"map failed on columns ({', '.join(frame.columns)}): {str(error).splitlines()[0]}"
        ) from None
    if not isinstance(mapped, DataFrame):
        raise TopologyError(f"map must return a DataFrame, got {_kind(mapped)}")
    plan = analyzed(mapped)
    if not plan.deterministic():
        raise TopologyError(f"map {NOT_DETERMINISTIC}")
    if len(watermarks_of(mapped)) > len(watermarks_of(frame)):
        raise TopologyError(
            "map must not call withWatermark(); call it on the DataFrame that source() gets, or "
            'give source(..., delay="10 minutes")'
        )
    stateful = [name for node in _nodes(plan) if (name := node.nodeName()) in _STATEFUL]
    if frame.isStreaming and stateful:
        raise TopologyError(
            f"map must be stateless; it has {', '.join(stateful)}. Aggregate with compute() instead"
        )
    kinds = {field.name: field.dataType.simpleString() for field in mapped.schema.fields}
    if clock is not None and kinds.get(clock.column) != clock.type:
        have = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        raise TopologyError(
            f"map must keep the event-time column {clock.column!r} of type {clock.type}; "
            f"it has {have}"
        )
    return mapped


_STATEFUL = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Join",
    "Distinct",
    "FlatMapGroupsWithState",
    "Limit",
    "GlobalLimit",
    "Sort",
    "Window",
    "TransformWithState",
}


def _kind(value: object) -> str:
    """The type of a value, for a message."""
    return "None" if value is None else type(value).__name__


def needed_columns(frame: DataFrame, used: DataFrame) -> set[str]:
    """The columns of a stream that a query reads, by Spark's optimised plan; all if unknown."""
    try:
        plan = optimized(used)
        leaves = [node for node in _nodes(plan) if node.children().isEmpty()]
        if len(leaves) != 1:
            return set(frame.columns)
        ids = {each.exprId().id(): each.name() for each in each_of(leaves[0].output())}
        read = {
            each.exprId().id()
            for node in _nodes(plan)
            for each in each_of(node.references().toSeq())
        }
        return {name for number, name in ids.items() if number in read}
    except Exception:  # noqa: BLE001 - Spark's internals may change; then nothing is pruned
        return set(frame.columns)


def keeps_all(frame: DataFrame, mapped: DataFrame, column: str) -> bool:
    """Whether a query keeps all rows of a stream, and a column as it is; False if unknown."""
    if mapped is frame:
        return True
    try:
        stream, plan = analyzed(frame), analyzed(mapped)
        ids = [
            plan_.output().apply(each.columns.index(column)).exprId().id()
            for plan_, each in ((stream, frame), (plan, mapped))
        ]
        while plan.nodeName() == "Project" and not plan.equals(stream):
            plan = plan.child()
        return ids[0] == ids[1] and bool(plan.equals(stream))
    except (Py4JError, TypeError, ValueError):
        return False


def in_place(rows: DataFrame, column: str) -> DataFrame:
    """The same rows, so that grouping them by a column needs no exchange.

    The plan claims that rows with equal values of the column are in one partition. It need not be
    true: rows are then combined as far as they are together. Spark has no public way to ask for
    that. If its internals have changed, the rows are returned as they are. Grouping them then costs
    an exchange, and the result is the same.
    """
    try:
        scala = scala_of(rows.sparkSession._jvm)
        execution, session = rows._jdf.queryExecution(), rows._jdf.sparkSession()
        plan = execution.analyzed()
        rdd, output = (
            plan.rdd() if plan.nodeName() == "LogicalRDD" else execution.toRdd(),
            plan.output(),
        )
        placed = scala.partitioning(
            scala.one(output.apply(rows.columns.index(column))), rdd.getNumPartitions()
        )
        node = scala.rows_of(rdd, output, placed, session)
        return DataFrame(scala.datasets.ofRows(session, node), rows.sparkSession)
    except (Py4JError, TypeError):
        return rows


def batch_clock_ms(query: StreamingQuery, batch_id: int) -> int | None:
    """When Spark made the running batch, as it has logged it; None if its internals changed."""
    try:
        execution = query._jsq.streamingQuery().lastExecution()
        if execution.currentBatchId() != batch_id:
            return None
        return int(execution.offsetSeqMetadata().batchTimestampMs())
    except (Py4JError, AttributeError, TypeError):
        return None


def select(rows: DataFrame, columns: Any) -> DataFrame:
    """Selects columns that the JVM has already, from `jseq` or `jcolumns`, in one call."""
    return DataFrame(rows._jdf.select(columns), rows.sparkSession)


def grouped(rows: DataFrame, by: Any, first: Any, rest: Any) -> DataFrame:
    """Aggregates with columns that the JVM has already, in one call."""
    return DataFrame(rows._jdf.groupBy(by).agg(first, rest), rows.sparkSession)


def analyzed(rows: DataFrame) -> Any:
    """The plan of a DataFrame, as Spark has resolved it."""
    return rows._jdf.queryExecution().analyzed()


def optimized(rows: DataFrame) -> Any:
    """The plan of a DataFrame, as Spark has optimised it."""
    return rows._jdf.queryExecution().optimizedPlan()


class Expressions:
    """Turns expressions of Spark's plans into columns, with ids that other expressions refer to.

    Without this, maps between several operators cannot run, and are refused when a run starts.
    """

    def __init__(self, session: SparkSession) -> None:
        sql: Any = session._jvm.org.apache.spark.sql  # type: ignore[union-attr]
        self._column = sql.classic.ExpressionUtils.column
        self._expression = sql.classic.ExpressionUtils.expression
        self._alias = sql.catalyst.expressions.Alias
        self._scala = scala_of(session._jvm)
        self._parser = session._jsparkSession.sessionState().sqlParser()

    def column(self, expression: Any) -> Column:
        """An expression as a column."""
        try:
            return Column(self._column(expression))
        except Py4JError as error:
            raise TopologyError(
                "this version of Spark does not accept expressions as columns: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def named(self, value: Any, name: str, number: Any) -> Column:
        """A column or an expression that others know by a number."""
        expression = self._expression(value._jc) if isinstance(value, Column) else value
        return self.column(self._named(expression, name, number))

    def parsed(self, text: str, name: str, number: Any) -> Any:
        """An expression of a plan, from Spark SQL, that others know by a number."""
        return self._named(self._parser.parseExpression(text), name, number)

    def _named(self, expression: Any, name: str, number: Any) -> Any:
        nil, none = self._scala.nil, self._scala.none
        return self._alias(expression, name, number, nil, none, nil)


def without_checksums(session: SparkSession) -> None:
    """Turns off Hadoop's checksum files: three per batch in Spark's checkpoint, 4 ms each.

    If Spark's internals have changed, the files stay.
    """
    try:
        files: Any = session._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]
        local = files.getLocal(session.sparkContext._jsc.hadoopConfiguration())
        local.setWriteChecksum(False)
    except (Py4JError, TypeError):
        return


def jseq(rows: DataFrame, expressions: Iterable[str]) -> Any:
    """Spark SQL expressions as a sequence of columns in the JVM."""
    context = rows.sparkSession.sparkContext
    return _to_seq(context, expressions, lambda text: F.expr(str(text))._jc)


def jlist(context: SparkContext, elements: Sequence[Any]) -> Any:
    """Objects of the JVM as a sequence there, which plans take."""
    return _to_seq(context, elements).toIndexedSeq()


def jcolumns(rows: DataFrame, columns: Iterable[Column]) -> Any:
    """Columns as a sequence of columns in the JVM."""
    return _to_seq(rows.sparkSession.sparkContext, [column._jc for column in columns])


class Scala:
    """The classes of Spark's plans. Looking one up takes one call per part of its name."""

    def __init__(self, jvm: Any) -> None:
        sql = jvm.org.apache.spark.sql
        self.partitioning = sql.catalyst.plans.physical.HashPartitioning
        self._rows = sql.execution.LogicalRDD
        self.datasets = getattr(getattr(sql.classic, "Dataset$"), "MODULE$")
        self.none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
        self.nil = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
        self.one = getattr(self.nil, "$colon$colon")  # a list of one element

    def rows_of(self, rdd: Any, output: Any, placed: Any, session: Any) -> Any:
        """The plan of an RDD's rows: their columns, and the partitioning that Spark assumes."""
        none = self.none
        return self._rows(
            output, rdd, placed, self.nil, False, none, session, none, none, *LOGICAL_RDD_REST
        )


@functools.lru_cache(maxsize=1)
def scala_of(jvm: Any) -> Scala:
    """The classes of a JVM, looked up once."""
    return Scala(jvm)


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark in the plan of a DataFrame."""

    column: str  # its name in withWatermark()
    delay_us: int
    now: tuple[str, ...]  # the names of that column in the DataFrame


_DELAY = "spark.watermarkDelayMs"  # Spark's mark on the column and on columns derived from it


def ignores_case(session: SparkSession) -> bool:
    """Whether Spark ignores upper and lower case in names of columns."""
    return str(session.conf.get("spark.sql.caseSensitive", "false")).lower() != "true"


def watermarks_of(rows: DataFrame) -> list[Watermark]:
    """The watermarks of streaming rows, from `withWatermark`; static rows have none."""
    marked = tuple(each.name for each in rows.schema.fields if _DELAY in each.metadata)
    if not rows.isStreaming:
        return []
    plan = analyzed(rows)
    return [
        Watermark(node.eventTime().name(), _interval_us(node.delay()), marked)
        for node in _nodes(plan)
        if node.nodeName() == "EventTimeWatermark"
    ]


def without_watermark(rows: DataFrame) -> DataFrame:
    """The same rows without Spark's watermark, which costs time for each row.

    If Spark's internals have changed, it stays: Spark then computes a watermark that nobody uses.
    """
    session = rows.sparkSession
    try:
        plan = _unwatermarked(analyzed(rows), session)
        made = scala_of(session._jvm).datasets.ofRows(rows._jdf.sparkSession(), plan)
        return DataFrame(made, session)
    except (Py4JError, TypeError):
        return rows


def _unwatermarked(plan: Any, session: SparkSession) -> Any:
    children = list(each_of(plan.children()))
    made = [_unwatermarked(each, session) for each in children]
    if plan.nodeName() == "EventTimeWatermark":
        return made[0]
    if all(new is old for new, old in zip(made, children, strict=True)):
        return plan
    context = session.sparkContext
    return plan.withNewChildren(_to_seq(context, made).toIndexedSeq())


def _interval_us(interval: Any) -> int:
    """The microseconds of an interval. A month has 31 days in Spark's watermarks."""
    months, days, us = (get_field(interval, each) for each in ("months", "days", "microseconds"))
    return int((31 * months + days) * 86_400_000_000 + us)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in each_of(plan.children()):
        yield from _nodes(child)


def each_of(scala: Any) -> Iterator[Any]:
    """The elements of a sequence in the JVM."""
    return (scala.apply(i) for i in range(scala.size()))
