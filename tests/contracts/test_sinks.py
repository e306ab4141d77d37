"""The contract of `Target`: what every sink does. Its in-memory twin is `ab.memory()`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

import anabranch as ab
from anabranch.errors import TopologyError
from anabranch.spark.sinks import FunctionTarget, MappedTarget, MemoryTarget, StepResults, Target
from anabranch.state.checkpoint.files import Files

Row = tuple[int, int]
SCHEMA = StructType([StructField("k", LongType()), StructField("n", LongType())])
ARROW = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Sink:
    """A sink, the files that slots write for it, and what a reader finds in it."""

    def __init__(self, target: Target, read: Callable[[], Sequence[Row]], path: Path) -> None:
        self.target, self._read = target, read
        self._files, self._number = Files(str(path / "checkpoint")), 0
        self.session: Any = None

    def write(self, step: int, *slots: Sequence[Row], again: int | None = None) -> None:
        """Writes a step: each slot has made a file of some rows, under a name of its attempt."""
        names = []
        for rows in slots:
            self._number += 1
            names.append(f"results/{step:08d}/results-0-{self._number}.parquet")
            path = Path(self._files.path(names[-1]))
            path.parent.mkdir(parents=True, exist_ok=True)
            columns = list(zip(*rows, strict=True))
            pq.write_table(pa.table(columns, schema=ARROW), path, store_schema=False)
        given = (step, self._files, tuple(names), SCHEMA, ARROW, self.session)
        self.target.write(StepResults(*given, again=again))

    @property
    def rows(self) -> list[Row]:
        return sorted(self._read())


def rows_of(tables: Sequence[pa.Table]) -> list[Row]:
    return [(row["k"], row["n"]) for table in tables for row in table.to_pylist()]


def read_files(path: Path) -> list[Row]:
    """The rows in all files of results, as a user reads them."""
    found: list[Row] = []
    for file in path.glob("step-*"):
        if ".parquet" in file.name:
            found += rows_of([pq.read_table(file)])
        elif ".csv" in file.name:
            found += rows_of([pa.csv.read_csv(file)])
        else:
            lines = map(json.loads, file.read_text().splitlines())
            found += [(each["k"], each["n"]) for each in lines]
    return found


def in_memory(path: Path) -> Sink:
    target = MemoryTarget()
    return Sink(target, lambda: [(row["k"], row["n"]) for row in target.rows()], path)


def in_files(target: Callable[[Path], Target]) -> Callable[[Path], Sink]:
    return lambda path: Sink(target(path / "out"), lambda: read_files(path / "out"), path)


EXACTLY_ONCE = {
    "memory": in_memory,
    "parquet": in_files(ab.parquet),
    "csv": in_files(ab.csv),
    "json": in_files(ab.json),
    "parquet after a map": in_files(
        lambda path: MappedTarget(ab.parquet(path), (lambda df: df.filter(F.col("n") >= 0),))
    ),
}
PLAIN = ("memory", "parquet")  # these need no Spark


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name in PLAIN else pytest.mark.spark)
        for name in EXACTLY_ONCE
    ]
)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    made = EXACTLY_ONCE[request.param](tmp_path)
    if request.param not in PLAIN:
        made.session = request.getfixturevalue("spark")
    return made


def test_a_step_written_twice_is_there_once_and_later_steps_leave_it_alone(sink: Sink) -> None:
    assert sink.rows == []
    sink.write(1, [(1, 10), (2, 20)], [(3, 30)], again=1)
    assert sink.rows == [(1, 10), (2, 20), (3, 30)]
    sink.write(1, [(1, 10), (2, 20)], [(3, 30)], again=1)
    assert sink.rows == [(1, 10), (2, 20), (3, 30)]
    sink.write(2, [(1, 11)])
    sink.write(3)
    assert sink.rows == [(1, 10), (1, 11), (2, 20), (3, 30)]


def test_what_an_attempt_that_died_wrote_is_replaced_even_by_nothing(sink: Sink) -> None:
    sink.write(1, [(1, 10)], again=1)
    sink.write(2, [(1, 11)], [(2, 21)])
    sink.write(2, [(2, 22)], again=2)  # a new driver, whose slots made other rows
    assert sink.rows == [(1, 10), (2, 22)]
    sink.write(3, [(3, 33)])
    # A new driver used step 3 for another plan: what was written for it belongs to no step now.
    sink.write(4, again=3)
    assert sink.rows == [(1, 10), (2, 22)]


def test_a_directory_with_steps_that_are_still_to_come_is_refused(tmp_path: Path) -> None:
    sink = in_files(ab.parquet)(tmp_path)
    sink.write(3, [(1, 1)])
    sink.target.check(3)
    with pytest.raises(TopologyError, match=r"holds results up to step 3, .* is at step 2"):
        sink.target.check(2)


def test_a_function_and_a_writer_get_each_step_as_often_as_it_is_written(
    spark: Any, tmp_path: Path
) -> None:
    seen: list[tuple[int, list[Row]]] = []
    called = Sink(
        FunctionTarget(lambda df, step: seen.append((step, df.collect()))), list, tmp_path
    )
    out = tmp_path / "out"
    written = Sink(
        ab.writer("parquet", path=str(out)), lambda: rows_of([pq.read_table(out)]), tmp_path
    )
    for sink in (called, written):
        sink.session = spark
        sink.write(1, [(1, 10)], again=1)
        sink.write(1, [(1, 10)], again=1)
        sink.write(2)
    assert seen == [(1, [(1, 10)]), (1, [(1, 10)])]
    assert written.rows == [(1, 10), (1, 10)]
