"""`anabranch run` and `anabranch explain` on small files, with a real session."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from anabranch.cli import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WriteFile = Callable[[str], Path]

JOB = """
import anabranch as ab
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("at timestamp, k string, v int").parquet("{input}")
app = ab.Topology("job")

@F.udf("int")
def checked(v):
    return v // (0 if {bad_value} == v else 1)

kept = app.source(rows, event_time="at").map(lambda df: df.withColumn("v", {map}))
sums = kept.aggregate(by="k", windows=[ab.tumbling("1 minute"), ab.tumbling("1 hour")], n=ab.count(), total=ab.sum("v"))
sums.to(ab.parquet("{output}"))

def looked(df, step):
    if {bad_step} == step:
        raise ValueError("this step is not to my liking")

sums.to(looked)
"""


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, file: WriteFile) -> Callable[..., Path]:
    """A file with a topology over 120 rows in two minutes of three keys."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = [start + timedelta(seconds=second) for second in range(120)]
    table = pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "k": list("abc") * 40,
            "v": pa.array(range(120), pa.int32()),
        }
    )
    (tmp_path / "input").mkdir()
    pq.write_table(table, tmp_path / "input/rows.parquet")

    def write(**given: object) -> Path:
        settings = {"map": "F.col('v')", "bad_step": None, "bad_value": None, **given}
        return file(JOB.format(input=tmp_path / "input", output=tmp_path / "out", **settings))

    return write


def anabranch(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_file_runs_to_the_end_of_its_input(job: Callable[..., Path], tmp_path: Path) -> None:
    path, chk = job(map="checked('v')"), tmp_path / "chk"
    result = anabranch(
        "run", path, "--available-now", "--finish", "--checkpoint", chk, "--slots", 2, "--shards", 8
    )
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert re.match(r"step(s 1 to 2| 1), 120 rows, ", lines[0]), "quick steps share a line"
    assert "2026-01-01 00:00 - 01:00  1 hour" in result.stdout
    assert any(
        line.startswith("job ended after ") and ", all input processed: " in line for line in lines
    )
    assert "120 rows in, 9 results, left out: 0" in result.stdout
    assert f"results: parquet files in {tmp_path / 'out'}" in lines
    assert result.stderr == ""
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["k"], row["n"]) for row in found if row["window_name"] == "1 hour") == [
        ("a", 40),
        ("b", 40),
        ("c", 40),
    ]
    state = json.loads(anabranch("state", chk, "--json").stdout)
    assert (
        state["topology"],
        next(iter(state["routes"].values()))["slots"],
        len(state["shards"]),
        state["rows"]["in"],
    ) == (
        "job",
        2,
        8,
        120,
    )


def test_a_run_ends_by_time_and_leaves_nothing_but_results(
    job: Callable[..., Path], tmp_path: Path
) -> None:
    path = job()
    result = anabranch("run", path, "--for", "1 ms", "--finish", "--trigger", "100 ms")
    assert result.exit_code == 0, result.output
    assert ", time is up: " in result.stdout
    assert "checkpoint:" not in result.stdout
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out/step-00000001-x.parquet").touch()
    again = anabranch("run", path, "--available-now")
    assert again.exit_code == 2
    assert again.stderr == (
        f"anabranch: {tmp_path / 'out'} holds results of another run; --fresh removes them, "
        "--checkpoint DIR continues that run\n"
    )
    assert anabranch("run", path, "--available-now", "--fresh").exit_code == 0


@pytest.mark.parametrize(
    ("given", "line", "text"),
    [
        ({"bad_step": 2}, 19, "not to my liking"),
        ({"map": "checked('v')", "bad_value": 7}, 11, "ZeroDivisionError"),
    ],
)
def test_an_error_in_the_files_functions_names_the_line(
    job: Callable[..., Path], given: dict[str, object], line: int, text: str
) -> None:
    path = job(**given)
    result = anabranch("run", path, "--available-now", "--finish")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"anabranch: {path}:{line}: ")
    assert result.stderr.count("\n") == 1
    assert text in result.stderr
    log = Path(result.stderr.split("all details: ")[1].strip(" )\n"))
    assert "Traceback" in log.read_text()
    log.unlink()


def test_options_that_do_not_fit_the_topology_are_one_line(
    job: Callable[..., Path], tmp_path: Path
) -> None:
    result = anabranch("run", job(), "--slots", 9, "--shards", 8, "--checkpoint", tmp_path / "chk")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "anabranch: slots=9; valid: 1 to 8, the number of shards (fixed for a checkpoint)\n"
    )


def test_an_unknown_column_names_the_line_and_the_columns(job: Callable[..., Path]) -> None:
    path = job()
    path.write_text(path.read_text().replace('by="k"', 'by="key"'))
    result = anabranch("explain", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"anabranch: {path}:14: unknown key column 'key'; valid: at, k, v\n"


@pytest.mark.parametrize(
    ("format", "part"),
    [("text", "component source_by_k"), ("json", '"pane": "1 minute"'), ("mermaid", "graph LR")],
)
def test_the_plan_alone_goes_to_stdout(job: Callable[..., Path], format: str, part: str) -> None:
    path = job()
    path.write_text(f"{path.read_text()}\nprint('hello from the file')\n")
    result = anabranch("explain", path, "--format", format)
    assert result.exit_code == 0
    assert part in result.stdout
    assert "hello from the file" in result.stderr
    assert "hello from the file" not in result.stdout
