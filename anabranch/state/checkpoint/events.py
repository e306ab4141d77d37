"""The log of what a person should know about a run, beside its checkpoint: a JSON object a line, the newest last.

It is bounded: a file that has grown long makes way for a new one, and one older file is kept. Nothing depends on it: a line that a
crash has cut off is left out when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from anabranch.state.checkpoint.files import Files

NAME, OLDER = "events.jsonl", "events.older.jsonl"
_LONG_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a person should know: what happened, in which step, and why."""

    at: float
    step: int
    kind: str
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)


class EventLog:
    """Writes events. A directory gets each line at once; an object store, which cannot append, gets them when `flush` is called."""

    def __init__(self, files: Files, long_bytes: int = _LONG_BYTES) -> None:
        self._files, self._long = files, long_bytes
        self._waiting: list[bytes] = []

    def add(self, event: Event) -> None:
        self._waiting.append(
            msgspec.json.encode(event, enc_hook=float) + b"\n"
        )  # figures may be NumPy's numbers
        if self._files.local:
            self.flush()

    def flush(self) -> None:
        """Writes what waits; begins a new file where the last one has grown long."""
        if not self._waiting:
            return
        lines, self._waiting = b"".join(self._waiting), []
        if not self._files.local:
            self._rewrite(lines)
            return
        path = Path(self._files.path(NAME))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > self._long:
            path.replace(self._files.path(OLDER))
        with path.open("ab") as file:
            cut_off = file.tell() > 0 and not _ends_a_line(path)
            file.write((b"\n" if cut_off else b"") + lines)

    def _rewrite(self, lines: bytes) -> None:
        before = self._files.read(NAME) if self._files.exists(NAME) else b""
        if len(before) > self._long:
            self._files.replace(OLDER, before)
            before = b""
        self._files.replace(NAME, before + lines)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def read_events(files: Files) -> list[Event]:
    """All events that are kept, oldest first."""
    found = []
    for name in (OLDER, NAME):
        for line in files.read(name).split(b"\n") if files.exists(name) else ():
            try:
                found.append(msgspec.json.decode(line, type=Event))
            except msgspec.DecodeError:
                continue
    return found
