"""What the controller passes from stage to stage: an `Observation` of one step, what it means, what is to change and why.

Unknown is None, "no change" is a decision without changes, and times are seconds that somebody else has measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anabranch.plan.route import Route

Floats: TypeAlias = npt.NDArray[np.float64]


_tables: dict[int, tuple[tuple[int, ...], npt.NDArray[np.int64]]] = {}
_MANY_TABLES = 256


def slot_table(route: Route) -> npt.NDArray[np.int64]:
    """The slot of each shard as an array; kept, because making it of thousands of shards takes longer than what is done with it."""
    held = _tables.get(id(route.slot_of))
    if held is None or held[0] is not route.slot_of:
        if len(_tables) >= _MANY_TABLES:
            _tables.clear()
        held = _tables[id(route.slot_of)] = route.slot_of, np.array(route.slot_of, dtype=np.int64)
    return held[1]


def by_slot(values: Floats, route: Route) -> Floats:
    """Figures by shard, added up by slot."""
    return np.bincount(slot_table(route), weights=values, minlength=route.slots).astype(
        np.float64, copy=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObservation:
    """One source in one step."""

    rows: float  # that the step took
    rows_per_s: float | None = (
        None  # that arrive; None where nobody has counted them, then what the step took counts
    )
    backlog: float = 0.0  # rows that wait at the source after the step
    lag_s: float | None = None  # how far the newest event time is behind the clock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComponentObservation:
    """One component in one step: figures by shard, and the seconds of each slot."""

    name: str
    route: Route
    rows: Floats
    rows_out: Floats
    cpu_s: Floats
    state_bytes: Floats
    slot_s: Floats
    level: int = 0
    parents: tuple[str, ...] = ()
    busy_s: Floats | None = (
        None  # that slots spent on the rows of each shard, waiting for others included; None: the CPU
    )

    @property
    def work_s(self) -> Floats:
        """What a shard takes of its slot: an operator that waits for a service uses no CPU, and yet nobody else has the slot."""
        return self.cpu_s if self.busy_s is None else self.busy_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Another cut into components that a planner offers, and the rows of a step that cross from one to another, now and then."""

    planner: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    rows_before: float
    rows_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One committed step."""

    step: int
    at: float  # its end
    duration_s: float
    cores: int
    sources: Mapping[str, SourceObservation]
    components: tuple[ComponentObservation, ...]
    interval_s: float = 0.0  # of the trigger; 0: the next step follows at once
    disturbed: bool = False  # the job was tried again, or shards were restored
    closing: bool = False  # a step without input
    offer: Offer | None = None  # where somebody has planned anew

    @property
    def rows(self) -> float:
        """That the step took from all sources."""
        return sum(source.rows for source in self.sources.values())

    @property
    def between(self) -> float:
        """Rows that came from other components."""
        return float(sum(each.rows.sum() for each in self.components if each.parents))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComponentEvaluation:
    """One component as the policies see it: smoothed, and without steps that tell nothing."""

    name: str
    level: int
    parents: tuple[str, ...]
    route: Route
    share: Floats  # of the component's work, by shard; sums to 1
    cost_s: float  # seconds of a core for a row
    selectivity: float  # rows out for a row in
    rate: float  # rows that arrive a second
    rates: tuple[tuple[float, float], ...]  # (when, rows a second), oldest first
    pending: float  # rows a second to be worked off beside what arrives, so that what waits is gone in time
    busy: float  # share of the time that a slot works on rows, on average over the slots

    @property
    def slots(self) -> int:
        return self.route.slots

    @property
    def slot_shares(self) -> Floats:
        return by_slot(self.share, self.route)

    @property
    def imbalance(self) -> float:
        """Elasticutor's delta: the load of the most loaded slot over the mean of all."""
        return float(self.slot_shares.max() * self.slots)

    @property
    def hottest(self) -> int:
        return int(self.share.argmax())

    @property
    def hot_share(self) -> float:
        return float(self.share.max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What the steps so far mean. `holds` says why nothing should be decided now, in words; empty where all is well."""

    step: int
    now: float
    step_s: float
    period_s: float  # from step to step
    fixed_s: float  # of a step, outside slot tasks
    overhead_s: float  # of a slot task, outside its shards
    cores: int
    components: tuple[ComponentEvaluation, ...]
    backlog: float
    waits: bool  # rows wait, beyond what the next step takes in any case
    drains: bool  # no rows wait, or they get fewer and are gone in time at this pace
    idle: bool
    interval_s: float = 0.0  # of the trigger
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """What a policy asks for: slots by component, and why."""

    slots: Mapping[str, int]
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The effect of a change, before and as promised.

    Of other slots: seconds of the longest slot for a row of the component. Of other shards in the same slots: the longest slot over
    the mean of all, which does not depend on how busy the machine is meanwhile.
    """

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reroute:
    """The same slots, other shards in them."""

    component: str
    route: Route
    moved: int
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Another number of slots."""

    component: str
    route: Route
    before: int
    expected: Expected


Change: TypeAlias = Reroute | Resize


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What came of a change: the figure it was made for, before it, as promised, and as found since."""

    what: str  # which component, and what kind of change
    unit: str
    before: float
    expected: float
    observed: float

    @property
    def share(self) -> float | None:
        """The part of the promise that was kept; None where nothing was promised."""
        promised = self.before - self.expected
        return (self.before - self.observed) / promised if promised else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to change before the next step, and why; no changes is a decision too."""

    step: int
    changes: tuple[Change, ...] = ()
    reason: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    advice: bool = False  # only said, not to be applied
    notes: tuple[str, ...] = ()  # what a person should know though nothing changes
    replan: Offer | None = None  # other components
    effects: tuple[Effect, ...] = ()  # of earlier changes
    pause_s: float = (
        0.0  # what the change costs by itself, in the way of a rival that must stop for it
    )

    def __bool__(self) -> bool:
        return bool(self.changes) or self.replan is not None
