"""What a user may set: latency, limits, the policy, and whether decisions are applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from anabranch.elastic.balance import THETA
from anabranch.elastic.policies.autoscale import AutoScale
from anabranch.elastic.policies.base import BasePolicy, Policy, complete
from anabranch.elastic.policies.baselines import (
    NAIVE,
    RESOURCE_CENTRIC,
    Centric,
    Flux,
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

POLICIES: dict[str, BasePolicy] = {
    "autoscale": AutoScale(),
    "latency": Stepwise(),
    "network": Network(),
    "incremental": Incremental(),
    "static": Static(),
    "learning": Learning(explore=0.05),
    "resource-centric": Centric(paradigm=RESOURCE_CENTRIC),
    "naive executor-centric": Centric(paradigm=NAIVE, careful=False),
    "flux": Flux(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What keeps the controller from doing harm.

    Seconds are of the observations' clock. A number of steps is a maximum: steps that together take
    `long_s` are enough.
    """

    warm_up_steps: int = 3  # the first steps with rows: workers start, code is compiled
    long_s: float = 10.0  # steps that together take this long are enough, whatever their number
    settle_steps: int = 1  # after a change, steps that say nothing about it
    judge_steps: int = 3  # steps after those, by which its effect is judged
    confirm_steps: int = 2  # steps in a row that must ask for more slots, or for other shards
    cool_down_s: float = 5.0  # between two changes
    stabilise_s: float = 60.0  # for how long fewer slots must suffice before any is given up
    stabilise_steps: int = 5  # and for how many steps
    grow: float = 2.0  # the most that slots are multiplied by in one change
    shrink: float = 0.5  # at least this part of them remains
    busy: float = 0.8  # slots that would work more of their time than this are not given up
    catch_up_s: float = 60.0  # the backlog should be gone by then
    pause: float = 3.0  # a step that takes this many times what its rows explain is a pause
    pause_steps: int = 3  # unless this many follow each other
    # A change that brings less than this part of what it promised is not repeated for block_s.
    without_effect: float = 0.1
    block_s: float = 600.0  # for how long a change without effect is not repeated
    worth: float = 0.05  # other shards in the slots must save this part of the longest slot
    replan_s: float = 600.0  # between two plans, and between two looks for a better one
    replan_worth: float = 0.2  # other components must save this part of the rows between them
    remember: int = 32  # steps that the controller looks back on
    smooth: float = 0.3  # weight of the newest step in a running mean

    def steps(self, count: int, period_s: float) -> int:
        """The number of steps to wait for: `count`, or fewer where steps are long."""
        return max(1, min(count, ceil(self.long_s / max(period_s, 1e-9))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """How a run adapts: `ab.Elastic(latency="2 seconds", max_slots=8)`.

    Everything has a default that works.
    """

    # From a row's arrival to its results; None: keep up with time to spare.
    latency: Duration | None = None
    min_slots: int = 1  # of one level
    max_slots: int | None = None  # of one level; None: as many as there are cores
    # "auto" is the step model with a latency, AutoScale+ without; or one of POLICIES, or your own.
    policy: str | Policy = "auto"
    balance: str = "shards"  # how shards are spread over slots: "shards", "flux" or "none"
    theta: float = THETA  # shards move when the fullest slot has this many times the mean load
    replan: bool = True  # whether components may change
    mode: str = ON  # "on"; "advise": decide and report, but change nothing; "off"
    guards: Guards = field(default_factory=Guards)  # what keeps the controller from doing harm

    def __post_init__(self) -> None:
        if isinstance(self.policy, str) and self.policy not in ("auto", *POLICIES):
            raise TopologyError(
                f"policy {self.policy!r} is unknown; "
                f"valid: auto, {', '.join(POLICIES)}, or your own"
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
                f"theta {self.theta} is too low; "
                "the most loaded slot is never below the mean: at least 1"
            )
        if self.latency is not None:
            duration_us(self.latency, "latency")

    @property
    def latency_s(self) -> float | None:
        return None if self.latency is None else duration_us(self.latency, "latency") / 1e6

    @property
    def chosen(self) -> BasePolicy:
        """The policy itself."""
        if not isinstance(self.policy, str):
            return complete(self.policy)
        if self.policy == "auto":
            return POLICIES["autoscale" if self.latency is None else "latency"]
        return POLICIES[self.policy]

    @property
    def most_slots(self) -> int | None:
        """A limit of the slots that a component starts with by itself; None: any number."""
        return None if self.max_slots is None or self.mode != ON else self.max_slots

    def most(self, cores: int) -> int:
        """The most slots that a level may have."""
        return max(self.min_slots, self.max_slots if self.max_slots is not None else cores)
