"""Files of results: durable, named by step, and with the types that Spark reads."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import StateFullError
from anabranch.runtime import results
from anabranch.runtime.results import by_window, late_table, write_results, write_table
from anabranch.state.checkpoint.files import Files

WINDOW = pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])


def table() -> pa.Table:
    return pa.table(
        {
            "k": pa.array(["a", "b"]).dictionary_encode(),
            "window": pa.array([{"start": 0, "end": 60}, {"start": 60, "end": 120}], WINDOW),
            "mean": [0.5, None],
        }
    )


def test_results_of_a_step_are_where_sinks_look_for_them(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    written = write_results(table(), files, 12, "results-0-1-token")
    assert (written.path, written.rows) == ("results/00000012/results-0-1-token.parquet", 2)
    found = pq.read_table(files.path(written.path))
    assert found.to_pylist() == table().to_pylist()
    assert found.schema.field("k").type == pa.string(), "Spark knows no dictionaries"
    assert found.schema.field("window").type == WINDOW


def test_an_object_store_gets_the_same_file() -> None:
    files = Files("mock:///bucket")
    files.make("results")
    write_table(table(), files, "results/a.parquet")
    found = pq.read_table(files.path("results/a.parquet"), filesystem=files.filesystem)
    assert found.to_pylist() == table().to_pylist()


def test_measured_floats_have_neither_dictionary_nor_statistics(tmp_path: Path) -> None:
    write_table(table(), Files(str(tmp_path)), "a.parquet")
    row_group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    columns = [row_group.column(i) for i in range(row_group.num_columns)]
    kept = {each.path_in_schema: each.is_stats_set for each in columns}
    assert kept == {"k": True, "window.start": True, "window.end": True, "mean": False}


def test_a_full_disk_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results.pq, "write_table", full)
    with pytest.raises(StateFullError, match="nothing is lost: free space and start again"):
        write_results(table(), Files(str(tmp_path)), 1, "a")


def test_rows_that_were_left_out_are_there_as_often_as_they_came_with_the_reason() -> None:
    rows = pa.chunked_array([pa.array([{"k": 1, "v": "x"}, {"k": 2, "v": None}])])
    found = late_table(rows, np.array([2, 1]), np.array(["late", "outside"], dtype=object))
    assert found.to_pylist() == [
        {"k": 1, "v": "x", "reason": "late"},
        {"k": 1, "v": "x", "reason": "late"},
        {"k": 2, "v": None, "reason": "outside"},
    ]


def test_windows_with_sinks_of_their_own_have_files_of_their_own() -> None:
    names = ["day", "hour", "day (incomplete)", "hour", "week"]
    plain = pa.table({"n": range(5), "window_name": names})
    encoded = plain.set_column(1, "window_name", plain.column(1).dictionary_encode())
    for given in (plain, encoded, pa.concat_tables([plain.slice(0, 2), plain.slice(2)])):
        found = by_window(given, ["day", "year", "hour"], others=True)
        assert [(window, each["n"].to_pylist()) for window, each in found] == [
            ("day", [0, 2]),
            ("hour", [1, 3]),
            (None, [4]),
        ]
        assert [window for window, _ in by_window(given, ["hour"], others=False)] == ["hour"]
        assert by_window(given, [], others=True) == [(None, given)]
        assert by_window(given, [], others=False) == []
