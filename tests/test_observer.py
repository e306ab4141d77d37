"""The port for observers of a run: each sees everything, and a failing one harms no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.observer import Event, Observer, Observers, RecentSteps

if TYPE_CHECKING:
    from anabranch.metrics import Progress

EVENT = Event(at=0.0, step=1, kind="resize", text="slots 1 -> 2")


class Full(Observer):
    """A log whose disk is full."""

    def __init__(self) -> None:
        self.calls = 0

    def event(self, event: Event) -> None:
        self.calls += 1
        raise OSError("no space left")


def test_an_observer_that_fails_is_detached_and_reported_once() -> None:
    full, recent = Full(), RecentSteps()
    observers = Observers(full, recent)
    for _ in range(3):
        observers.event(EVENT)
    assert full.calls == 1
    assert list(recent.events) == [EVENT] * 3, "others go on"
    assert observers.failures() == ["Full failed and is off from now on: OSError: no space left"]
    assert observers.failures() == []


def test_an_observer_attached_later_sees_what_comes_from_then_on() -> None:
    class Steps(Observer):
        def __init__(self) -> None:
            self.seen: list[object] = []

        def step(self, progress: Progress) -> None:
            self.seen.append(progress)

        def flush(self) -> None:
            self.seen.append("flushed")

    observers, steps = Observers(), Steps()
    observers.step(1)  # type: ignore[arg-type]
    observers.attach(steps)
    observers.step(2)  # type: ignore[arg-type]
    observers.event(EVENT)
    observers.observation(None)  # type: ignore[arg-type]
    observers.flush()
    assert steps.seen == [2, "flushed"]


def test_recent_steps_are_bounded() -> None:
    recent = RecentSteps(most=2)
    for step in range(4):
        recent.step(step)  # type: ignore[arg-type]
    assert list(recent.progress) == [2, 3]
