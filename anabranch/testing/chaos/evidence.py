"""What proves that a fault has happened: journals, marks of fault points, exit codes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from anabranch.faults import parse
from anabranch.testing.chaos.plan import (
    COMMIT_LOST,
    DAMAGES,
    OTHER_AGGREGATES,
    OTHER_SLOTS,
    REPLAN,
    REROUTE,
    RESIZE,
    PlannedFault,
)

# The events that prove a change in the running query. A reroute from one slot to two is a resize.
_EVENTS = {
    RESIZE: {"resize"},
    REROUTE: {"reroute", "resize"},
    REPLAN: {"plan"},
    OTHER_AGGREGATES: {"changed"},
}


class Journal:
    """What happened in a start, one JSON object per line; a killed process loses none of them."""

    def __init__(self, path: Path, start: int) -> None:
        self._path, self._start = path, start

    def note(self, record: str, **values: Any) -> None:
        line = msgspec.json.encode({"start": self._start, "record": record, **values})
        with self._path.open("ab") as file:
            file.write(line + b"\n")


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All lines of a journal; a last line that is cut off is left out."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n")[:-1]]


def mark_of(point: str) -> str:
    """The name of the file that a fault point leaves when its fault happens."""
    return str(parse(point)).replace("/", "_")


def has_happened(
    fault: PlannedFault, lines: Sequence[dict[str, Any]], marks: Collection[str], *, died: bool
) -> bool:
    """True when the journal of its start, the marks and the driver's end prove it."""
    if not all(mark_of(p) in marks for p in fault.points) or (fault.ends_driver and not died):
        return False
    events = {line["kind"] for line in lines if line["record"] == "event"}
    acts = [line for line in lines if line["record"] == "act" and line["kind"] == fault.kind]
    changed = any(line["files"] for line in acts)
    if fault.kind in DAMAGES:
        return changed
    if fault.kind == COMMIT_LOST:
        return changed and "batch again" in events
    if fault.kind in _EVENTS:
        return bool(_EVENTS[fault.kind] & events)
    if fault.kind == OTHER_SLOTS:
        return _ran_with_other_slots(lines)
    return True


def _ran_with_other_slots(lines: Sequence[dict[str, Any]]) -> bool:
    start = next((line for line in lines if line["record"] == "start"), None)
    if start is None or start["slots"] == start["slots_before"]:
        return False
    return any(line["record"] == "step" and line["slots"] == start["slots"] for line in lines)
