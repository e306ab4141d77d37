"""Anabranch: elastic, self-tuning keyed stream processing on Apache Spark, in Python.

This module has all that a topology needs. Generated input is in `ab.workloads`, helpers for tests
are in `ab.testing`.

Names that need Spark are imported when they are first used. So a Python worker loads
`anabranch.runtime` only.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from anabranch.aggregates import functions
from anabranch.aggregates.functions import *  # noqa: F403 - that module lists its names
from anabranch.elastic.settings import Elastic, Guards
from anabranch.errors import (
    AnabranchError,
    ApplyError,
    CheckpointError,
    NotYetError,
    StateError,
    StepError,
    TopologyError,
)
from anabranch.runtime.process.handles import Context, Rows, SlotContext, SlotRows, SlotState
from anabranch.topology import (
    Aggregate,
    Session,
    Window,
    calendar,
    cumulative,
    hopping,
    session,
    sliding,
    tumbling,
    udaf,
)
from anabranch.topology.apply import Osg

if TYPE_CHECKING:
    from anabranch.metrics import Progress
    from anabranch.observer import Event
    from anabranch.spark.api.run import Run
    from anabranch.spark.api.streams import Stream, join
    from anabranch.spark.api.topology import Topology
    from anabranch.spark.session import spark_session
    from anabranch.spark.sinks import console, csv, json, memory, parquet, writer

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AnabranchError",
    "ApplyError",
    "CheckpointError",
    "Context",
    "Elastic",
    "Event",
    "Guards",
    "NotYetError",
    "Osg",
    "Progress",
    "Rows",
    "Run",
    "Session",
    "SlotContext",
    "SlotRows",
    "SlotState",
    "StateError",
    "StepError",
    "Stream",
    "Topology",
    "TopologyError",
    "Window",
    "calendar",
    "console",
    "csv",
    "cumulative",
    "hopping",
    "join",
    "json",
    "memory",
    "parquet",
    "session",
    "sliding",
    "spark_session",
    "tumbling",
    "udaf",
    "writer",
]
__all__ += functions.__all__

_NEEDS_SPARK = {
    "anabranch.metrics": ("Progress",),
    "anabranch.observer": ("Event",),
    "anabranch.spark.api.run": ("Run",),
    "anabranch.spark.api.streams": ("Stream", "join"),
    "anabranch.spark.api.topology": ("Topology",),
    "anabranch.spark.session": ("spark_session",),
    "anabranch.spark.sinks": ("console", "csv", "json", "memory", "parquet", "writer"),
}


# Packages that are imported when they are first used.
_PACKAGES = ("testing", "workloads")


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"anabranch.{name}")
    home = next((module for module, names in _NEEDS_SPARK.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
