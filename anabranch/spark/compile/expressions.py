"""Checks expressions of aggregates and filters: one value per row, the same in every attempt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame

from anabranch.aggregates.specs import text_of
from anabranch.errors import TopologyError
from anabranch.spark.compile.columns import expression
from anabranch.spark.jvm import NOT_DETERMINISTIC, analyzed, each_of

_NOW = {
    "CurrentBatchTimestamp",
    "CurrentDate",
    "CurrentTime",
    "CurrentTimestamp",
    "LocalTimestamp",
    "Now",
}
_NODES = {
    "Aggregate": "is itself an aggregate; valid: an expression of one row, as in ab.max('ms')",
    "Window": "is a window function, which reads other rows; valid: an expression of one row",
    "Generate": "makes several rows from one; do that in a map() before, such as "
    "map(lambda df: df.withColumn('x', F.explode('xs')))",
}


def type_of(rows: DataFrame, value: object, what: str) -> str:
    """The type of an expression over the rows of a stream.

    Refuses an expression that is not one value per row, or that may change if a step runs again.
    """
    parts = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(each, str | Column) for each in parts):
        raise TopologyError(f"{what}: {value!r} is neither a Spark SQL expression nor a Column")
    try:
        chosen = rows.select(expression(value, rows.columns).alias("x"))
        kind = chosen.schema["x"].dataType.simpleString()
    except Exception as error:  # noqa: BLE001 - Spark may raise anything
        reason = str(error).strip().splitlines()[0]
        raise TopologyError(
            f"{what}: {text_of(value)} does not fit the stream's columns "
            f"({', '.join(rows.columns)}): {reason}"
        ) from None
    plan, stream = analyzed(chosen), analyzed(rows)
    wrong = _beyond_the_row(plan, stream) or _changing(plan.projectList().head())
    if wrong is not None:
        raise TopologyError(f"{what}: {text_of(value)} {wrong}")
    return kind


def _beyond_the_row(plan: Any, stream: Any) -> str | None:
    """What an expression needs besides its row, by Spark's plan; None if it needs nothing."""
    node = plan
    while not node.equals(stream):
        name = str(node.nodeName())
        if name in _NODES:
            return _NODES[name]
        if node.children().isEmpty():
            return f"needs more than one row (Spark's plan of it is {plan.nodeName()})"
        node = node.children().head()
    if not plan.subqueries().isEmpty():
        return "has a subquery; valid: an expression of one row. Join the rows before source()"
    return None


def _changing(value: Any) -> str | None:
    """Why an expression may change if a step runs again; None if it does not."""
    names = {str(each.getClass().getSimpleName()) for each in _parts(value)}
    if names & _NOW:
        return (
            "uses the current time, which is different if a step runs again; make it a column in "
            "a map() of the source"
        )
    if not value.deterministic():
        return NOT_DETERMINISTIC
    if "PythonUDF" in names:
        return "calls a Python function; call it in a map() or an apply() before"
    return None


def _parts(value: Any) -> Iterator[Any]:
    yield value
    for each in each_of(value.children()):
        yield from _parts(each)
