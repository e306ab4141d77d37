"""What the controller knows from the steps before: what was asked for, what was changed and is not judged yet, what was in vain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.elastic.evaluation import History
from anabranch.elastic.observation import Change, Offer, Reroute
from anabranch.elastic.settings import Policy

OUT, IN, MOVE, PLAN = "more slots", "fewer slots", "other shards", "other components"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a policy wanted after a step, and which components were out of balance."""

    at: float
    slots: Mapping[str, int]
    uneven: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReplan:
    """Other components whose effect is not judged yet, and the rows between components for a row of the sources before them."""

    offer: Offer
    between: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A run that starts again starts with an empty one, and warms up."""

    history: History = field(default_factory=History)
    asked: tuple[Asked, ...] = ()
    changed_at: float | None = None
    pending: tuple[Change, ...] = ()  # whose effect is not judged yet
    planned: PendingReplan | None = None
    planned_at: float | None = None
    blocked: Mapping[tuple[str, str], float] = field(
        default_factory=dict
    )  # (component, kind of change) -> until when
    shrunk_at: Mapping[str, float] = field(default_factory=dict)
    patience: Mapping[str, int] = field(
        default_factory=dict
    )  # how many times as long fewer slots must suffice
    said: Mapping[str, float] = field(default_factory=dict)  # notes and advice, and when
    policy: Policy | None = None  # with what it has learnt, if it learns


def kind_of(change: Change) -> str:
    """What a change is, for comparing it with earlier ones."""
    if isinstance(change, Reroute):
        return MOVE
    return OUT if change.route.slots > change.before else IN
