"""If Spark's internals have changed, a run is slower and gives the same results."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.spark import jvm
from anabranch.spark.compile.template import Template
from anabranch.testing import read_results, write_batches
from anabranch.testing.compare import flatten_window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, at timestamp, v bigint"
START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000


class Numbered:
    """Every row with the number of the row among those of its key."""

    state = {"n": "bigint"}
    output = "n bigint, v bigint, at timestamp"
    event_time = "at"

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        n = state.n[rows.key]
        state.n += [int((rows.key == key).sum()) for key in range(len(state.n))]
        return {"n": n, "v": rows["v"], "at": rows["at"]}


def batches() -> list[pa.Table]:
    """Three batches of 40 rows, a second between two rows."""
    numbers = [range(start, start + 40) for start in (0, 40, 80)]
    return [
        pa.table(
            {
                "k": [f"k{n % 7}" for n in each],
                "at": pa.array(
                    [START + timedelta(seconds=n) for n in each], pa.timestamp("us", "UTC")
                ),
                "v": pa.array(each, pa.int64()),
            }
        )
        for each in numbers
    ]


def expected(rows: list[dict[str, Any]]) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Count and sum of each key and 10 seconds."""
    found: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for row in rows:
        found[row["k"], row["at"] - timedelta(seconds=row["at"].second % 10)].append(row["v"])
    return {key: (len(values), sum(values)) for key, values in found.items()}


def windows_of(rows: DataFrame) -> tuple[ab.Topology, ab.Stream]:
    app = ab.Topology("fallback")
    stream = app.source(rows, event_time="at", name="rows")
    tens = stream.aggregate(
        by="k", windows=ab.tumbling("10 seconds"), n=ab.count(), total=ab.sum("v"), name="tens"
    )
    return app, tens


def found_in(rows: list[dict[str, Any]]) -> dict[tuple[str, datetime], tuple[int, int]]:
    return {
        (row["k"], START + timedelta(microseconds=row["window_start"] - START_US)): (
            row["n"],
            row["total"],
        )
        for row in rows
    }


INTERNALS = re.compile(r"\._j(vm|df|sc|c|sparkSession)\b|pyspark\.sql\.classic")


def test_internals_of_spark_are_used_in_three_modules_only() -> None:
    """Benchmarks look into Spark itself; they are left out."""
    package = Path(ab.__file__).parent
    using = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] != "bench"
        and INTERNALS.search(path.read_text(encoding="utf-8"))
    }
    assert using == {"spark/jvm.py", "spark/local_files.py", "spark/compile/template.py"}


@pytest.fixture
def changed_internals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A Spark in which the plan of given rows is made with other parameters."""
    asked: list[str] = []

    def rows_of(self: jvm.Scala, *given: object) -> object:
        asked.append("rows")
        raise TypeError("LogicalRDD takes 11 parameters")

    monkeypatch.setattr(jvm.Scala, "rows_of", rows_of)
    return asked


def test_rows_and_no_rows_give_the_same_without_internals(
    spark: SparkSession, changed_internals: list[str]
) -> None:
    table = pa.concat_tables(batches())
    rows = spark.createDataFrame(table)
    app, _ = windows_of(rows)
    found = flatten_window(app.run_batch(rows)["tens"].toArrow())
    assert found_in(found.to_pylist()) == expected(table.to_pylist())
    assert app.run_batch(rows.filter("false"))["tens"].count() == 0
    assert changed_internals


def test_a_template_without_internals_is_left_and_a_stream_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[object] = []

    def fill(self: Template, *given: object) -> None:
        filled.append(given)
        raise TypeError("other parameters")

    monkeypatch.setattr(Template, "_filled", fill)
    write_batches(batches(), tmp_path / "in")
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    app, tens = windows_of(rows.parquet(str(tmp_path / "in")))
    tens.to(ab.parquet(str(tmp_path / "out")))
    run = app.start(checkpoint=str(tmp_path / "checkpoint"), availableNow=True, slots=2, shards=4)
    assert run.awaitTermination(120)
    run.finish()
    assert found_in(read_results(str(tmp_path / "out")).to_pylist()) == expected(
        pa.concat_tables(batches()).to_pylist()
    )
    assert filled, "later steps tried the template"


@pytest.mark.parametrize("empty", ["rows", "map"])
def test_rows_that_spark_knows_to_be_none_reach_the_tasks(spark: SparkSession, empty: str) -> None:
    """Spark removes a query over no rows: then no task would report."""
    rows = spark.createDataFrame(pa.concat_tables(batches()))
    app = ab.Topology("none")
    stream = app.source(rows, event_time="at", name="rows")
    if empty == "map":
        stream = stream.map(lambda df: df.filter("false"))
    stream.process("k", Numbered, name="numbered")
    found = app.run_batch(rows.filter("false") if empty == "rows" else rows)
    assert found["numbered"].count() == 0
