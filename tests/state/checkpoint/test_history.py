"""The history of steps beside a checkpoint: readable by other tools, bounded, safe in crashes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from anabranch.elastic.observation import ComponentObservation, Observation, SourceObservation
from anabranch.errors import CheckpointError
from anabranch.plan.route import even_route
from anabranch.state.checkpoint import history
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.history import HistoryLog, read_history


def observation(step: int, shards: int = 16, at: float | None = None) -> Observation:
    chance = np.random.default_rng(step)
    names = ("areas", "total") if step % 3 else ("areas",)
    components = tuple(
        ComponentObservation(
            name=name,
            route=replace(even_route(shards, 1 + step % 4), version=step),
            rows=chance.integers(0, 1000, shards).astype(np.float64),
            rows_out=chance.integers(0, 50, shards).astype(np.float64),
            cpu_s=chance.random(shards),
            busy_s=chance.random(shards) if step % 2 else None,
            state_bytes=chance.integers(0, 1 << 40, shards).astype(np.float64),
            slot_s=chance.random(1 + step % 4),
            level=1 + i,
            parents=("areas",) if i else (),
        )
        for i, name in enumerate(names)
    )
    return Observation(
        step=step,
        at=1_700_000_000.25 + step if at is None else at,
        duration_s=0.5 + step / 100,
        cores=4,
        interval_s=float(step % 2),
        disturbed=step % 5 == 0,
        closing=step % 7 == 0,
        sources={
            "loans": SourceObservation(
                rows=step * 10.0, rows_per_s=None if step == 1 else 7.5, backlog=3.0, lag_s=None
            )
        },
        components=components,
    )


def assert_same(found: list[Observation], wanted: list[Observation]) -> None:
    assert [each.step for each in found] == [each.step for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert replace(one, components=()) == replace(other, components=())
        assert len(one.components) == len(other.components)
        for mine, theirs in zip(one.components, other.components, strict=True):
            assert (mine.name, mine.route, mine.level, mine.parents) == (
                theirs.name,
                theirs.route,
                theirs.level,
                theirs.parents,
            )
            for name in ("rows", "rows_out", "cpu_s", "state_bytes", "slot_s", "work_s"):
                assert (getattr(mine, name) == getattr(theirs, name)).all(), name


def test_what_is_written_is_read_back_whole_and_small_files_are_merged(tmp_path: Path) -> None:
    steps = [observation(step) for step in range(1, 101)]
    log = HistoryLog(Files(str(tmp_path)))
    for each in steps:
        log.observation(each)
        if each.step % 4 == 0:
            log.flush()
    files = sorted((tmp_path / "history").iterdir())
    assert len(files) < 9
    assert_same(read_history(str(tmp_path)), steps)
    assert_same(read_history(str(tmp_path / "history")), steps)
    one = pq.read_table(files[-1])["step"].to_pylist()
    assert_same(read_history(str(files[-1])), [each for each in steps if each.step in one])


def test_another_tool_can_read_the_history(tmp_path: Path) -> None:
    log = HistoryLog(Files(str(tmp_path)))
    for step in range(1, 9):
        log.observation(observation(step))
    log.flush()
    found = duckdb.sql(
        "select step, component, slots, list_sum(rows_in), sources[1].backlog, len(slot_s) "
        f"from '{tmp_path}/history/*.parquet' where step = 5 order by component"
    ).fetchall()
    seen = observation(5)
    assert found == [
        (5, each.name, each.route.slots, each.rows.sum(), 3.0, each.route.slots)
        for each in seen.components
    ]


def test_its_size_is_bounded_and_the_oldest_steps_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_SMALL_BYTES", 20_000)
    log = HistoryLog(Files(str(tmp_path)), most_bytes=200_000)
    for step in range(1, 301):
        log.observation(observation(step, shards=64))
        if step % 4 == 0:
            log.flush()
            assert sum(file.stat().st_size for file in (tmp_path / "history").iterdir()) <= 200_000
    kept = [each.step for each in read_history(str(tmp_path))]
    assert kept == list(range(kept[0], 301))
    assert 40 < len(kept) < 300


def test_a_crash_while_files_are_merged_and_a_step_that_is_done_again_leave_each_step_once(
    tmp_path: Path,
) -> None:
    first, second = HistoryLog(Files(str(tmp_path))), HistoryLog(Files(str(tmp_path)))
    for step in (1, 2, 3):
        first.observation(observation(step))
    first.flush()
    whole = (tmp_path / "history" / "steps-00000001-00000003.parquet").read_bytes()
    (tmp_path / "history" / "steps-00000001-00000002.parquet").write_bytes(
        whole
    )  # merged, and the parts not yet removed
    again = observation(3, at=1_700_000_100.0)
    second.observation(again)
    second.flush()
    assert_same(read_history(str(tmp_path)), [observation(1), observation(2), again])


def test_what_is_no_history_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no history; valid: a checkpoint"):
        read_history(str(tmp_path))
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not at all")
    with pytest.raises(CheckpointError, match=r"x.parquet is not the history of a run"):
        read_history(str(tmp_path / "x.parquet"))
