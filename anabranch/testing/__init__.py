"""Helpers for tests: generated events, results of an independent engine, full comparisons.

`anabranch.testing.strategies` has Hypothesis strategies for windows, aggregates and batches; it is
not imported here, since it needs the package hypothesis.
"""

from __future__ import annotations

from anabranch.testing.compare import (
    bag_differences,
    differences,
    flatten_window,
    read_results,
    records,
)
from anabranch.testing.events import EventPlan, event_batches, write_batches
from anabranch.testing.files import MemoryFiles
from anabranch.testing.process import ProcessTester
from anabranch.testing.reference.joins import JoinQuery, expected_join
from anabranch.testing.reference.sessions import SessionSteps
from anabranch.testing.reference.windows import (
    WindowQuery,
    expected_late,
    expected_results,
    sessions_at_once,
)
from anabranch.testing.stores import MemoryCellShard, MemoryDisk, MemoryShard

__all__ = [
    "EventPlan",
    "JoinQuery",
    "MemoryCellShard",
    "MemoryDisk",
    "MemoryFiles",
    "MemoryShard",
    "ProcessTester",
    "SessionSteps",
    "WindowQuery",
    "bag_differences",
    "differences",
    "event_batches",
    "expected_join",
    "expected_late",
    "expected_results",
    "flatten_window",
    "read_results",
    "records",
    "sessions_at_once",
    "write_batches",
]
