"""What the user writes, as values: windows, aggregates and an immutable graph of operators."""

from anabranch.topology.aggregates import Aggregate
from anabranch.topology.durations import duration_us, format_duration
from anabranch.topology.functions import (
    avg,
    count,
    first,
    last,
    max,
    min,
    stddev,
    stddev_pop,
    sum,
    var_pop,
    variance,
)
from anabranch.topology.graph import Compute, Consolidate, Field, Graph, Map, Operator, Sink, Source
from anabranch.topology.windows import Window, cumulative, hopping, sliding, tumbling

__all__ = [
    "Aggregate",
    "Compute",
    "Consolidate",
    "Field",
    "Graph",
    "Map",
    "Operator",
    "Sink",
    "Source",
    "Window",
    "avg",
    "count",
    "cumulative",
    "duration_us",
    "first",
    "format_duration",
    "hopping",
    "last",
    "max",
    "min",
    "sliding",
    "stddev",
    "stddev_pop",
    "sum",
    "tumbling",
    "var_pop",
    "variance",
]
