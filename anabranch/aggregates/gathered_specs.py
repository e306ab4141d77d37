"""Aggregates whose partials vary in size: distinct values, sketches, lists."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from anabranch.aggregates.gathered import Distinct, Foremost, Frequent, Hll, Kll, Smallest
from anabranch.aggregates.partials import Partial
from anabranch.aggregates.specs import Aggregate
from anabranch.errors import TopologyError
from anabranch.types import Array, arrow_type, to_lists


class CountDistinctOf(Aggregate):
    """The number of distinct values."""

    kind = "count_distinct"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (Distinct(input_type),)

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
    """One quantile, or several as an array. Exact for up to k values."""

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
    """The most frequent values with their counts. At equal counts, the smaller value is first."""

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
    """The first values up to the limit, sorted by event time, then by value."""

    kind = "collect_list"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (Foremost(input_type, self.limit),)

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_lists([[value for _, value in each or ()] for each in columns[0]], input_type)


class CollectSetOf(_Collected):
    """The smallest distinct values up to the limit, sorted."""

    kind = "collect_set"

    def partials(self, input_type: str) -> tuple[Partial, ...]:
        arrow_type(input_type)
        return (Smallest(input_type, self.limit),)

    def finish(self, input_type: str, columns: tuple[Array, ...]) -> pa.Array:
        return to_lists(columns[0].tolist(), input_type)


def _whole(kind: str, name: str, value: object, least: int, most: int, why: str = "") -> None:
    """Refuses a parameter that is not a whole number within its limits."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TopologyError(f"{kind}: {name}={value!r}; valid: {least} to {most}{why}")


def ranks_of(q: object) -> float | tuple[float, ...]:
    """The ranks of a quantile: a number, or a tuple of at least one."""
    if isinstance(q, str) or not isinstance(q, Iterable):
        return q  # type: ignore[return-value]  # the aggregate refuses other types
    if not (ranks := tuple(q)):
        raise TopologyError("quantile: q is empty; valid: a number from 0 to 1, or a list of them")
    return ranks
