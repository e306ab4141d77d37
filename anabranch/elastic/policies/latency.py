"""The fewest slots that meet a latency target (Elasticutor 4.1), also for micro-batches.

`Network` is the paper's: operators run side by side, each an M/M/k queue of a Jackson network. In a
step the levels run one after another, and what arrives meanwhile is the next batch, so its size and
its time depend on each other: with `a` seconds of a step that do not depend on rows and `b` seconds
of work for each second of input, a step that follows the last one takes a / (1 - b).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, inf

from anabranch.elastic.observation import Evaluation, Floats, PolicyRequest
from anabranch.elastic.policies.autoscale import forecast
from anabranch.elastic.policies.base import BasePolicy

# If no number of slots meets the target: the fewest whose latency is within this of the best.
_NEAR_BEST = 1.05


@dataclass(frozen=True, slots=True)
class Station:
    """An operator of a Jackson network: rows per second that arrive, and that a slot can serve."""

    arrives: float
    serves: float

    @property
    def least(self) -> int:
        """The fewest slots that are stable."""
        return floor(self.arrives / self.serves) + 1

    def latency_s(self, slots: int) -> float:
        """The mean time that a row spends here: an M/M/k queue."""
        if slots * self.serves <= self.arrives:
            return inf
        return 1 / self.serves + waits(slots, self.arrives / self.serves) / (
            slots * self.serves - self.arrives
        )


def waits(slots: int, load: float) -> float:
    """The probability that an arrival must wait (Erlang C), for a load below `slots`."""
    blocked = 1.0
    for k in range(1, slots + 1):  # Erlang B, in the form that does not overflow
        blocked = load * blocked / (k + load * blocked)
    return blocked / (1 - load / slots * (1 - blocked))


@dataclass(frozen=True, slots=True)
class Allocation:
    """Slots of each operator, the predicted latency, and whether it meets the target."""

    slots: tuple[int, ...]
    latency_s: float
    met: bool


def network_latency_s(stations: Sequence[Station], slots: Sequence[int], arrives: float) -> float:
    """The mean latency of an input row through the network (equation 1)."""
    return (
        sum(each.arrives * each.latency_s(k) for each, k in zip(stations, slots, strict=True))
        / arrives
    )


def allocate(stations: Sequence[Station], arrives: float, target_s: float, most: int) -> Allocation:
    """Adds one slot at a time where the latency falls most, from the stable minimum on.

    It ends when the target is met or slots run out.
    """
    slots = [each.least for each in stations]
    parts = [
        each.arrives * each.latency_s(k) / arrives for each, k in zip(stations, slots, strict=True)
    ]

    def gain(j: int) -> float:
        return parts[j] - stations[j].arrives * stations[j].latency_s(slots[j] + 1) / arrives

    gains = [(-gain(j), j) for j in range(len(stations))]
    heapq.heapify(gains)
    while sum(parts) > target_s and sum(slots) < most:
        fallen, j = gains[0]
        slots[j] += 1
        parts[j] += fallen
        heapq.heapreplace(gains, (-gain(j), j))
    return Allocation(tuple(slots), sum(parts), sum(parts) <= target_s and sum(slots) <= most)


def makespan(tasks: Sequence[float] | Floats, cores: int) -> float:
    """When the last of the tasks ends on these cores, if the longest starts first."""
    if len(tasks) <= cores:
        return float(max(tasks, default=0.0))
    ends = [0.0] * max(1, cores)
    for task in sorted(tasks, reverse=True):
        heapq.heapreplace(ends, ends[0] + float(task))
    return max(ends)


@dataclass(frozen=True, slots=True)
class ComponentWork:
    """A component's work: seconds of a core per second of input, and its hottest shard's share."""

    level: int
    work: float
    hot_share: float = 0.0

    def longest(self, slots: int, uneven: float) -> float:
        """The work of the longest slot: an even part and a little more, or the hottest shard."""
        return self.work * min(1.0, max(self.hot_share, uneven / slots))


@dataclass(frozen=True, slots=True)
class StepTime:
    """The prediction for a step: its duration, and the time from step to step."""

    step_s: float
    period_s: float

    @property
    def latency_s(self) -> float:
        """The longest time from a row's arrival until it is done."""
        return self.step_s + self.period_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Step time = fixed + sum over levels of (task overhead + longest slot of the level)."""

    fixed_s: float
    overhead_s: float
    cores: int
    interval_s: float = 0.0  # of the trigger; 0: the next step follows at once
    uneven: float = 1.1  # longest slot over mean, as balancing leaves it

    def parts(self, works: Sequence[ComponentWork], slots: Sequence[int]) -> tuple[float, float]:
        """(a, b): seconds of a step without rows, and seconds more per second of input."""
        without, each_s = self.fixed_s, 0.0
        both = sorted(zip(works, slots, strict=True), key=lambda pair: pair[0].level)
        for _, level in groupby(both, key=lambda pair: pair[0].level):
            pairs = list(level)
            tasks = sum(k for _, k in pairs)
            without += self.overhead_s * ceil(tasks / self.cores)
            longest = max(work.longest(k, self.uneven) for work, k in pairs)
            if tasks > self.cores:
                longest = max(
                    longest,
                    makespan([work.work / k for work, k in pairs for _ in range(k)], self.cores),
                )
            each_s += longest
        return without, each_s

    def predict(self, works: Sequence[ComponentWork], slots: Sequence[int]) -> StepTime:
        """The time of a step with these slots at this input; infinite if it cannot keep up."""
        return self._time(*self.parts(works, slots))

    def _time(self, without: float, each_s: float) -> StepTime:
        if without + each_s * self.interval_s <= self.interval_s:
            return StepTime(without + each_s * self.interval_s, self.interval_s)
        if each_s >= 1:
            return StepTime(inf, inf)
        return StepTime(without / (1 - each_s), without / (1 - each_s))

    def fewest(self, works: Sequence[ComponentWork], target_s: float, most: int) -> Allocation:
        """The fewest slots that meet the target; `most` bounds the slots of one level."""
        return first(self.search(works, target_s, most), target_s)

    def search(
        self, works: Sequence[ComponentWork], target_s: float, most: int
    ) -> list[Allocation]:
        """All allocations on the way from the stable minimum to one that meets the target.

        Each has one slot more, where the latency falls most. It also ends when slots run out.
        """
        slots = [max(1, min(most, floor(each.work) + 1)) for each in works]
        for level in {each.level for each in works}:
            members = [j for j, each in enumerate(works) if each.level == level]
            while sum(slots[j] for j in members) > max(most, len(members)):
                slots[max(members, key=lambda j: slots[j])] -= 1
        tried = [Allocation(tuple(slots), self.predict(works, slots).latency_s, False)]
        used = _by_level(works, slots)
        while tried[-1].latency_s > target_s:
            ranks = [
                (*self._rank(works, slots, j), j)
                for j, each in enumerate(works)
                if used[each.level] < most
            ]
            if not ranks:
                break
            latency_s, *_, j = min(ranks)
            slots[j] += 1
            used[works[j].level] += 1
            tried.append(Allocation(tuple(slots), latency_s, False))
        return tried

    def _rank(
        self, works: Sequence[ComponentWork], slots: Sequence[int], j: int
    ) -> tuple[float, float, float]:
        """How good one more slot for j is: its latency, then the work that remains."""
        more = [k + (i == j) for i, k in enumerate(slots)]
        without, each_s = self.parts(works, more)
        left = sum(each.longest(k, self.uneven) for each, k in zip(works, more, strict=True))
        return self._time(without, each_s).latency_s, each_s, left


def first(tried: Sequence[Allocation], target_s: float) -> Allocation:
    """The first of a search that meets the target.

    If none does, the first that comes near the best: more slots would change nothing.
    """
    met = next((each for each in tried if each.latency_s <= target_s), None)
    if met is not None:
        return Allocation(met.slots, met.latency_s, True)
    best = min(each.latency_s for each in tried)
    return next(each for each in tried if each.latency_s <= _NEAR_BEST * best)


def _by_level(works: Sequence[ComponentWork], slots: Sequence[int]) -> dict[int, int]:
    used: dict[int, int] = {}
    for each, k in zip(works, slots, strict=True):
        used[each.level] = used.get(each.level, 0) + k
    return used


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepwise(BasePolicy):
    """The policy of a live run: the step model over the forecast input.

    Slots stay while the target is met and fewer would only just meet it.
    """

    beta: float = 0.8
    ahead_s: float = 10.0
    uneven: float = 1.1
    combine: Callable[[float, float], float] = max

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        """The fewest slots whose predicted latency is below the target.

        Without a target, the fewest that keep up with time to spare.
        """
        model = StepModel(
            fixed_s=seen.fixed_s,
            overhead_s=seen.overhead_s,
            cores=max(1, seen.cores),
            interval_s=seen.interval_s,
            uneven=self.uneven,
        )
        works = tuple(
            ComponentWork(
                each.level,
                each.cost_s * (self._rate(each.rate, each.rates) + each.pending),
                each.hot_share,
            )
            for each in seen.components
        )
        slots = tuple(each.slots for each in seen.components)
        target_s = latency_s if latency_s is not None else self._spare(model, works)
        tried = model.search(works, self.beta * target_s, most)
        needed, relaxed = first(tried, target_s), first(tried, self.beta * target_s)
        now_s = model.predict(works, slots).latency_s
        if now_s > target_s:
            chosen = relaxed if relaxed.met or not needed.met else needed
        else:
            chosen = relaxed if sum(relaxed.slots) < sum(slots) else Allocation(slots, now_s, True)
        names = [each.name for each in seen.components]
        figures = {
            "predicted latency s": now_s,
            "target s": target_s,
            "latency after s": chosen.latency_s,
        }
        return PolicyRequest(
            slots=dict(zip(names, chosen.slots, strict=True)),
            reason=_reason(figures, met=needed.met),
            figures=figures,
        )

    def _rate(self, rate: float, rates: Sequence[tuple[float, float]]) -> float:
        return self.combine(rate, forecast(rates, self.ahead_s))

    def _spare(self, model: StepModel, works: Sequence[ComponentWork]) -> float:
        """The target without a target: the latency of steps that work beta of their time."""
        without = model.parts(works, [1] * len(works))[0]
        return max(2 * without / (1 - self.beta), 2 * model.interval_s)


def _reason(figures: Mapping[str, float], *, met: bool) -> str:
    target = f"{figures['target s']:.2f} s"
    text = f"latency predicted {figures['predicted latency s']:.2f} s, target {target}"
    return (
        text
        if met
        else f"{text}: no number of slots meets it, the best is {figures['latency after s']:.2f} s"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(BasePolicy):
    """Elasticutor's own policy: the Jackson network over what is measured now.

    For the lab: steps are not queues.
    """

    target_s: float = 1.0

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        """The paper's allocation; `most` bounds the slots of all components together."""
        working = [each for each in seen.components if each.rate > 0 and each.cost_s > 0]
        slots = (
            {each.name: each.slots for each in seen.components}
            if not working
            else {each.name: 1 for each in seen.components}
        )
        if not working:
            return PolicyRequest(slots=slots, reason="nothing arrives")
        arrives = max(
            each.rate for each in working if each.level == min(one.level for one in working)
        )
        stations = [Station(each.rate, 1 / each.cost_s) for each in working]
        found = allocate(stations, arrives, self.target_s if latency_s is None else latency_s, most)
        slots |= {each.name: k for each, k in zip(working, found.slots, strict=True)}
        return PolicyRequest(
            slots=slots,
            reason=f"Jackson network: {found.latency_s:.3f} s with {sum(found.slots)} slots",
            figures={"predicted latency s": found.latency_s},
        )
