"""Observers of a run: the event log, the history of steps and others implement this small port.

Nothing in a run depends on an observer. If one fails, for example because its disk is full, the
failure is reported once, the observer is detached, and the run goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.elastic.observation import Observation
from anabranch.metrics import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a person should know: what happened, in which step, and why."""

    at: float
    step: int
    kind: str
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)


class Observer:
    """The port. A subclass overrides the calls it needs; they come one at a time."""

    def step(self, progress: Progress) -> None:
        """A step was committed."""

    def observation(self, seen: Observation) -> None:
        """The same step as the controller sees it, once Spark has reported on its batch."""

    def event(self, event: Event) -> None:
        """Something happened that a person should know."""

    def flush(self) -> None:
        """Writes everything that has not been written yet."""


class Observers:
    """All observers of a run."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)
        self._failed: deque[tuple[Observer, Exception]] = deque()

    def attach(self, observer: Observer) -> None:
        self._observers.append(observer)

    def step(self, progress: Progress) -> None:
        self._each(lambda observer: observer.step(progress))

    def observation(self, seen: Observation) -> None:
        self._each(lambda observer: observer.observation(seen))

    def event(self, event: Event) -> None:
        self._each(lambda observer: observer.event(event))

    def flush(self) -> None:
        self._each(lambda observer: observer.flush())

    def failures(self) -> list[str]:
        """A message for each observer that was detached since the last call."""
        found = [
            f"{type(observer).__name__} failed and is off from now on: {type(error).__name__}: "
            f"{error}"
            for observer, error in self._failed
        ]
        self._failed.clear()
        return found

    def _each(self, call: Callable[[Observer], None]) -> None:
        for observer in tuple(self._observers):
            try:
                call(observer)
            except Exception as error:  # noqa: BLE001 - no error of an observer may end the run
                self._observers.remove(observer)
                self._failed.append((observer, error))


class RecentSteps(Observer):
    """Keeps the newest steps and events in memory, for `run.recentProgress` and `run.events`."""

    def __init__(self, most: int = 10_000) -> None:
        self.progress: deque[Progress] = deque(maxlen=most)
        self.events: deque[Event] = deque(maxlen=most)

    def step(self, progress: Progress) -> None:
        self.progress.append(progress)

    def event(self, event: Event) -> None:
        self.events.append(event)
