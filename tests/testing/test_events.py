"""Generated events have the problems that the plan asks for, and one seed gives one stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from anabranch.testing import EventPlan, bag_differences, event_batches, write_batches
from anabranch.testing.events import FAR_US, HOUR_US, MINUTE_US, without_far

if TYPE_CHECKING:
    from pathlib import Path

PLAN = EventPlan(seed=3, batches=4, rows=2_000, keys=50)


def all_rows(plan: EventPlan) -> pa.Table:
    return pa.concat_tables(list(event_batches(plan)))


def times(table: pa.Table) -> np.ndarray:
    return table["at"].cast(pa.int64()).to_numpy()


@pytest.mark.parametrize("key_kind", ["int", "string", "float", "several", "none"])
def test_one_seed_gives_one_stream(key_kind: str) -> None:
    plan = replace(
        PLAN, key_kind=key_kind, null_share=0.1, disorder_us=MINUTE_US, skew=1.0, churn=0.2
    )
    assert bag_differences(all_rows(plan), all_rows(plan)) == []
    assert bag_differences(all_rows(plan), all_rows(replace(plan, seed=4)))
    assert all_rows(plan).column_names == [*plan.key_columns, "at", "v", "x", "s", "d"]


def test_batches_do_not_depend_on_how_many_there_are() -> None:
    longer = list(event_batches(replace(PLAN, batches=6)))
    assert longer[:4] == list(event_batches(PLAN))


def test_keys_are_uniform_or_skewed() -> None:
    def share_of_first(plan: EventPlan) -> float:
        return float(np.mean(all_rows(plan)["k"].to_numpy() == 0))

    assert share_of_first(PLAN) == pytest.approx(1 / 50, abs=0.01)
    assert share_of_first(replace(PLAN, skew=1.2)) > 0.25
    assert pc.count_distinct(all_rows(PLAN)["k"]).as_py() == 50


def test_keys_drift_with_churn() -> None:
    first, *_, last = event_batches(replace(PLAN, churn=0.5))
    assert set(first["k"].to_pylist()) == set(range(50))
    assert set(last["k"].to_pylist()) == set(range(75, 125))


def test_float_keys_have_both_zeros_and_nan() -> None:
    keys = all_rows(replace(PLAN, key_kind="float"))["k"].to_numpy()
    assert np.isnan(keys).any()
    assert {bool(sign) for sign in np.signbit(keys[keys == 0])} == {True, False}


def test_string_keys_are_distinct_texts_beyond_ascii() -> None:
    keys = set(all_rows(replace(PLAN, key_kind="string"))["k"].to_pylist())
    assert len(keys) == 50
    assert any(not key.isascii() for key in keys)


def test_nulls_are_in_every_column() -> None:
    table = all_rows(replace(PLAN, key_kind="several", null_share=0.2))
    assert all(0.15 < table[name].null_count / table.num_rows < 0.25 for name in table.column_names)
    assert not any(column.null_count for column in all_rows(PLAN).columns)


def test_times_advance_evenly_and_are_early_by_the_disorder_at_most() -> None:
    ordered = times(all_rows(replace(PLAN, start_us=-HOUR_US)))
    assert (np.diff(ordered) >= 0).all()
    assert (ordered[0], ordered[-1] < -HOUR_US + 4 * MINUTE_US) == (-HOUR_US, True)
    moved = ordered - times(all_rows(replace(PLAN, start_us=-HOUR_US, disorder_us=10_000_000)))
    assert 0 <= moved.min() < 1_000_000
    assert 9_000_000 < moved.max() <= 10_000_000


def test_some_rows_are_late() -> None:
    back = times(all_rows(PLAN)) - times(all_rows(replace(PLAN, late_share=0.05)))
    assert 0.03 < np.mean(back > 0) < 0.07
    assert back.max() <= HOUR_US


def test_some_rows_are_of_the_year_9999_and_the_others_are_as_they_were() -> None:
    rows, far = all_rows(PLAN), all_rows(replace(PLAN, ahead_share=0.05))
    ahead = times(far) >= FAR_US
    assert 0.03 < ahead.mean() < 0.07
    assert (times(far)[~ahead] == times(rows)[~ahead]).all()
    assert without_far(far).equals(far.filter(pa.array(~ahead)))


def test_each_batch_is_a_file_younger_than_the_one_before(tmp_path: Path) -> None:
    first, second, third, fourth = event_batches(PLAN)
    paths = write_batches([first, second.slice(0, 0)], tmp_path) + write_batches(
        [third, fourth], tmp_path, first=2
    )
    assert [path.name for path in paths] == [f"batch-0000{number}.parquet" for number in range(4)]
    assert sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime) == paths
    assert np.diff([path.stat().st_mtime for path in paths]).tolist() == [1, 1, 1]
    assert pq.read_table(paths[2]) == third
    assert pq.read_table(paths[1]).num_rows == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_kind": "colour"}, "unknown key kind 'colour'; valid: int, string"),
        ({"churn": 1.5}, r"churn is 1\.5"),
        ({"keys": 0}, "at least one key"),
    ],
)
def test_a_plan_that_means_nothing_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAN, **changes)
