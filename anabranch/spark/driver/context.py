"""What steps work with: what stays the same in a run, and what one step passes to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import SparkSession

from anabranch.elastic.grouping.steps import Grouping
from anabranch.faults import Faults
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.lifting import AUTO, Lifting
from anabranch.plan.model import Plan
from anabranch.plan.route import Route
from anabranch.runtime.tasks import StateSettings
from anabranch.spark.compile.levels import Levels
from anabranch.spark.outlets import Outlet
from anabranch.state.checkpoint.commits import Checkpoint
from anabranch.state.checkpoint.statistics import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run, which are not part of the topology."""

    retries: int
    state: StateSettings
    lift: str = AUTO
    faults: Faults = field(default_factory=Faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What stays the same in all steps of a run. Steps add to the checkpoint and statistics."""

    session: SparkSession
    checkpoint: Checkpoint
    outlets: tuple[Outlet, ...]
    settings: Settings
    statistics: Statistics

    @property
    def next_step(self) -> int:
        last = self.checkpoint.last
        return last.step + 1 if last else 1

    @property
    def replans(self) -> int:
        """The number of steps in the checkpoint that only rewrote state for another plan."""
        last = self.checkpoint.last
        return last.replans if last else 0

    @property
    def shards(self) -> int:
        return self.checkpoint.header.shards


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What one step passes to the next, apart from the checkpoint."""

    plan: Plan
    routes: Mapping[ComponentId, Route]
    levels: Levels  # the plan, compiled
    groupings: Mapping[str, Grouping]  # how each apply groups its rows
    lifting: Lifting = field(default_factory=Lifting)
    next_end_us: int | None = None  # the end of the first window that is still open
    # Times of the driver's monotonic clock: when a source last had rows, when early results were
    # last written.
    rows_at: Mapping[str, float] = field(default_factory=dict)
    early_at: Mapping[PartId, float] = field(default_factory=dict)
    # An attempt that died may have written this step or later ones to sinks. None after a step.
    written_from: int | None = None

    @property
    def slots(self) -> int:
        """The largest number of slots of any component."""
        return max(route.slots for route in self.routes.values())


class Notice(NamedTuple):
    """Something to report as an event."""

    kind: str
    text: str
    figures: Mapping[str, float] = {}
