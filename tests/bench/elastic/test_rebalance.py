"""What `bench rebalance` makes and counts; the run itself is short and small."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from anabranch.bench.elastic.rebalance import (
    RebalanceOptions,
    _above,
    _imbalance,
    _moved,
    _until,
    rebalance,
)
from anabranch.bench.keyed.input import KeyedSpec, write_keyed_input
from anabranch.elastic.observation import ComponentObservation, Observation
from anabranch.errors import TopologyError
from anabranch.plan.route import Route, even_route

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = KeyedSpec(keys=1000, batch_rows=500, every=3, shuffles=2, skew=1.0, seed=5)


def test_the_input_brings_each_key_once_and_then_popular_keys_that_change(tmp_path: Path) -> None:
    first, again = (write_keyed_input(SPEC, tmp_path / name) for name in ("one", "two"))
    tables = [pq.read_table(file) for file in first.files]
    assert all(a.equals(pq.read_table(b)) for a, b in zip(tables, again.files, strict=True))
    assert first.rows == (1000, *[500] * 9)
    assert sorted(tables[0]["key"].to_pylist()) == list(range(1000))
    hottest = [int(np.bincount(table["key"].to_numpy()).argmax()) for table in tables[1:]]
    assert [len({*hottest[i : i + 3]}) for i in (0, 3, 6)] == [1, 1, 1]
    assert len({*hottest}) == 3
    hours = {at // 3_600_000_000 for at in first.newest_us}
    assert len(hours) == 1, "all in one window"


def seen(*work: float, route: Route) -> Observation:
    zero = np.zeros(len(work))
    component = ComponentObservation(
        name="held",
        route=route,
        rows=zero,
        rows_out=zero,
        cpu_s=np.array(work),
        state_bytes=zero,
        slot_s=np.zeros(route.slots),
    )
    return Observation(step=1, at=0.0, duration_s=1.0, cores=2, sources={}, components=(component,))


def test_steps_above_theta_are_counted_unless_one_shard_alone_is() -> None:
    route = even_route(4, 2)
    even, uneven, hot = (
        seen(*work, route=route) for work in ((1, 1, 1, 1), (2, 1, 2, 1), (9, 1, 1, 1))
    )
    assert _imbalance(uneven) == pytest.approx(4 / 3)
    assert _above([uneven, hot, uneven, even], 1.2) == 2
    assert [
        _until(steps, 1.2)
        for steps in ([even], [uneven, uneven, even, uneven], [uneven, hot], [uneven])
    ] == [0, 2, 1, 1]


def test_a_scripted_reroute_moves_the_given_number_of_shards() -> None:
    route = even_route(64, 8)
    assert sum(a != b for a, b in zip(route.slot_of, _moved(route, 5, Random(1)), strict=True)) == 5


def test_bad_options_are_refused() -> None:
    with pytest.raises(TopologyError, match="--changes 0 must be above 0"):
        RebalanceOptions(changes=0)


def test_a_small_run_gives_all_figures(spark: SparkSession) -> None:
    del spark
    options = replace(
        RebalanceOptions(), rows=2_000, batch_rows=2_000, slots=2, shuffles=1, every=4, changes=1
    )
    figures = rebalance(options, io.StringIO())
    assert figures["verified"]
    assert figures["rebalance"]["rows_compared"] == figures["resize"]["rows_compared"] == 2_000
    assert (
        len(figures["rebalance"]["steps_above_theta"])
        == len(figures["rebalance"]["steps_to_balance"])
        == 1
    )
    assert (figures["reroute"]["changes"], figures["resize"]["changes"]) == (1, 1)
    assert figures["resize"]["native"]["state_rows"] == 2_000
    assert figures["resize"]["ratio"] > 1
