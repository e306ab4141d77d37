"""The aggregates as users call them, named as in `pyspark.sql.functions`."""

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

# The only list of aggregates: `anabranch` and `anabranch.topology` export these names.
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
    """The number of rows, or with an expression the number of its values that are not null.

    Like all aggregates, it takes `where`, a condition: only rows for which it is true count.
    """
    return CountOf(None if expression == "*" else expression, where)


def sum(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The sum of the values, null if there are none.

    It is a bigint for whole numbers, a double for floats, and a decimal for decimals. A bigint that
    overflows ends the step with an error.
    """
    return SumOf(expression, where)


def avg(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The mean of the values, null if there are none: a double, or a decimal for decimals."""
    return AvgOf(expression, where)


def min(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The smallest value, null if there are none. NaN is above all numbers, as in Spark."""
    return MinOf(expression, where)


def max(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The largest value, null if there are none. NaN is above all numbers, as in Spark."""
    return MaxOf(expression, where)


def variance(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The sample variance of the values as a double, null for fewer than two values."""
    return VarianceOf(expression, where)


def var_pop(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The population variance of the values as a double, null if there are none."""
    return VarPopOf(expression, where)


def stddev(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The sample standard deviation of the values as a double, null for fewer than two values."""
    return StddevOf(expression, where)


def stddev_pop(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The population standard deviation of the values as a double, null if there are none."""
    return StddevPopOf(expression, where)


def first(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value at the first event time. Nulls are skipped; ties go to the smallest value."""
    return FirstOf(expression, where)


def last(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value at the last event time. Nulls are skipped; ties go to the largest value."""
    return LastOf(expression, where)


def max_by(value: Expression, by: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value of the row in which `by` is largest.

    Rows in which one of the two is null are skipped. Ties go to the largest value.
    """
    return MaxByOf((value, by), where)


def min_by(value: Expression, by: Expression, *, where: Expression | None = None) -> Aggregate:
    """The value of the row in which `by` is smallest.

    Rows in which one of the two is null are skipped. Ties go to the smallest value.
    """
    return MinByOf((value, by), where)


def bool_and(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """True if all values are true, null if there are none. The values must be booleans."""
    return BoolAndOf(expression, where)


def bool_or(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """True if at least one value is true, null if there are none. The values must be booleans."""
    return BoolOrOf(expression, where)


def count_distinct(expression: Expression, *, where: Expression | None = None) -> Aggregate:
    """The exact number of distinct values. State holds all of them."""
    return CountDistinctOf(expression, where)


def approx_count_distinct(
    expression: Expression, lg_k: int = 12, *, where: Expression | None = None
) -> Aggregate:
    """The approximate number of distinct values, by a HyperLogLog sketch.

    `lg_k`, 4 to 21, sets its size and precision: a sketch takes up to 2 ** lg_k bytes, and the
    standard error is 1.04 / sqrt(2 ** lg_k).
    """
    return ApproxCountDistinctOf(expression, where, lg_k)


def quantile(
    expression: Expression,
    q: float | Iterable[float],
    k: int = 200,
    *,
    where: Expression | None = None,
) -> Aggregate:
    """The smallest value that at least a share `q` of the values does not exceed, as a double.

    - `q`: a number from 0 to 1, such as 0.5 for the median; or a list, which gives an array.
    - `k`, 8 to 65535: the size of the KLL sketch. The result is exact for up to k values.
    """
    return QuantileOf(expression, where, ranks_of(q), k)


def top_k(
    expression: Expression, k: int = 10, keep: int = 1000, *, where: Expression | None = None
) -> Aggregate:
    """The `k` most frequent values with their counts, as an array of (value, count).

    At equal counts, the smaller value is first. It is exact for up to `keep` distinct values. Above
    that, the counts of n values are too low by at most 2 n / keep. `keep` is 1 to 250,000.
    """
    return TopKOf(expression, where, k, keep)


def collect_list(
    expression: Expression, limit: int = 1000, *, where: Expression | None = None
) -> Aggregate:
    """The first `limit` values as an array, sorted by event time, then by value."""
    return CollectListOf(expression, where, limit)


def collect_set(
    expression: Expression, limit: int = 1000, *, where: Expression | None = None
) -> Aggregate:
    """The smallest `limit` distinct values as a sorted array."""
    return CollectSetOf(expression, where, limit)
