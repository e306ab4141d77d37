"""The newest results of a few keys, from the files that a step wrote."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.cli.results import LatestResults
from anabranch.spark.sinks import StepResults
from anabranch.state.files import Files

MOMENT = pa.timestamp("us", tz="UTC")


def results(path: Path, *files: list[tuple[str | None, int, int, int]]) -> StepResults:
    """Files of (key, start minute, length in minutes, n)."""
    names = []
    for i, rows in enumerate(files):
        window = [{"start": at(start), "end": at(start + length)} for _, start, length, _ in rows]
        table = pa.table(
            {
                "key": pa.array([key for key, *_ in rows], pa.string()),
                "window": pa.array(window, pa.struct([("start", MOMENT), ("end", MOMENT)])),
                "window_name": pa.array([f"{length} minutes" for _, _, length, _ in rows]).dictionary_encode(),
                "n": pa.array([n for *_, n in rows], pa.int64()),
            }
        )
        pq.write_table(table, path / f"{i}.parquet", store_schema=False)
        names.append(f"{i}.parquet")
    return StepResults(1, Files(str(path)), tuple(names), None, None, None)  # type: ignore[arg-type]


def at(minute: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


def brief(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row["key"], row["window_name"], row["n"]) for row in rows]


def test_the_newest_window_of_each_length_is_kept_for_the_first_keys(tmp_path: Path) -> None:
    latest = LatestResults(2)
    latest.write(results(tmp_path, [("b", 0, 5, 1), ("b", 5, 5, 2), ("b", 0, 10, 3)], [("a", 5, 5, 4), ("c", 5, 5, 5)]))
    assert brief(latest.rows(9)) == [("a", "5 minutes", 4), ("b", "5 minutes", 2), ("b", "10 minutes", 3)]
    latest.write(results(tmp_path, [("c", 10, 5, 6), ("b", 10, 5, 7)]))
    assert brief(latest.rows(9)) == [("a", "5 minutes", 4), ("b", "5 minutes", 7), ("b", "10 minutes", 3)]


def test_where_there_is_little_room_the_first_key_is_shown_whole(tmp_path: Path) -> None:
    latest = LatestResults(2)
    latest.write(results(tmp_path, [("b", 0, 5, 1), ("a", 0, 5, 2), ("b", 0, 10, 3), ("a", 0, 10, 4)]))
    assert brief(latest.rows(2)) == [("b", "5 minutes", 1), ("b", "10 minutes", 3)]


def test_a_step_without_results_changes_nothing(tmp_path: Path) -> None:
    latest = LatestResults(2)
    latest.write(results(tmp_path))
    latest.write(results(tmp_path, []))
    assert latest.rows(9) == []


def test_null_is_a_key_like_others(tmp_path: Path) -> None:
    latest = LatestResults(2)
    latest.write(results(tmp_path, [(None, 0, 5, 1)]))
    assert brief(latest.rows(9)) == [(None, "5 minutes", 1)]
