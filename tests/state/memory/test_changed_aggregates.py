"""Aggregates that come and go while state exists, for every kind of partial.

State of an old and of a new layout is merged. Aggregates that continue are as if nothing had
changed, new ones have seen the rows since they began, and removed ones are in no snapshot.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch.topology as ab
from anabranch.aggregates.lift_rows import lift_rows
from anabranch.plan.make import make_plan
from anabranch.plan.model import Plan
from anabranch.plan.operators.aggregates import AggregatePlan
from anabranch.plan.route import even_route
from anabranch.runtime.results import result_table
from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.header import open_or_create, over_checkpoint
from anabranch.state.checkpoint.records import Commit
from anabranch.state.codec.blob import Entries, unsealed
from anabranch.state.memory.keyed import KeyedState
from anabranch.state.memory.kinds import decoded, encoded, state_of
from anabranch.testing import MemoryFiles
from anabranch.topology import (
    Aggregate,
    Compute,
    Consolidate,
    Field,
    Graph,
    Source,
    session,
    tumbling,
)
from anabranch.topology.graph import Named
from anabranch.types import column_type

MINUTE = 60_000_000
FIELDS = (Field("k", "bigint"), Field("at", "timestamp"), Field("v", "double"))
PAIR = "struct<a0:double,a1:double>"


@dataclass
class Range:
    """The state of an aggregate in plain Python."""

    low: float = 0.0
    high: float = 0.0


class Span:
    """An aggregate in plain Python."""

    state_type = Range
    result_type = "double"

    def init(self) -> Range:
        return Range()

    def add(self, state: Range, value: float) -> Range:
        return Range(min(state.low, value), max(state.high, value))

    def merge(self, one: Range, other: Range) -> Range:
        return Range(min(one.low, other.low), max(one.high, other.high))

    def finish(self, state: Range) -> float:
        return state.high - state.low


class Squares:
    """A vectorised aggregate in two columns."""

    state_types = ("double", "bigint")
    identities = (0.0, 0)
    result_type = "double"

    def lift(self, group: Any, size: int, values: Any) -> Any:
        squares = np.bincount(group, weights=values**2, minlength=size)
        return squares, np.bincount(group, minlength=size)

    def merge(self, into: Any, at: Any, arrays: Any) -> None:
        for mine, others in zip(into, arrays, strict=True):
            mine[at] += others

    def finish(self, squares: Any, count: Any) -> Any:
        return squares / np.maximum(count, 1)


AGGREGATES: dict[str, tuple[Callable[[str], Aggregate], str]] = {
    "count": (ab.count, "double"),
    "sum": (ab.sum, "double"),
    "whole sum": (ab.sum, "bigint"),
    "exact sum": (ab.sum, "decimal(9,2)"),
    "avg": (ab.avg, "bigint"),
    "min": (ab.min, "double"),
    "max": (ab.max, "string"),
    "variance": (ab.variance, "double"),
    "first": (ab.first, "string"),
    "last": (ab.last, "double"),
    "bool_and": (ab.bool_and, "boolean"),
    "bool_or": (ab.bool_or, "boolean"),
    "min_by": (lambda v: ab.min_by(v, v), PAIR),
    "max_by": (lambda v: ab.max_by(v, v), PAIR),
    "count_distinct": (ab.count_distinct, "double"),
    "approx_count_distinct": (ab.approx_count_distinct, "double"),
    "quantile": (lambda v: ab.quantile(v, 0.5), "double"),
    "top_k": (lambda v: ab.top_k(v, 3), "double"),
    "collect_list": (lambda v: ab.collect_list(v, 5), "double"),
    "collect_set": (lambda v: ab.collect_set(v, 5), "string"),
    "plain": (ab.udaf(Span), "struct<a0:double>"),
    "vectorised": (ab.udaf(Squares), "struct<a0:double>"),
}


def plan(kinds: dict[str, str]) -> Plan:
    """Windows and sessions with aggregates, given as result names and what they are."""
    named = []
    for name, kind in kinds.items():
        make, type_ = AGGREGATES[kind]
        named.append(Named(name=name, aggregate=make(f"v as {type_}"), input_type=type_))
    source = Source(name="s", fields=FIELDS, event_time="at", unit_us=None, delay_us=0)
    compute = Compute(name="c", input="s", by=FIELDS[:1], aggregates=tuple(named))
    windows = (tumbling("1 minute"), session("5 seconds"))
    return make_plan(
        Graph(name="t")
        .add(source)
        .add(compute)
        .add(Consolidate(name="w", input="c", windows=windows))
    )


def opened(files: MemoryFiles, kinds: dict[str, str], window: str) -> AggregatePlan:
    """The plan of one kind of window, as it goes on over a checkpoint."""
    found, _ = open_or_create(files, plan(kinds), 2)
    plans = [node.plan for node in over_checkpoint(plan(kinds), found).nodes]
    made = next(each for each in plans if each.kind == window)
    assert isinstance(made, AggregatePlan)
    return made


def reach(files: MemoryFiles, step: int, newest_us: int) -> None:
    """Commits a step that has seen rows up to a time."""
    found = open_checkpoint(files)
    assert found is not None
    found.take_over()
    found.commit(
        Commit(
            step=step,
            epoch=found.epoch,
            batch_id=step,
            watermark_us=0,
            next_us=0,
            seen={"s": newest_us},
            routes={each.name: even_route(2, 1) for each in plan({"n": "count"}).components},
            stored={},
        )
    )


def inputs(of: AggregatePlan, values: list[float]) -> list[pa.Array]:
    """The inputs of all partials: one for all rows, and the values in the type of each result."""
    found: dict[int, pa.Array] = {0: pa.array([1] * len(values))}
    for result in of.results:
        kind = result.named.input_type
        number = max(of.kept[i].input for i in result.kept)
        if kind.startswith("struct"):
            fields = [pa.array(values) for _ in range(kind.count("double"))]
            names = [f"a{i}" for i in range(len(fields))]
            found[number] = pa.StructArray.from_arrays(fields, names)
        else:
            as_kind = {"boolean": [value > 1 for value in values]}.get(kind, values)
            found[number] = pa.array(as_kind).cast(column_type(kind), safe=False)
    return [found[number] for number in range(len(found))]


def delta(of: AggregatePlan, rows: list[tuple[int, int, float]]) -> tuple[KeyedState, Entries]:
    """The partials of rows (key, event time in seconds, value), all in one shard."""
    state = state_of(of)
    assert isinstance(state, KeyedState)
    t = np.array([at * 1_000_000 for _, at, _ in rows])
    pane = t - (t - of.panes.offset_us) % of.panes.width_us
    keys = pa.table({"k0": pa.array([key for key, _, _ in rows], pa.int64())})
    numbers = state.number(keys, np.zeros(len(rows), dtype=np.int64))
    pairs = sorted({*zip(numbers.tolist(), pane.tolist(), strict=True)})
    group = np.array([pairs.index(each) for each in zip(numbers, pane, strict=True)])
    columns = lift_rows(of.kept, inputs(of, [v for _, _, v in rows]), t, group, len(pairs))
    held, panes = (np.array(each) for each in zip(*pairs, strict=True))
    state.add(held.astype(np.int32), panes, columns)
    return state, state.entries(held.astype(np.int32), panes, columns)[0]


def results(of: AggregatePlan, blobs: list[bytes]) -> dict[tuple[int, int], dict[str, Any]]:
    """All results by key and start, from the state of some blobs.

    As they are written: null where an aggregate that began later lacks rows.
    """
    state = state_of(of)
    assert isinstance(state, KeyedState)
    state.absorb_all([[(0, decoded(of, blob))] for blob in blobs])
    table, _ = result_table(state, list(state.close(None, state.final_end())))
    assert table is not None
    return {(row.pop("k"), _us(row.pop("window")["start"])): row for row in table.to_pylist()}


def _us(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


BEFORE = [(1, 1, 1.0), (1, 2, 3.5), (2, 3, -2.0), (2, 61, 4.0)]
AFTER = [(1, 3, 7.0), (2, 62, 0.5), (3, 63, 2.0), (1, 130, 9.0), (1, 131, 6.0)]


@pytest.mark.parametrize("window", ["windows", "sessions"])
@pytest.mark.parametrize("kind", AGGREGATES)
def test_aggregates_continue_start_empty_or_leave_the_state(kind: str, window: str) -> None:
    files = MemoryFiles()
    alone = {"old": kind}
    old = opened(files, alone, window)
    first = encoded(old, delta(old, BEFORE)[1])
    reach(files, 1, 61_000_000)
    other = "max" if kind != "max" else "min"
    new = opened(files, {"before": other, "old": kind, "renamed": kind}, window)
    second = encoded(new, delta(new, AFTER)[1])

    whole = opened(MemoryFiles(), alone, window)
    every = results(whole, [encoded(whole, delta(whole, BEFORE + AFTER)[1])])
    merged = [encoded(whole, delta(whole, rows)[1]) for rows in (BEFORE, AFTER)]
    assert results(whole, merged).keys() == every.keys()
    found = results(new, [first, second])
    assert {at: each["old"] for at, each in found.items()} == {
        at: each["old"] for at, each in results(whole, merged).items()
    }
    since = opened(MemoryFiles(), {"before": other}, window)
    seen = results(since, [encoded(since, delta(since, AFTER)[1])])
    complete = next(each.complete_from for each in new.results if each.named.name == "before")
    assert complete == 61_000_001
    renamed = next(each.complete_from for each in new.results if each.named.name == "renamed")
    assert renamed is None, "it is made of what the other one keeps"
    starts = {at for at in found if at[1] >= complete}
    assert starts
    assert {at: found[at]["before"] for at in starts} == {at: seen[at]["before"] for at in starts}
    assert {found[at]["before"] for at in found.keys() - starts} == {None}

    # A snapshot has no column of a removed aggregate, nor of one that comes back.
    gone = opened(files, {"before": other}, window)
    state, _ = delta(gone, AFTER)
    snapshot = encoded(gone, state.snapshot([0])[0])
    stored = set(unsealed(b"abr2", snapshot, 2)[1].column_names) - {"key", "pane"}
    assert stored == set(gone.stored_columns)
    assert stored < set(new.stored_columns)
    again = opened(files, {"before": other, "old": kind}, window)
    fresh = set(again.stored_columns) - set(gone.stored_columns)
    assert not fresh & {*old.stored_columns, *new.stored_columns}


@pytest.mark.parametrize("window", ["windows", "sessions"])
@pytest.mark.parametrize("kind", AGGREGATES)
def test_a_new_aggregate_is_null_in_started_windows_and_complete_in_later_ones(
    kind: str, window: str
) -> None:
    files = MemoryFiles()
    other = "max" if kind != "max" else "min"
    old = opened(files, {"old": other}, window)
    first = encoded(old, delta(old, BEFORE)[1])
    reach(files, 1, 61_000_000)
    new = opened(files, {"new": kind, "old": other}, window)
    found = results(new, [first, encoded(new, delta(new, AFTER)[1])])
    alone = opened(MemoryFiles(), {"new": kind}, window)
    whole = results(alone, [encoded(alone, delta(alone, AFTER)[1])])
    assert any(at[1] > 61_000_000 for at in found)
    for at, row in found.items():
        assert row["new"] == (whole[at]["new"] if at[1] > 61_000_000 else None)
        assert row["old"] is not None


@pytest.mark.parametrize("kind", AGGREGATES)
def test_under_another_name_all_go_on_but_users_own_code(kind: str) -> None:
    files = MemoryFiles()
    opened(files, {"old": kind}, "windows")
    reach(files, 1, 61_000_000)
    [renamed] = opened(files, {"new": kind}, "windows").results
    own = kind in {"plain", "vectorised"}
    assert renamed.complete_from == (61_000_001 if own else None)


def test_the_state_of_two_changes_in_a_row_merges_in_any_order_of_layouts() -> None:
    layouts = [{"a": "sum"}, {"a": "sum", "b": "variance"}, {"b": "variance", "c": "top_k"}]
    files, blobs, plans = MemoryFiles(), [], []
    for step, kinds in enumerate(layouts, start=1):
        plans.append(opened(files, kinds, "windows"))
        blobs.append(encoded(plans[-1], delta(plans[-1], AFTER)[1]))
        reach(files, step, step)
    last = plans[-1]
    for order in itertools.permutations(blobs):
        found = results(last, list(order))
        assert {at: each["c"] for at, each in found.items()} == {
            at: each["c"] for at, each in results(last, [blobs[2]]).items()
        }
        assert found[1, 120_000_000]["b"] == pytest.approx(3.0)  # of 9, 6, 9, 6
