"""What the user writes, as values: windows, aggregates and an immutable graph of operators."""

from anabranch.aggregates import functions
from anabranch.aggregates.custom import udaf
from anabranch.aggregates.functions import *  # noqa: F403 - that module has the one list
from anabranch.aggregates.specs import Aggregate
from anabranch.topology.calendar import CalendarWindow, calendar
from anabranch.topology.durations import duration_us, format_duration
from anabranch.topology.graph import Compute, Consolidate, Field, Graph, Map, Operator, Sink, Source
from anabranch.topology.windows import (
    Session,
    Window,
    cumulative,
    hopping,
    session,
    sliding,
    tumbling,
)

__all__ = [
    "Aggregate",
    "CalendarWindow",
    "Compute",
    "Consolidate",
    "Field",
    "Graph",
    "Map",
    "Operator",
    "Session",
    "Sink",
    "Source",
    "Window",
    "calendar",
    "cumulative",
    "duration_us",
    "format_duration",
    "hopping",
    "session",
    "sliding",
    "tumbling",
    "udaf",
]
__all__ += functions.__all__
