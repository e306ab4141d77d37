"""The simulator: hosts, cores, a network, operators with state and costs, and rows that wait.

Rows are a fluid, and time has slices. A core serves one queue in order of arrival. Rows are
counted, not drawn, so that a cluster of 256 cores simulates a minute in some tenths of a second.
Rows leave the source in order: if one queue is full, the source waits, its buffer fills, and then
it sends less (back-pressure, with the buffers of Storm 1.0).

A shard that moves is held. Its rows wait until the rows queued before are done, all participants
have agreed, and its state has moved. Nothing here decides anything: `Mover`s do, with the functions
of `elastic/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from anabranch.elastic.observation import Floats

Ints = npt.NDArray[np.int64]

BUFFER = 1024  # rows in each of Storm's buffers
_NEAR_ONE = 0.98  # usage up to which a queue has a mean length that the fluid does not show


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Hosts of equal cores, each with a network card."""

    hosts: int = 32
    cores_per_host: int = 8
    bytes_per_s: float = 125e6  # 1 Gbit/s

    @property
    def cores(self) -> int:
        return self.hosts * self.cores_per_host

    def host_of(self) -> Ints:
        """The host of each core; neighbours are on different hosts, dealt out round-robin."""
        return np.arange(self.cores) % self.hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An operator: the cost of a row, its output, and the number of its shards."""

    name: str
    cost_s: float
    shards: int
    parent: int | None = None  # another job's place; None: the source
    per_parent: float = 1.0  # rows per row that the parent has done
    row_bytes: float = 128.0
    shard_bytes: float = 32 * 1024.0


@dataclass(frozen=True, slots=True)
class Moves:
    """Shards of one job that are moving: each to a core, at a time of its own."""

    job: int
    shards: Ints
    cores: Ints
    due: Floats


@dataclass(slots=True)
class SimulatedTotals:
    """What has happened since the last call."""

    span_s: float = 0.0
    done: float = 0.0  # source rows that have left, over all ends
    inside: float = 0.0  # integral of source rows in the system
    waits: float = 0.0  # seconds of waiting that the fluid does not show
    moved_bytes: float = 0.0
    remote_bytes: float = 0.0

    def latency_s(self, cost_s: float) -> float:
        """The mean latency, by Little's law."""
        return cost_s + (self.inside + self.waits) / max(self.done, 1e-9)


class Mover(Protocol):
    """Decides once per period which shards move where."""

    def tick(self, run: Simulation) -> None: ...


