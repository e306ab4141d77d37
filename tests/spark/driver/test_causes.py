"""Why a job failed, in one line: from real failures, and from texts that Spark has printed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.spark.api.streams import Stream
from anabranch.spark.driver.causes import cause_of, cause_of_call

HERE = __file__
JAVA = """An error occurred while calling o293.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading \
file file:///data/b.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
Caused by: java.lang.RuntimeException: file:/data/b.parquet is not a Parquet file. Expected magic
\tat org.apache.parquet.hadoop.ParquetFileReader.readFooter(ParquetFileReader.java:1)
\t... 1 more
"""
WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/home/ann/shop.py", line 43, in price
    return 10 // (x - 3)
  File "/opt/venv/lib/python3.11/site-packages/numpy/core.py", line 7, in divide
ZeroDivisionError: integer division or modulo by zero
"""
OURS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/here/anabranch/runtime/process/per_key.py", line 95, in run
    returned = process(key, rows_of(rows, start, end), call.state, context)
  File "/home/ann/anabranch/shop.py", line 9, in process
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/here/anabranch/runtime/slot.py", line 77, in run
anabranch.errors.StepError: operator 'p', key 'a': process() raised ZeroDivisionError (at x.py:9)
"""


@pytest.mark.parametrize(
    ("text", "cause", "permanent"),
    [
        (
            JAVA,
            (
                "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
                "file:///data/b.parquet: file:/data/b.parquet is not a Parquet file. Expected magic"
            ),
            False,
        ),
        (
            WORKER,
            (
                "ZeroDivisionError: integer division or modulo by zero (at /home/ann/shop.py:43 in "
                "price)"
            ),
            False,
        ),
        (
            OURS,
            ("operator 'p', key 'a': process() raised ZeroDivisionError (at x.py:9)"),
            True,
        ),
        ("anabranch.errors.StateFullError: no space\n\tat x", "no space", True),
        ("a worker died\nat once", "a worker died", False),
        ("", "RuntimeError", False),
        ("x" * 5000, "x" * 700 + "...", False),
    ],
)
def test_a_text_of_spark_becomes_one_line(text: str, cause: str, permanent: bool) -> None:
    assert cause_of(RuntimeError(text)) == (cause, permanent)


@pytest.mark.parametrize("kind", [ConnectionRefusedError, Py4JNetworkError])
def test_a_jvm_that_is_gone_does_not_come_back(kind: type[Exception]) -> None:
    cause, permanent = cause_of(kind("Connection refused"))
    assert cause.startswith("Spark's JVM is gone (Connection refused): it crashed or ran out of")
    assert permanent


def test_a_disk_that_is_full_and_a_function_that_fails_are_named_with_their_place() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/out/step-1.parquet")
    assert cause_of_call(full) == "[Errno 28] No space left on device: '/out/step-1.parquet'"

    def broken() -> None:
        raise ValueError("my own\nmistake")

    with pytest.raises(ValueError, match="my own") as caught:
        broken()
    cause = cause_of_call(caught.value)
    assert cause.startswith(f"ValueError: my own mistake (at {HERE}:")
    assert cause.endswith(" in broken)")


def table(ms: Any) -> pa.Table:
    at = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(len(ms))]
    return pa.table({"at": pa.array(at, pa.timestamp("us", tz="UTC")), "ms": ms})


def divided(df: DataFrame) -> DataFrame:
    return df.withColumn("ms", F.udf(lambda x: 10 // (x - 3), "bigint")("ms"))


def malformed(df: DataFrame) -> DataFrame:
    return df.withColumn("ms", F.expr("cast(concat('a', ms) as bigint)"))


def failing(rows: DataFrame, step: int) -> None:
    raise LookupError(f"no table for {rows.columns} in step {step}")


def deleting(rows: DataFrame, step: int) -> None:
    shutil.rmtree(Path(urlsplit(rows.inputFiles()[0]).path).parents[2])  # the checkpoint


def counted(stream: Stream) -> None:
    stream.aggregate(by=[], windows=ab.tumbling("1 minute"), n=ab.sum("ms")).to(ab.memory())


@pytest.mark.parametrize(
    ("write", "build", "said"),
    [
        (
            lambda path: path.write_bytes(b"not a parquet file at all"),
            counted,
            ["after 1 attempt: [FAILED_READ_FILE", "/b.parquet", "is not a Parquet file"],
        ),
        (
            lambda path: pq.write_table(table(["x"]), path),
            counted,
            ["/b.parquet", "column [ms]", "Expected Spark type bigint, actual Parquet type BINARY"],
        ),
        (
            lambda path: pq.write_table(table([3]), path),
            lambda stream: counted(stream.map(divided)),
            [
                "ZeroDivisionError: integer division or modulo by zero",
                f"(at {HERE}:",
                " in <lambda>)",
            ],
        ),
        (
            lambda path: pq.write_table(table([3]), path),
            lambda stream: counted(stream.map(malformed)),
            ["[CAST_INVALID_INPUT] The value 'a"],
        ),
        (
            lambda path: pq.write_table(table([3]), path),
            lambda stream: stream.to(failing),
            [
                (
                    "sink 'sink_1' (function failing, at least once) failed in step 1, which was not "
                    "committed: LookupError: no table for ['at', 'ms'] in step 1"
                ),
                " in failing)",
            ],
        ),
        (
            lambda path: pq.write_table(table([3]), path),
            lambda stream: stream.to(ab.parquet(f"{HERE}/out")),
            ["failed in step 1, which was not committed", "Not a directory"],
        ),
        (
            lambda path: pq.write_table(table([3]), path),
            lambda stream: stream.to(deleting),
            ["/checkpoint was deleted while the run was active; step 1 was not committed. Restore"],
        ),
    ],
    ids=["corrupt", "other type", "udf", "cast", "function", "no directory", "deleted"],
)
def test_the_cause_of_a_failure_is_in_the_message_that_ends_the_run(
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    write: Callable[[Path], Any],
    build: Callable[[Stream], Any],
    said: list[str],
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    write(source / "b.parquet")
    rows = spark.readStream.schema("at timestamp, ms bigint").parquet(str(source))
    app = ab.Topology("failing")
    build(app.source(rows, event_time="at", delay="0 seconds"))
    run = app.start(checkpoint=tmp_path / "checkpoint", availableNow=True, retries=0)
    with pytest.raises(AnabranchError) as error:
        run.awaitTermination()
    for each in said:
        assert each in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
    assert "Traceback" not in capfd.readouterr().err
