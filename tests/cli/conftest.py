"""Files with topologies, and a run that is only simulated."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anabranch.elastic.observation import Decision
from anabranch.metrics import Progress
from anabranch.observer import Event


@pytest.fixture(autouse=True)
def same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command prepares for its own process ends with the test."""
    for name in ("PYSPARK_SUBMIT_ARGS", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        if not os.environ[name]:
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a Python file and returns its path."""

    def write(source: str, name: str = "job.py") -> Path:
        path = tmp_path / name
        path.write_text(source, encoding="utf-8")
        return path

    return write


@dataclass
class PlayedRun:
    """A simulated run, for code that watches one."""

    recentProgress: list[Progress] = field(default_factory=list)  # noqa: N815 - as a Run has it
    events: list[Event] = field(default_factory=list)
    decision: Decision | None = None
    isActive: bool = True  # noqa: N815 - as a Run has it
    error: BaseException | None = None
    calls: list[str] = field(default_factory=list)

    def stop(self) -> None:
        self.calls.append("stop")
        self.isActive = False

    def finish(self) -> None:
        self.calls.append("finish")
        self.isActive = False

    def exception(self) -> BaseException | None:
        return self.error

    def awaitTermination(self) -> None:  # noqa: N802 - as a Run has it
        if self.error is not None:
            raise self.error


@pytest.fixture
def played() -> PlayedRun:
    return PlayedRun()


@pytest.fixture
def step() -> Callable[..., Progress]:
    """A step of a run, with ordinary values for all that is not given."""

    def make(number: int, **given: Any) -> Progress:
        ordinary: dict[str, Any] = {
            "step": number,
            "batch_id": number - 1,
            "rows_in": 1000,
            "rows_out": 10,
            "left_out": {},
            "slots": 2,
            "shards": 64,
            "watermark_us": 1_767_225_600_000_000 + number * 60_000_000,
            "max_event_us": 1_767_225_600_000_000 + (number + 2) * 60_000_000,
            "duration_s": 0.5,
            "phases_s": {},
            "slot_s": {},
            "slot_phases_s": {},
            "state_bytes": 3 << 20,
            "attempts": 1,
            "restored": 0,
            "finished_at": 1000.0 + number,
        }
        return Progress(**{**ordinary, **given})

    return make
