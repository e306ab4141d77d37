"""CBP 6.3, Table 1: end-to-end latency of the extended Linear Road, by component plan.

It has 180 operators on 30 machines. A row's latency is that of the longest way through the
operators of its road. For each component on the way it has three parts: the queue of a machine, a
network hop if the next operator is in another component, and the rest of a pause.

While a component is adapted, all its rows are buffered upstream and replayed afterwards (6.3). A
machine that is busy for a share u of the time catches up with a pause of p seconds within
p / (1 - u) seconds. The functions of a live run (`balance`, `spread`) choose slots and shards every
1/f minutes, from the minutes before.

What the paper leaves open, as it is here:

- Machines have one core and are equally loaded.
- Sending a row costs as much as processing it. The cost is such that the baseline's machines are
  busy for three quarters of the time.
- A hop takes 30 ms on average, or 1 ms within a machine.
- A move takes one second to agree, and then carries 100,000 rows of 20 bytes per second. With that,
  the baseline's longest latency is Table 1's 2.1 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from anabranch.elastic.balance import THETA, apply_moves, balance, spread
from anabranch.plan.planners.cbp import plan_greedily
from anabranch.plan.planners.cola import place_slots
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import PlannerOperator, Space, StreamGraph
from anabranch.plan.planners.set_cover import pool, refine_partition
from anabranch.plan.planners.solution import fusion_plan
from anabranch.plan.route import Route, even_route

Array = NDArray[np.float64]

WAYS = ("greedy", "mwsc", "baseline")
_INNER = (
    (1, 2, 4),
    (1, 3, 4),
    (1, 5, 4),
    (1, 6),
)  # the ways of a row through the operators of its road


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """Costs and delays of rows on their way, in seconds and rows."""

    capacity: float = 5000  # rows per minute that a slot is planned for
    busy: float = 0.75  # the share of the time in which the baseline's machines work
    hop_s: float = 0.03
    local_s: float = 0.001
    agree_s: float = 1.0
    rows_per_s: float = 100_000  # of state that moves
    hosts: int = 30
    rows: int = 20_000  # that are simulated
    theta: float = THETA
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency of all simulated rows, in ms."""

    mean: float
    median: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """Components, as sets of operators, and their communication.

    That is how often a hop between two of them leaves its machine, and the rows that do.
    """

    components: Sequence[frozenset[str]]
    remote: float
    sent: float


def deployments(
    streams: StreamGraph, rules: Adaptation, road: Road, most: int
) -> dict[str, Deployed]:
    """The plans of both planners, and single operators on machines chosen by communication."""
    costs = Costs(Space(streams, ordered=False), rules)
    greedy = plan_greedily(streams, rules, ordered=False)
    mwsc = fusion_plan(costs, refine_partition(costs, pool(costs, most)), "mwsc")
    placed = place_slots(streams, rules, road.hosts)
    away = 1 - 1 / road.hosts
    return {
        "greedy": Deployed(
            components=sorted(greedy.partition, key=min), remote=away, sent=greedy.communication
        ),
        "mwsc": Deployed(
            components=sorted(mwsc.partition, key=min), remote=away, sent=mwsc.communication
        ),
        "baseline": Deployed(
            components=[frozenset([operator.name]) for operator in streams.operators],
            remote=placed.communication / streams.rate,
            sent=placed.communication,
        ),
    }


def _pauses(loads: Array, states: Array, every: int, road: Road) -> Array:
    """How long a component is paused at the start of each minute, in seconds.

    It is adapted every `every` minutes.
    """
    minutes, shards = loads.shape
    pauses = np.zeros(minutes)
    route = even_route(shards, max(1, ceil(loads[0].sum() / road.capacity)))
    for minute in range(every, minutes, every):
        recent = loads[minute - every : minute].mean(axis=0)
        after = _route(recent, route, max(1, ceil(recent.sum() / road.capacity - 1e-9)), road.theta)
        away = np.flatnonzero(np.array(after.slot_of) != np.array(route.slot_of))
        if len(away):
            pauses[minute] = road.agree_s + states[minute, away].sum() / road.rows_per_s
        route = after
    return pauses


