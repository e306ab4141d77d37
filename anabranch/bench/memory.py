"""Memory of this process and of all processes that it started, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path


def peak_mb() -> dict[str, int]:
    """Peak resident memory of the driver, of its JVM, and of all Python workers together, in MB.

    Empty where there is no /proc.
    """
    return _by_kind("VmHWM")


def resident_mb() -> dict[str, int]:
    """Resident memory now, by the same kinds of process."""
    return _by_kind("VmRSS")


def _by_kind(field: str) -> dict[str, int]:
    processes = {int(each.name): _status(each) for each in Path("/proc").glob("[0-9]*")}
    mine = {os.getpid()}
    found = {"driver": _kb(processes.get(os.getpid(), {}), field), "jvm": 0, "python_workers": 0}
    if not found["driver"]:
        return {}
    while (
        children := {pid for pid, status in processes.items() if int(status.get("PPid", 0)) in mine}
        - mine
    ):
        mine |= children
        for pid in children:
            found["jvm" if processes[pid].get("Name") == "java" else "python_workers"] += _kb(
                processes[pid], field
            )
    return {name: kb >> 10 for name, kb in found.items()}


def _status(process: Path) -> dict[str, str]:
    try:
        lines = (process / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # the process has ended
        return {}
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def _kb(status: dict[str, str], field: str) -> int:
    return int(status.get(field, "0 kB").split()[0])
