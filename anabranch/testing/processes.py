"""Processes that are found again by a tag in their environment, with all their descendants.

A driver that is killed leaves a JVM and Python workers behind, some of them stopped. The tag is
inherited, so each of them is found by its own environment, however it has detached itself. That
needs /proc; without it only process groups are ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

_TAG = "ANABRANCH_CHAOS"
_PATIENCE_S = 30.0


class Tagged:
    """Starts processes. On exit, none of them and none of their descendants is alive."""

    def __init__(self) -> None:
        self._tag = uuid.uuid4().hex
        self._groups: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in list(self._groups):
            self.end(each)
        self._kill(self._pids())

    def start(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """A process in a group of its own; its standard input closes when this process ends."""
        started = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, _TAG: self._tag},
            start_new_session=True,
        )
        self._groups.append(started)
        return started

    def end(self, started: subprocess.Popen[bytes]) -> None:
        """Ends a process and its group; stopped workers that have left the group stay."""
        if started not in self._groups:
            return
        self._groups.remove(started)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        if started.stdin:
            started.stdin.close()

    def stopped(self) -> list[int]:
        """Processes that have been stopped by a signal."""
        return [pid for pid in self._pids() if _state(pid) == "T"]

    def kill_all_but(self, spared: Collection[int]) -> None:
        """Kills everything else at once, as a failure of the machine would."""
        self._kill(pid for pid in self._pids() if pid not in spared)

    def send(self, pids: Collection[int], number: signal.Signals) -> None:
        """Sends a signal to those of these processes that are still ours."""
        for pid in set(pids) & set(self._pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def settle(self) -> None:
        """Waits for processes that were left behind to end by themselves, then ends the others."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._kill(self._pids())

    def _pids(self) -> list[int]:
        wanted, found = f"{_TAG}={self._tag}".encode(), []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
        return found

    def _kill(self, pids: Iterable[int]) -> None:
        """Kills processes and waits until they are gone."""
        killed = set(pids)
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE_S
        while killed & set(self._pids()) and time.monotonic() < deadline:
            time.sleep(0.01)


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