@dataclass
class Simulation:
    """One run. Tables and shares are per job; queues are per job and core."""

    cluster: Cluster
    jobs: Sequence[Job]
    core_of: list[Ints]
    shares: list[Floats]
    upstream: int = 32  # executors of the source
    home_of: list[Ints] | None = (
        None  # by shard: the host that gets its rows first; None: rows go to cores directly
    )
    queue: float = BUFFER
    now: float = 0.0
    totals: SimulatedTotals = field(default_factory=SimulatedTotals)

    def __post_init__(self) -> None:
        count = len(self.jobs)
        self.costs = np.array([job.cost_s for job in self.jobs])
        self.rows = np.zeros((count, self.cluster.cores))
        self.buffer = 0.0
        self.held = [np.zeros(job.shards, dtype=bool) for job in self.jobs]
        self.kept = [np.zeros(job.shards) for job in self.jobs]  # rows of held shards
        self.seen = [np.zeros(job.shards) for job in self.jobs]  # rows by shard since the last tick
        self._arrived = np.zeros(count)  # since `seen` was last updated
        self._lately = np.zeros(count)  # in this period
        self.moves: list[Moves] = []
        parents = [-1 if job.parent is None else job.parent for job in self.jobs]
        self.order = sorted(range(count), key=lambda j: self._depth(j, parents))
        self._roots = [j for j in range(count) if parents[j] < 0]
        self.children = [[c for c, p in enumerate(parents) if p == j] for j in range(count)]
        self.per_source = np.ones(count)
        for j in self.order:
            if parents[j] >= 0:
                self.per_source[j] = self.per_source[parents[j]] * self.jobs[j].per_parent
        # In and out: rows between an executor's receiver, its cores and its emitter.
        self.row_bytes = np.array(
            [
                job.row_bytes
                + max(
                    (self.jobs[c].per_parent * self.jobs[c].row_bytes for c in self.children[j]),
                    default=0.0,
                )
                for j, job in enumerate(self.jobs)
            ]
        )
        self.ends = sum(1 for kids in self.children if not kids)
        self._weights = (
            np.array([(1.0 if self.children[j] else 1.0 / self.ends) for j in range(count)])
            / self.per_source
        )
        self.host_of = self.cluster.host_of()
        self._relink()

    @staticmethod
    def _depth(job: int, parents: list[int]) -> int:
        return 0 if parents[job] < 0 else 1 + Simulation._depth(parents[job], parents)

    def share(self, shares: list[Floats]) -> None:
        """Sets other frequencies of the shards from now on."""
        self._count()
        self.shares = shares
        self._relink()

    def move(self, moves: Moves) -> None:
        """Holds shards until they arrive; counts the bytes that cross hosts."""
        self._count()
        crossing = self.host_of[self.core_of[moves.job][moves.shards]] != self.host_of[moves.cores]
        self.totals.moved_bytes += float(crossing.sum()) * self.jobs[moves.job].shard_bytes
        self.held[moves.job][moves.shards] = True
        self.moves.append(moves)
        self._relink()

    def measured(self) -> list[Floats]:
        """Rows that arrived, by job and shard, since the last call."""
        self._count()
        seen = self.seen
        self.seen = [np.zeros_like(each) for each in seen]
        return seen

    def run(
        self,
        seconds: float,
        offered: float,
        dt: float,
        mover: Mover | None = None,
        period_s: float = 1.0,
    ) -> list[float]:
        """Source rows done in each second; the mover is called every period."""
        done: list[float] = []
        slices = round(1 / dt)
        period = round(period_s / dt)
        for i in range(round(seconds * slices)):
            if i % slices == 0:
                done.append(0.0)
            done[-1] += self._slice(offered * dt, dt)
            if (i + 1) % period == 0:
                self._jitter(self._lately / period_s, period_s)
                self._lately[:] = 0.0
                if mover is not None:
                    mover.tick(self)
        return done

    def _slice(self, offered: float, dt: float) -> float:
        self.now += dt
        if self.moves:
            self._arrive()
        self.buffer = min(self.buffer + offered, max(self.buffer, float(BUFFER * self.upstream)))
        for j in self._roots:
            sent = self._fits(j, min(self.buffer, self.rows_per_s * dt), dt)
            self.buffer -= sent
            self._enter(j, sent)
        left = np.full(self.cluster.cores, dt)
        through = 0.0
        for j in self.order:
            served = np.minimum(self.rows[j], left / self.jobs[j].cost_s)
            for child in self.children[j]:
                sent = float(served.sum()) * self.jobs[child].per_parent
                fits = self._fits(child, sent, dt)
                if fits < sent:
                    served *= fits / sent
            self.rows[j] -= served
            left -= served * self.jobs[j].cost_s
            done = float(served.sum())
            for child in self.children[j]:
                self._enter(child, done * self.jobs[child].per_parent)
            if not self.children[j]:
                through += done / self.per_source[j] / self.ends
        self._account(through, dt)
        return through

    def _fits(self, job: int, sent: float, dt: float) -> float:
        """How many of these rows can be sent before the fullest queue is full."""
        to = self._to[job]
        room = np.maximum(0.0, self.queue - self.rows[job][to] + dt / self.jobs[job].cost_s)
        return min(sent, float((room / self.lands[job][to]).min(initial=np.inf)))

    def _enter(self, job: int, count: float) -> None:
        self.rows[job] += count * self.lands[job]
        if self._any_held[job]:
            self.kept[job] += np.where(self.held[job], count * self.shares[job], 0.0)
        self._arrived[job] += count
        self._lately[job] += count

    def _account(self, through: float, dt: float) -> None:
        inside = self.rows.sum(axis=1)
        for j, held in enumerate(self._any_held):
            if held:
                inside[j] += self.kept[j].sum()
        self.totals.span_s += dt
        self.totals.done += through
        self.totals.inside += (self.buffer + float(inside @ self._weights)) * dt

    def _count(self) -> None:
        """Assigns the rows that have arrived to shards, before shares change."""
        for j in range(len(self.jobs)):
            count = self._arrived[j]
            if count > 0:
                self.seen[j] += count * self.shares[j]
        self._arrived[:] = 0.0

    def _jitter(self, rates: Floats, span_s: float) -> None:
        """Adds the waiting times of Poisson arrivals at cores that keep up: a fluid has none."""
        for j, rate in enumerate(rates.tolist()):
            used = np.minimum(rate * self.lands[j] * self.jobs[j].cost_s, _NEAR_ONE)
            self.totals.waits += self._weights[j] * span_s * float((used * used / (1 - used)).sum())
        if self.home_of is not None:
            self.totals.remote_bytes += self._remote_bytes_per_s(rates) * span_s

    def _arrive(self) -> None:
        left: list[Moves] = []
        changed = False
        for each in self.moves:
            ready = each.due <= self.now
            if not ready.any():
                left.append(each)
                continue
            changed = True
            shards, cores = each.shards[ready], each.cores[ready]
            self._count()
            self.core_of[each.job][shards] = cores
            self.held[each.job][shards] = False
            np.add.at(self.rows[each.job], cores, self.kept[each.job][shards])
            self.kept[each.job][shards] = 0.0
            if not ready.all():
                left.append(
                    Moves(each.job, each.shards[~ready], each.cores[~ready], each.due[~ready])
                )
        self.moves = left
        if changed:
            self._relink()

    def _relink(self) -> None:
        """Updates where rows arrive, by core, and how many the network can carry."""
        cores = self.cluster.cores
        self._any_held = [bool(held.any()) for held in self.held]
        self.lands = [
            np.bincount(core_of, weights=np.where(held, 0.0, share), minlength=cores)
            for core_of, held, share in zip(self.core_of, self.held, self.shares, strict=True)
        ]
        self._to = [np.flatnonzero(lands > 0) for lands in self.lands]
        self.rows_per_s = self._network()

    def _network(self) -> float:
        """Source rows per second that the busiest network card can carry."""
        taken = np.zeros((2, self.cluster.hosts))
        for j, job in enumerate(self.jobs):
            bytes_ = self.shares[j] * job.row_bytes * self.per_source[j]
            at = self.host_of[self.core_of[j]]
            home = at if self.home_of is None else self.home_of[j]
            taken[0] += np.bincount(home, weights=bytes_, minlength=self.cluster.hosts)
            away = at != home
            taken[0] += np.bincount(at[away], weights=bytes_[away], minlength=self.cluster.hosts)
            taken[1] += np.bincount(home[away], weights=bytes_[away], minlength=self.cluster.hosts)
        return self.cluster.bytes_per_s / float(taken.max())

    def _remote_bytes_per_s(self, rates: Floats) -> float:
        assert self.home_of is not None
        total = 0.0
        for j, rate in enumerate(rates.tolist()):
            away = self.host_of[self.core_of[j]] != self.home_of[j]
            total += rate * float(self.row_bytes[j]) * float(self.shares[j][away].sum())
        return total


def drain_s(run: Simulation, cores: Ints) -> Floats:
    """How long cores need for their queued rows."""
    work: Floats = run.costs @ run.rows[:, cores]
    return work


def hashed(keys: int, shards: int, seed: Sequence[int]) -> Ints:
    """The shard of each key."""
    return np.random.default_rng(seed).integers(0, shards, keys)


def zipf(keys: int, skew: float) -> Floats:
    """Frequencies of keys, by Zipf's law."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    found: Floats = weights / weights.sum()
    return found


def by_shard(frequencies: Floats, shard_of: Ints, shards: int) -> Floats:
    """Frequencies of shards."""
    return np.bincount(shard_of, weights=frequencies, minlength=shards).astype(
        np.float64, copy=False
    )
