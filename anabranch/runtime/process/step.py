"""A step of `process` in a slot: it gets rows and due timers, and returns results and cells.

Cells come from a port: shards in LMDB for the slot task, a dict for the tester. So the tester runs
the same code as a run.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from anabranch.errors import StepError
from anabranch.plan.operators.base import EVERYTHING, key_schema, result_schema
from anabranch.plan.operators.process import ProcessPlan
from anabranch.plan.panes import FARTHEST_US
from anabranch.runtime.lateness import LATE, REASON_OF
from anabranch.runtime.process.handles import Columns, SlotRows
from anabranch.runtime.process.ordered import NO_TIME_US, Incoming, Ordered, ordered, python_keys
from anabranch.runtime.process.per_key import CallResults, KeyCaller
from anabranch.runtime.process.vectorised import arrow_columns, expired, run_columns
from anabranch.state.codec.cells import Span, decoded_keys, encoded_keys
from anabranch.types import Array, column_type, exact_array


class Cells(Protocol):
    """Where the cells of a slot are."""

    def get(self, shard: int, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The cells of some keys of a shard; None for a key without a cell."""

    def due(self, until_us: int | None) -> Sequence[tuple[int, bytes]]:
        """Shard and key of the cells with alarms up to a time; None: with any alarm."""


@dataclass(slots=True)
class ProcessOutcome:
    """The outcome of a step: results and their shards, changed cells, and rows that were left out.

    Cells are by shard and key, as they were before and after the step.
    """

    results: pa.Table | None = None
    shards: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    before: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)
    after: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    late: pa.Table | None = None
    until_us: int | None = None
    rows_in: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Keys:
    """The keys of a step: first those with rows, then those that only have due alarms."""

    table: pa.Table
    encoded: list[bytes]
    shards: Array
    cells: list[bytes | None]


def process_step(
    plan: ProcessPlan, rows: Incoming | None, cells: Cells, span: Span
) -> ProcessOutcome:
    """Calls the user's class with the rows of a step and the timers that are due."""
    made = ProcessOutcome(until_us=span.until_us)
    if rows is not None:
        made.rows_in = rows.by_shard()
        rows = _on_time(plan, rows, span, made)
    given = (
        None
        if rows is None or not len(rows)
        else ordered(rows, by_time=plan.logic.order == "event_time")
    )
    keys = _keys(plan, given, cells, span)
    if not keys.encoded:
        return made
    after = (
        _columns(plan, given, keys, span, made)
        if plan.logic.vectorised
        else _per_key(plan, given, keys, span, made)
    )
    for shard, at in _runs(keys.shards):
        keys_here, before, now = keys.encoded[at], keys.cells[at], after[at]
        changed = list(map(operator.is_not, before, now))
        if not all(changed):
            keys_here = list(itertools.compress(keys_here, changed))
            before, now = (
                list(itertools.compress(before, changed)),
                list(itertools.compress(now, changed)),
            )
        if keys_here:
            made.before.setdefault(shard, {}).update(zip(keys_here, before, strict=True))
            made.after.setdefault(shard, {}).update(zip(keys_here, now, strict=True))
    return made


