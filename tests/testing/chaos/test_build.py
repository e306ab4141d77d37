"""A topology that is built from plain values; a step of it that fails in one slot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.testing.chaos.build import build
from anabranch.testing.chaos.files import RunDirectory
from anabranch.testing.chaos.topologies import TopologySpec
from anabranch.testing.compare import differences, read_results
from anabranch.testing.events import MINUTE_US, EventPlan, event_batches, write_batches
from anabranch.testing.reference.windows import expected_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = TopologySpec(
    keys=("k",),
    windows=(("sliding", 2 * MINUTE_US, MINUTE_US, 0),),
    aggregates=(("n", "count", "*", None), ("total", "sum", "v", None)),
    delay_us=0,
    shards=8,
    chain=16,
    lift="auto",
    late_sink=True,
    spark_sink=False,
)


@pytest.mark.parametrize("point", ["slot.merged", "slot.stored"])
def test_a_closing_step_that_fails_in_one_slot_loses_nothing_of_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Workers of slots that were done have closed windows, and must not use what they hold."""
    batches = list(event_batches(EventPlan(seed=3, batches=3, rows=400, keys=40)))
    write_batches(batches, tmp_path / "files")
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("ANABRANCH_FAULTS", f"{point}@4/3=fail")
    monkeypatch.setenv("ANABRANCH_FAULTS_FIRED", str(tmp_path / "marks"))
    directory = RunDirectory(root=str(tmp_path), files=str(tmp_path / "files"))
    directory.publish(3)
    run = build(spark, SPEC, directory).start(
        checkpoint=directory.of("checkpoint"),
        slots=4,
        shards=8,
        availableNow=True,
        state_root=directory.of("state"),
    )
    assert run.awaitTermination(120)
    assert [progress.attempts for progress in run.recentProgress] == [1, 1, 1, 2]
    found, wanted = read_results(directory.of("out")), expected_results(batches, SPEC.query())
    assert differences(found, wanted, ["k", "window_start", "window_end", "window_name"]) == []
