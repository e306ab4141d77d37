"""The plan of a chaos case as values: kinds of faults, planned faults, starts, and the case itself.

A case is a topology with its input, which arrives in portions. Each portion is one AvailableNow run
that ends with a closing step. A driver kill splits a run in two starts. Step numbers are known
beforehand: a step that was killed before its commit has the same number again.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.faults import APPLY_POINTS, DRIVER_POINTS, SLOT_POINTS
from anabranch.plan.planners.registry import AUTO
from anabranch.testing.chaos.topologies import TopologySpec
from anabranch.testing.dags import Dag
from anabranch.testing.events import EventPlan

# Kinds of faults. Those at points of the protocol are done by anabranch.faults, the others by the
# driver process or from outside.
DRIVER_KILLS = tuple(f"driver killed: {point}" for point in DRIVER_POINTS)
WORKER_KILLS = tuple(f"worker killed: {point}" for point in SLOT_POINTS)
APPLY_KILLS = tuple(f"worker killed: {point}" for point in APPLY_POINTS)
STOPPED = "worker stopped and continued"
ZOMBIE = "worker stopped, driver killed, worker continued"
JOB_FAILS = ("job failed: slot.half", "job failed: slot.stored")
DAMAGES = ("state deleted", "state truncated", "state overwritten", "state put back")
COMMIT_LOST = "Spark's last commit deleted"
RESIZE = "resize"
REROUTE = "reroute"
REPLAN = "another plan between two steps"
OTHER_SLOTS = "restart with other slots"
OTHER_AGGREGATES = "restart with other aggregates"
TWO = "two in one step"
LIVE = (RESIZE, REROUTE, REPLAN)  # in the running query
KINDS = (
    *DRIVER_KILLS,
    *WORKER_KILLS,
    *APPLY_KILLS,
    STOPPED,
    ZOMBIE,
    *JOB_FAILS,
    *DAMAGES,
    COMMIT_LOST,
    *LIVE,
    OTHER_SLOTS,
    OTHER_AGGREGATES,
    TWO,
)
_UNDONE = DRIVER_POINTS[DRIVER_POINTS.index("job.after") : DRIVER_POINTS.index("commit.after")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What the driver process does itself: before a start (`after` is None), or after a step."""

    kind: str
    after: int | None = None
    slots: int = 0
    planner: str = AUTO
    share: float = 0.3
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One fault. It happened when its points left their marks and its act is in the journal."""

    kind: str
    points: tuple[str, ...] = ()
    act: Act | None = None

    @property
    def ends_driver(self) -> bool:
        return self.kind == ZOMBIE or any(
            point.split("@")[0] in DRIVER_POINTS for point in self.points
        )

    @property
    def undoes(self) -> bool:
        """True where the driver dies after the step's job and before its commit record."""
        return self.kind == ZOMBIE or any(point.split("@")[0] in _UNDONE for point in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the topology on its checkpoint; after a kill, in a new driver process."""

    published: int  # how many files of the input are visible
    portion: int  # of the input, from 0 on
    slots: int
    finish: bool
    faults: tuple[PlannedFault, ...] = ()

    @property
    def killed(self) -> bool:
        return any(fault.ends_driver for fault in self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan:
    """A topology, its input in portions, and the starts of its disturbed run."""

    number: int
    topology: TopologySpec
    events: EventPlan
    portions: tuple[int, ...]
    finish: bool
    slots: int
    starts: tuple[Start, ...] = ()
    dag: Dag | None = None  # operators of its own, instead of the topology's windows
    planner: str = AUTO
    compiled: bool = True  # Spark compiles its queries, or interprets them

    @property
    def faults(self) -> list[PlannedFault]:
        return [fault for start in self.starts for fault in start.faults]

    @property
    def restless(self) -> bool:
        """True where routes and slots change before every step, beside all faults."""
        return self.dag is None and self.topology.restless

    @property
    def has_apply(self) -> bool:
        return self.dag is None and self.topology.grouping is not None

    @property
    def has_other_plans(self) -> bool:
        """True where one operator feeds another with a common key: planners fuse them or not."""
        if self.dag is None:
            return self.topology.then is not None and bool(self.topology.then.keys)
        keys = {node.name: set(node.by) for node in self.dag.results}
        return any(
            keys.get(name, set()) & set(node.by)
            for node in self.dag.results
            for name in node.inputs
        )

    def undisturbed(self) -> tuple[Start, ...]:
        """The same run without a fault: one start for each portion."""
        seen = [sum(self.portions[: i + 1]) for i in range(len(self.portions))]
        return tuple(
            Start(published=n, portion=i, slots=self.slots, finish=self.finish and n == seen[-1])
            for i, n in enumerate(seen)
        )

    def batches(self) -> list[int | None]:
        """The batch of each step, None for a closing step; the finishing step is left out."""
        found: list[int | None] = []
        first = 0
        for size in self.portions:
            found += [*range(first, first + size), None]
            first += size
        return found

    def steps(self, portion: int) -> range:
        """The steps of one portion: its batches, the closing step, and in the end the last one."""
        first = 1 + sum(self.portions[:portion]) + portion
        finishing = self.finish and portion == len(self.portions) - 1
        return range(first, first + self.portions[portion] + (2 if finishing else 1))

    def __str__(self) -> str:
        return str(self.topology if self.dag is None else self.dag)
