"""The newest results of a few keys, from the files that a step wrote."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.cli.results import LatestResults, results_table, results_tables, shared_rows
from anabranch.spark.sinks import StepResults
from anabranch.state.checkpoint.files import Files

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
                "window_name": pa.array(
                    [f"{length} minutes" for _, _, length, _ in rows]
                ).dictionary_encode(),
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
    latest.write(
        results(
            tmp_path,
            [("b", 0, 5, 1), ("b", 5, 5, 2), ("b", 0, 10, 3)],
            [("a", 5, 5, 4), ("c", 5, 5, 5)],
        )
    )
    assert brief(latest.rows(9)) == [
        ("a", "5 minutes", 4),
        ("b", "5 minutes", 2),
        ("b", "10 minutes", 3),
    ]
    latest.write(results(tmp_path, [("c", 10, 5, 6), ("b", 10, 5, 7)]))
    assert brief(latest.rows(9)) == [
        ("a", "5 minutes", 4),
        ("b", "5 minutes", 7),
        ("b", "10 minutes", 3),
    ]


def test_with_little_space_the_first_key_is_shown_whole(tmp_path: Path) -> None:
    latest = LatestResults(2)
    latest.write(
        results(tmp_path, [("b", 0, 5, 1), ("a", 0, 5, 2), ("b", 0, 10, 3), ("a", 0, 10, 4)])
    )
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


def test_tables_share_the_available_lines() -> None:
    assert shared_rows([20], 10) == [7]
    assert shared_rows([20, 20], 16) == [5, 5]
    assert shared_rows([2, 20, 20], 29) == [2, 9, 9]
    assert shared_rows([20, 20, 20], 11) == [2, 3], "the third has no room for its title and a row"
    assert shared_rows([5], 3) == shared_rows([5], -4) == shared_rows([], 9) == []


def test_each_operator_with_results_has_a_table(tmp_path: Path) -> None:
    watched = {"areas": LatestResults(2), "nothing": LatestResults(2), "overall": LatestResults(2)}
    watched["areas"].write(results(tmp_path, [("a", 0, 5, 1)]))
    watched["overall"].write(results(tmp_path, [("b", 0, 5, 2), ("c", 0, 5, 3)]))
    tables = results_tables(watched, "latest results", 120, 20)
    assert [str(table.title) for table in tables] == [
        "latest results of areas (times in UTC)",
        "latest results of overall (times in UTC)",
    ]
    assert [table.row_count for table in tables] == [1, 2]


def test_results_without_names_of_windows_are_shown_by_key(tmp_path: Path) -> None:
    window = {"start": at(0), "end": at(5)}
    pq.write_table(
        pa.table({"key": ["a", "b"], "window": [window, window], "n": [1, 2]}),
        tmp_path / "0.parquet",
    )
    latest = LatestResults(2)
    latest.write(StepResults(1, Files(str(tmp_path)), ("0.parquet",), None, None, None))  # type: ignore[arg-type]
    assert [(row["key"], row["n"]) for row in latest.rows(9)] == [("a", 1), ("b", 2)]
    assert results_table(latest.rows(9), "", 80).row_count == 2


def test_results_without_windows_keep_the_last_row_of_a_key(tmp_path: Path) -> None:
    rows = pa.table({"key": ["b", "a", "b", "c"], "n": [1, 2, 3, 4]})
    pq.write_table(rows, tmp_path / "0.parquet")
    latest = LatestResults(2, key_columns=1)
    latest.write(StepResults(1, Files(str(tmp_path)), ("0.parquet",), None, None, None))  # type: ignore[arg-type]
    assert latest.rows(9) == [{"key": "a", "n": 2}, {"key": "b", "n": 3}]
