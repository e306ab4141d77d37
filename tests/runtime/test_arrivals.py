"""Rows as they arrive at an operator: by shard, with their panes, and results as rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.plan.panes import FIRST_US, LAST_US, LEFT_OUT, OUT_OF_RANGE, Panes
from anabranch.runtime.arrivals import (
    RowColumns,
    arrived_partials,
    arrived_rows,
    by_shard,
    decode_dictionaries,
    keys_of,
    rows_of_results,
)
from anabranch.runtime.tasks import ArrivingRows, FusedRows, NodeOutcome
from tests.plan.every_kind import nodes


def rows(*times: int) -> RowColumns:
    count = len(times)
    keys = [pa.array(range(count), pa.int64())]
    inputs = [None, pa.array([each / 2 for each in range(count)])]
    return RowColumns(np.arange(count), keys, inputs, np.array(times), [pa.array(range(count))])


def test_a_row_without_a_time_has_no_pane_and_times_before_the_offset_have_one() -> None:
    panes = Panes(width_us=10, offset_us=3, windows=())
    assert rows(3, 12, 13, -8, LEFT_OUT).panes(panes).tolist() == [3, 3, 13, -17, LEFT_OUT]


def test_a_row_whose_windows_python_cannot_show_is_in_no_pane() -> None:
    panes = Panes(width_us=10, offset_us=0, windows=())
    times = rows(FIRST_US + 9, FIRST_US + 10, LAST_US - 10, LAST_US - 9, LEFT_OUT)
    shown = [each - each % 10 for each in (FIRST_US + 10, LAST_US - 10)]
    assert times.panes(panes).tolist() == [OUT_OF_RANGE, *shown, OUT_OF_RANGE, LEFT_OUT]


def test_the_rows_at_some_places_keep_all_their_columns() -> None:
    found = rows(5, 6, 7).only(np.array([2, 0]))
    assert (found.shards.tolist(), found.t.tolist()) == ([2, 0], [7, 5])
    assert [each.to_pylist() for each in (*found.keys, *found.payload)] == [[2, 0], [2, 0]]
    assert found.inputs[0] is None
    assert found.inputs[1] is not None
    assert found.inputs[1].to_pylist() == [1.0, 0.0]


def test_rows_one_by_one_are_read_from_the_shared_columns_of_the_exchange() -> None:
    plan = nodes()["windows"].plan
    incoming = pa.table({"p0": [1, 2], "p1": [0.5, None], "p2": pa.array([60, None], pa.int64())})
    named = ArrivingRows(columns={"k0": "p0", "x1": "p1", "t": "p2"}, combined=False)
    found = arrived_rows(incoming, np.array([1, 0]), plan, named)
    assert found.t.tolist() == [60, LEFT_OUT]
    assert found.inputs[0] is None
    assert found.inputs[1] is not None
    assert found.inputs[1].to_pylist() == [0.5, None]
    assert keys_of(found.keys, plan).to_pydict() == {"k0": [1, 2]}


def test_combined_rows_bring_the_columns_of_all_partials() -> None:
    plan = nodes()["windows"].plan
    lifted = [name for kept in plan.kept for name in kept.lifted]
    incoming = pa.table({f"p{i}": [i, i + 1] for i in range(len(lifted))})
    named = ArrivingRows(columns={name: f"p{i}" for i, name in enumerate(lifted)}, combined=True)
    found = arrived_partials(incoming, plan, named)
    assert len(found) == len(plan.columns)
    assert found[0].tolist() == [0, 1]


def test_complete_results_are_rows_just_before_the_end_of_their_window() -> None:
    window = pa.StructArray.from_arrays([pa.array([0, 60]), pa.array([60, 120])], ["start", "end"])
    table = pa.table({"k": [1, 2], "window": window, "n": [5, 6]})
    fused = FusedRows(operator="w", keys=("k",), inputs=(None, "n", ("k", "n")))
    outcomes = [
        NodeOutcome(),
        # The second result is early: only complete ones have shards.
        NodeOutcome(results=table, shards=np.array([3])),
    ]
    found = rows_of_results(outcomes, fused)
    assert found is not None
    assert (found.t.tolist(), found.shards.tolist()) == ([59], [3])
    assert [None if each is None else each.to_pylist() for each in found.inputs] == [
        None,
        [5],
        [{"a0": 1, "a1": 5}],
    ]
    assert rows_of_results(outcomes[:1], fused) is None


def test_results_with_a_time_of_their_own_and_without_keys() -> None:
    table = pa.table({"at": pa.array([7, None], pa.int64()), "n": [5, 6]})
    fused = FusedRows(operator="p", keys=(), inputs=("n",), time="at")
    found = rows_of_results([NodeOutcome(results=table, shards=np.array([0, 0]))], fused)
    assert found is not None
    assert found.t.tolist() == [7, LEFT_OUT]
    assert [each.to_pylist() for each in found.keys] == [[0, 0]]


def test_numbers_of_texts_become_texts_again() -> None:
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [1, 2, 3]})
    assert decode_dictionaries(table).to_pydict() == {"a": ["x", "y", "x"], "b": [1, 2, 3]}


def test_rows_are_counted_by_shard() -> None:
    assert by_shard(np.array([2, 0, 2]), np.array([1, 5, 3])) == {0: 5, 2: 4}
    assert by_shard(np.array([], dtype=int), np.array([])) == {}
