"""A tester for classes of `process`, without Spark: rows and watermarks in, results out.

tester = ProcessTester(Quiet, by="user", schema="user string, at timestamp", event_time="at")
tester.step([("ann", at(0))])
tester.step(watermark=at(60))          # timers up to then are due
tester.state("ann")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.aggregates.specs import Aggregate
from anabranch.errors import TopologyError, unknown
from anabranch.plan.keeping import keep
from anabranch.plan.operators.base import EVERYTHING, key_schema, result_schema
from anabranch.plan.operators.process import ProcessPlan, process_plan
from anabranch.runtime.process.combined import lifted_rows
from anabranch.runtime.process.ordered import NO_TIME_US, Incoming
from anabranch.runtime.process.step import process_step
from anabranch.state.codec.cells import Span, alarms_of, encoded_keys, head_of, to_micros, to_time
from anabranch.state.memory.cells import state_record
from anabranch.topology.columns import own_name, own_names
from anabranch.topology.graph import Clock, Field, Named, key_fields
from anabranch.topology.process import aggregates_of, columns_of, logic_of
from anabranch.topology.state_types import StateType
from anabranch.types import column_type, to_array


class ProcessTester:
    """One operator in memory.

    Each `step` is a step of a run: rows, then the timers that its watermark makes due.
    """

    def __init__(
        self,
        cls: Any,
        *,
        by: str | Sequence[str],
        schema: str,
        event_time: str,
        order: str = "event_time",
        name: str = "tested",
    ) -> None:
        fields = columns_of(schema, "schema")
        kinds = {each.name: each.type for each in fields}
        keys = key_fields(own_names(by, list(kinds)), fields)
        event_time = own_name(event_time, list(kinds))
        if kinds.get(event_time) not in {"timestamp", "timestamp_ntz"}:
            times = [each for each, kind in kinds.items() if kind.startswith("timestamp")]
            raise TopologyError(unknown("event_time", event_time, times))
        logic = logic_of(cls, order, keys, fields)
        combined = [
            _named(each, aggregate, fields) for each, aggregate in aggregates_of(cls).items()
        ]
        clock = Clock(event_time, kinds[event_time])
        self._plan: ProcessPlan = process_plan(name, keys, logic, fields, clock, combined)
        self._inputs = keep(combined)[0]
        self._event_time, self._fields = event_time, fields
        self._cells = DictCells()
        self._watermark_us: int | None = None
        self._arrived = 0
        self.late: list[dict[str, Any]] = []  # rows that were left out, with the reason

    def step(
        self,
        rows: Iterable[Sequence[Any] | Mapping[str, Any]] = (),
        *,
        watermark: datetime | int | None = None,
    ) -> list[dict[str, Any]]:
        """Runs a step with some rows, and timers up to a watermark (default: as before)."""
        until = self._watermark_us if watermark is None else to_micros(watermark)
        if until is not None and self._watermark_us is not None and until < self._watermark_us:
            raise TopologyError(f"watermark {watermark} is before the last one, {self.watermark}")
        return self._run(list(rows), Span(after_us=self._watermark_us, until_us=until))

    def finish(self) -> list[dict[str, Any]]:
        """Calls all timers that are set, as the end of a run does."""
        return self._run(
            [], Span(after_us=self._watermark_us, until_us=self._watermark_us, finish=True)
        )

    @property
    def watermark(self) -> datetime | None:
        return None if self._watermark_us is None else self._time(self._watermark_us)

    @property
    def result_schema(self) -> pa.Schema:
        """The Arrow schema of the results."""
        return result_schema(self._plan)

    def state(self, key: Any) -> Any:
        """A copy of the state of a key, None where it has none; a dict for a vectorised class."""
        cell = self._cells.cells.get(self._encoded(key))
        if cell is None:
            return None
        declared = self._plan.logic.state
        if isinstance(declared, StateType):
            return declared.decoder()(head_of(cell)[1])
        record, _ = state_record(declared, [b"\0" + head_of(cell)[1]])
        return {each.name: record[each.name][0].item() for each in declared}

    def timers(self, key: Any) -> dict[str, datetime]:
        """The timers of a key by name."""
        cell = self._cells.cells.get(self._encoded(key))
        return (
            {}
            if cell is None
            else {name: self._time(at) for name, at in head_of(cell)[0].timers.items()}
        )

    def __len__(self) -> int:
        """How many keys have state."""
        return len(self._cells.cells)

    def _run(self, rows: list[Any], span: Span) -> list[dict[str, Any]]:
        made = process_step(self._plan, self._incoming(rows) if rows else None, self._cells, span)
        self._cells.take(made.after.get(0, {}))
        self._watermark_us = made.until_us
        if made.late is not None:
            self.late += made.late.to_pylist()
        return [] if made.results is None else made.results.to_pylist()

    def _incoming(self, rows: list[Any]) -> Incoming:
        names = [each.name for each in self._fields]
        tuples = [
            tuple(row[name] for name in names) if isinstance(row, Mapping) else tuple(row)
            for row in rows
        ]
        columns = [
            pa.array(values, column_type(each.type))
            for values, each in zip(zip(*tuples, strict=True), self._fields, strict=True)
        ]
        table = pa.table(columns, names=names)
        keys = [table.column(each.name) for each in self._plan.keys if each != EVERYTHING]
        if not keys:
            keys = [pa.chunked_array([np.zeros(len(rows), dtype=np.int32)])]
        t = to_array(
            table.column(self._event_time).cast(pa.int64()), np.dtype(np.int64), NO_TIME_US
        )
        named = pa.Table.from_arrays(keys, names=key_schema(self._plan).names)
        shards = np.zeros(len(rows), dtype=np.int64)
        if self._plan.kept:
            inputs = [
                None
                if each.expression is None
                else table.column(str(each.expression)).combine_chunks()
                for each in self._inputs
            ]
            return lifted_rows(self._plan, named, shards, inputs, t)
        arrival = np.arange(self._arrived, self._arrived + len(rows))
        self._arrived += len(rows)
        return Incoming(
            named, table.select([each.name for each in self._plan.fields]), t, shards, arrival
        )

    def _encoded(self, key: Any) -> bytes:
        values = key if isinstance(key, tuple) and len(self._plan.keys) > 1 else (key,)
        schema = key_schema(self._plan)
        if len(values) != len(schema):
            names = ", ".join(each.name for each in self._plan.keys)
            raise TopologyError(f"key {key!r} has {len(values)} values; valid: {names}")
        return encoded_keys(
            pa.table(
                [pa.array([v], f.type) for v, f in zip(values, schema, strict=True)], schema=schema
            )
        )[0]

    def _time(self, us: int) -> datetime:
        return to_time(us, zone=self._plan.time_type == "timestamp")


def _named(name: str, aggregate: Any, fields: Sequence[Field]) -> Named:
    """An aggregate that a class reads.

    It may read plain columns only: there is no Spark here to evaluate expressions.
    """
    if not isinstance(aggregate, Aggregate):
        raise TopologyError(
            f"{name}={aggregate!r} is not an aggregate; write ab.sum(...) or another one"
        )
    if aggregate.where is not None:
        raise TopologyError(
            f"the tester does not support filters: {name!r} has where={aggregate.where}; "
            "make it a column in a map()"
        )
    kinds = {each.name: each.type for each in fields}
    if aggregate.expression is not None and aggregate.expression not in kinds:
        raise TopologyError(
            f"aggregate {name!r}: {unknown('column', aggregate.expression, list(kinds))}"
        )
    kind = "int" if aggregate.expression is None else kinds[str(aggregate.expression)]
    aggregate.partials(kind)
    return Named(name=name, aggregate=aggregate, input_type=kind)


class DictCells:
    """The cells of one shard in a dict: the in-memory twin of shards in LMDB."""

    def __init__(self) -> None:
        self.cells: dict[bytes, bytes] = {}

    def get(self, shard: int, keys: Sequence[bytes]) -> Sequence[bytes | None]:  # noqa: ARG002
        return [self.cells.get(key) for key in keys]

    def due(self, until_us: int | None) -> Sequence[tuple[int, bytes]]:
        return [
            (0, key)
            for key, cell in self.cells.items()
            if (alarms := alarms_of(cell)) and (until_us is None or min(alarms) <= until_us)
        ]

    def take(self, after: Mapping[bytes, bytes | None]) -> None:
        """Replaces cells; None removes one."""
        for key, cell in after.items():
            if cell is None:
                self.cells.pop(key, None)
            else:
                self.cells[key] = cell
