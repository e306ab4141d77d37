"""The aggregates as the user calls them, named as in `pyspark.sql.functions`."""

from __future__ import annotations

from anabranch.topology.aggregates import (
    Aggregate,
    AvgOf,
    CountOf,
    Expression,
    FirstOf,
    LastOf,
    MaxOf,
    MinOf,
    StddevOf,
    StddevPopOf,
    SumOf,
    VarianceOf,
    VarPopOf,
)


def count(expression: Expression | None = None, *, where: Expression | None = None) -> Aggregate:
    """The number of rows, or of values that are not null."""
    return CountOf(None if expression == "*" else expression, where)


def sum(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The sum of the values."""
    return SumOf(expression, where)


def avg(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The mean of the values."""
    return AvgOf(expression, where)


def min(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The smallest value."""
    return MinOf(expression, where)


def max(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The largest value."""
    return MaxOf(expression, where)


def variance(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The sample variance of the values."""
    return VarianceOf(expression, where)


def var_pop(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The population variance of the values."""
    return VarPopOf(expression, where)


def stddev(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The sample standard deviation of the values."""
    return StddevOf(expression, where)


def stddev_pop(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The population standard deviation of the values."""
    return StddevPopOf(expression, where)


def first(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value at the first event time; nulls are skipped, ties go to the smallest value."""
    return FirstOf(expression, where)


def last(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value at the last event time; nulls are skipped, ties go to the largest value."""
    return LastOf(expression, where)
