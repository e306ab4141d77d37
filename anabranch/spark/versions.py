"""The differences between the supported versions of Spark, each with its reason.

`SPARK` is the version of pyspark. The JVM has the same: a session on another version is refused.
No other module of the package asks for the version.
"""

from __future__ import annotations

import importlib
import re
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark

from anabranch.errors import AnabranchError, TopologyError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SUPPORTED = ((4, 1), (4, 2), (4, 3))


def supported(version: str, what: str = "pyspark") -> tuple[int, int]:
    """The major and minor number of a version. Refuses one that is not supported."""
    found = re.match(r"(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    if number not in SUPPORTED:
        valid = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
        raise AnabranchError(f"{what} {version} is not supported; supported: {valid}")
    return number


SPARK = supported(pyspark.__version__)


def check_jvm(version: str) -> None:
    """Refuses a JVM of another version than pyspark: Spark would fail later, or behave oddly."""
    if supported(version, "Spark") != SPARK:
        raise TopologyError(
            f"Spark {version} runs under pyspark {pyspark.__version__}; use the same version of "
            "both (is SPARK_HOME set to another Spark?)"
        )


# LogicalRDD has one more parameter in 4.3. False is how it behaves before.
LOGICAL_RDD_REST: tuple[bool, ...] = (False,) if SPARK >= (4, 3) else ()

# From 4.2 on, Spark passes to a source in Python where a batch starts and how many rows it may
# read. Before 4.2, a source cannot know where a restarted query continues, and "availableNow" ends
# with the rows that were due at its start.
SOURCES_KNOW_THEIR_START = SPARK >= (4, 2)

if TYPE_CHECKING or SPARK >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """As in Spark 4.2: how much a batch may read. Spark 4.1 never asks."""

    class ReadAllAvailable(ReadLimit):
        """As in Spark 4.2."""

    class ReadMaxRows(ReadLimit):
        """As in Spark 4.2."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:
        """As in Spark 4.2."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]


def refuse_pace(option: str, value: object) -> None:
    """Before 4.2, refuses options for the pace of a workload: sources do not know their start."""
    if not SOURCES_KNOW_THEIR_START:
        raise TopologyError(
            f"{option}={value!r} needs Spark 4.2 or newer, this is {pyspark.__version__}; without "
            "it, all rows are due at once"
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema for a Spark schema, with timestamps in UTC. In 4.1 that is the default."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if SPARK < (4, 2):
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC")


def keep_import_caches() -> None:
    """Makes a worker look for new modules only when its paths have changed, as 4.2 does.

    In 4.1 a worker forgets after each task what its paths contain: a small job took 744 ms
    instead of 182.
    """
    if SPARK >= (4, 2):
        return
    known = list(sys.path)

    def invalidate_caches() -> None:
        if sys.path != known:
            known[:] = sys.path
            importlib.invalidate_caches()

    worker: Any = importlib.import_module("pyspark.worker_util")
    worker.importlib = SimpleNamespace(invalidate_caches=invalidate_caches)
