"""Errors on the command line: one line on stderr.

The exit code is 2 for a mistake, and 1 for a run that failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import typer

from anabranch.cli.load import MistakeError, error_place, error_text
from anabranch.cli.spark_log import SparkLog, prepare_environment, spark_log
from anabranch.errors import AnabranchError, CheckpointError, TopologyError


class FailedError(AnabranchError):
    """A run that started and then failed."""


def complain(text: str) -> None:
    """Prints an error to stderr."""
    typer.echo(f"anabranch: {text}", err=True)


@contextmanager
def reporting_errors(file: Path, log: Path | None) -> Iterator[None]:
    """Prepares Spark for a file, and turns every error into one line and an exit code."""
    prepare_environment(file.absolute().parent)
    with ExitStack() as stack:
        try:
            spark = stack.enter_context(spark_log(log))
        except OSError as error:
            complain(f"--log {log}: {error.strerror}")
            raise typer.Exit(2) from None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - all errors are reported
            raise typer.Exit(_report_error(error, file, spark)) from None
        except KeyboardInterrupt:
            spark.drop()
            raise
        spark.drop()


def _report_error(error: Exception, file: Path, spark: SparkLog) -> int:
    if "JAVA_GATEWAY_EXITED" in str(error.__cause__ or error):
        complain(
            f"{file}: Spark did not start; it needs Java 17 or newer, in JAVA_HOME or on the PATH "
            f"({spark.reason()})"
        )
        spark.drop()
        return 2
    if isinstance(error, MistakeError | TopologyError | CheckpointError) or (
        isinstance(error, OSError) and error.filename
    ):
        complain(error_text(error))
        spark.drop()
        return 2
    place = "" if isinstance(error, AnabranchError) else error_place(error, file)
    with spark.path.open("a") as out:
        traceback.print_exception(error, file=out)
    complain(f"{place}{error_text(error)} (all details: {spark.path})")
    return 2 if place else 1
