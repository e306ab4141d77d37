"""Starts Spark's Python workers before the first batch, and checks that they have this package."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError
from anabranch.spark.session import is_local

_warm: set[str] = set()
_SCHEMA = "python string, version string, error string"


def warm_up(session: SparkSession) -> None:
    """Starts Python workers that import what slot tasks need. Refuses workers that cannot."""
    context = session.sparkContext
    key = f"{context.applicationId}"
    if key in _warm:
        return
    tasks, ours = context.defaultParallelism, _version()
    try:
        found = session.range(0, tasks, 1, tasks).mapInArrow(_probe(), _SCHEMA).collect()
    except Exception as error:  # noqa: BLE001 - a worker may fail for any reason
        raise AnabranchError(_text("cannot start", _cause(str(error)), context.master)) from None
    for python, version, why in found:
        if why is not None:
            raise AnabranchError(_text("cannot import anabranch", why, context.master, python))
        if version != ours:
            what, driver = f"have anabranch {version}", f"the driver has {ours}"
            raise AnabranchError(_text(what, driver, context.master, python))
    _warm.add(key)


def _probe() -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a worker runs. It is sent as code, so that a worker without the package can run it."""

    def probe(batches: Iterable[Any]) -> Iterator[Any]:
        import sys

        import pyarrow as pa

        version, error = None, None
        try:
            import anabranch.runtime.slot  # noqa: F401

            version = sys.modules["anabranch"].__version__
        except ImportError as caught:
            error = str(caught)
        for _ in batches:
            columns = {"python": [sys.executable], "version": [version], "error": [error]}
            yield pa.RecordBatch.from_pydict(
                columns, schema=pa.schema([(name, pa.string()) for name in columns])
            )

    return probe


def _text(what: str, why: str, master: str | None, python: str | None = None) -> str:
    """What is wrong with the workers, and the one line that fixes it."""
    where = f" ({python})" if python else ""
    if is_local(master):
        fix = f"start the program with PYSPARK_PYTHON={sys.executable}, or use ab.spark_session()"
    else:
        fix = (
            f"run pip install anabranch=={_version()} on every host, in the Python "
            f"{platform.python_version()} that PYSPARK_PYTHON names; or send an environment: "
            "spark.archives=environment.tar.gz#environment with "
            "PYSPARK_PYTHON=./environment/bin/python"
        )
    return f"Spark's Python workers{where} {what}: {why}. To fix it, {fix}"


def _version() -> str:
    """The version of the package that this process has loaded."""
    return str(sys.modules["anabranch"].__version__)


def _cause(text: str) -> str:
    """The line of an error that names the cause."""
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if "No module named" in line or "Error: " in line]
    return (named or [line for line in lines if line] or ["unknown cause"])[-1].rstrip(".")
