"""A Storm topology of stateless operators as DABS-Storm runs it: tasks with queues.

Rows are grouped by shuffle, and a policy chooses the slots. Every row is simulated: it goes to a
task, in turn or by OSG, waits there for the rows before it, and goes on to the children when it is
done. A stream is drawn once, with all rows and values, and every policy gets the same one.

A change of slots stops all tasks. Afterwards, waiting rows are distributed again and groupings
start over. No other change follows until a window has passed. The source stops too, for a shorter
time, and continues where it stopped: it reads a stream that waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from anabranch.elastic.grouping.osg import (
    Scheduler,
    Task,
    assign_rows,
    measure_rows,
    new_scheduler,
    new_task,
    receive_answer,
    receive_sketches,
)
from anabranch.elastic.grouping.sketches import Osg
from anabranch.elastic.observation import ComponentEvaluation, Evaluation, Floats
from anabranch.elastic.policies.base import Policy
from anabranch.plan.route import even_route

Values: TypeAlias = npt.NDArray[np.int64]
At: TypeAlias = tuple[float, int]  # the time, and the number of a row

_LONGEST = 6  # times the length of the stream: a longer run will never end


@dataclass(frozen=True, slots=True, kw_only=True)
class Bolt:
    """An operator: the time of a row in a slot, and the share of rows that it sends on.

    If there are several times, the value of a row chooses one.
    """

    name: str
    costs_s: tuple[float, ...]
    parents: tuple[str, ...] = ()  # none: the source
    level: int = 0
    selectivity: float = 1.0
    tasks: int = 1  # the most slots

    @property
    def sensitive(self) -> bool:
        return len(self.costs_s) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """The cluster and what a change costs; times in seconds."""

    cores: int = 18  # nine machines with two each
    interval_s: int = 10  # between two measurements of the monitor
    window_s: int = 60  # that the monitor remembers, and the least time between two changes
    timeout_s: float = 30.0
    pause_s: int = 15  # of all tasks, for a change
    source_pause_s: int = 8  # of the source
    osg: Osg = field(default_factory=lambda: Osg(window=64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnRows:
    """Rows as drawn: how many come in each second, and of each row its value and its luck.

    The luck is a random number that decides which filters the row passes.
    """

    counts: Values
    values: Values
    luck: Floats


def drawn(rates: Floats, weights: Floats, seed: int) -> DrawnRows:
    """Draws a stream from its rates and the frequencies of its values."""
    chance = np.random.default_rng([seed, 17])
    counts = chance.poisson(rates)
    rows = int(counts.sum())
    return DrawnRows(
        counts=counts,
        values=chance.choice(len(weights), rows, p=weights / weights.sum()).astype(np.int64),
        luck=chance.random(rows),
    )


class _Operator:
    """An operator while it runs."""

    def __init__(self, bolt: Bolt, stream: DrawnRows, osg: Osg | None) -> None:
        self.bolt = bolt
        self.values = stream.values
        self.costs: list[float] = np.array(bolt.costs_s)[
            stream.values if bolt.sensitive else stream.values * 0
        ].tolist()
        self.passes: list[bool] = (stream.luck < bolt.selectivity).tolist()
        self.osg = osg  # None: rows go to tasks in turn
        self.held: list[int] = []  # rows that wait while all tasks are stopped
        self.came: list[int] = []  # per second, as the two below
        self.went: list[int] = []
        self.worked: list[float] = []
        self.rates: list[tuple[float, float]] = []
        self.start(1)

    def start(self, slots: int) -> None:
        """Starts new tasks, which know nothing that earlier tasks have learnt."""
        self.slots = slots
        self.free = [0.0] * slots  # when a slot is done with all its rows
        self.given: list[deque[At]] = [deque() for _ in range(slots)]
        self.turn = 0
        # A single slot gets all rows: nothing to group, and what it learns is lost at a change.
        alone = slots == 1
        self.scheduler: Scheduler | None = (
            None if self.osg is None or alone else new_scheduler(slots)
        )
        self.tasks: list[Task] = (
            [] if self.osg is None or alone else [new_task(self.osg) for _ in range(slots)]
        )
        self.asked: dict[int, tuple[int, float]] = {}

    def put(self, arrivals: Sequence[At]) -> None:
        """Gives rows to slots, which process them one after another."""
        if not arrivals:
            return
        free, given, costs = self.free, self.given, self.costs
        places = (
            self._places([row for _, row in arrivals]) if self.slots > 1 else [0] * len(arrivals)
        )
        for (time, row), slot in zip(arrivals, places, strict=True):
            end = max(time, free[slot]) + costs[row]
            free[slot] = end
            given[slot].append((end, row))

    def _places(self, rows: list[int]) -> Sequence[int]:
        if self.scheduler is None or self.osg is None:
            first = self.turn
            self.turn = (first + len(rows)) % self.slots
            return [(first + i) % self.slots for i in range(len(rows))]
        self.scheduler, chosen = assign_rows(self.scheduler, self.values[rows], self.osg)
        self.asked |= {rows[row]: (epoch, estimated) for row, epoch, estimated in chosen.asked}
        places: list[int] = chosen.slots.tolist()
        return places

    def done(self, until: float) -> list[At]:
        """Rows that are done at a time, oldest first.

        Tasks learn from these rows and answer the requests of the scheduler.
        """
        everything: list[At] = []
        for slot, given in enumerate(self.given):
            finished = []
            while given and given[0][0] <= until:
                finished.append(given.popleft())
            if finished and self.scheduler is not None and self.osg is not None:
                self.scheduler = self._learnt(
                    self.scheduler, slot, [row for _, row in finished], self.osg
                )
            everything += finished
        return everything if self.slots == 1 else sorted(everything)

    def _learnt(self, scheduler: Scheduler, slot: int, rows: list[int], osg: Osg) -> Scheduler:
        costs = np.array([self.costs[row] for row in rows])
        spent = self.tasks[slot].seconds + np.cumsum(costs)
        self.tasks[slot], sent = measure_rows(self.tasks[slot], self.values[rows], costs, osg)
        for i, row in enumerate(rows):
            if row in self.asked:
                epoch, estimated = self.asked.pop(row)
                scheduler = receive_answer(scheduler, slot, epoch, float(spent[i]) - estimated)
        return scheduler if sent is None else receive_sketches(scheduler, slot, sent)

    def stop(self) -> None:
        """Takes back all rows that are not done."""
        self.held = sorted(row for given in self.given for _, row in given)

    @property
    def waiting(self) -> int:
        return len(self.held) + sum(map(len, self.given))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lived:
    """A run by second: rows that came from the source, rows done, and slots of one operator."""

    arrived: Floats
    done: Floats
    slots: Floats
    latency_s: Floats  # of rows that came in that second, on average
    late: Floats  # rows of that second that took longer than the timeout
    mean_latency_s: float
    changes: int

    @property
    def lost(self) -> float:
        """The share of rows that took longer than the timeout."""
        return float(self.late.sum() / self.arrived.sum())

    @property
    def lag_s(self) -> float:
        """By how many seconds throughput follows the input.

        It is the shift at which the two, each over ten seconds, agree best.
        """
        ten = np.ones(10) / 10
        came, went = (np.convolve(rows, ten, mode="valid") for rows in (self.arrived, self.done))
        shifts = range(min(90, len(came) // 2))
        return float(np.argmin([np.mean((went[s:] - came[: len(came) - s]) ** 2) for s in shifts]))


def live(
    bolts: Sequence[Bolt],
    stream: DrawnRows,
    policy: Policy,
    storm: Storm,
    *,
    osg: bool,
    phase: int = 0,
    observed: str = "bolt",
) -> Lived:
    """Runs a stream through a topology whose slots a policy chooses, until its last row is done.

    The monitor measures first at `phase`.
    """
    run = _Run(bolts, stream, storm, osg=osg)
    slots: list[int] = []
    changes, quiet_until = 0, 0
    while run.lasts:
        run.second()
        slots.append(run.operators[observed].slots)
        if (run.now - phase) % storm.interval_s or not run.measured():
            continue
        if run.now >= quiet_until:
            wanted = policy.wanted(run.evaluation(), None, max(bolt.tasks for bolt in bolts)).slots
            if run.resized(wanted):
                changes += 1
                quiet_until = run.now + storm.window_s
    return run.lived(np.array(slots, dtype=np.float64), changes)


class _Run:
    """The operators of a topology, simulated second by second."""

    def __init__(
        self, bolts: Sequence[Bolt], stream: DrawnRows, storm: Storm, *, osg: bool
    ) -> None:
        self.storm = storm
        self.stream = stream
        self.operators = {
            bolt.name: _Operator(bolt, stream, storm.osg if osg and bolt.sensitive else None)
            for bolt in bolts
        }
        more = {parent for bolt in bolts for parent in bolt.parents}
        self.ends = {
            bolt.name for bolt in bolts if bolt.name not in more or bolt.selectivity < 1
        }  # operators at which rows may leave the topology
        rows = int(stream.counts.sum())
        self.came_at = np.zeros(rows)
        self.done_at = [0.0] * rows
        self.now = 0
        self.position = 0  # in the stream, in seconds; `emitted` is in rows
        self.emitted = 0
        self.stopped_until = 0
        self.source_until = 0
        self.started = 0  # when the current tasks began

    @property
    def lasts(self) -> bool:
        more = self.position < len(self.stream.counts) or any(
            each.waiting for each in self.operators.values()
        )
        return more and self.now < _LONGEST * len(self.stream.counts)

    def second(self) -> None:
        """Simulates a second: rows come, and go from parents to children."""
        if self.now == self.stopped_until:
            self._resume()
        sent: dict[str, list[At]] = {}
        source = self._source()
        stopped = self.now < self.stopped_until
        for name, each in self.operators.items():
            parents = each.bolt.parents
            came = self._united([sent[parent] for parent in parents]) if parents else source
            went: list[At] = []
            if stopped:
                each.held += [row for _, row in came]
            else:
                each.put(came)
                went = each.done(self.now + 1)
            if name in self.ends:
                for end, row in went:
                    self.done_at[row] = max(self.done_at[row], end)
            each.came.append(len(came))
            each.went.append(len(went))
            each.worked.append(sum(each.costs[row] for _, row in went))
            sent[name] = (
                [at for at in went if each.passes[at[1]]] if each.bolt.selectivity < 1 else went
            )
        self.now += 1

    @staticmethod
    def _united(sent: Sequence[list[At]]) -> list[At]:
        return sent[0] if len(sent) == 1 else sorted(at for each in sent for at in each)

    def _source(self) -> list[At]:
        if self.now < self.source_until or self.position >= len(self.stream.counts):
            return []
        count = int(self.stream.counts[self.position])
        rows = range(self.emitted, self.emitted + count)
        times = self.now + (np.arange(count) + 0.5) / max(1, count)
        self.came_at[rows.start : rows.stop] = times
        self.position += 1
        self.emitted += count
        return list(zip(times.tolist(), rows, strict=True))

    def _resume(self) -> None:
        for each in self.operators.values():
            held, each.held = each.held, []
            each.put([(float(self.now), row) for row in held])
        self.started = self.now

    def measured(self) -> bool:
        """Notes the input of the interval, and forgets what is older than the window.

        Does nothing if the topology was stopped within the interval.
        """
        interval = self.storm.interval_s
        if self.now - self.started < interval or self.now < self.stopped_until:
            return False
        for each in self.operators.values():
            each.rates = [one for one in each.rates if one[0] > self.now - self.storm.window_s]
            each.rates.append((float(self.now), sum(each.came[-interval:]) / interval))
        return True

    def evaluation(self) -> Evaluation:
        """What a policy sees."""
        interval = self.storm.interval_s
        waiting = sum(each.waiting for each in self.operators.values())
        return Evaluation(
            step=self.now // interval,
            now=float(self.now),
            step_s=float(interval),
            period_s=float(interval),
            fixed_s=0.0,
            overhead_s=0.0,
            cores=self.storm.cores,
            components=tuple(self._loaded(each) for each in self.operators.values()),
            backlog=float(waiting),
            waits=waiting > 0,
            drains=False,
            idle=False,
        )

    def _loaded(self, each: _Operator) -> ComponentEvaluation:
        interval, bolt = self.storm.interval_s, each.bolt
        seconds = min(self.now - self.started, self.storm.window_s)
        went = sum(each.went[-interval:])
        return ComponentEvaluation(
            name=bolt.name,
            level=bolt.level,
            parents=bolt.parents,
            route=even_route(each.slots, each.slots),
            share=np.full(each.slots, 1 / each.slots),
            cost_s=sum(each.worked[-interval:]) / went if went else float(np.mean(bolt.costs_s)),
            selectivity=bolt.selectivity,
            rate=each.rates[-1][1],
            rates=tuple(each.rates),
            pending=each.waiting / self.storm.window_s,
            busy=sum(each.worked[-seconds:]) / seconds / each.slots,
        )

    def resized(self, wanted: Mapping[str, int]) -> bool:
        """Whether any operator gets other slots; if so, all tasks start again."""
        slots = {
            name: max(1, min(self.operators[name].bolt.tasks, count))
            for name, count in wanted.items()
        }
        if all(self.operators[name].slots == count for name, count in slots.items()):
            return False
        for name, each in self.operators.items():
            each.stop()
            each.start(slots.get(name, each.slots))
        self.stopped_until = self.now + self.storm.pause_s
        self.source_until = self.now + self.storm.source_pause_s
        if not self.storm.pause_s:
            self._resume()
        return True

    def lived(self, slots: Floats, changes: int) -> Lived:
        latency = np.array(self.done_at) - self.came_at
        arrived = self.came_at.astype(np.int64)
        came = np.bincount(arrived, minlength=self.now).astype(np.float64)
        done = np.bincount(
            np.minimum(self.done_at, self.now - 1).astype(np.int64), minlength=self.now
        ).astype(np.float64)
        total = np.bincount(arrived, weights=latency, minlength=self.now)
        return Lived(
            arrived=came,
            done=done,
            slots=slots,
            latency_s=total / np.maximum(came, 1),
            late=np.bincount(arrived[latency > self.storm.timeout_s], minlength=self.now).astype(
                np.float64
            ),
            mean_latency_s=float(latency.mean()),
            changes=changes,
        )
