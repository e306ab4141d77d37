"""The papers' rivals: what AutoScale+ and Elasticutor are compared with.

DABS-Storm 7.2: `Static` and `Incremental` choose slots; `Learning` maps input rates to slots by
what it has seen (Gedik et al., as DABS-Storm uses it). Enorm 3.2: `Flux` moves shards between pairs
of slots.
Elasticutor 5: the resource-centric and the executor-centric ways use the same model of latency and
the same balancing, and differ in what a change costs: a live run with such a policy waits for as
long as the paper measured. The naive executor-centric one leaves out of account where shards are,
which on one host shows in how many of them move; for cores of hosts it is `naive` in
place/assignment.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log

import numpy as np

from anabranch.elastic.balance import assign_anew
from anabranch.elastic.observation import Change, ComponentEvaluation, Evaluation, PolicyRequest
from anabranch.elastic.policies.base import BasePolicy
from anabranch.elastic.policies.latency import Network
from anabranch.plan.route import Route

# The (negative) value of slots that cannot keep up: less than any number of slots that can.
_OVERLOADED = 1e5


@dataclass(frozen=True, slots=True)
class Static(BasePolicy):
    """Slots never change."""

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        del latency_s, most
        return PolicyRequest(
            slots={each.name: each.slots for each in seen.components}, reason="slots are fixed"
        )


@dataclass(frozen=True, slots=True)
class Flux(Static):
    """Slots never change; shards move as in Flux, whatever balancing is set (Enorm 3.2)."""

    def balancing(self, setting: str) -> str:
        del setting
        return "flux"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incremental(BasePolicy):
    """One slot more above a threshold of CPU usage, one less below another.

    Nothing else counts (DABS-Storm 7.2, which gives no figures).
    """

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
    """The value of (state of the input rate, slots) a value, and how often it was tried."""

    values: Mapping[tuple[int, int], float] = field(default_factory=dict)
    tried: Mapping[tuple[int, int], int] = field(default_factory=dict)
    fineness: float = 0.25  # rates that differ by less than this part are alike

    def state(self, rate: float) -> int:
        return floor(log(rate + 1.0) / log(1.0 + self.fineness))

    def learnt(self, rate: float, slots: int, busy: float, above: float = 0.8) -> Knowledge:
        """After a step with this input, slots and usage.

        Fewer slots are better, unless they are overloaded.
        """
        reward = -float(slots) if busy <= above else -_OVERLOADED * busy
        place = (self.state(rate), slots)
        times = self.tried.get(place, 0) + 1
        value = self.values.get(place, 0.0)
        value += (reward - value) / times
        return replace(
            self, values={**self.values, place: value}, tried={**self.tried, place: times}
        )

    def best(self, rate: float) -> int | None:
        """The best slots known for such a rate; None if none is known that keeps up."""
        at = self.state(rate)
        known = {
            slots: value
            for (state, slots), value in self.values.items()
            if state == at and value > -_OVERLOADED / 2
        }
        return max(known, key=lambda slots: known[slots], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning(BasePolicy):
    """Slots by the mean input rate of the recent past, as DABS-Storm describes its rival.

    The backlog does not count. An unknown rate is answered by one slot more or less, by usage. With
    `explore` > 0 other slots are tried now and then, by a seed.
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
    """What it costs to move shards: to agree on it, and to carry state.

    Where the route is global, all tasks upstream must agree.
    """

    name: str
    agree_s: float
    agree_upstream_s: float = 0.0
    bytes_per_s: float = 125e6  # Elasticutor's network, 1 Gbit/s

    def pause_s(self, shards: int, upstream: int, moved_bytes: float) -> float:
        """How long rows of the moved shards wait. `moved_bytes` crosses hosts: 0 on one host."""
        agree_s = self.agree_s + self.agree_upstream_s * upstream if shards else 0.0
        return agree_s + moved_bytes / self.bytes_per_s


# Elasticutor 5.1: some 2 ms, whatever is upstream; 2 to 3 orders more, and growing.
EXECUTOR_CENTRIC = Paradigm(name="executor-centric", agree_s=0.002)
RESOURCE_CENTRIC = Paradigm(name="resource-centric", agree_s=0.2, agree_upstream_s=0.005)
NAIVE = replace(EXECUTOR_CENTRIC, name="naive executor-centric")


@dataclass(frozen=True, slots=True, kw_only=True)
class Centric(BasePolicy):
    """Elasticutor's model of latency, with what a change costs in one of its paradigms."""

    paradigm: Paradigm
    model: Network = field(default_factory=Network)
    careful: bool = True  # whether shards stay where they are if they can

    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> PolicyRequest:
        request = self.model.wanted(seen, latency_s, most)
        return replace(request, reason=f"{self.paradigm.name}: {request.reason}")

    def resized(self, each: ComponentEvaluation, slots: int) -> Route:
        if self.careful:
            return BasePolicy.resized(self, each, slots)
        return assign_anew(each.share, slots, each.route.version + 1)

    def pause_s(self, seen: Evaluation, changes: Sequence[Change]) -> float:
        """How long rows wait: the changes of components follow each other.

        On one host no state travels.
        """
        components = {each.name: each for each in seen.components}
        pause_s = 0.0
        for change in changes:
            each = components[change.component]
            pairs = zip(each.route.slot_of, change.route.slot_of, strict=True)
            shards = sum(before != after for before, after in pairs)
            upstream = sum(components[parent].slots for parent in each.parents) or seen.cores
            pause_s += self.paradigm.pause_s(shards, upstream, 0.0)
        return pause_s
