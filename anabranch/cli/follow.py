"""Follows a run to its end: shows it, and stops it when its time is up or the user asks."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from anabranch.spark.api.run import Run

_LOOK_S = 0.2


class View(Protocol):
    """Something that shows a run."""

    def show(self, run: Run, doing: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When to end a run that does not end by itself, and whether to close all open windows then.

    The time is counted from `since`, including the start of Spark, so that a command ends in time.
    If there is no step yet, it waits for the first one, but not longer than `seconds` after the run
    began.
    """

    seconds: float | None
    finish: bool
    since: float

    def over(self, run: Run, began: float) -> bool:
        """True if a run that began at `began` has lasted long enough."""
        if self.seconds is None:
            return False
        now = time.monotonic()
        return now - began >= self.seconds or (
            now - self.since >= self.seconds and bool(run.recentProgress)
        )


def follow(run: Run, view: View, until: Until) -> str:
    """Shows a run until it has ended, and returns the reason. Raises the error if it failed."""
    began = time.monotonic()
    with _asked_to_stop() as asked:
        while run.isActive and not asked.is_set() and not until.over(run, began):
            view.show(run, "running")
            asked.wait(_LOOK_S)
        by_itself = not run.isActive
        if run.exception() is None:
            if until.finish and not asked.is_set():
                _show_while(run.finish, run, view, "closing all windows")
            else:
                _show_while(run.stop, run, view, "stopping after this step")
        view.show(run, "ended")
        run.awaitTermination()
    return "all input processed" if by_itself else "stopped" if asked.is_set() else "time is up"


def _show_while(end: Callable[[], None], run: Run, view: View, doing: str) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            end()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=work, name="anabranch-end", daemon=True)
    view.show(run, doing)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK_S)
        view.show(run, doing)
    if failed:
        raise failed[0]


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets. A second one ends the process at once.

    Spark's own handler would cancel the running step.
    """
    asked = threading.Event()

    def handle(number: int, frame: object) -> None:  # noqa: ARG001
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
