"""`process` as a node: what a slot task needs to know of it. Rows are not combined: they come one by one, with all their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.errors import TopologyError
from anabranch.plan.panes import Panes
from anabranch.plan.sessions import NO_WINDOWS
from anabranch.plan.slotted import EVERYTHING, Slotted
from anabranch.topology.graph import Clock, Field
from anabranch.topology.process import Logic
from anabranch.topology.types import column_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan(Slotted):
    """What a slot task needs to know of a `process`. Its panes are a microsecond wide: the pane of a row is its event time."""

    logic: Logic
    fields: tuple[Field, ...]  # of the rows that the user's class sees, keys among them

    @property
    def payload(self) -> tuple[Field, ...]:
        """The columns of rows that are no keys."""
        return tuple(each for each in self.fields if each not in self.keys)

    @property
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of results: the keys, and what the class declares."""
        return (*(each for each in self.keys if each != EVERYTHING), *self.logic.output)

    def result_schema(self) -> pa.Schema:
        return pa.schema([(each.name, column_type(each.type)) for each in self.result_fields])


def process_plan(operator: str, by: Sequence[Field], logic: Logic, fields: Sequence[Field], clock: Clock) -> ProcessPlan:
    """The plan of a `process` over a stream of some columns; those that cannot travel are refused by name."""
    keys = tuple(by) or (EVERYTHING,)
    seen = tuple(each for each in fields if logic.columns is None or each.name in logic.columns or each in keys)
    for each in seen:
        if "map<" in each.type or "variant" in each.type:
            raise TopologyError(
                f"process {operator!r} cannot be given column {each.name!r} of type {each.type}; drop it in a map(), or name the "
                "columns that the class reads: columns = (...)"
            )
        column_type(each.type)
    return ProcessPlan(
        operator=operator,
        keys=keys,
        panes=Panes(width_us=1, offset_us=0, windows=()),
        consolidation=NO_WINDOWS,
        kept=(),
        results=(),
        columns=(),
        time_type=clock.moment,
        logic=logic,
        fields=seen,
    )
