"""The event log of a run, in its checkpoint: one JSON object per line, the newest last.

Its size is limited: when a file has grown too long, a new one is begun, and one older file is kept.
Nothing depends on the log. A line that a crash has cut off is skipped.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from anabranch.observer import Event, Observer
from anabranch.state.checkpoint.files import Files

__all__ = ["Event", "EventLog", "read_events"]

NAME, OLDER = "events.jsonl", "events.older.jsonl"
_LONG_BYTES = 2 << 20


class EventLog(Observer):
    """Writes events.

    A directory gets each line at once. An object store cannot append, and gets them with `flush`.
    """

    def __init__(self, files: Files, long_bytes: int = _LONG_BYTES) -> None:
        self._files, self._long = files, long_bytes
        self._waiting: list[bytes] = []

    def event(self, event: Event) -> None:
        line = msgspec.json.encode(event, enc_hook=float)  # figures may be NumPy numbers
        self._waiting.append(line + b"\n")
        if self._files.local:
            self.flush()

    def flush(self) -> None:
        """Writes the waiting events. Begins a new file if the last one has grown too long."""
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
    """All events that are still in the log, oldest first."""
    found = []
    for name in (OLDER, NAME):
        for line in files.read(name).split(b"\n") if files.exists(name) else ():
            try:
                found.append(msgspec.json.decode(line, type=Event))
            except msgspec.DecodeError:
                continue
    return found
