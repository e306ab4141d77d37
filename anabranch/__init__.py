"""Anabranch: elastic, self-tuning keyed stream processing on Apache Spark, in Python."""

from anabranch.errors import AnabranchError, CheckpointError, NotYetError, StateError, StepError, TopologyError
from anabranch.spark.face import Computed, Stream, Topology, Windowed
from anabranch.spark.progress import Event, Progress
from anabranch.spark.run import Run
from anabranch.spark.sinks import console, csv, json, memory, parquet, writer
from anabranch.topology import (
    Aggregate,
    Window,
    avg,
    count,
    cumulative,
    first,
    hopping,
    last,
    max,
    min,
    sliding,
    stddev,
    stddev_pop,
    sum,
    tumbling,
    var_pop,
    variance,
)

__version__ = "0.1.0"

__all__ = [
    "Aggregate",
    "AnabranchError",
    "CheckpointError",
    "Computed",
    "Event",
    "NotYetError",
    "Progress",
    "Run",
    "StateError",
    "StepError",
    "Stream",
    "Topology",
    "TopologyError",
    "Window",
    "Windowed",
    "avg",
    "console",
    "count",
    "csv",
    "cumulative",
    "first",
    "hopping",
    "json",
    "last",
    "max",
    "memory",
    "min",
    "parquet",
    "sliding",
    "stddev",
    "stddev_pop",
    "sum",
    "tumbling",
    "var_pop",
    "variance",
    "writer",
]