def _route(loads: Array, route: Route, slots: int, theta: float) -> Route:
    if slots != route.slots:
        return spread(loads, route, slots)
    return Route(
        apply_moves(route.slot_of, balance(loads, route.slot_of, slots, theta)),
        slots,
        route.version + 1,
    )


def row_cost_s(streams: StreamGraph, sent: float, road: Road) -> float:
    """The cost of processing or sending a row at which machines are busy as planned.

    `sent` is the number of rows that they send.
    """
    loads = [o.loads for o in streams.operators if o.loads is not None]
    return (
        road.busy
        * road.hosts
        * 60
        * len(loads[0])
        / (sum(float(each.sum()) for each in loads) + sent)
    )


def latency(
    streams: StreamGraph, deployed: Deployed, every: int, road: Road, cost_s: float
) -> Latency:
    """Simulates rows of all roads and minutes through a deployment."""
    by_name = {operator.name: operator for operator in streams.operators}
    sums = [_sums([by_name[name] for name in sorted(names)]) for names in deployed.components]
    loads = [load for load, _ in sums]
    pauses = [_pauses(load, states, every, road) for load, states in sums]
    used = _used(loads, deployed.sent, road, cost_s)
    chance = np.random.default_rng([road.seed, every, 41])
    component_of = {name: i for i, names in enumerate(deployed.components) for name in names}
    roads = sorted({name.split(".")[0] for name in by_name})
    took = []
    for name in roads:
        parts = {o: component_of[f"{name}.o{o}"] for o in range(1, 7)}
        took.append(
            _follow(
                by_name[f"{name}.o1"].loads,
                parts,
                (pauses, used, cost_s),
                deployed.remote,
                (road, len(roads)),
                chance,
            )
        )
    ms = 1000 * np.concatenate(took)
    return Latency(
        mean=float(ms.mean()),
        median=float(np.median(ms)),
        p95=float(np.quantile(ms, 0.95)),
        most=float(ms.max()),
    )


def _sums(operators: Sequence[PlannerOperator]) -> tuple[Array, Array]:
    """Loads and states of a component, by minute and shard."""
    known = [(each.state, each.loads) for each in operators if each.loads is not None]
    states = [state * own / np.maximum(1, own.sum(axis=1, keepdims=True)) for state, own in known]
    return np.sum([own for _, own in known], axis=0), np.sum(states, axis=0)


def _used(loads: Sequence[Array], sent: float, road: Road, cost_s: float) -> Array:
    """The share of the time in which a machine works, by minute."""
    rows = np.sum([load.sum(axis=1) for load in loads], axis=0) + sent / len(loads[0])
    found: Array = np.minimum(rows * cost_s / 60 / road.hosts, 0.98)
    return found


def _follow(
    loads: Array | None,
    parts: Mapping[int, int],
    met: tuple[Sequence[Array], Array, float],
    remote: float,
    road: tuple[Road, int],
    chance: np.random.Generator,
) -> Array:
    """How long each simulated row of one road takes, on the longest of its ways."""
    assert loads is not None
    times, count = road[0], road[0].rows // road[1]
    minutes, shards = loads.shape
    cell = chance.choice(minutes * shards, count, p=(loads / loads.sum()).ravel())
    minute = cell // shards
    second = 60 * chance.random(count)
    pauses, used, cost_s = met
    idle = 1 - used[minute]
    ends = []
    for way in _INNER:
        passed = np.zeros(count)
        before = None
        for component in (parts[o] for o in way):
            if component == before:
                continue
            if before is not None:
                passed += chance.exponential(
                    np.where(chance.random(count) < remote, times.hop_s, times.local_s)
                )
            passed += np.maximum(0.0, pauses[component][minute] - idle * (second + passed))
            passed += chance.exponential(cost_s / idle)
            before = component
        ends.append(passed)
    found: Array = np.max(ends, axis=0)
    return found
