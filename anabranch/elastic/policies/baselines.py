"""The papers' rivals: what AutoScale+ and Elasticutor are compared with (DABS-Storm 7.2, Elasticutor 5).

Static and incremental choose slots; learning maps input rates to slots by what it has seen (Gedik et al., as DABS-Storm uses it).
The resource-centric and the executor-centric ways use the same model of latency and the same balancing (Elasticutor 5) and differ in
what a change costs: a live run with such a policy waits for as long as the paper measured. The naive executor-centric one leaves
out of account where shards are, which on one host shows in how many of them move; for cores of hosts it is `naive` in assignment.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log

import numpy as np

from anabranch.elastic.observation import Change, ComponentEvaluation, Evaluation, PolicyRequest
from anabranch.elastic.policies.latency import Network

_OVERLOADED = (
    1e5  # what slots are worth that cannot keep up: less than any number of slots that can
)


@dataclass(frozen=True, slots=True)
class Static:
    """Slots never change."""

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        del latency_s, most
        return PolicyRequest(
            slots={each.name: each.slots for each in seen.components}, reason="slots are fixed"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Incremental:
    """One slot more above a threshold of CPU usage, one less below another: nothing else counts (DABS-Storm 7.2, without figures)."""

    above: float = 0.8
    below: float = 0.4

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        del latency_s
        slots = {each.name: self.next(each, most) for each in seen.components}
        usage = ", ".join(f"{each.name} {each.busy:.0%}" for each in seen.components)
        return PolicyRequest(slots=slots, reason=f"CPU usage: {usage}")

    def next(self, each: ComponentEvaluation, most: int) -> int:
        if each.busy > self.above:
            return min(most, each.slots + 1)
        return max(1, each.slots - 1) if each.busy < self.below else each.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What has been learnt: for (step of the input rate, slots) the value of running so, and how often it was tried."""

    values: Mapping[tuple[int, int], float] = field(default_factory=dict)
    tried: Mapping[tuple[int, int], int] = field(default_factory=dict)
    fineness: float = 0.25  # rates that differ by less than this part are alike

    def state(self, rate: float) -> int:
        return floor(log(rate + 1.0) / log(1.0 + self.fineness))

    def learnt(self, rate: float, slots: int, busy: float, above: float = 0.8) -> Knowledge:
        """After a step with that input, so many slots and that usage: fewer slots are better, unless they are overloaded."""
        reward = -float(slots) if busy <= above else -_OVERLOADED * busy
        place = (self.state(rate), slots)
        times = self.tried.get(place, 0) + 1
        value = self.values.get(place, 0.0)
        value += (reward - value) / times
        return replace(
            self, values={**self.values, place: value}, tried={**self.tried, place: times}
        )

    def best(self, rate: float) -> int | None:
        """The best slots known for such a rate; None where nothing is, or only what was overloaded."""
        at = self.state(rate)
        known = {
            slots: value
            for (state, slots), value in self.values.items()
            if state == at and value > -_OVERLOADED / 2
        }
        return max(known, key=lambda slots: known[slots], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Slots by the mean input rate of the recent past, without regard to what waits, as DABS-Storm describes its rival.

    An unknown rate is answered by one slot more or less, by usage. With `explore` > 0 other slots are tried now and then, by a seed.
    """

    knowledge: Knowledge = field(default_factory=Knowledge)
    above: float = 0.8
    explore: float = 0.0
    seed: int = 0
    known: int = 4096  # pairs of rate and slots, at most

    def learnt(self, seen: Evaluation) -> Learning:
        """The policy after a step: what its slots were worth at that rate."""
        knowledge = self.knowledge
        for each in seen.components:
            if each.rate > 0 and (
                len(knowledge.values) < self.known or knowledge.best(each.rate) is not None
            ):
                knowledge = knowledge.learnt(
                    mean_rate(each.rates), each.slots, each.busy, self.above
                )
        return replace(self, knowledge=knowledge)

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        del latency_s
        chance = np.random.default_rng([self.seed, seen.step])
        slots = {}
        for each in seen.components:
            known = self.knowledge.best(mean_rate(each.rates))
            chosen = known if known is not None else Incremental(above=self.above).next(each, most)
            if chance.random() < self.explore:
                chosen = each.slots + int(chance.integers(-1, 2))
            slots[each.name] = min(most, max(1, chosen))
        return PolicyRequest(
            slots=slots, reason=f"learnt from {len(self.knowledge.values)} pairs of rate and slots"
        )


def mean_rate(rates: Sequence[tuple[float, float]]) -> float:
    """The mean of the rates that are remembered."""
    return sum(rate for _, rate in rates) / len(rates) if rates else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Paradigm:
    """What it costs to move shards: to agree on it, with each task upstream where the route is global, and to carry state."""

    name: str
    agree_s: float
    agree_upstream_s: float = 0.0
    bytes_per_s: float = 125e6  # Elasticutor's network, 1 Gbit/s

    def pause_s(self, shards: int, upstream: int, moved_bytes: float) -> float:
        """How long rows of the moved shards wait. `moved_bytes` is what crosses hosts: on one host, nothing."""
        return (
            self.agree_s + self.agree_upstream_s * upstream if shards else 0.0
        ) + moved_bytes / self.bytes_per_s


EXECUTOR_CENTRIC = Paradigm(
    name="executor-centric", agree_s=0.002
)  # Elasticutor 5.1: some 2 ms, whatever is upstream
RESOURCE_CENTRIC = Paradigm(
    name="resource-centric", agree_s=0.2, agree_upstream_s=0.005
)  # 2 to 3 orders more, and growing
NAIVE = replace(EXECUTOR_CENTRIC, name="naive executor-centric")


@dataclass(frozen=True, slots=True, kw_only=True)
class Centric:
    """Elasticutor's own model of latency, with what a change costs in one of the paradigms that it compares."""

    paradigm: Paradigm
    model: Network = field(default_factory=Network)
    careful: bool = True  # whether shards stay where they are if they can

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        found = self.model.wanted(seen, latency_s, most)
        return replace(found, reason=f"{self.paradigm.name}: {found.reason}")

    def pause_s(self, seen: Evaluation, changes: Sequence[Change]) -> float:
        """How long rows wait for the changes: those of one component after those of another. On one host no state travels."""
        slots = {each.name: each.slots for each in seen.components}
        before = {each.name: each for each in seen.components}
        pause_s = 0.0
        for change in changes:
            each = before[change.component]
            shards = sum(
                a != b for a, b in zip(each.route.slot_of, change.route.slot_of, strict=True)
            )
            upstream = sum(slots[parent] for parent in each.parents) or seen.cores
            pause_s += self.paradigm.pause_s(shards, upstream, 0.0)
        return pause_s
