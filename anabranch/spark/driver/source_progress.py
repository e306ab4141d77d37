"""What Spark's own progress of a batch says about its sources: rows taken, and rows that wait.

If a source reports its latest offset, the rows between the end of the batch and that offset wait.
Offsets count different things: rows in Kafka, seconds in the rate source. The batch itself shows
how many rows there are per offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """Spark's report on one batch: its time, and its sources in the order of the query."""

    batch_id: int
    seconds: float | None
    rows: tuple[float, ...]
    backlog: tuple[float | None, ...]  # None where the source does not report it


def batch_progress(text: str | Mapping[str, Any]) -> BatchProgress:
    """Spark's progress, from its JSON."""
    progress = json.loads(text) if isinstance(text, str) else text
    millis = progress.get("durationMs", {}).get("triggerExecution")
    sources = progress.get("sources", [])
    return BatchProgress(
        batch_id=int(progress["batchId"]),
        seconds=None if millis is None else millis / 1000,
        rows=tuple(float(each.get("numInputRows", 0)) for each in sources),
        backlog=tuple(backlog(each) for each in sources),
    )


def logged_clock_ms(entry: bytes) -> int:
    """When Spark made a batch, from the entry of its offset log: a version, then JSON."""
    return int(json.loads(entry.decode().splitlines()[1])["batchTimestampMs"])


def backlog(source: Mapping[str, Any]) -> float | None:
    """The rows that wait after the end of the batch; None if unknown."""
    start, end, latest = (
        numbers_of(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")
    )
    if latest is None or end is None:
        return None
    waiting = distance(end, latest)
    if waiting is None or waiting <= 0:
        return None if waiting is None else 0.0
    taken = distance(start, end) if start is not None else None
    if not taken or taken <= 0:
        return None
    return waiting * float(source.get("numInputRows", 0)) / taken


def numbers_of(offset: object) -> dict[str, float] | None:
    """The numbers in an offset, by their path in it; None if it has none."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    found: dict[str, float] = {}
    _collect("", offset, found)
    return found or None


def _collect(path: str, value: object, found: dict[str, float]) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        found[path] = float(value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            _collect(f"{path}/{name}", part, found)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for i, part in enumerate(value):
            _collect(f"{path}/{i}", part, found)


def distance(start: Mapping[str, float], end: Mapping[str, float]) -> float | None:
    """How far apart two offsets are, over all partitions; None if one partition has gone back.

    A new partition begins at 0.
    """
    steps = [value - start.get(path, 0.0) for path, value in end.items()]
    return None if any(step < 0 for step in steps) else sum(steps)
