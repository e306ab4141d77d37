"""Aggregates: the partials that each needs, and how its result is made from them.

Lifting and merging are in the partials: Spark SQL, Arrow and NumPy. A new aggregate needs two
things. A spec, here, names its partials and turns their merged columns into a result column. A
function in functions.py is what users call; its name goes into the list there. Aggregates of an
operator share partials that they have in common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.aggregates.by_order import AtGreatest, AtLeast, Earliest, Latest
from anabranch.aggregates.partials import (
    Count,
    Greatest,
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
)

# A Spark SQL expression or a Spark Column. This package does not look inside.
Expression: TypeAlias = object


def text_of(expression: Expression | None) -> str:
    """An expression as text. Several, in a tuple, are separated by commas."""
    if expression is None:
        return "*"
    return ", ".join(map(str, expression)) if isinstance(expression, tuple) else str(expression)


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """What `ab.sum("price")` and the like return, for `compute` and `aggregate`.

    `expression` is Spark SQL, a column's name or a Spark Column; or several of them in a tuple.
    `where` is a condition: only rows for which it is true count.
    """

    expression: Expression | None
    where: Expression | None = None

    kind: ClassVar[str]

    @property
    def parameters(self) -> dict[str, object]:
        """What distinguishes it from others of its kind, as part of a checkpoint's fingerprint."""
        return {each.name: getattr(self, each.name) for each in fields(self)[2:]}

    @abstractmethod
    def partials(self, input_type: str) -> tuple[Partial, ...]:
        """The partials for inputs of a type. A type that it does not support is a TopologyError."""

    @abstractmethod
    def result_type(self, input_type: str) -> str: ...

    @abstractmethod
    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        """The result column, from the merged columns of the partials."""

    def _refuse(self, input_type: str, valid: str) -> TopologyError:
        return TopologyError(
            f"{self.kind}({text_of(self.expression)}) has input of type {input_type}; "
            f"valid: {valid}"
        )

    def _numeric(self, input_type: str) -> None:
        if (
            input_type not in WHOLE
            and input_type not in FLOATING
            and decimal_of(input_type) is None
        ):
            raise self._refuse(input_type, "whole numbers, floats and decimals")


class CountOf(Aggregate):
    """The number of rows, or of values that are not null."""

    kind = "count"

    def partials(self, input_type: str) -> tuple[Partial, ...]:  # noqa: ARG002
        return (Count("bigint"),)

    def result_type(self, input_type: str) -> str:  # noqa: ARG002
        return "bigint"

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_arrow(columns[0], self.result_type(input_type))


class SumOf(Aggregate):
    """The sum, null if there are no values.

    It is a bigint for whole numbers, a double for floats, and a decimal for decimals.
    """

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
    """The mean, null if there are no values: a double, or a decimal for decimals."""

    kind = "avg"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        self._numeric(input_type)
        whole = "double" if decimal_of(input_type) is None else SumOf(None).result_type(input_type)
        return Total(whole), Count("bigint")

    def result_type(self, input_type: str) -> str:
        decimal = decimal_of(input_type)
        if decimal is None:
            return "double"
        return f"decimal({min(38, decimal[0] + 4)},{min(38, decimal[1] + 4)})"

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
    """True if all values are true."""

    kind = "bool_and"
    partial = Least


class BoolOrOf(_Flag):
    """True if at least one value is true."""

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
    """The value of the row in which another is smallest."""

    kind = "min_by"
    partial = AtLeast


class MaxByOf(_By):
    """The value of the row in which another is largest."""

    kind = "max_by"
    partial = AtGreatest
