"""What the controller passes from stage to stage.

An `Observation` of one step, what it means (`Evaluation`), what a policy asks for
(`PolicyRequest`), and what is to change and why (`Decision`). Unknown is None, "no change" is a
decision without changes, and times are seconds that somebody else has measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anabranch.plan.route import Route

Floats: TypeAlias = npt.NDArray[np.float64]
SlotTable: TypeAlias = npt.NDArray[np.int64]


def slot_table(route: Route) -> SlotTable:
    """The slot of each shard as a read-only array."""
    return _slot_table(route.slot_of)


@lru_cache(maxsize=256)
def _slot_table(slot_of: tuple[int, ...]) -> SlotTable:
    """Cached: for thousands of shards, making the array takes longer than what is done with it."""
    table = np.array(slot_of, dtype=np.int64)
    table.flags.writeable = False
    return table


def by_slot(values: Floats, route: Route) -> Floats:
    """Figures by shard, added up by slot."""
    return _add_up(values, slot_table(route), route.slots)


def _add_up(values: Floats, table: SlotTable, slots: int) -> Floats:
    sums = np.bincount(table, weights=values, minlength=slots)
    return sums.astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObservation:
    """One source in one step."""

    # Rows that the step took.
    rows: float
    # Rows that arrive per second. None: nobody has counted them, so what the step took counts.
    rows_per_s: float | None = None
    # Rows that wait at the source after the step.
    backlog: float = 0.0
    # How far the newest event time is behind the clock.
    lag_s: float | None = None


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
    # Seconds that slots spent on the rows of each shard, waiting for others included. None: cpu_s.
    busy_s: Floats | None = None
    slot_of: SlotTable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot_of", slot_table(self.route))

    @property
    def work_s(self) -> Floats:
        """Seconds that each shard takes of its slot.

        An operator that waits for a service uses no CPU, and yet nobody else has the slot.
        """
        return self.cpu_s if self.busy_s is None else self.busy_s

    def by_slot(self, values: Floats) -> Floats:
        """Figures by shard, added up by slot."""
        return _add_up(values, self.slot_of, self.route.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Other components that a planner offers for the same operators."""

    planner: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    # Rows of a step that cross from one component to another.
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
    offer: Offer | None = None  # present where a planner has planned again

    @property
    def rows(self) -> float:
        """Rows that the step took from all sources."""
        return sum(source.rows for source in self.sources.values())

    @property
    def between(self) -> float:
        """Rows that came from other components."""
        return float(sum(each.rows.sum() for each in self.components if each.parents))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComponentEvaluation:
    """One component as the policies see it: smoothed, without the steps that say nothing."""

    name: str
    level: int
    parents: tuple[str, ...]
    route: Route
    share: Floats  # of the component's work, by shard; sums to 1
    cost_s: float  # seconds of a core per row
    selectivity: float  # rows out per row in
    rate: float  # rows that arrive per second
    rates: tuple[tuple[float, float], ...]  # (when, rows per second), oldest first
    # Rows per second to work off beside what arrives, so that the backlog is gone in time.
    pending: float
    busy: float  # share of the time that a slot works on rows, on average over the slots
    slot_of: SlotTable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot_of", slot_table(self.route))

    @property
    def slots(self) -> int:
        return self.route.slots

    @property
    def slot_shares(self) -> Floats:
        return _add_up(self.share, self.slot_of, self.slots)

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
    """What the steps so far mean."""

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
    holds: tuple[str, ...] = ()  # why nothing should be decided now, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """What a policy asks for: slots by component, and why."""

    slots: Mapping[str, int]
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The effect of a change: the figure before it, and the figure that it promises.

    For a resize: seconds of the longest slot per row of the component. For a reroute: the longest
    slot over the mean of all, which does not depend on how busy the machine is meanwhile.
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
    """What came of a change: the figure before it, as promised, and as measured since."""

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
    """What is to change before the next step, and why. No changes is a decision too."""

    step: int
    changes: tuple[Change, ...] = ()
    reason: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    advice: bool = False  # only reported, not to be applied
    notes: tuple[str, ...] = ()  # what a person should know though nothing changes
    replan: Offer | None = None  # other components
    effects: tuple[Effect, ...] = ()  # of earlier changes
    pause_s: float = 0.0  # how long the run must stop for the change; 0 but for the papers' rivals

    def __bool__(self) -> bool:
        return bool(self.changes) or self.replan is not None
