"""One driver process of a chaos run, from its start to its end or its death."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from anabranch.testing.chaos.driver import DriverSpec, DriverStart
from anabranch.testing.chaos.evidence import mark_of, read_journal
from anabranch.testing.chaos.plan import ZOMBIE
from anabranch.testing.processes import Tagged

_POLL_S = 0.05
_SILENCE_S = 600.0  # a driver process that notes nothing for this long hangs
_WAKE_S = (0.0, 1.0, 3.0)  # after the next run has begun: before, in and after its first job


class InterruptedRunError(Exception):
    """The whole chaos run is being ended."""


class Lives:
    """The driver processes of a case, one after the other; some leave stopped workers behind."""

    def __init__(self, processes: Tagged, stopping: threading.Event) -> None:
        self._processes, self._stopping = processes, stopping
        self._asleep: list[int] = []  # workers that were stopped when their driver was killed
        self.count = 0

    def run(self, spec: DriverSpec, log: Path) -> int | str:
        """Runs one driver process; returns its exit code, or what went wrong."""
        self.count += 1
        file = log.with_suffix(".json")
        file.write_bytes(msgspec.json.encode(spec))
        command = [sys.executable, "-m", "anabranch.testing.chaos.driver", str(file)]
        with log.open("wb") as opened:
            driver = self._processes.start(command, opened)
            try:
                return self._wait(driver, spec.starts)
            finally:
                self._processes.end(driver)
                shutil.rmtree(spec.session, ignore_errors=True)

    def settle(self) -> None:
        """Wakes up what is still stopped, and waits until all processes have ended."""
        self._wake()
        self._processes.settle()

    def _wait(self, driver: subprocess.Popen[bytes], starts: Sequence[DriverStart]) -> int | str:
        marks = _zombie_marks(starts)
        noted, since = -1, time.monotonic()
        wakes_at: float | None = None
        while (code := driver.poll()) is None:
            now = time.monotonic()
            if self._stopping.is_set():
                raise InterruptedRunError
            if (size := _journal_size(starts)) != noted:
                noted, since = size, now
            if now - since > _SILENCE_S:
                return f"no step and no end for {_SILENCE_S:g} s"
            if self._asleep and wakes_at is None and _is_running(starts[0]):
                wakes_at = now + _WAKE_S[self.count % len(_WAKE_S)]
            if wakes_at is not None and now >= wakes_at:
                self._wake()
            if any(mark.exists() for mark in marks) and self._fell_asleep():
                return driver.wait()
            time.sleep(_POLL_S)
        return code

    def _fell_asleep(self) -> bool:
        """If a worker is stopped: kills everything else at once, as a failing machine would."""
        stopped = [pid for pid in self._processes.stopped() if pid not in self._asleep]
        if not stopped:
            return False
        self._asleep += stopped
        self._processes.kill_all_but(self._asleep)
        return True

    def _wake(self) -> None:
        self._processes.send(self._asleep, signal.SIGCONT)
        self._asleep = []


def _zombie_marks(starts: Sequence[DriverStart]) -> list[Path]:
    found = []
    for each in starts:
        for fault in each.start.faults:
            if fault.kind == ZOMBIE:
                found += [each.directory.of("marks") / mark_of(point) for point in fault.points]
    return found


def _is_running(start: DriverStart) -> bool:
    lines = read_journal(start.directory.of("journal.jsonl"))
    return any(line["start"] == start.number and line["record"] == "running" for line in lines)


def _journal_size(starts: Sequence[DriverStart]) -> int:
    journals = {each.directory.of("journal.jsonl") for each in starts}
    return sum(journal.stat().st_size for journal in journals if journal.exists())
