"""`process` as a node: what a slot task needs to know of it.

Rows come one by one, with the columns that the class reads; or, where it reads aggregates of them, one row a key and step that is
combined of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.aggregates.partials import LastTime
from anabranch.errors import TopologyError
from anabranch.plan.keeping import keep
from anabranch.plan.operators.base import EVERYTHING, Kept, OperatorPlan
from anabranch.plan.operators.sessions import NO_WINDOWS
from anabranch.plan.panes import Panes
from anabranch.topology.graph import Clock, Field, Named
from anabranch.topology.process import Logic
from anabranch.types import column_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan(OperatorPlan):
    """What a slot task needs to know of a `process`. Its panes are a microsecond wide: the pane of a row is its event time."""

    logic: Logic
    fields: tuple[Field, ...]  # of the rows that the user's class sees, keys among them

    @property
    def payload(self) -> tuple[Field, ...]:
        """The columns of rows that are no keys, as rows have them on their way; combined rows have partials instead."""
        return () if self.kept else tuple(each for each in self.fields if each not in self.keys)

    @property
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of results: the keys, and what the class declares."""
        return (*(each for each in self.keys if each != EVERYTHING), *self.logic.output)

    def result_schema(self) -> pa.Schema:
        return pa.schema([(each.name, column_type(each.type)) for each in self.result_fields])


def process_plan(
    operator: str,
    by: Sequence[Field],
    logic: Logic,
    fields: Sequence[Field],
    clock: Clock,
    combined: Sequence[Named] = (),
) -> ProcessPlan:
    """The plan of a `process` over a stream of some columns; those that cannot travel are refused by name.

    Of combined rows the newest event time is kept besides what the class reads, as the last partial.
    """
    keys = tuple(by) or (EVERYTHING,)
    _, kept, results = keep(combined) if combined else ((), (), ())
    if kept:
        at = kept[-1].columns.stop
        kept = (*kept, Kept(partial=LastTime("bigint"), input=0, columns=slice(at, at + 1)))
    seen = tuple(
        each
        for each in fields
        if logic.columns is None or each.name in logic.columns or each in keys
    )
    for each in seen:
        if "map<" in each.type or "variant" in each.type:
            raise TopologyError(
                f"process {operator!r} cannot be given column {each.name!r} of type {each.type}; drop it in a map(), or name the "
                "columns that the class reads: columns = (...)"
            )
        column_type(each.type)
    if results:
        seen = (
            *(each for each in seen if each in keys),
            *(Field(each.named.name, each.type) for each in results),
        )
    return ProcessPlan(
        operator=operator,
        keys=keys,
        panes=Panes(width_us=1, offset_us=0, windows=()),
        consolidation=NO_WINDOWS,
        kept=kept,
        results=results,
        columns=tuple(column for each in kept for column in each.partial.columns),
        time_type=clock.moment,
        logic=logic,
        fields=seen,
    )
