"""What a slot task needs to know of an operator: its keys, panes, partials and results. Plain values, safe to ship."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.aggregates.partials import Partial, PartialColumn
from anabranch.aggregates.specs import text_of
from anabranch.plan.consolidation import Consolidation
from anabranch.plan.panes import Panes
from anabranch.topology.graph import Clock, Field, Map, Named
from anabranch.types import Array, column_type

# The key of a global aggregate, which has no key columns: the same for every row, and not part of the results.
EVERYTHING = Field("", "int")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Where the rows of a node come from: a source or another operator, the maps on the way, and how the rows tell their time."""

    stream: str
    maps: tuple[Map, ...]
    clock: Clock
    fields: tuple[Field, ...]  # behind the maps


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An expression over the rows, restricted by a condition, that partials are lifted from."""

    expression: object | None  # several in a tuple are lifted together, as a struct of a0, a1, ...
    where: object | None
    type: str = "int"

    def __str__(self) -> str:
        return text_of(self.expression) + (f" where {self.where}" if self.where is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A partial that is kept per key and pane, and the input that it is lifted from."""

    partial: Partial
    input: int
    columns: slice  # of all partial columns of the operator

    @property
    def lifted(self) -> list[str]:
        """The names of the lift's columns."""
        return [f"c{self.columns.start + i}" for i in range(len(self.partial.lift))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result column: its aggregate, and which of the kept partials it is finished from."""

    named: Named
    kept: tuple[int, ...]

    @property
    def type(self) -> str:
        return self.named.aggregate.result_type(self.named.input_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan:
    """What a slot task needs to know of an operator: keys, panes, partials, results. Plain values, safe to ship."""

    operator: str
    keys: tuple[Field, ...]
    panes: Panes
    consolidation: Consolidation
    kept: tuple[Kept, ...]
    results: tuple[Result, ...]
    columns: tuple[PartialColumn, ...]  # of all kept partials, one after another
    time_type: str
    complete_from: Mapping[int, int] = field(
        default_factory=dict
    )  # windows that came later: what starts before is incomplete
    forgotten_us: int | None = (
        None  # panes before were forgotten when windows were added, even where the log still has rows
    )
    early: bool = False  # results have a column that marks those of windows that are still open

    def finished(self, columns: Sequence[Array]) -> list[pa.Array]:
        """The results of some merged partials."""
        found = []
        for result in self.results:
            merged: tuple[Array, ...] = tuple(
                c for number in result.kept for c in columns[self.kept[number].columns]
            )
            found.append(result.named.aggregate.finish(result.named.input_type, merged))
        return found


def key_schema(plan: OperatorPlan) -> pa.Schema:
    """The key columns of a slot as Arrow has them."""
    return pa.schema([(f"k{i}", column_type(each.type)) for i, each in enumerate(plan.keys)])
