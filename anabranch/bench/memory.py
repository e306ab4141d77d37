"""Peak memory of this process and all that it started, from the kernel's own high-water marks."""

from __future__ import annotations

import os
from pathlib import Path


def peak_mb() -> dict[str, int]:
    """Peak resident memory of the driver, of its JVM, and of all Python workers together, in MB; empty where there is no /proc."""
    processes = {int(each.name): _status(each) for each in Path("/proc").glob("[0-9]*")}
    mine, found = {os.getpid()}, {"driver": _peak(processes.get(os.getpid(), {})), "jvm": 0, "python_workers": 0}
    if not found["driver"]:
        return {}
    while True:
        children = {pid for pid, status in processes.items() if int(status.get("PPid", 0)) in mine} - mine
        if not children:
            break
        mine |= children
        for pid in children:
            found["jvm" if processes[pid].get("Name") == "java" else "python_workers"] += _peak(processes[pid])
    return {name: kb >> 10 for name, kb in found.items()}


def _status(process: Path) -> dict[str, str]:
    try:
        lines = (process / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # it ended meanwhile
        return {}
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def _peak(status: dict[str, str]) -> int:
    return int(status.get("VmHWM", "0 kB").split()[0])
