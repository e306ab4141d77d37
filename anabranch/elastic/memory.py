"""What the controller knows from the steps before.

What was asked for, which changes are not judged yet, and which kinds of change had no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.elastic.evaluation import History
from anabranch.elastic.observation import Change, Offer, Reroute
from anabranch.elastic.policies.base import BasePolicy

OUT, IN, MOVE, PLAN = "more slots", "fewer slots", "other shards", "other components"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """What a policy asked for after a step, and which components were out of balance."""

    at: float
    slots: Mapping[str, int]
    uneven: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """The requests of the last steps, oldest first."""

    entries: tuple[LoggedRequest, ...] = ()

    def add(self, entry: LoggedRequest, keep_from: float) -> RequestLog:
        """The log with one more request, without those before a time."""
        entries = (*self.entries, entry)
        return RequestLog(entries=tuple(each for each in entries if each.at >= keep_from))

    def latest_slots(self, component: str, count: int) -> list[int]:
        """The slots asked for a component in those of the last `count` requests that name it."""
        latest = self.entries[-count:]
        return [each.slots[component] for each in latest if component in each.slots]

    def slots_since(self, component: str, since: float) -> list[int]:
        """The slots asked for a component in all requests from a time on."""
        return [
            each.slots[component]
            for each in self.entries
            if each.at >= since and component in each.slots
        ]

    def reaches_back_to(self, since: float) -> bool:
        """True if there is a request at or before a time."""
        return bool(self.entries) and self.entries[0].at <= since

    def stays_uneven(self, component: str, count: int) -> bool:
        """True if a component was out of balance at each of the last `count` requests."""
        latest = self.entries[-count:]
        return len(latest) == count and all(component in each.uneven for each in latest)

    def without_uneven(self) -> RequestLog:
        """The same requests, with every component in balance."""
        return RequestLog(entries=tuple(replace(each, uneven=frozenset()) for each in self.entries))


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReplan:
    """Other components whose effect is not judged yet."""

    offer: Offer
    between: float  # rows between components per row of the sources, before the change


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A run that starts again starts with an empty one, and warms up."""

    history: History = field(default_factory=History)
    requests: RequestLog = field(default_factory=RequestLog)
    changed_at: float | None = None
    pending: tuple[Change, ...] = ()  # whose effect is not judged yet
    planned: PendingReplan | None = None
    planned_at: float | None = None
    # (component, kind of change) -> until when it is not repeated
    blocked: Mapping[tuple[str, str], float] = field(default_factory=dict)
    shrunk_at: Mapping[str, float] = field(default_factory=dict)
    # How many times as long fewer slots must suffice before slots are given up.
    patience: Mapping[str, int] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)  # notes and advice, and when
    policy: BasePolicy | None = None  # what a learning policy has become

    def is_blocked(self, component: str, kind: str, now: float) -> bool:
        """True while a kind of change is not repeated, because it had no effect the last time."""
        return self.blocked.get((component, kind), 0.0) > now


def kind_of(change: Change) -> str:
    """The kind of a change, to compare it with earlier ones."""
    if isinstance(change, Reroute):
        return MOVE
    return OUT if change.route.slots > change.before else IN
