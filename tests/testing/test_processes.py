"""Processes that are found again and ended, even if they detach themselves."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from anabranch.testing.processes import Tagged

_STOPS_ITSELF = """
import os, signal
os.setsid()
os.kill(os.getpid(), signal.SIGSTOP)
"""
_STARTS_IT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {_STOPS_ITSELF!r}])
time.sleep(60)
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found by /proc"
)


def _stopped(processes: Tagged) -> int:
    deadline = time.monotonic() + 20
    while not processes.stopped() and time.monotonic() < deadline:
        time.sleep(0.01)
    [pid] = processes.stopped()
    return pid


def _is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and " Z " not in stat.read_text()


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    with Tagged() as processes, (tmp_path / "log").open("wb") as log:
        processes.start([sys.executable, "-c", _STARTS_IT], log)
        pid = _stopped(processes)
    assert not _is_alive(pid)


def test_a_stopped_process_survives_its_parent_and_ends_when_it_is_continued(
    tmp_path: Path,
) -> None:
    with Tagged() as processes, (tmp_path / "log").open("wb") as log:
        parent = processes.start([sys.executable, "-c", _STARTS_IT], log)
        pid = _stopped(processes)
        processes.kill_all_but([pid])
        assert parent.wait() == -signal.SIGKILL
        assert _is_alive(pid)
        processes.send([pid], signal.SIGCONT)
        processes.settle()
        assert not _is_alive(pid)
