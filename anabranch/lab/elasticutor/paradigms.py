"""The ways to be elastic in Elasticutor's experiments, over the simulator.

They are static, resource-centric, naive, and full Elasticutor. A unit gets cores and balances its
shards over them. It is an executor, or for the resource-centric way a whole operator. The functions
of `elastic/` choose cores, their hosts and the shards on them.

The ways differ in the cost of a move. An executor agrees with itself. An operator agrees with all
executors upstream, and its next repartition waits for the one before. One repartition takes the
shards that leave one core: by the paper's own figures (0.2 to 2 s for one, 10 to 20 s in all) there
are many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from anabranch.elastic.balance import THETA, apply_moves, balance, spread
from anabranch.elastic.observation import Floats
from anabranch.elastic.policies.baselines import EXECUTOR_CENTRIC, RESOURCE_CENTRIC, Paradigm
from anabranch.elastic.policies.latency import Station, allocate
from anabranch.lab.simulator import Ints, Moves, Simulation, drain_s
from anabranch.place.assignment import Cores, Holder, assign, naive
from anabranch.plan.route import Route

STATIC, RESOURCE, NAIVE, ELASTICUTOR = "static", "resource-centric", "naive-EC", "elasticutor"
WAYS = (STATIC, RESOURCE, NAIVE, ELASTICUTOR)

Assign = Callable[[Cores, Sequence[Holder], Sequence[int]], Cores | None]


@dataclass(slots=True)
class Unit:
    """Shards of one job that share cores."""

    job: int
    shards: Ints
    cores: list[int]
    home: int
    route: Route
    busy_until: float = 0.0


@dataclass
class UnitScaler:
    """Resizes and balances all units once per period."""

    units: list[Unit]
    paradigm: Paradigm
    assign: Assign
    theta: float = THETA
    upstream: int = 32
    # Moves of a unit wait for each other (a global route), or only for the queue of their own core.
    together: bool = False
    period_s: float = 1.0
    target_s: float = 0.0  # as fast as the cores allow
    seconds: list[float] = field(default_factory=list)  # CPU time of the scheduler

    def tick(self, run: Simulation) -> None:
        """Assigns cores by load, then shards by load, for units that are not moving any."""
        seen = run.measured()
        loads = [seen[unit.job][unit.shards] * run.jobs[unit.job].cost_s for unit in self.units]
        idle = [
            j
            for j, unit in enumerate(self.units)
            if unit.busy_until <= run.now and loads[j].sum() > 0
        ]
        began = time.thread_time()
        after = self._cores(run, loads, idle)
        self.seconds.append(time.thread_time() - began)
        changed = (
            []
            if after is None
            else [j for j in idle if j in np.flatnonzero((after != self._held(run)).any(axis=0))]
        )
        kept = {
            j: _kept(run, self.units[j].cores, after[:, j]) for j in changed if after is not None
        }
        taken = {core for j, unit in enumerate(self.units) for core in kept.get(j, unit.cores)}
        free = [core for core in range(run.cluster.cores) if core not in taken]
        for j in changed:
            assert after is not None
            self._resize(
                run, self.units[j], kept[j], _taken(run, free, kept[j], after[:, j]), loads[j]
            )
        for j in idle:
            if j not in kept:
                self._balance(run, self.units[j], loads[j])

    def _held(self, run: Simulation) -> Cores:
        held = np.zeros((run.cluster.hosts, len(self.units)), dtype=np.int64)
        for j, unit in enumerate(self.units):
            np.add.at(held[:, j], run.host_of[unit.cores], 1)
        return held

    def _cores(self, run: Simulation, loads: Sequence[Floats], idle: Sequence[int]) -> Cores | None:
        """Cores per host for each unit; None if there is no choice, or too few cores."""
        most = run.cluster.cores - sum(
            len(unit.cores) for j, unit in enumerate(self.units) if j not in idle
        )
        if len(self.units) == 1 or most <= len(idle):  # each unit has at least one core
            return None
        costs = [run.jobs[unit.job].cost_s for unit in self.units]
        rates = [
            float(load.sum()) / cost / self.period_s
            for load, cost in zip(loads, costs, strict=True)
        ]
        stations = [Station(rates[j], 1 / costs[j]) for j in idle]
        found = allocate(stations, sum(rates[j] for j in idle), self.target_s, most)
        wanted = dict(zip(idle, found.slots, strict=True))
        holders = [
            Holder(
                wanted=wanted.get(j, len(unit.cores)),
                home=unit.home,
                state_bytes=run.jobs[unit.job].shard_bytes * len(unit.shards),
                bytes_per_s=0.0
                if self.together
                else rates[j] * run.row_bytes[unit.job] / wanted.get(j, len(unit.cores)),
            )
            for j, unit in enumerate(self.units)
        ]
        return self.assign(
            self._held(run), holders, [run.cluster.cores_per_host] * run.cluster.hosts
        )

    def _resize(
        self, run: Simulation, unit: Unit, kept: list[int], new: list[int], loads: Floats
    ) -> None:
        """Gives a unit other cores: those that stay come first, so that their shards may stay."""
        place = {
            core: i
            for i, core in enumerate([*kept, *(core for core in unit.cores if core not in kept)])
        }
        old = Route(
            tuple(place[unit.cores[slot]] for slot in unit.route.slot_of),
            len(unit.cores),
            unit.route.version,
        )
        unit.cores = [*kept, *new]
        unit.route = spread(loads, old, len(unit.cores))
        self._move(run, unit)

    def _balance(self, run: Simulation, unit: Unit, loads: Floats) -> None:
        moves = balance(loads, unit.route.slot_of, len(unit.cores), self.theta)
        if moves:
            unit.route = Route(
                apply_moves(unit.route.slot_of, moves), len(unit.cores), unit.route.version + 1
            )
            self._move(run, unit)

    def _move(self, run: Simulation, unit: Unit) -> None:
        """Starts the moves that bring the simulation to the state of the route."""
        after = np.array(unit.cores)[list(unit.route.slot_of)]
        before = run.core_of[unit.job][unit.shards]
        away = np.flatnonzero(after != before)
        if not len(away):
            return
        due = self.due(run, unit, before[away], after[away])
        unit.busy_until = float(due.max())
        run.move(Moves(unit.job, unit.shards[away], after[away], due))

    def due(self, run: Simulation, unit: Unit, before: Ints, after: Ints) -> Floats:
        """When each move is done.

        Before that, the rows queued earlier are processed, all have agreed, and the state has
        moved.
        """
        host_of = run.host_of
        carried = np.where(host_of[before] != host_of[after], run.jobs[unit.job].shard_bytes, 0.0)
        waits = drain_s(run, before)
        if not self.together:
            pauses = [self.paradigm.pause_s(1, self.upstream, float(each)) for each in carried]
            moved_at: Floats = run.now + waits + np.cumsum(pauses)
            return moved_at
        due = np.zeros(len(before))
        at = run.now
        for core in dict.fromkeys(before[np.argsort(-waits, kind="stable")].tolist()):
            here = before == core
            at += self.paradigm.pause_s(int(here.sum()), self.upstream, float(carried[here].sum()))
            due[here] = np.maximum(at, run.now + waits[here])
            at = float(due[here].max())
        return due


def _kept(run: Simulation, cores: list[int], wanted: Ints) -> list[int]:
    """Cores that a unit may keep, by the number that it should have on each host."""
    left = wanted.copy()
    kept = []
    for core in cores:
        host = run.host_of[core]
        if left[host] > 0:
            left[host] -= 1
            kept.append(core)
    return kept


def _taken(run: Simulation, free: list[int], kept: list[int], wanted: Ints) -> list[int]:
    """Free cores that a unit gets in addition; they are removed from `free`."""
    left = wanted.copy()
    np.subtract.at(left, run.host_of[kept], 1)
    new = []
    for core in free:
        host = run.host_of[core]
        if left[host] > 0:
            left[host] -= 1
            new.append(core)
    for core in new:
        free.remove(core)
    return new


def whole_units(run: Simulation, cores: Sequence[Sequence[int]]) -> list[Unit]:
    """One unit per job, with the given cores."""
    return [
        _unit(run, job, np.arange(run.jobs[job].shards), list(given))
        for job, given in enumerate(cores)
    ]


def executor_units(run: Simulation, executors: Sequence[int]) -> list[Unit]:
    """The executors of each job, spread over hosts, each with one core at its home.

    If there is only one executor, it has all cores.
    """
    if sum(executors) == 1:
        return whole_units(run, [range(run.cluster.cores)])
    units: list[Unit] = []
    for job, count in enumerate(executors):
        for i in range(count):
            units.append(_unit(run, job, np.arange(i, run.jobs[job].shards, count), [len(units)]))
    return units


def _unit(run: Simulation, job: int, shards: Ints, cores: list[int]) -> Unit:
    route = Route(tuple(k % len(cores) for k in range(len(shards))), len(cores), 1)
    run.core_of[job][shards] = np.array(cores)[list(route.slot_of)]
    return Unit(job=job, shards=shards, cores=cores, home=int(run.host_of[cores[0]]), route=route)


def mover(
    way: str,
    run: Simulation,
    executors: Sequence[int],
    cores: Sequence[Sequence[int]],
    *,
    theta: float = THETA,
) -> UnitScaler | None:
    """Creates a way, and sets the simulation's tables for it; None if nothing ever moves."""
    units = whole_units(run, cores) if way in (STATIC, RESOURCE) else executor_units(run, executors)
    if way == STATIC:
        found = None
    elif way == RESOURCE:
        found = UnitScaler(units, RESOURCE_CENTRIC, assign, theta, run.upstream, together=True)
    else:
        found = UnitScaler(
            units, EXECUTOR_CENTRIC, naive if way == NAIVE else assign, theta, run.upstream
        )
        homes = [np.zeros(job.shards, dtype=np.int64) for job in run.jobs]
        for unit in units:
            homes[unit.job][unit.shards] = unit.home
        run.home_of = homes
    run.share(run.shares)
    return found
