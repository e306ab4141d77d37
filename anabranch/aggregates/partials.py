"""Partials: what is stored for the rows of one key in one pane, and how two partials merge.

A partial consists of columns with one value per key number. Rows in the JVM are lifted by Spark
SQL, one expression per column, in which `{x}` is the input and `{t}` the event time in
microseconds. Rows in a slot task are lifted with Arrow (`lift_rows`), with the same result.

Merging works in place on whole arrays. `at` selects the rows (each at most once) that `values`
belong to. Each column has an `identity`, a value that changes nothing when merged. So keys without
rows need no mask. A null from the lift means the identity.

Merging is associative and commutative; for sketches, within their error. Several partials may share
an object in a column. So merging makes a new object, and never changes an old one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from decimal import Context
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.aggregates.groups import keep_some, merge_groups, reduce_groups, valid
from anabranch.errors import StepError
from anabranch.types import Array, column_type, dtype_of, to_array

At: TypeAlias = slice | Array

_EXACT = Context(prec=100)
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """One column of a partial: its Spark type, and the value that changes nothing when merged."""

    type: str
    identity: object
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_of(self.type))

    def empty(self, size: int) -> Array:
        return np.full(size, self.identity, dtype=self.dtype)

    def from_arrow(self, values: pa.Array | pa.ChunkedArray) -> Array:
        """The values in the form for merging, from a lift or from state."""
        return to_array(values, self.dtype, self.identity)

    def to_arrow(self, values: Array) -> pa.Array:
        """The values in the form for state."""
        return (
            pa.array(values.tolist(), type=column_type(self.type))
            if values.dtype.kind == "O"
            else pa.array(values)
        )


@dataclass(frozen=True, slots=True)
class Partial(ABC):
    """One mergeable figure of the values of an input column."""

    type: str

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters that distinguish it from others of its class and type."""
        return {each.name: getattr(self, each.name) for each in fields(self)[1:]}

    @property
    @abstractmethod
    def columns(self) -> tuple[PartialColumn, ...]: ...

    @property
    @abstractmethod
    def lift(self) -> tuple[str, ...]:
        """Spark SQL aggregate expressions, one per column unless `arrive` splits them."""

    def arrive(self, lifted: Sequence[pa.ChunkedArray]) -> Sequence[Array]:
        """The columns, from the results of the lift."""
        return [
            column.from_arrow(values) for column, values in zip(self.columns, lifted, strict=True)
        ]

    def empty(self, size: int) -> list[Array]:
        """The columns of groups without rows."""
        return [column.empty(size) for column in self.columns]

    @abstractmethod
    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:
        """The columns of each single row, from its input and its event time in microseconds.

        If the input is null, they are identities.
        """

    def of_groups(self, values: pa.Array, t: Array, lengths: Array) -> Sequence[Array]:
        """The columns of each group of rows. Rows are sorted by group, with `lengths` rows each."""
        return merge_groups(self.merge, self.of_rows(values, t), lengths, self.empty(len(lengths)))

    @abstractmethod
    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None: ...


class Grouped(Partial, ABC):
    """A partial made from a whole group of rows, which is faster than merging single rows."""

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:
        return self.of_groups(values, t, np.ones(len(values), dtype=np.int64))

    @abstractmethod
    def of_groups(self, values: pa.Array, t: Array, lengths: Array) -> Sequence[Array]: ...


class _Picked(Partial, ABC):
    """A partial in one column that is merged by a binary function."""

    @property
    @abstractmethod
    def pick(self) -> Any:
        """The function, in a form that NumPy applies to arrays."""

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:  # noqa: ARG002
        return [self.columns[0].from_arrow(values)]

    def of_groups(self, values: pa.Array, t: Array, lengths: Array) -> Sequence[Array]:
        return [
            reduce_groups(
                self.pick, self.of_rows(values, t)[0], lengths, self.empty(len(lengths))[0]
            )
        ]

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        if isinstance(at, slice) and isinstance(self.pick, np.ufunc):
            held = into[0][at]
            self.pick(held, values[0], out=held)
        else:
            into[0][at] = self.pick(into[0][at], values[0])


class Count(_Picked):
    """How many values there are."""

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (PartialColumn("bigint", 0),)

    @property
    def lift(self) -> tuple[str, ...]:
        return ("count({x})",)

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:  # noqa: ARG002
        return [valid(values).astype(np.int64)]

    @property
    def pick(self) -> Any:
        return np.add


