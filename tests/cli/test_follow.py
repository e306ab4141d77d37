"""A run is followed to its end: by itself, by time, by Ctrl-C, by failure."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from anabranch.cli.follow import Until, follow
from anabranch.errors import StepError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.metrics import Progress
    from anabranch.spark.api.run import Run
    from tests.cli.conftest import PlayedRun


class Seen:
    """Notes what it is shown, and simulates what happens meanwhile."""

    def __init__(self, at_first: object = None) -> None:
        self.doing: list[str] = []
        self._at_first = at_first

    def show(self, run: Run, doing: str) -> None:
        if not self.doing and callable(self._at_first):
            self._at_first()
        if doing not in self.doing[-1:]:
            self.doing.append(doing)


def ended(played: PlayedRun) -> None:
    played.isActive = False


@pytest.mark.parametrize(
    ("finish", "call", "doing"),
    [(False, "stop", "stopping after this step"), (True, "finish", "closing all windows")],
)
def test_a_run_ends_when_its_time_is_over(
    played: PlayedRun, finish: bool, call: str, doing: str
) -> None:
    view = Seen()
    why = follow(played, view, Until(seconds=0.3, finish=finish, since=time.monotonic()))  # type: ignore[arg-type]
    assert (why, played.calls) == ("time is up", [call])
    assert view.doing == ["running", doing, "ended"]


def test_time_counts_from_the_start_of_the_command_once_there_is_a_step(
    played: PlayedRun, step: Callable[..., Progress]
) -> None:
    until = Until(seconds=100.0, finish=False, since=time.monotonic() - 101)
    now = time.monotonic()
    assert not until.over(played, now)  # type: ignore[arg-type]
    assert until.over(played, now - 101)  # type: ignore[arg-type]
    played.recentProgress = [step(1)]
    assert until.over(played, now)  # type: ignore[arg-type]


def test_a_run_that_ends_by_itself_may_be_finished(played: PlayedRun) -> None:
    why = follow(
        played,
        Seen(lambda: ended(played)),
        Until(seconds=None, finish=True, since=time.monotonic()),
    )  # type: ignore[arg-type]
    assert (why, played.calls) == ("all input processed", ["finish"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_and_leaves_windows_open(
    played: PlayedRun, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    view = Seen(lambda: os.kill(os.getpid(), number))
    why = follow(played, view, Until(seconds=None, finish=True, since=time.monotonic()))  # type: ignore[arg-type]
    assert (why, played.calls) == ("stopped", ["stop"])
    assert signal.getsignal(number) is before


def test_a_second_interrupt_ends_at_once(played: PlayedRun) -> None:
    free = threading.Event()
    played.stop = free.wait  # type: ignore[method-assign, assignment]

    class Impatient(Seen):
        def show(self, run: Run, doing: str) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        follow(played, Impatient(), Until(seconds=None, finish=False, since=time.monotonic()))  # type: ignore[arg-type]
    free.set()


def test_what_ended_a_run_is_raised(played: PlayedRun) -> None:
    def fail() -> None:
        played.isActive, played.error = False, StepError("step 3 failed")

    with pytest.raises(StepError, match="step 3 failed"):
        follow(played, Seen(fail), Until(seconds=None, finish=True, since=time.monotonic()))  # type: ignore[arg-type]
    assert played.calls == []


def test_what_goes_wrong_while_closing_is_raised(played: PlayedRun) -> None:
    def fail() -> None:
        raise StepError("the last step failed")

    played.finish = fail  # type: ignore[method-assign]
    with pytest.raises(StepError, match="the last step failed"):
        follow(played, Seen(), Until(seconds=0.0, finish=True, since=time.monotonic()))  # type: ignore[arg-type]
