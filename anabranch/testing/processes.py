"""Processes that are started with a tag in their environment, and all that come from them: found again, and ended.

A driver that is killed leaves a JVM and Python workers behind, some of them stopped. The tag is inherited, so that each of
them can be found by its own environment, however it has detached itself (where /proc tells; else only process groups are ended).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

_TAG = "ANABRANCH_CHAOS"
_PATIENCE_S = 30.0


class Tagged:
    """Starts processes; when it is left, none of them and of their descendants is alive."""

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
        """A process in a group of its own; its standard input is a pipe that closes when this process ends."""
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
        """Ends a process and its group; workers that have left the group and are stopped stay."""
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

    def kill_all_but_stopped(self) -> None:
        """Kills everything at once, as if the machine had, but leaves stopped processes and those that will continue them."""
        stopped = self.stopped()
        self._kill(
            pid for pid in self._pids() if pid not in stopped and "SIGCONT" not in _command(pid)
        )

    def settle(self) -> None:
        """Waits until processes that were left behind have ended by themselves, for some time; then ends them."""
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


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
