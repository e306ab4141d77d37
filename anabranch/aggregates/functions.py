"""The aggregates as the user calls them, named as in `pyspark.sql.functions`."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.aggregates.gathered_specs import (
    ApproxCountDistinctOf,
    CollectListOf,
    CollectSetOf,
    CountDistinctOf,
    QuantileOf,
    TopKOf,
    ranks_of,
)
from anabranch.aggregates.specs import (
    Aggregate,
    AvgOf,
    BoolAndOf,
    BoolOrOf,
    CountOf,
    Expression,
    FirstOf,
    LastOf,
    MaxByOf,
    MaxOf,
    MinByOf,
    MinOf,
    StddevOf,
    StddevPopOf,
    SumOf,
    VarianceOf,
    VarPopOf,
)

# The one list of aggregates: `anabranch` and `anabranch.topology` export what it names.
__all__ = [
    "approx_count_distinct",
    "avg",
    "bool_and",
    "bool_or",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "max_by",
    "min",
    "min_by",
    "quantile",
    "stddev",
    "stddev_pop",
    "sum",
    "top_k",
    "var_pop",
    "variance",
]


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


def max_by(value: Expression, by: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value where `by` is largest.

    Rows without one of the two are skipped; ties go to the largest value.
    """
    return MaxByOf((value, by), where)


def min_by(value: Expression, by: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value where `by` is smallest.

    Rows without one of the two are skipped; ties go to the smallest value.
    """
    return MinByOf((value, by), where)


def bool_and(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """True where all values are."""
    return BoolAndOf(expression, where)


def bool_or(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """True where at least one value is."""
    return BoolOrOf(expression, where)


def count_distinct(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The number of distinct values, exact: all of them are kept."""
    return CountDistinctOf(expression, where)


def approx_count_distinct(
    expression: Expression, lg_k: int = 12, *, where: Expression | None = None
) -> Aggregate:
    """The number of distinct values, by a HyperLogLog sketch of 2 ** lg_k bytes.

    Its standard error is 1.04 / sqrt(2 ** lg_k).
    """
    return ApproxCountDistinctOf(expression, where, lg_k)


def quantile(
    expression: Expression,
    q: float | Iterable[float],
    k: int = 200,
    *,
    where: Expression | None = None,
) -> Aggregate:
    """The value that a share q of the values does not exceed, or an array of them.

    By a KLL sketch; exact of up to k values.
    """
    return QuantileOf(expression, where, ranks_of(q), k)


def top_k(
    expression: Expression, k: int = 10, keep: int = 1000, *, where: Expression | None = None
) -> Aggregate:
    """The k most frequent values and their counts.

    Exact of up to `keep` different values; else counts are too low by at most 2 n / keep.
    """
    return TopKOf(expression, where, k, keep)


def collect_list(
    expression: Expression, limit: int = 1000, *, where: Expression | None = None
) -> Aggregate:
    """The first values by event time, then by value, as an array."""
    return CollectListOf(expression, where, limit)


def collect_set(
    expression: Expression, limit: int = 1000, *, where: Expression | None = None
) -> Aggregate:
    """The smallest distinct values, in order, as an array."""
    return CollectSetOf(expression, where, limit)
