"""What the controller asks of a policy.

A policy must say how many slots it wants. Everything else has a default: it learns nothing, leaves
shards where they are if it can, balances as the user has set, and costs no pause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from anabranch.elastic.balance import spread
from anabranch.elastic.observation import Change, ComponentEvaluation, Evaluation, PolicyRequest
from anabranch.plan.route import Route


class Policy(Protocol):
    """What a policy of your own must have: it chooses slots. `most` bounds the slots of a level."""

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest: ...


class BasePolicy(ABC):
    """A policy with everything that the controller asks, and the defaults."""

    __slots__ = ()

    @abstractmethod
    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        """The slots of each component; `most` bounds the slots of one level."""

    def learnt(self, seen: Evaluation) -> BasePolicy:  # noqa: ARG002
        """The policy after a step; itself where it learns nothing."""
        return self

    def resized(self, each: ComponentEvaluation, slots: int) -> Route:
        """The route of a component with another number of slots."""
        return spread(each.share, each.route, slots)

    def balancing(self, setting: str) -> str:
        """How shards are balanced over slots, one of `settings.BALANCES`."""
        return setting

    def pause_s(self, seen: Evaluation, changes: Sequence[Change]) -> float:  # noqa: ARG002
        """How long the run must stop for the changes."""
        return 0.0


@dataclass(frozen=True, slots=True)
class UserPolicy(BasePolicy):
    """A policy of a user's own, with the defaults for what it leaves out."""

    given: Policy

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        return self.given.wanted(seen, latency_s, most)

    def learnt(self, seen: Evaluation) -> BasePolicy:
        learnt = getattr(self.given, "learnt", None)
        return self if learnt is None else replace(self, given=learnt(seen))


def complete(policy: Policy) -> BasePolicy:
    """A policy with everything that the controller asks."""
    return policy if isinstance(policy, BasePolicy) else UserPolicy(policy)
