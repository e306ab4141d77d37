"""A Storm topology of stateless operators as DABS-Storm runs it: tasks with queues, shuffle grouping, slots chosen by a policy.

Rows are drawn second by second with their values and costs, and given to tasks one by one, in turn or by OSG; a task works off what
it has. Queues are counted in rows and seconds of work. Latencies are read off the curves of rows that came and went, operator after
operator, so that a row that waits profits from slots that come later. After a change of slots the topology pauses, waiting rows are
dealt out anew, groupings start over, and nothing is measured until all has settled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from anabranch.elastic.grouping import Scheduler, Task, new_scheduler, new_task
from anabranch.elastic.observation import Evaluation, Floats, Loaded
from anabranch.elastic.settings import Policy
from anabranch.elastic.sketches import Osg
from anabranch.lab.grouped import grouped
from anabranch.plan.route import even_route

Values = npt.NDArray[np.int64]

_REMEMBERED = 6  # measurements: a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Bolt:
    """An operator: seconds of a core for a row, by its value, and rows out for a row in."""

    name: str
    cost_s: float
    parents: tuple[str, ...] = ()  # none: the source
    level: int = 0
    selectivity: float = 1.0
    sensitive: bool = False  # costs depend on the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """The cluster and what a change costs; times in seconds."""

    cores: int = 18  # nine machines of two
    units: int = 36  # workers: the most tasks of an operator
    interval_s: int = 10
    timeout_s: float = 30.0
    pause_s: int = 20  # of the whole topology after a change: the paper speaks of it without a figure
    settle_s: int = 10  # after that, without measuring
    skew: float = 1.5
    values: int = 1000
    spread: float = 8.0  # the dearest value costs so many times the cheapest
    osg: Osg = field(default_factory=lambda: Osg(window=64))


@dataclass
class Queue:
    """An operator while it runs."""

    bolt: Bolt
    slots: int = 1
    scheduler: Scheduler | None = None  # None: in turn
    tasks: list[Task] = field(default_factory=list)
    turn: int = 0

    def __post_init__(self) -> None:
        self.rows = np.zeros(self.slots)
        self.work = np.zeros(self.slots)
        self.came: list[float] = []
        self.went: list[float] = []
        self.worked: list[float] = []
        self.rates: list[tuple[float, float]] = []

    def resize(self, slots: int, osg: Osg) -> None:
        """Waiting rows are dealt out evenly; what a grouping had learnt was about other tasks."""
        self.rows = np.full(slots, self.rows.sum() / slots)
        self.work = np.full(slots, self.work.sum() / slots)
        self.slots = slots
        self.turn = 0
        if self.scheduler is not None:
            self.scheduler = new_scheduler(slots)
            self.tasks = [new_task(osg) for _ in range(slots)]

    def put(self, values: Values, costs: Floats, osg: Osg) -> None:
        """Gives rows to tasks."""
        if self.scheduler is None:
            places = (self.turn + np.arange(len(values))) % self.slots
            self.turn = int((self.turn + len(values)) % self.slots)
        else:
            self.scheduler, self.tasks, places = grouped(self.scheduler, self.tasks, values, costs, osg)
        self.rows += np.bincount(places, minlength=self.slots)
        self.work += np.bincount(places, weights=costs, minlength=self.slots)

    def serve(self, seconds: float) -> float:
        """Rows done by tasks that each have so many seconds of a core."""
        done = np.minimum(self.work, seconds)
        part = np.divide(done, self.work, out=np.zeros_like(done), where=self.work > 0)
        rows = self.rows * part
        self.rows -= rows
        self.work -= done
        self.worked.append(float(done.sum()))
        return float(rows.sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lived:
    """A run, second by second: rows of the source, slots of the observed operator and of all, and how long rows took."""

    arrived: Floats
    done: Floats
    slots: Floats
    all_slots: Floats
    latency_s: Floats  # of rows that arrived in that second
    lost: float  # share of rows that took longer than the timeout
    changes: int

    @property
    def mean_latency_s(self) -> float:
        return float(np.average(self.latency_s, weights=np.maximum(self.arrived, 1e-9)))

    @property
    def lag_s(self) -> float:
        """By how many seconds throughput follows the input: the shift at which both agree best."""
        shifts = range(60)
        errors = [float(np.mean((self.done[s:] - self.arrived[: len(self.arrived) - s]) ** 2)) for s in shifts]
        return float(np.argmin(errors))


def live(bolts: Sequence[Bolt], rates: Floats, policy: Policy, storm: Storm, *, osg: bool, seed: int, observed: str) -> Lived:
    """Runs a stream through a topology whose slots a policy chooses."""
    run = _Run(bolts, storm, osg=osg, seed=seed)
    slots, everything, changes = [], [], 0
    quiet_until, paused_until = 0, 0
    for second, rate in enumerate(rates.tolist()):
        run.step(rate, paused=second < paused_until)
        slots.append(run.queues[observed].slots)
        everything.append(sum(queue.slots for queue in run.queues.values()))
        if (second + 1) % storm.interval_s or second < quiet_until:
            continue
        run.measure(second + 1)
        wanted = policy.wanted(run.evaluation(second + 1), None, storm.units).slots
        if run.resize(wanted):
            changes += 1
            paused_until = second + 1 + storm.pause_s
            quiet_until = paused_until + storm.settle_s
    return run.lived(rates, np.array(slots, dtype=np.float64), np.array(everything, dtype=np.float64), changes)


class _Run:
    """The queues of all operators, fed second by second."""

    def __init__(self, bolts: Sequence[Bolt], storm: Storm, *, osg: bool, seed: int) -> None:
        self.storm = storm
        self.bolts = {bolt.name: bolt for bolt in bolts}
        self.queues = {bolt.name: Queue(bolt) for bolt in bolts}
        self.chance = np.random.default_rng([seed, 17])
        weights = np.arange(1, storm.values + 1, dtype=np.float64) ** -storm.skew
        self.weights = weights / weights.sum()
        scale = self.chance.permutation(np.geomspace(1.0, storm.spread, storm.values))
        self.scale = scale / float(self.weights @ scale)  # of the mean cost, by value
        self.source: list[float] = []
        for queue in self.queues.values():
            if osg and queue.bolt.sensitive:
                queue.scheduler = new_scheduler(1)
                queue.tasks = [new_task(storm.osg)]

    def step(self, rate: float, *, paused: bool) -> None:
        """One second: rows that come, then work on what is there, parents before children."""
        arrived = float(self.chance.poisson(rate))
        self.source.append(arrived)
        busy = sum(int((queue.work > 0).sum()) for queue in self.queues.values())
        seconds = 0.0 if paused else min(1.0, self.storm.cores / max(1, busy))
        sent: dict[str, float] = {}
        for name, queue in self.queues.items():
            bolt = queue.bolt
            came = sum(sent[parent] for parent in bolt.parents) if bolt.parents else arrived
            count = int(self.chance.poisson(came)) if bolt.parents else int(arrived)
            values = (
                self.chance.choice(self.storm.values, count, p=self.weights)
                if bolt.sensitive
                else np.zeros(count, dtype=np.int64)
            )
            costs = bolt.cost_s * (self.scale[values] if bolt.sensitive else np.ones(count))
            queue.put(values.astype(np.int64), costs, self.storm.osg)
            done = queue.serve(seconds)
            queue.came.append(float(count))
            queue.went.append(done)
            sent[name] = done * bolt.selectivity

    def measure(self, second: int) -> None:
        """Notes the input of the interval."""
        for queue in self.queues.values():
            rate = sum(queue.came[-self.storm.interval_s :]) / self.storm.interval_s
            queue.rates = [*queue.rates, (float(second), rate)][-_REMEMBERED:]

    def evaluation(self, second: int) -> Evaluation:
        """What a policy sees."""
        interval = self.storm.interval_s
        waiting = sum(float(queue.rows.sum()) for queue in self.queues.values())
        return Evaluation(
            step=second // interval,
            now=float(second),
            step_s=float(interval),
            period_s=float(interval),
            fixed_s=0.0,
            overhead_s=0.0,
            cores=self.storm.cores,
            components=tuple(self._loaded(queue) for queue in self.queues.values()),
            backlog=waiting,
            waits=waiting > 0,
            drains=False,
            idle=False,
        )

    def _loaded(self, queue: Queue) -> Loaded:
        interval = self.storm.interval_s
        worked, went = sum(queue.worked[-interval:]), sum(queue.went[-interval:])
        return Loaded(
            name=queue.bolt.name,
            level=queue.bolt.level,
            parents=queue.bolt.parents,
            route=even_route(queue.slots, queue.slots),
            share=np.full(queue.slots, 1 / queue.slots),
            cost_s=worked / went if went > 0 else queue.bolt.cost_s,
            selectivity=queue.bolt.selectivity,
            rate=queue.rates[-1][1],
            rates=tuple(queue.rates),
            pending=float(queue.rows.sum()) / interval,
            busy=worked / interval / queue.slots,
        )

    def resize(self, wanted: Mapping[str, int]) -> bool:
        """Whether any operator has other slots now."""
        slots = {name: max(1, min(self.storm.units, count)) for name, count in wanted.items()}
        changed = [name for name, count in slots.items() if count != self.queues[name].slots]
        for name in changed:
            self.queues[name].resize(slots[name], self.storm.osg)
        return bool(changed)

    def lived(self, rates: Floats, slots: Floats, everything: Floats, changes: int) -> Lived:
        """Follows the rows of each second through the operators: the longest way counts."""
        times = np.arange(len(rates), dtype=np.float64)
        leaves: dict[str, Floats] = {}
        for name, queue in self.queues.items():
            enters = np.max([leaves[parent] for parent in queue.bolt.parents], axis=0) if queue.bolt.parents else times
            leaves[name] = _left(enters, np.array(queue.came), np.array(queue.went)) + queue.bolt.cost_s
        ends = set(self.queues) - {parent for queue in self.queues.values() for parent in queue.bolt.parents}
        latency = np.max([leaves[name] for name in ends], axis=0) - times
        source = np.array(self.source)
        last = self.queues[next(iter(ends))]
        done = np.array(last.went) * source.sum() / max(1.0, sum(last.came))
        return Lived(
            arrived=source,
            done=done,
            slots=slots,
            all_slots=everything,
            latency_s=latency,
            lost=float(source[latency > self.storm.timeout_s].sum() / source.sum()),
            changes=changes,
        )


def _left(enters: Floats, came: Floats, went: Floats) -> Floats:
    """When rows that came at a time were done: where the curve of rows that went has reached that of rows that came by then."""
    times = np.arange(len(came), dtype=np.float64)
    arrived, done = np.cumsum(came), np.cumsum(went)
    number = np.interp(enters, times, arrived)
    rate = max(float(went[-30:].mean()), 1e-9)
    ends = np.append(times, times[-1] + max(0.0, (arrived[-1] - done[-1]) / rate) + 1e-9)
    grown = np.maximum.accumulate(np.append(done, max(done[-1], arrived[-1])))
    found: Floats = np.maximum(enters, np.interp(number - 1e-9, grown + np.arange(len(grown)) * 1e-9, ends))
    return found
