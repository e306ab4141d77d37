"""Partials of variable size: sets, lists and counts of values, and sketches.

Values are in the form of `types.ordered`, where equality and order are those of Spark. A limit
keeps the first values in an order that depends on the values alone. So the result depends neither
on batches nor on the order of merging.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.aggregates.groups import keep_some, split, valid
from anabranch.aggregates.hashing import hash_input_sql, hash_inputs, item_sql
from anabranch.aggregates.partials import At, Grouped, PartialColumn, objectwise
from anabranch.types import (
    Array,
    decimal_of,
    dtype_of,
    from_lists,
    integer_sql,
    objects,
    ordered,
    to_array,
    to_lists,
)


@dataclass(frozen=True, slots=True)
class ListColumn(PartialColumn):
    """A column of arrays, held as sets, tuples or dictionaries; None if there is no value."""

    element: str
    box: Callable[[list[Any]], Collection[Any]]

    def from_arrow(self, values: pa.Array | pa.ChunkedArray) -> Array:
        return objects(
            self.box(each) if each else None for each in from_lists(values, self.element)
        )

    def to_arrow(self, values: Array) -> pa.Array:
        lists = values.tolist()
        if self.box is dict:
            lists = [None if each is None else each.items() for each in lists]
        return to_lists(lists, self.element)


def _lists(element: str, box: Callable[[list[Any]], Collection[Any]]) -> ListColumn:
    return ListColumn(f"array<{element}>", None, element, box)


class Gathered(Grouped, ABC):
    """A partial in one column of objects, made from all values of a group at once."""

    def of_groups(self, values: pa.Array, t: Array, lengths: Array) -> Sequence[Array]:
        here = valid(values)
        values, lengths = keep_some(values, here, lengths)
        groups = split(self._items(values, t[here]), lengths)
        return [objects(self._made(each) if len(each) else None for each in groups)]

    def _items(self, values: pa.Array, t: Array) -> Any:  # noqa: ARG002
        """The values, which have no nulls, in the form that `_made` takes."""
        return ordered(values, self.type)

    @abstractmethod
    def _made(self, items: Any) -> object:
        """The partial of one group, which is not empty."""


class Distinct(Gathered):
    """All distinct values."""

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (_lists(self.type, frozenset),)

    @property
    def lift(self) -> tuple[str, ...]:
        return ("collect_set({x})",)

    def _made(self, items: Any) -> object:
        return frozenset(items)

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        into[0][at] = _unite(into[0][at], values[0])


@dataclass(frozen=True, slots=True)
class Smallest(Gathered):
    """The smallest distinct values, sorted, up to a limit."""

    limit: int

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (_lists(self.type, tuple),)

    @property
    def lift(self) -> tuple[str, ...]:
        return (f"slice(sort_array(collect_set({{x}})), 1, {self.limit})",)

    def _made(self, items: Any) -> object:
        return tuple(sorted(set(items))[: self.limit])

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        limit = self.limit
        into[0][at] = objectwise(lambda a, b: tuple(sorted({*a, *b})[:limit]))(
            into[0][at], values[0]
        )


@dataclass(frozen=True, slots=True)
class Foremost(Gathered):
    """The first values by event time, then value, up to a limit; each with its event time."""

    limit: int

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (_lists(f"struct<t:bigint,v:{self.type}>", tuple),)

    @property
    def lift(self) -> tuple[str, ...]:
        rows = "collect_list(if({x} is null, null, named_struct('t', {t}, 'v', {x})))"
        return (f"slice(sort_array({rows}), 1, {self.limit})",)

    def _items(self, values: pa.Array, t: Array) -> list[Any]:
        return list(zip(t.tolist(), ordered(values, self.type), strict=True))

    def _made(self, items: Any) -> object:
        return tuple(sorted(items)[: self.limit])

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        limit = self.limit
        into[0][at] = objectwise(lambda a, b: tuple(sorted(a + b)[:limit]))(into[0][at], values[0])


@dataclass(frozen=True, slots=True)
class Frequent(Gathered):
    """Counts of the most frequent values (Misra and Gries 1982; merged as by Agarwal et al. 2012).

    Of n values, a count is too low by at most 2 n / keep, and never too high. Counts are exact for
    up to `keep` distinct values. Within a step, Spark's sketch counts, with space for four times as
    many values.
    """

    keep: int

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (_lists(f"struct<value:{self.type},count:bigint>", dict),)

    @property
    def lift(self) -> tuple[str, ...]:
        sketch = f"approx_top_k_accumulate({item_sql(self.type)}, {4 * self.keep})"
        return (f"{sketch} filter (where {{x}} is not null)",)

    def arrive(self, lifted: Sequence[pa.ChunkedArray]) -> Sequence[Array]:
        return [
            objects(
                self._counted(each) for each in pc.struct_field(lifted[0], "sketch").to_pylist()
            )
        ]

    def _made(self, items: Any) -> object:
        return self._cut(dict(Counter(items)))

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        into[0][at] = objectwise(self._sum)(into[0][at], values[0])

    def _counted(self, sketch: bytes | None) -> dict[Any, int] | None:
        import datasketches as ds

        if not sketch:
            return None
        kind = (
            "bigint"
            if integer_sql(self.type, "")
            else self.type
            if self.type in {"float", "double"}
            else "string"
        )
        if kind == "string":
            found = ds.frequent_strings_sketch.deserialize(sketch)
        else:
            found = ds.frequent_items_sketch.deserialize(
                sketch, ds.PyLongsSerDe() if kind == "bigint" else ds.PyDoublesSerDe()
            )
        rows = found.get_frequent_items(ds.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
        items = [row[0] for row in rows]
        if kind in {"float", "double"}:
            items = ordered(pa.array(items, pa.float64()), "double")
        elif self.type == "binary":
            items = [bytes.fromhex(item) for item in items]
        elif decimal_of(self.type) is not None:
            items = [Decimal(item) for item in items]
        return (
            self._cut({item: row[2] for item, row in zip(items, rows, strict=True) if row[2] > 0})
            or None
        )

    def _sum(self, a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
        few, counts = (a, dict(b)) if len(a) < len(b) else (b, dict(a))
        for value, count in few.items():
            counts[value] = counts.get(value, 0) + count
        return self._cut(counts)

    def _cut(self, counts: dict[Any, int]) -> dict[Any, int]:
        if len(counts) <= self.keep:
            return counts
        less = sorted(counts.values(), reverse=True)[self.keep]
        return {value: count - less for value, count in counts.items() if count > less}


@dataclass(frozen=True, slots=True)
class Hll(Gathered):
    """A HyperLogLog sketch of the distinct values (Apache DataSketches, HLL_8).

    It has 2 ** lg_k registers.
    """

    lg_k: int

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (PartialColumn("binary", None),)

    @property
    def lift(self) -> tuple[str, ...]:
        return (
            f"if(count({{x}}) = 0, null, hll_sketch_agg({hash_input_sql(self.type)}, {self.lg_k}))",
        )

    def _items(self, values: pa.Array, t: Array) -> list[Any]:  # noqa: ARG002
        return hash_inputs(values, self.type)

    def _made(self, items: Any) -> object:
        import datasketches as ds

        sketch = ds.hll_sketch(self.lg_k, ds.HLL_8)
        for item in items:
            sketch.update(item)
        return sketch.serialize_compact()

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        import datasketches as ds

        read, union, lg_k = ds.hll_sketch.deserialize, ds.hll_union, self.lg_k

        def both(a: bytes, b: bytes) -> bytes:
            united = union(lg_k)
            united.update(read(a))
            united.update(read(b))
            merged: bytes = united.get_result(ds.HLL_8).serialize_compact()
            return merged

        into[0][at] = objectwise(both)(into[0][at], values[0])

    def estimate(self, sketch: bytes | None) -> int:
        """The number of distinct values. It does not depend on the order in which they came."""
        import datasketches as ds

        if sketch is None:
            return 0
        # The estimate of a sketch that was never merged depends on the order of its values. So it
        # is merged with itself.
        united = ds.hll_union(self.lg_k)
        for _ in range(2):
            united.update(ds.hll_sketch.deserialize(sketch))
        return round(float(united.get_estimate()))


@dataclass(frozen=True, slots=True)
class Kll(Gathered):
    """A KLL sketch of the distribution of the values (Apache DataSketches).

    It holds all values if there are at most k.
    """

    k: int

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        return (PartialColumn("binary", None),)

    @property
    def lift(self) -> tuple[str, ...]:
        x = "cast({x} as double)"
        return (f"if(count(nanvl({x}, null)) = 0, null, kll_sketch_agg_double({x}, {self.k}))",)

    def _items(self, values: pa.Array, t: Array) -> Array:  # noqa: ARG002
        return to_array(
            values, dtype_of("double"), None
        ).copy()  # the sketch does not take read-only arrays

    def _made(self, items: Any) -> object:
        import datasketches as ds

        sketch = ds.kll_doubles_sketch(self.k)
        sketch.update(items)
        return None if sketch.is_empty() else sketch.serialize()  # the sketch skips NaN

    def merge(self, into: Sequence[Array], at: At, values: Sequence[Array]) -> None:
        import datasketches as ds

        read = ds.kll_doubles_sketch.deserialize

        def both(a: bytes, b: bytes) -> bytes:
            merged = read(a)
            merged.merge(read(b))
            written: bytes = merged.serialize()
            return written

        into[0][at] = objectwise(both)(into[0][at], values[0])

    def quantiles(self, sketch: bytes | None, ranks: Sequence[float]) -> list[float] | None:
        """For each rank, the smallest value that at least this share of the values does not exceed.

        None if there is no value.
        """
        import datasketches as ds

        if sketch is None:
            return None
        found = ds.kll_doubles_sketch.deserialize(sketch)
        ends = {0.0: found.get_min_value(), 1.0: found.get_max_value()}
        return [ends[rank] if rank in ends else found.get_quantile(rank, True) for rank in ranks]


_unite = objectwise(frozenset.union)