class Total(_Picked):
    """The sum of the values as a bigint (overflow is an error), a double or a decimal."""

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (PartialColumn(self.type, None if dtype_of(self.type).kind == "O" else 0),)

    @property
    def lift(self) -> tuple[str, ...]:
        return ("sum(cast({x} as double))" if self.type == "double" else "sum({x})",)

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:  # noqa: ARG002
        added = self.columns[0].from_arrow(values)
        return [added + 0.0 if added.dtype.kind == "f" else added]  # the sum of -0.0 alone is 0.0

    def of_groups(self, values: pa.Array, t: Array, lengths: Array) -> Sequence[Array]:
        [added], empty = self.of_rows(values, t), self.empty(len(lengths))
        if added.dtype.kind == "i" and _reach(added) * int(lengths.max(initial=0)) > _INT64.max:
            return merge_groups(self.merge, [added], lengths, empty)
        with np.errstate(invalid="ignore", over="ignore"):
            return [reduce_groups(self.pick, added, lengths, empty[0])]

    @property
    def pick(self) -> Any:
        return _add_objects if dtype_of(self.type).kind == "O" else np.add

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        (target,), (added,) = into, values
        if target.dtype.kind != "i":
            with np.errstate(invalid="ignore", over="ignore"):
                target[at] = self.pick(target[at], added)
            return
        before = target[at]
        after = before + added
        if (
            _reach(before) + _reach(added) > _INT64.max
            and (((before ^ after) & (added ^ after)) < 0).any()
        ):
            raise StepError(
                "a sum of whole numbers exceeds bigint; sum a decimal or a double instead"
            )
        target[at] = after


class Least(_Picked):
    """The smallest value. NaN is above all numbers, as in Spark."""

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (
            PartialColumn(
                self.type, {"i": _INT64.max, "f": np.nan, "O": None}[dtype_of(self.type).kind]
            ),
        )

    @property
    def lift(self) -> tuple[str, ...]:
        return ("min({x})",)

    @property
    def pick(self) -> Any:
        return {"i": np.minimum, "f": np.fmin, "O": _least_objects}[dtype_of(self.type).kind]


class Greatest(_Picked):
    """The largest value. NaN is above all numbers, as in Spark."""

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (
            PartialColumn(
                self.type, {"i": _INT64.min, "f": -np.inf, "O": None}[dtype_of(self.type).kind]
            ),
        )

    @property
    def lift(self) -> tuple[str, ...]:
        return ("max({x})",)

    @property
    def pick(self) -> Any:
        return {"i": np.maximum, "f": np.maximum, "O": _greatest_objects}[dtype_of(self.type).kind]


class FirstTime(Least):
    """The first event time, in microseconds."""

    @property
    def lift(self) -> tuple[str, ...]:
        return ("min({t})",)

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:  # noqa: ARG002
        return [t]


class LastTime(Greatest):
    """The last event time, in microseconds."""

    @property
    def lift(self) -> tuple[str, ...]:
        return ("max({t})",)

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:  # noqa: ARG002
        return [t]


class Moments(Partial):
    """Count, mean and sum of squared distances from the mean (Chan, Golub, LeVeque 1983)."""

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (
            PartialColumn("bigint", 0),
            PartialColumn("double", 0.0),
            PartialColumn("double", 0.0),
        )

    @property
    def lift(self) -> tuple[str, ...]:
        x = "cast({x} as double)"
        return "count({x})", f"avg({x})", f"var_pop({x}) * count({{x}})"

    def of_rows(self, values: pa.Array, t: Array) -> Sequence[Array]:  # noqa: ARG002
        mean = self.columns[1].from_arrow(values)
        return [valid(values).astype(np.int64), mean, np.where(np.isfinite(mean), 0.0, np.nan)]

    def of_groups(self, values: pa.Array, t: Array, lengths: Array) -> Sequence[Array]:
        here, n = keep_some(values, valid(values), lengths)
        x, (_, mean, squares) = self.columns[1].from_arrow(here), self.empty(len(lengths))
        # Starts from a value of the group, not from 0, so that equal values have distance 0.
        mean[n > 0] = x[(np.cumsum(n) - n)[n > 0]]
        with np.errstate(invalid="ignore", over="ignore"):
            mean += reduce_groups(np.add, x - np.repeat(mean, n), n, np.zeros(len(n))) / np.maximum(
                n, 1
            )
            squares = reduce_groups(np.add, (x - np.repeat(mean, n)) ** 2, n, squares)
        return (
            [np.array(n), mean, squares]
            if np.isfinite(squares).all()
            else super().of_groups(values, t, lengths)
        )

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        n, mean, m2 = (column[at] for column in into)
        n_new, mean_new, m2_new = values
        total = n + n_new
        with np.errstate(invalid="ignore", over="ignore"):
            share = n_new / np.maximum(total, 1)
            distance = mean_new - mean
            # A side without values has no mean: use the mean of the other side.
            both = np.where(n == 0, mean_new, np.where(n_new == 0, mean, mean + distance * share))
            squares = (
                m2
                + m2_new
                + np.where((n == 0) | (n_new == 0), 0.0, distance * distance * n * share)
            )
        into[0][at], into[1][at], into[2][at] = total, both, squares


def _reach(values: Array) -> int:
    """The largest absolute value of whole numbers."""
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))


def objectwise(choose: Callable[[Any, Any], Any]) -> Any:
    """Turns a function of two objects into one of arrays. None means no value."""
    return np.frompyfunc(lambda a, b: b if a is None else a if b is None else choose(a, b), 2, 1)


_add_objects = objectwise(_EXACT.add)
_least_objects = objectwise(min)
_greatest_objects = objectwise(max)
