"""Driver processes: their exit codes, and workers that wake up while the next driver is at work."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from anabranch.testing.chaos.dealing import plan_case
from anabranch.testing.chaos.driver import DriverSpec, DriverStart
from anabranch.testing.chaos.files import RunDirectory
from anabranch.testing.chaos.life import InterruptedRunError, Lives
from anabranch.testing.chaos.plan import ZOMBIE, PlannedFault, Start
from anabranch.testing.processes import Tagged

# A worker leaves its group and its mark, stops, and writes a file when it is continued.
_WORKER = """
import os, pathlib, signal
os.setsid()
pathlib.Path("marks/slot.held@3=stop600").touch()
os.kill(os.getpid(), signal.SIGSTOP)
pathlib.Path("woken").touch()
"""
_STOPPED = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {_WORKER!r}])
time.sleep(60)
"""
_NEXT = """
import pathlib, sys, time
assert not pathlib.Path("woken").exists()
pathlib.Path("journal.jsonl").write_text('{"start":0,"record":"running"}' + chr(10))
deadline = time.monotonic() + 30
while not pathlib.Path("woken").exists():
    if time.monotonic() > deadline:
        sys.exit(3)
    time.sleep(0.01)
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found by /proc"
)


class Scripted(Tagged):
    """Starts scripts instead of drivers."""

    def __init__(self, *scripts: str) -> None:
        super().__init__()
        self._scripts = list(scripts)

    def start(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return super().start([command[0], "-c", self._scripts.pop(0)], log)


def spec(root: Path, *faults: PlannedFault) -> DriverSpec:
    case, _ = plan_case(1, 1, [])
    directory = RunDirectory(root=str(root), files=str(root))
    (root / "marks").mkdir(exist_ok=True)
    start = Start(published=1, portion=0, slots=1, finish=False, faults=faults)
    each = DriverStart(number=0, directory=directory, case=case, start=start)
    return DriverSpec(session=str(root / "session"), starts=(each,))


def test_the_exit_code_of_a_driver_is_returned(tmp_path: Path) -> None:
    with Scripted("raise SystemExit(7)") as processes:
        lives = Lives(processes, threading.Event())
        assert lives.run(spec(tmp_path), tmp_path / "driver.log") == 7


def test_a_stopped_worker_outlives_its_driver_and_wakes_up_when_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    zombie = PlannedFault(kind=ZOMBIE, points=("slot.held@3=stop600",))
    with Scripted(_STOPPED, _NEXT) as processes:
        lives = Lives(processes, threading.Event())
        assert lives.run(spec(tmp_path, zombie), tmp_path / "1.log") == -signal.SIGKILL
        assert len(processes.stopped()) == 1
        assert lives.run(spec(tmp_path), tmp_path / "2.log") == 0, (tmp_path / "2.log").read_text()
        lives.settle()
        assert processes.stopped() == []


def test_a_driver_ends_when_the_whole_run_is_ended(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    with Scripted("import time; time.sleep(60)") as processes:
        with pytest.raises(InterruptedRunError):
            Lives(processes, stopping).run(spec(tmp_path), tmp_path / "driver.log")
        processes.settle()
