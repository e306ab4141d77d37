"""Named points at which a fault can be set from outside, to prove that no crash changes a result.

The variable `ANABRANCH_FAULTS` lists faults, separated by semicolons: `POINT@STEP=ACTION` or
`POINT@STEP/SLOT=ACTION`. Each fault fires once per process. If `ANABRANCH_FAULTS_FIRED` names a
directory, fired faults are marked there, and each fires once as long as the directory is kept.
docs/reference/fault-points.md lists the points.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from anabranch.errors import AnabranchError, unknown

# In the order of the protocol: first those of the driver, then those inside a slot task.
DRIVER_POINTS = (
    "step.begin",
    "job.before",
    "job.after",
    "restore.before",
    "sinks.before",
    "sinks.half",
    "sinks.after",
    "commit.before",
    "commit.after",
    "clean.after",
)
SLOT_POINTS = (
    "slot.begin",
    "slot.held",
    "slot.merged",
    "slot.logged",
    "slot.half",
    "slot.stored",
)
POINTS = DRIVER_POINTS + SLOT_POINTS
APPLY_POINTS = ("apply.begin", "apply.written")  # in a task of a stage of applies
ACTIONS = ("kill", "fail", "stop")
_FORM = re.compile(r"([a-z.]+)@(\d+)(?:/(\d+))?=([a-z]+)(\d+)?")


class InjectedError(AnabranchError):
    """A fault that `ANABRANCH_FAULTS` asks for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a point of a step.

    It kills the process, makes the task fail, or stops the process for some seconds.
    """

    point: str
    step: int
    slot: int | None
    action: str
    seconds: int

    def __str__(self) -> str:
        slot = "" if self.slot is None else f"/{self.slot}"
        return f"{self.point}@{self.step}{slot}={self.action}{self.seconds or ''}"


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that are set. Without any, `at` costs next to nothing."""

    faults: tuple[Fault, ...] = ()
    marks: str | None = None
    # Steps that only rewrote state. A fault's step counts those that take rows or close windows.
    uncounted: int = 0

    def at(self, point: str, step: int, slot: int | None = None) -> None:
        """Makes the faults happen that are set for this point. The code calls it at each point."""
        for fault in self.faults:
            here = (fault.point, fault.step) == (point, step - self.uncounted)
            if here and fault.slot in (None, slot) and _first_time(fault, self.marks):
                _act(fault)

    def not_counting(self, uncounted: int) -> Faults:
        """The same faults, given how many of the steps so far do not count."""
        return replace(self, uncounted=uncounted) if self.faults else self


_fired: set[Fault] = set()


def from_environment(environment: Mapping[str, str] | None = None) -> Faults:
    """The faults that the environment asks for."""
    environment = os.environ if environment is None else environment
    text = environment.get("ANABRANCH_FAULTS", "")
    return Faults(
        tuple(map(parse, filter(None, text.split(";")))), environment.get("ANABRANCH_FAULTS_FIRED")
    )


def parse(text: str) -> Fault:
    """Reads a fault, as it is written in the environment."""
    match = _FORM.fullmatch(text.strip())
    if not match:
        raise AnabranchError(f"fault {text!r} is not POINT@STEP=ACTION or POINT@STEP/SLOT=ACTION")
    if match[1] not in POINTS + APPLY_POINTS:
        raise AnabranchError(unknown("fault point", match[1], POINTS + APPLY_POINTS))
    if match[4] not in ACTIONS:
        raise AnabranchError(unknown("fault action", match[4], ACTIONS))
    return Fault(
        match[1],
        int(match[2]),
        None if match[3] is None else int(match[3]),
        match[4],
        int(match[5] or 0),
    )


def _first_time(fault: Fault, marks: str | None) -> bool:
    if marks is None:
        if fault in _fired:
            return False
        _fired.add(fault)
        return True
    try:
        os.close(os.open(Path(marks, str(fault).replace("/", "_")), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _act(fault: Fault) -> None:
    if fault.action == "fail":
        raise InjectedError(f"fault {fault} was asked for")
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    wake_up = f"time.sleep({fault.seconds or 2}); os.kill({os.getpid()}, signal.SIGCONT)"
    script = f"import os, signal, time; {wake_up}"
    subprocess.Popen([sys.executable, "-c", script], start_new_session=True)  # noqa: S603 - our own
    os.kill(os.getpid(), signal.SIGSTOP)
