"""A run that controls itself: its observations, decisions, effects and history.

Results do not change.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.elastic import Evaluation, PolicyRequest
from anabranch.state.checkpoint.events import read_events
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.history import read_history
from anabranch.testing import (
    WindowQuery,
    differences,
    expected_results,
    read_results,
    write_batches,
)
from anabranch.testing.events import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = WindowQuery(
    keys=["k"],
    event_time="at",
    windows=[("1 minute", MINUTE_US, MINUTE_US, 0)],
    aggregates=[("n", "count", "*"), ("total", "sum", "v")],
)
IDENTITY = ["k", "window_start", "window_end", "window_name"]
HASTY = ab.Guards(
    warm_up_steps=1,
    settle_steps=0,
    judge_steps=1,
    confirm_steps=1,
    cool_down_s=0.0,
    stabilise_s=0.0,
    stabilise_steps=1,
    pause=1e9,
    busy=1e9,
)


@dataclass(frozen=True)
class Wishes:
    """Two slots, then three, then one."""

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        slots = 2 if seen.step < 5 else 3 if seen.step < 9 else 1
        return PolicyRequest(
            slots={each.name: slots for each in seen.components},
            reason="as the test wants",
            figures={"most": most},
        )


def waits(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.002)
    return row


class Broken:
    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        raise ZeroDivisionError("a policy of the user's own")


def batch(number: int) -> pa.Table:
    """Rows of a minute; some keys have many."""
    chance = np.random.default_rng(number)
    keys = np.minimum(
        chance.zipf(1.4, 400), 40
    )  # the hottest key has a third of them: less than one slot of three
    at = number * MINUTE_US + chance.integers(0, 60 * SECOND_US, 400)
    return pa.table(
        {
            "k": keys,
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "v": chance.integers(0, 100, 400),
        },
        schema=pa.schema(
            [("k", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.int64())]
        ),
    )


def start(spark: SparkSession, root: Path, **options: Any) -> ab.Run:
    frame = (
        spark.readStream.schema("k bigint, at timestamp, v bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(root / "in"))
    )
    app = ab.Topology("steered")
    counts = app.source(frame, event_time="at", name="visits").aggregate(
        by=["k"], windows=ab.tumbling("1 minute"), n=ab.count(), total=ab.sum("v"), name="counts"
    )
    counts.to(ab.parquet(root / "out"))
    given = {
        "checkpoint": root / "checkpoint",
        "state_root": root / "state",
        "availableNow": True,
        "shards": 8,
        **options,
    }
    return app.start(**given)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_run_decides_applies_and_reports_and_a_restart_keeps_its_decisions(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = [batch(i) for i in range(15)]
    write_batches(batches[:12], tmp_path / "in")
    elastic = ab.Elastic(max_slots=4, policy=Wishes(), theta=1.05, guards=HASTY)
    run = start(spark, tmp_path, slots=2, elastic=elastic)
    assert run.awaitTermination(120)
    checkpoint = str(tmp_path / "checkpoint")

    slots = [each.slots for each in run.recentProgress]
    assert (slots[0], 3 in slots, slots[-1]) == (2, True, 1), slots
    kinds = [event.kind for event in run.events]
    assert {"decision", "resize", "effect"} <= set(kinds), run.events
    first = next(
        event for event in run.events if event.kind == "decision" and "2 -> 3 slots" in event.text
    )
    assert "as the test wants" in first.text
    assert (
        first.figures["counts: slots before"],
        first.figures["counts: slots after"],
        first.figures["most"],
    ) == (2, 3, 4)
    assert run.events[run.events.index(first) + 1].kind == "resize"
    effect = next(event for event in run.events if event.kind == "effect")
    assert set(effect.figures) == {"before", "expected", "observed"}
    assert run.decision is not None

    seen = read_history(checkpoint)
    assert [each.step for each in seen] == [each.step for each in run.recentProgress]
    for one, progress in zip(seen, run.recentProgress, strict=True):
        assert one.closing == (progress.batch_id is None)
        (component,) = one.components
        assert (
            component.route.slots
            == len(component.slot_s)
            == progress.slots
            == progress.slots_of["counts"]
        )
        assert (
            component.rows.sum()
            == progress.rows_in
            == one.sources["visits"].rows
            == (0 if one.closing else 400)
        )
        assert component.rows_out.sum() == progress.rows_out
        assert one.duration_s >= progress.duration_s
        if not one.closing:
            assert component.cpu_s.sum() > 0
            assert component.work_s.sum() <= component.slot_s.sum()
            assert component.state_bytes.sum() > 0
            assert one.sources["visits"].lag_s is not None
    rows = duckdb.sql(
        f"select sum(list_sum(rows_in)) from '{checkpoint}/history/*.parquet'"
    ).fetchall()
    assert rows == [(12 * 400,)]
    assert read_events(Files(checkpoint)) == run.events

    write_batches(batches[12:], tmp_path / "in", first=12)
    again = start(spark, tmp_path, elastic=ab.Elastic(policy=Broken(), guards=HASTY))
    assert again.awaitTermination(120)
    assert {each.slots for each in again.recentProgress} == {1}, (
        "routes are as the controller left them"
    )
    assert [e.text for e in again.events if e.kind == "elastic"] == [
        "the controller failed and is off from now on: ZeroDivisionError: a policy of the user's own"
    ]
    again.finish()
    wanted = expected_results([*batches[:12], None, *batches[12:]], QUERY, final_watermark="finish")
    assert differences(read_results(tmp_path / "out"), wanted, IDENTITY) == []

    kept = json.loads(printed(capsys, "history", checkpoint, "--json"))
    assert len(kept["events"]) == len(run.events) + len(again.events)
    assert kept["steps"]["rows"] == 15 * 400
    text = printed(capsys, "history", checkpoint)
    assert "2 -> 3 slots (as the test wants)" in " ".join(text.split())
    assert "slots at the end: counts 1" in text
    other = json.loads(
        printed(
            capsys,
            "replay",
            checkpoint,
            "--policy",
            "static",
            "--balance",
            "none",
            "--max-slots",
            "4",
            "--json",
        )
    )
    assert (other["steps"], other["resizes"], other["reroutes"]) == (
        kept["steps"]["recorded"],
        0,
        0,
    )
    assert "incremental: " in printed(capsys, "replay", checkpoint, "--policy", "incremental")


def test_an_invalid_elasticity_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_batches([batch(0)], tmp_path / "in")
    with pytest.raises(ab.TopologyError, match=r"elastic='on'; valid: None, or ab.Elastic\("):
        start(spark, tmp_path, elastic="on")
    assert not (tmp_path / "checkpoint").exists()


def test_the_slots_of_applies_follow_their_work(spark: SparkSession, tmp_path: Path) -> None:
    batches = [batch(i) for i in range(10)]
    write_batches(batches, tmp_path / "in")
    frame = spark.readStream.schema("k bigint, at timestamp, v bigint").option(
        "maxFilesPerTrigger", 1
    )
    app = ab.Topology("applied")
    visits = app.source(frame.parquet(str(tmp_path / "in")), event_time="at", name="visits")
    slow = visits.apply(waits, schema="k bigint, at timestamp, v bigint", form="rows", name="slow")
    counts = slow.aggregate(
        by=["k"], windows=ab.tumbling("1 minute"), n=ab.count(), total=ab.sum("v"), name="counts"
    )
    counts.to(ab.parquet(tmp_path / "out"))
    run = app.start(
        checkpoint=tmp_path / "checkpoint",
        state_root=tmp_path / "state",
        availableNow=True,
        shards=8,
        slots=1,
        elastic=ab.Elastic(latency="1 second", max_slots=4, guards=HASTY),
    )
    assert run.awaitTermination(120)
    run.finish()
    slots = [each.slots_of["all applies"] for each in run.recentProgress]
    assert slots[0] == 1
    assert max(slots) >= 2, run.events
    first = next(event.text for event in run.events if event.kind == "decision")
    assert first.startswith("all applies: 1 -> "), run.events  # the largest gain comes first
    seen = [
        next(each for each in one.components if each.name == "all applies")
        for one in read_history(str(tmp_path / "checkpoint"))
    ]
    assert [each.rows.sum() for each in seen if each.rows.any()] == [400.0] * 10
    busy = [each for each in seen if each.rows.any()]
    assert all(0.8 <= each.work_s.sum() <= each.slot_s.sum() + 1e-9 for each in busy)
    assert all(len(each.slot_s) == each.route.slots for each in busy)
    wanted = expected_results(batches, QUERY, final_watermark="finish")
    assert differences(read_results(tmp_path / "out"), wanted, IDENTITY) == []
