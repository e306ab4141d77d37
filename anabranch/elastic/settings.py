"""What a user may set: the latency to meet, limits, the policy, and whether decisions are applied or only said."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Protocol, Self, runtime_checkable

from anabranch.elastic.balance import THETA
from anabranch.elastic.observation import Evaluation, PolicyRequest
from anabranch.elastic.policies.autoscale import AutoScale
from anabranch.elastic.policies.baselines import (
    NAIVE,
    RESOURCE_CENTRIC,
    Centric,
    Incremental,
    Learning,
    Static,
)
from anabranch.elastic.policies.latency import Network, Stepwise
from anabranch.errors import TopologyError
from anabranch.topology.durations import Duration, duration_us

OFF, ADVISE, ON = "off", "advise", "on"
MODES = (ON, ADVISE, OFF)
BALANCES = ("shards", "flux", "none")


class Policy(Protocol):
    """Chooses slots. `most` bounds the slots of one level."""

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest: ...


@runtime_checkable
class Learns(Policy, Protocol):
    """A policy that changes with what it sees."""

    def learnt(self, seen: Evaluation) -> Self: ...


POLICIES: dict[str, Policy] = {
    "autoscale": AutoScale(),
    "latency": Stepwise(),
    "network": Network(),
    "incremental": Incremental(),
    "static": Static(),
    "learning": Learning(explore=0.05),
    "resource-centric": Centric(paradigm=RESOURCE_CENTRIC),
    "naive executor-centric": Centric(paradigm=NAIVE, careful=False),
    "flux": Static(),  # and shards by Flux
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What keeps the controller from doing harm. Seconds are of the observations' clock; steps count where steps are long."""

    warm_up_steps: int = 3  # the first steps with rows: workers start, code is compiled
    long_s: float = 10.0  # steps that together take so long count as enough of them, here and below
    settle_steps: int = 1  # after a change, steps that tell nothing about it
    judge_steps: int = 3  # steps after that, by which its effect is judged
    confirm_steps: int = (
        2  # steps in a row that must ask for more slots, or for other shards in them
    )
    cool_down_s: float = 5.0  # between two changes
    stabilise_s: float = 60.0  # so long fewer slots must suffice before any is given up
    stabilise_steps: int = 5
    grow: float = 2.0  # at most so many times the slots in one change
    shrink: float = 0.5  # at least this part of them
    busy: float = 0.8  # slots that would work more of their time than this are not given up
    catch_up_s: float = 60.0  # what waits should be gone by then
    pause: float = 3.0  # a step that took so many times what its rows explain is a pause
    pause_steps: int = 3  # unless so many follow each other: then it is no pause
    without_effect: float = (
        0.1  # a change that brings less than this part of what it promised is not repeated
    )
    block_s: float = 600.0  # for so long
    worth: float = 0.05  # other shards in the slots must save this part of the longest slot
    replan_s: float = 600.0  # between two plans, and between two looks for a better one
    replan_worth: float = 0.2  # other components must save this part of the rows between them
    remember: int = 32  # steps
    smooth: float = 0.3  # weight of the newest step

    def steps(self, count: int, period_s: float) -> int:
        """So many steps, or fewer where steps are long."""
        return max(1, min(count, ceil(self.long_s / max(period_s, 1e-9))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """How a run adapts: `ab.Elastic(latency="2 seconds", max_slots=8)`. Everything has a default that works."""

    latency: Duration | None = (
        None  # from a row's arrival to its results; None: keep up with time to spare
    )
    min_slots: int = 1
    max_slots: int | None = None  # of one level; None: as many as there are cores
    policy: str | Policy = (
        "auto"  # the step model with a latency, AutoScale+ without; or one of POLICIES, or your own
    )
    balance: str = "shards"
    theta: float = THETA
    replan: bool = True  # whether components may change
    mode: str = ON
    guards: Guards = field(default_factory=Guards)

    def __post_init__(self) -> None:
        if isinstance(self.policy, str) and self.policy not in ("auto", *POLICIES):
            raise TopologyError(
                f"policy {self.policy!r} is unknown; valid: auto, {', '.join(POLICIES)}, or your own"
            )
        for name, value, valid in (("mode", self.mode, MODES), ("balance", self.balance, BALANCES)):
            if value not in valid:
                raise TopologyError(f"{name} {value!r} is unknown; valid: {', '.join(valid)}")
        if self.min_slots < 1:
            raise TopologyError(f"min_slots {self.min_slots} is too low; at least 1")
        if self.max_slots is not None and self.max_slots < self.min_slots:
            raise TopologyError(f"max_slots {self.max_slots} is below min_slots {self.min_slots}")
        if self.theta < 1:
            raise TopologyError(
                f"theta {self.theta} is too low; the most loaded slot is never below the mean: at least 1"
            )
        if self.latency is not None:
            duration_us(self.latency, "latency")

    @property
    def latency_s(self) -> float | None:
        return None if self.latency is None else duration_us(self.latency, "latency") / 1e6

    @property
    def balancing(self) -> str:
        """How shards are balanced over slots."""
        return "flux" if self.policy == "flux" else self.balance

    @property
    def chosen(self) -> Policy:
        """The policy itself."""
        if not isinstance(self.policy, str):
            return self.policy
        return POLICIES[
            self.policy
            if self.policy != "auto"
            else "autoscale"
            if self.latency is None
            else "latency"
        ]

    @property
    def most_slots(self) -> int | None:
        """What the slots of a component may be at first, where nobody says how many; None: any number."""
        return None if self.max_slots is None or self.mode != ON else self.max_slots

    def most(self, cores: int) -> int:
        """Slots of a level at most."""
        return max(self.min_slots, self.max_slots if self.max_slots is not None else cores)
