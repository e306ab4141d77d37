"""Elasticutor's micro-benchmark (5.1): one operator, with keys by Zipf's law.

The frequencies of keys are permuted omega times per minute. The paper does not say how much is
offered, nor how large buffers are. Here it is `load` times what all cores can do, and Storm's
buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.elastic.balance import THETA
from anabranch.elastic.observation import Floats
from anabranch.lab.elasticutor.paradigms import RESOURCE, STATIC, UnitScaler, mover
from anabranch.lab.simulator import (
    Cluster,
    Job,
    SimulatedTotals,
    Simulation,
    by_shard,
    hashed,
    zipf,
)

_WARM_S = 25  # the resource-centric way needs this long for a deployment that was never balanced


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """One setting of the benchmark; the defaults are the paper's."""

    hosts: int = 32
    executors: int = 32
    shards: int = 256  # per executor
    keys: int = 10_000
    skew: float = 0.5
    cost_s: float = 0.001
    row_bytes: float = 128.0
    shard_bytes: float = 32 * 1024.0
    omega: float = 2.0
    load: float = 0.7
    seconds: float = 60.0
    upstream: int = 32
    theta: float = THETA
    seed: int = 1
    dt: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """The results of a run after its warm-up."""

    rows_per_s: float
    latency_s: float
    by_second: Sequence[float]
    moved_bytes_per_s: float
    remote_bytes_per_s: float
    scheduling_s: float


def start(setting: Micro, way: str) -> tuple[Simulation, UnitScaler | None, list[Floats]]:
    """A simulation and its way before the first row, and the frequencies of shards.

    There is one list of frequencies per permutation.
    """
    shards = setting.executors * setting.shards if way not in (STATIC, RESOURCE) else 32 * 256
    chance = np.random.default_rng([setting.seed, 7])
    frequencies = zipf(setting.keys, setting.skew)
    shard_of = hashed(setting.keys, shards, [setting.seed, 3])
    turns = 1 + int(setting.omega * setting.seconds / 60)
    shares = [
        by_shard(frequencies[chance.permutation(setting.keys)], shard_of, shards)
        for _ in range(turns)
    ]
    job = Job(
        name="calculator",
        cost_s=setting.cost_s,
        shards=shards,
        row_bytes=setting.row_bytes,
        shard_bytes=setting.shard_bytes,
    )
    cluster = Cluster(hosts=setting.hosts)
    table = np.zeros(shards, dtype=np.int64)
    run = Simulation(cluster, [job], [table], [shares[0]], upstream=setting.upstream)
    return (
        run,
        mover(way, run, [setting.executors], [range(cluster.cores)], theta=setting.theta),
        shares[1:],
    )


def simulate(setting: Micro, way: str) -> SimulatedRun:
    """Warms up, then shuffles omega times per minute."""
    run, moves, shares = start(setting, way)
    offered = setting.load * run.cluster.cores / setting.cost_s
    run.run(_WARM_S, offered, setting.dt, moves)
    run.totals = SimulatedTotals()
    by_second: list[float] = []
    if not shares:
        by_second += run.run(setting.seconds, offered, setting.dt, moves)
    for share in shares:
        run.share([share])
        by_second += run.run(60 / setting.omega, offered, setting.dt, moves)
    totals = run.totals
    return SimulatedRun(
        rows_per_s=totals.done / totals.span_s,
        latency_s=totals.latency_s(setting.cost_s),
        by_second=by_second,
        moved_bytes_per_s=totals.moved_bytes / totals.span_s,
        remote_bytes_per_s=totals.remote_bytes / totals.span_s,
        scheduling_s=float(np.median(moves.seconds)) if moves is not None else 0.0,
    )


def dip_s(by_second: Sequence[float], offered: float, period_s: int, enough: float = 0.95) -> float:
    """How long after a shuffle throughput is back for good, on average over the shuffles.

    0 if there is no dip.
    """
    found = []
    for at in range(0, len(by_second) - period_s + 1, period_s):
        low = [
            i + 1 for i, rate in enumerate(by_second[at : at + period_s]) if rate < enough * offered
        ]
        found.append(low[-1] if low else 0)
    return float(np.mean(found))


def agreement_s(setting: Micro, way: str, tries: int = 20) -> float:
    """How long one shard takes to move between two cores of one host, in a run that keeps up."""
    run, moves, _ = start(setting, way)
    assert moves is not None
    offered = setting.load * run.cluster.cores / setting.cost_s
    run.run(_WARM_S, offered, setting.dt, moves)
    chance = np.random.default_rng([setting.seed, 11])
    found = []
    for unit in (moves.units[i] for i in chance.integers(0, len(moves.units), tries)):
        place = chance.choice(unit.cores, 1)
        found.append(float(moves.due(run, unit, place, place)[0]) - run.now)
    return float(np.median(found))
