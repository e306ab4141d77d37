"""Elasticutor's stock exchange (5.4): orders, a transactor, and eleven operators on its trades.

Keys come and go. The orders of the Shanghai Stock Exchange are not public; they are drawn instead.
The popularity of stocks follows Zipf's law, times a factor that changes from second to second (a
lognormal, mean-reverting). Now and then a stock is suddenly in demand.

Costs are such that 256 cores do some 300,000 orders per second (the paper's 218,600 at three
quarters of that). 12 operators of 32 executors would be more executors than there are cores. So
there are about two per host, as the paper advises (5.3), and operators get them by their share of
the work. Then a host can hold what an executor wants: a third of all work is the transactor's.

No stock is in such demand that its orders alone need more than nine tenths of a core: no way could
help there, and the paper's throughput shows no such stock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from anabranch.elastic.balance import THETA
from anabranch.elastic.observation import Floats
from anabranch.lab.elasticutor.micro import SimulatedRun
from anabranch.lab.elasticutor.paradigms import mover
from anabranch.lab.simulator import (
    Cluster,
    Job,
    SimulatedTotals,
    Simulation,
    by_shard,
    hashed,
    zipf,
)

_WARM_S = 8
_ANALYTICS = 11
_ORDER_BYTES, _TRANSACTION_BYTES = 96.0, 160.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Some days at the exchange, each a few seconds long."""

    hosts: int = 32
    shards: int = 256  # per executor
    stocks: int = 1500
    skew: float = 0.5
    wander: float = 0.5  # standard deviation of the logarithm of a stock's factor
    forget_s: float = 20.0
    bursts: float = 0.2  # stocks per second that are suddenly in demand
    burst: float = 4.0  # the factor of such a demand
    transactor_s: float = 0.0003
    analytic_s: float = 0.0001
    per_order: float = 0.5  # transactions
    load: float = 0.75
    seconds: int = 15  # per day
    days: int = 4
    theta: float = THETA
    seed: int = 1
    dt: float = 0.05

    @property
    def works(self) -> Floats:
        """The share of each operator in all work: the transactor first."""
        found = np.array([self.transactor_s] + [self.analytic_s * self.per_order] * _ANALYTICS)
        shares: Floats = found / found.sum()
        return shares

    @property
    def executors(self) -> list[int]:
        """The number of executors of each operator."""
        return [max(1, round(2 * self.hosts * work)) for work in self.works.tolist()]

    @property
    def offered(self) -> float:
        """Orders per second."""
        return self.load * Cluster(hosts=self.hosts).cores / self.order_s

    @property
    def most(self) -> float:
        """The highest share of a stock."""
        return 0.9 / (self.offered * self.transactor_s)

    @property
    def order_s(self) -> float:
        """Core time of an order with all that follows from it, in seconds."""
        return self.transactor_s + _ANALYTICS * self.per_order * self.analytic_s


def demand(setting: Exchange, seconds: int) -> Floats:
    """The share of each stock in each second."""
    chance = np.random.default_rng([setting.seed, 5])
    base = chance.permutation(zipf(setting.stocks, setting.skew))
    keep = np.exp(-1 / setting.forget_s)
    factor = chance.normal(0, setting.wander, setting.stocks)
    wanted = np.zeros(setting.stocks)
    rows = []
    for _ in range(seconds):
        factor = keep * factor + chance.normal(
            0, setting.wander * np.sqrt(1 - keep**2), setting.stocks
        )
        wanted *= keep
        new = chance.integers(0, setting.stocks, chance.poisson(setting.bursts))
        wanted[new] = np.log(setting.burst)
        rates = base * np.exp(factor + wanted)
        rows.append(capped(rates / rates.sum(), setting.most))
    return np.array(rows)


def capped(shares: Floats, most: float) -> Floats:
    """Shares of which none is above a limit; the excess goes to the others."""
    while shares.max() > most * (1 + 1e-9):
        high = shares >= most
        shares = np.where(high, most, shares * (1 - most * high.sum()) / shares[~high].sum())
    return shares


def simulate(setting: Exchange, way: str) -> SimulatedRun:
    """The average over some days: it is random which executors get which stocks."""
    found = [
        one_day(replace(setting, seed=1000 * setting.seed + day), way)
        for day in range(setting.days)
    ]
    return SimulatedRun(
        rows_per_s=fmean(ran.rows_per_s for ran in found),
        latency_s=fmean(ran.latency_s for ran in found),
        by_second=[rate for ran in found for rate in ran.by_second],
        moved_bytes_per_s=fmean(ran.moved_bytes_per_s for ran in found),
        remote_bytes_per_s=fmean(ran.remote_bytes_per_s for ran in found),
        scheduling_s=fmean(ran.scheduling_s for ran in found),
    )


def one_day(setting: Exchange, way: str) -> SimulatedRun:
    """Orders for some seconds after a warm-up; frequencies change every second."""
    cluster = Cluster(hosts=setting.hosts)
    shards = [count * setting.shards for count in setting.executors]
    jobs = [
        Job(
            name="transactor", cost_s=setting.transactor_s, shards=shards[0], row_bytes=_ORDER_BYTES
        )
    ]
    jobs += [
        Job(
            name=f"analytics {i}",
            cost_s=setting.analytic_s,
            parent=0,
            per_parent=setting.per_order,
            row_bytes=_TRANSACTION_BYTES,
            shards=shards[1 + i],
        )
        for i in range(_ANALYTICS)
    ]
    shares = demand(setting, _WARM_S + setting.seconds)
    shard_of = [hashed(setting.stocks, shards[j], [setting.seed, 3, j]) for j in range(len(jobs))]
    by_second = [
        [by_shard(row, table, count) for table, count in zip(shard_of, shards, strict=True)]
        for row in shares
    ]
    tables = [np.zeros(count, dtype=np.int64) for count in shards]
    run = Simulation(cluster, jobs, tables, by_second[0], upstream=setting.hosts)
    moves = mover(way, run, setting.executors, _dealt(cluster.cores, setting), theta=setting.theta)
    done: list[float] = []
    for second, share in enumerate(by_second):
        if second == _WARM_S:
            run.totals, done = SimulatedTotals(), []
        run.share(share)
        done += run.run(1, setting.offered, setting.dt, moves)
    totals = run.totals
    return SimulatedRun(
        rows_per_s=totals.done / totals.span_s,
        latency_s=totals.latency_s(setting.transactor_s + setting.analytic_s),
        by_second=done,
        moved_bytes_per_s=totals.moved_bytes / totals.span_s,
        remote_bytes_per_s=totals.remote_bytes / totals.span_s,
        scheduling_s=float(np.median(moves.seconds)) if moves is not None else 0.0,
    )


def _dealt(cores: int, setting: Exchange) -> list[list[int]]:
    """Cores of each operator by its share of the work, as a static deployment has them."""
    ends = np.round(np.cumsum(setting.works) * cores).astype(int)
    order = list(range(cores))
    return [order[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
