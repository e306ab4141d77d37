"""Aggregates: lift (Spark SQL or Arrow, in the partials), merge (NumPy, in the partials), finish (here).

To add one: name the partials that it needs and turn their merged columns into a result column. Partials that two aggregates
of an operator have in common are kept once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.aggregates.gathered import DistinctValues, Foremost, Frequent, Hll, Kll, Smallest
from anabranch.aggregates.partials import (
    AtGreatest,
    AtLeast,
    Count,
    Earliest,
    Greatest,
    Latest,
    Least,
    Moments,
    Partial,
    Total,
)
from anabranch.errors import TopologyError
from anabranch.types import (
    FLOATING,
    WHOLE,
    Array,
    arrow_type,
    decimal_of,
    struct_fields,
    to_arrow,
    to_lists,
)

# A Spark SQL expression or a Spark Column; opaque here.
Expression: TypeAlias = object


def text_of(expression: Expression | None) -> str:
    """An expression for people; several of them, in a tuple, side by side."""
    return (
        "*"
        if expression is None
        else ", ".join(map(str, expression))
        if isinstance(expression, tuple)
        else str(expression)
    )


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """One aggregate over an expression (or several, in a tuple), restricted to the rows where `where` is true."""

    expression: Expression | None
    where: Expression | None = None

    kind: ClassVar[str]

    @property
    def parameters(self) -> dict[str, object]:
        """What else tells it from others of its kind; a checkpoint depends on it."""
        return {each.name: getattr(self, each.name) for each in fields(self)[2:]}

    @abstractmethod
    def partials(self, input_type: str) -> tuple[Partial, ...]:
        """What must be kept of inputs of a type; raises TopologyError where the type does not fit."""

    @abstractmethod
    def result_type(self, input_type: str) -> str: ...

    @abstractmethod
    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        """The result column from the merged columns of the partials, in their order."""

    def _refuse(self, input_type: str, valid: str) -> TopologyError:
        return TopologyError(
            f"{self.kind}({text_of(self.expression)}) has input of type {input_type}; valid: {valid}"
        )

    def _numeric(self, input_type: str) -> None:
        if (
            input_type not in WHOLE
            and input_type not in FLOATING
            and decimal_of(input_type) is None
        ):
            raise self._refuse(input_type, "whole numbers, floats and decimals")


class CountOf(Aggregate):
    """Rows, or values that are not null."""

    kind = "count"

    def partials(self, input_type: str) -> tuple[Partial, ...]:  # noqa: ARG002
        return (Count("bigint"),)

    def result_type(self, input_type: str) -> str:  # noqa: ARG002
        return "bigint"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_arrow(columns[0], self.result_type(input_type))


class SumOf(Aggregate):
    """The sum, null where there is no value: bigint of whole numbers, double of floats, decimal of decimals."""

    kind = "sum"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        self._numeric(input_type)
        return Total(self.result_type(input_type)), Count("bigint")

    def result_type(self, input_type: str) -> str:
        if (decimal := decimal_of(input_type)) is not None:
            return f"decimal({min(38, decimal[0] + 10)},{decimal[1]})"
        return "bigint" if input_type in WHOLE else "double"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_arrow(columns[0], self.result_type(input_type), columns[1] > 0)


class AvgOf(Aggregate):
    """The mean, null where there is no value: double, or decimal of decimals."""

    kind = "avg"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        self._numeric(input_type)
        return Total(
            "double" if decimal_of(input_type) is None else SumOf(None).result_type(input_type)
        ), Count("bigint")

    def result_type(self, input_type: str) -> str:
        decimal = decimal_of(input_type)
        return (
            "double"
            if decimal is None
            else f"decimal({min(38, decimal[0] + 4)},{min(38, decimal[1] + 4)})"
        )

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        total, count = columns
        result = self.result_type(input_type)
        if (decimal := decimal_of(result)) is None:
            return to_arrow(total / np.maximum(count, 1), result, count > 0)
        context, step = Context(prec=100, rounding=ROUND_HALF_UP), Decimal(1).scaleb(-decimal[1])
        means = [
            None if not n else context.divide(t, Decimal(int(n))).quantize(step, context=context)
            for t, n in zip(total, count, strict=True)
        ]
        return pa.array(means, type=arrow_type(result))


class _Extreme(Aggregate, ABC):
    partial: ClassVar[type[Partial]]

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return self.partial(input_type), Count("bigint")

    def result_type(self, input_type: str) -> str:
        return input_type

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_arrow(columns[0], input_type, columns[1] > 0)


class MinOf(_Extreme):
    """The smallest value."""

    kind = "min"
    partial = Least


class MaxOf(_Extreme):
    """The largest value."""

    kind = "max"
    partial = Greatest


class _AtTime(Aggregate, ABC):
    partial: ClassVar[type[Partial]]

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (self.partial(input_type),)

    def result_type(self, input_type: str) -> str:
        return input_type

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        never = self.partial(input_type).columns[0].identity
        return to_arrow(columns[1], input_type, columns[0] != never)


class FirstOf(_AtTime):
    """The value at the first event time that has one."""

    kind = "first"
    partial = Earliest


class LastOf(_AtTime):
    """The value at the last event time that has one."""

    kind = "last"
    partial = Latest


class _Spread(Aggregate, ABC):
    sample: ClassVar[bool]
    root: ClassVar[bool]

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        self._numeric(input_type)
        return (Moments("double"),)

    def result_type(self, input_type: str) -> str:  # noqa: ARG002
        return "double"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        count, _, squares = columns
        free = count - 1 if self.sample else count
        variance = squares / np.maximum(free, 1)
        return to_arrow(
            np.sqrt(variance) if self.root else variance, self.result_type(input_type), free > 0
        )


class VarianceOf(_Spread):
    """The sample variance, null for fewer than two values."""

    kind, sample, root = "variance", True, False


class VarPopOf(_Spread):
    """The population variance."""

    kind, sample, root = "var_pop", False, False


class StddevOf(_Spread):
    """The sample standard deviation, null for fewer than two values."""

    kind, sample, root = "stddev", True, True


class StddevPopOf(_Spread):
    """The population standard deviation."""

    kind, sample, root = "stddev_pop", False, True


class _Flag(_Extreme, ABC):
    def partials(self, input_type: str) -> tuple[Partial, ...]:
        if input_type != "boolean":
            raise self._refuse(input_type, "boolean")
        return self.partial(input_type), Count("bigint")


class BoolAndOf(_Flag):
    """True where all values are."""

    kind = "bool_and"
    partial = Least


class BoolOrOf(_Flag):
    """True where one value is."""

    kind = "bool_or"
    partial = Greatest


class _By(Aggregate, ABC):
    partial: ClassVar[type[Partial]]

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        for each in (struct_fields(input_type) or {}).values():
            arrow_type(each)
        return (self.partial(input_type),)

    def result_type(self, input_type: str) -> str:
        return next(iter((struct_fields(input_type) or {}).values()))

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_arrow(columns[2], self.result_type(input_type), columns[0] > 0)


class MinByOf(_By):
    """The value where another is smallest."""

    kind = "min_by"
    partial = AtLeast


class MaxByOf(_By):
    """The value where another is largest."""

    kind = "max_by"
    partial = AtGreatest


class CountDistinctOf(Aggregate):
    """The number of distinct values."""

    kind = "count_distinct"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (DistinctValues(input_type),)

    def result_type(self, input_type: str) -> str:  # noqa: ARG002
        return "bigint"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:  # noqa: ARG002
        return pa.array([0 if each is None else len(each) for each in columns[0]], pa.int64())


@dataclass(frozen=True, slots=True)
class ApproxCountDistinctOf(Aggregate):
    """The number of distinct values, estimated."""

    lg_k: int = 12

    kind = "approx_count_distinct"

    def __post_init__(self) -> None:
        _whole(self.kind, "lg_k", self.lg_k, 4, 21)

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (Hll(input_type, self.lg_k),)

    def result_type(self, input_type: str) -> str:  # noqa: ARG002
        return "bigint"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return pa.array(map(Hll(input_type, self.lg_k).estimate, columns[0]), pa.int64())


@dataclass(frozen=True, slots=True)
class QuantileOf(Aggregate):
    """One quantile, or several as an array; exact of up to k values."""

    q: float | tuple[float, ...] = 0.5
    k: int = 200

    kind = "quantile"

    def __post_init__(self) -> None:
        _whole(self.kind, "k", self.k, 8, 65535)
        for each in self._ranks:
            if not isinstance(each, int | float) or isinstance(each, bool) or not 0 <= each <= 1:
                raise TopologyError(
                    f"quantile: q={each!r}; valid: a number from 0 to 1, or a list of them"
                )

    @property
    def _ranks(self) -> tuple[float, ...]:
        return self.q if isinstance(self.q, tuple) else (self.q,)

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        self._numeric(input_type)
        return (Kll("double", self.k),)

    def result_type(self, input_type: str) -> str:  # noqa: ARG002
        return "array<double>" if isinstance(self.q, tuple) else "double"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:  # noqa: ARG002
        sketch, ranks = Kll("double", self.k), self._ranks
        found = [sketch.quantiles(each, ranks) for each in columns[0]]
        if isinstance(self.q, tuple):
            return pa.array(found, pa.list_(pa.float64()))
        return pa.array([None if each is None else each[0] for each in found], pa.float64())


@dataclass(frozen=True, slots=True)
class TopKOf(Aggregate):
    """The most frequent values with their counts; at equal counts the smaller value first."""

    k: int = 10
    keep: int = 1000

    kind = "top_k"

    def __post_init__(self) -> None:
        _whole(self.kind, "keep", self.keep, 1, 250_000)
        _whole(self.kind, "k", self.k, 1, self.keep, " (keep)")

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (Frequent(input_type, self.keep),)

    def result_type(self, input_type: str) -> str:
        return f"array<struct<value:{input_type},count:bigint>>"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        tops = [
            sorted((each or {}).items(), key=lambda pair: (-pair[1], pair[0]))[: self.k]
            for each in columns[0]
        ]
        return to_lists(tops, f"struct<value:{input_type},count:bigint>")


@dataclass(frozen=True, slots=True)
class _Collected(Aggregate, ABC):
    limit: int = 1000

    def __post_init__(self) -> None:
        _whole(self.kind, "limit", self.limit, 1, 2**31 - 1)

    def result_type(self, input_type: str) -> str:
        return f"array<{input_type}>"


class CollectListOf(_Collected):
    """The values in the order of their event times, then in their own; the first of them up to the limit."""

    kind = "collect_list"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (Foremost(input_type, self.limit),)

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_lists([[value for _, value in each or ()] for each in columns[0]], input_type)


class CollectSetOf(_Collected):
    """The distinct values in their order; the smallest of them up to the limit."""

    kind = "collect_set"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (Smallest(input_type, self.limit),)

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_lists(columns[0].tolist(), input_type)


def _whole(kind: str, name: str, value: object, least: int, most: int, why: str = "") -> None:
    """Refuses a parameter that is not a whole number within its bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TopologyError(f"{kind}: {name}={value!r}; valid: {least} to {most}{why}")


def ranks_of(q: object) -> float | tuple[float, ...]:
    """The ranks of a quantile as they are kept: a number, or a tuple of at least one."""
    if isinstance(q, str) or not isinstance(q, Iterable):
        return q  # type: ignore[return-value]  # what is no number is refused by the aggregate
    if not (ranks := tuple(q)):
        raise TopologyError("quantile: q is empty; valid: a number from 0 to 1, or a list of them")
    return ranks