def _runs(shards: Array) -> list[tuple[int, slice]]:
    """Each shard, with the slice of its keys. Keys of one shard are side by side."""
    edges = [0, *(np.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist(), len(shards)]
    return [
        (int(shards[start]), slice(start, end))
        for start, end in itertools.pairwise(edges)
        if start < end
    ]


def _on_time(plan: ProcessPlan, rows: Incoming, span: Span, made: ProcessOutcome) -> Incoming:
    """Leaves out rows with a mark instead of a time. In the order of event time, leaves out late
    rows and rows without a time too.
    """
    t = rows.t
    out = t < -FARTHEST_US
    if plan.logic.order != "event_time":
        out &= t != NO_TIME_US
    elif span.after_us is not None:
        out |= t < span.after_us
    if not out.any():
        return rows
    why = np.full(len(t), LATE, dtype=object)
    for mark, reason in REASON_OF.items():
        why[t == mark] = reason
    counts = np.ones(len(t)) if rows.counts is None else rows.counts
    made.left_out = {
        str(each): int(counts[out & (why == each)].sum()) for each in sorted(set(why[out]))
    }
    table = rows.columns.filter(pa.array(out))
    made.late = table.append_column("reason", pa.array(why[out].tolist(), pa.string()))
    return rows.only(~out)


def _keys(plan: ProcessPlan, given: Ordered | None, cells: Cells, span: Span) -> _Keys:
    """The keys that have rows or due alarms, with their cells."""
    schema = key_schema(plan)
    table = schema.empty_table() if given is None else given.keys.cast(schema)
    encoded = encoded_keys(table) if len(table) else []
    shards = np.empty(0, dtype=np.int64) if given is None else given.shards
    found: list[bytes | None] = [
        cell for shard, at in _runs(shards) for cell in cells.get(shard, encoded[at])
    ]
    due = cells.due(None if span.finish else span.until_us) if _looks(span) else []
    if due:
        known = set(zip(shards.tolist(), encoded, strict=True))
        due = [each for each in due if each not in known]
    by_shard: dict[int, list[bytes]] = {}
    for shard, key in sorted(due):
        by_shard.setdefault(shard, []).append(key)
    for shard, mine in by_shard.items():
        table = pa.concat_tables([table, decoded_keys(mine, plan.keys).cast(schema)])
        encoded += mine
        shards = np.append(shards, np.full(len(mine), shard))
        found += cells.get(shard, mine)
    return _Keys(table, encoded, shards, found)


def _looks(span: Span) -> bool:
    """Whether any alarm can be due."""
    return span.finish or span.until_us is not None


def _per_key(
    plan: ProcessPlan, given: Ordered | None, keys: _Keys, span: Span, made: ProcessOutcome
) -> list[bytes | None]:
    starts = [] if given is None else given.starts.tolist()
    end = starts[-1] if starts else 0
    starts += [end] * (len(keys.encoded) + 1 - len(starts))
    columns = Columns(pa.table({}) if given is None else given.columns)
    times = np.empty(0, dtype=np.int64) if given is None else given.t
    seen = python_keys(keys.table) if plan.keys != (EVERYTHING,) else [None] * len(keys.encoded)
    zone = plan.time_type == "timestamp"
    caller = KeyCaller(plan.part.operator, plan.logic, columns, times, zone=zone)
    done = caller.run(seen, keys.cells, starts, span)
    if span.finish:
        made.until_us = max(
            (us for us in (span.until_us, done.until_us) if us is not None), default=None
        )
    numbers = np.repeat(np.arange(len(keys.encoded)), done.counts)
    _results(plan, keys, numbers, _columns_of_rows(plan, done, seen), made)
    return done.cells


def _columns(
    plan: ProcessPlan, given: Ordered | None, keys: _Keys, span: Span, made: ProcessOutcome
) -> list[bytes | None]:
    """Calls the class once for all keys with rows. Keys without rows have a due alarm, and may
    expire.
    """
    count, after = 0, list[bytes | None]()
    if given is not None:
        count, names = len(given.keys), [each.name or "k0" for each in plan.keys]
        rows = SlotRows(
            keys.table.slice(0, count).rename_columns(names), given.starts, given.columns, given.t
        )
        after, numbers, columns = run_columns(
            plan.part.operator, plan.logic, rows, keys.cells[:count], span
        )
        if len(numbers):
            who = f"operator {plan.part!r}, {plan.logic.name}"
            _results(
                plan,
                keys,
                numbers,
                arrow_columns(columns, _declared(plan), len(numbers), who),
                made,
            )
    return after + [
        None if cell is None else expired(cell, plan.logic.ttl_us, span.until_us)
        for cell in keys.cells[count:]
    ]


def _declared(plan: ProcessPlan) -> pa.Schema:
    return pa.schema([(each.name, column_type(each.type)) for each in plan.logic.output])


def _results(
    plan: ProcessPlan,
    keys: _Keys,
    numbers: Array,
    columns: Sequence[pa.Array],
    made: ProcessOutcome,
) -> None:
    """Adds the returned rows to the outcome, with the key columns before the declared ones."""
    if not len(numbers):
        return
    table = keys.table.take(pa.array(numbers))
    mine = [] if plan.keys == (EVERYTHING,) else table.columns
    made.results = pa.Table.from_arrays([*mine, *columns], schema=result_schema(plan))
    made.shards = keys.shards[numbers]


def _columns_of_rows(plan: ProcessPlan, done: CallResults, keys: Sequence[Any]) -> list[pa.Array]:
    """Returned rows as columns of the declared types. An error names the first row that does not
    fit, with its key.
    """
    names, rows = [each.name for each in plan.logic.output], done.rows
    if not rows:
        return []
    try:
        if not set(map(type, rows)) <= {tuple, list}:
            rows = [_from_mapping(row, names) if isinstance(row, Mapping) else row for row in rows]
        if set(map(len, rows)) != {len(names)}:
            raise ValueError("a row has the wrong number of values")
        columns = list(zip(*rows, strict=True))
        return [
            exact_array(values, each.type)
            for values, each in zip(columns, _declared(plan), strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError):
        _blame(plan, done, keys)
        raise


def _from_mapping(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    if set(row) != set(names):
        raise ValueError(f"its columns are [{', '.join(map(str, row))}]")
    return tuple(row[name] for name in names)


def _blame(plan: ProcessPlan, done: CallResults, keys: Sequence[Any]) -> None:
    """Raises an error for the first returned row that does not fit, with the reason."""
    declared = _declared(plan)
    wanted = ", ".join(f"{each.name} {each.type}" for each in plan.logic.output)
    number = np.repeat(np.arange(len(keys)), done.counts)
    for row, i in zip(done.rows, number.tolist(), strict=True):
        who = f"operator {plan.part!r}, key {keys[i]!r}: it returned {row!r}"
        try:
            values = _from_mapping(row, declared.names) if isinstance(row, Mapping) else tuple(row)
            if isinstance(row, str) or len(values) != len(declared):
                raise ValueError(f"{len(values)} values")
        except (TypeError, ValueError) as error:
            raise StepError(f"{who}, which is not a row of ({wanted}): {error}") from None
        for value, each, kind in zip(values, declared, plan.logic.output, strict=True):
            try:
                exact_array([value], each.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                text = " ".join(str(error).split())
                raise StepError(
                    f"{who}, and {value!r} does not fit column {each.name!r} of type {kind.type} "
                    f"(declared: {wanted}): {text}"
                ) from None
