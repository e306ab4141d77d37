"""Elasticutor's figures and tables: each function runs one of them on the simulator.

`claims.py` has what the paper says about them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log10

from anabranch.elastic.balance import THETA
from anabranch.lab.elasticutor import stocks
from anabranch.lab.elasticutor.claims import judged
from anabranch.lab.elasticutor.micro import Micro, SimulatedRun, agreement_s, dip_s, simulate
from anabranch.lab.elasticutor.paradigms import ELASTICUTOR, NAIVE, RESOURCE, STATIC, WAYS
from anabranch.lab.elasticutor.stocks import Exchange
from anabranch.lab.report import Chart, FigureResult, Table

OMEGAS = (0, 2, 4, 8, 16)
_THREE = (STATIC, RESOURCE, ELASTICUTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticutorSetting:
    """What all experiments of the paper share."""

    hosts: int = 32
    seconds: float = 60.0
    load: float = 0.7
    theta: float = THETA
    seed: int = 1

    def micro(self, **more: float) -> Micro:
        """The paper's workload.

        Fewer hosts have fewer keys, so that the most frequent key takes the same share of a core.
        """
        keys = max(64, round(Micro().keys * (self.hosts / 32) ** 2))
        base = Micro(
            hosts=self.hosts,
            load=self.load,
            theta=self.theta,
            seed=self.seed,
            seconds=self.seconds,
            keys=keys,
        )
        return replace(base, **more)  # type: ignore[arg-type]

    def exchange(self, hosts: int | None = None) -> Exchange:
        return Exchange(
            hosts=hosts or self.hosts,
            theta=self.theta,
            seed=self.seed,
            seconds=round(self.seconds / 4),
        )


def dynamics(setting: ElasticutorSetting) -> FigureResult:
    """Fig. 6: throughput and latency by omega; Fig. 7: throughput per second at omega = 2."""
    found = {
        (way, omega): simulate(setting.micro(omega=omega), way)
        for way in _THREE
        for omega in OMEGAS
    }
    offered = setting.load * setting.hosts * 8 / Micro().cost_s
    rows = [
        (way, omega, ran.rows_per_s, 1000 * ran.latency_s) for (way, omega), ran in found.items()
    ]
    dips = {way: dip_s(found[way, 2].by_second, offered, 30) for way in (RESOURCE, ELASTICUTOR)}

    def rate(way: str, omega: int) -> float:
        return found[way, omega].rows_per_s

    def orders(way: str, over: str) -> float:
        return log10(found[way, 16].latency_s / found[over, 0].latency_s)

    static = [rate(STATIC, omega) for omega in OMEGAS]
    claims = judged(
        {
            "6-static": static[1] / rate(ELASTICUTOR, 2),
            "6-flat": min(static) / max(static),
            "6-rc-before": rate(RESOURCE, 0) / static[0],
            "6-collapse": orders(RESOURCE, RESOURCE),
            "6-gap": orders(RESOURCE, ELASTICUTOR),
            "6-loss": rate(ELASTICUTOR, 16) / rate(ELASTICUTOR, 0),
            "6-lead": rate(ELASTICUTOR, 16) / rate(RESOURCE, 16),
            "7-rc": dips[RESOURCE],
            "7-ec": dips[ELASTICUTOR],
            "7-gap": dips[RESOURCE] - dips[ELASTICUTOR],
        }
    )
    return FigureResult(
        claims=claims,
        tables=[Table(head=["way", "omega", "rows/s", "latency ms"], rows=rows)],
        charts=_dynamics_charts(found),
    )


def _dynamics_charts(found: Mapping[tuple[str, int], SimulatedRun]) -> list[Chart]:
    by_way = {way: [found[way, omega] for omega in OMEGAS] for way in _THREE}
    return [
        Chart(
            title="Fig. 6a",
            x="key shuffles per minute",
            y="rows/s",
            lines={way: (OMEGAS, [ran.rows_per_s for ran in runs]) for way, runs in by_way.items()},
        ),
        Chart(
            title="Fig. 6b",
            x="key shuffles per minute",
            y="mean latency, ms",
            log_y=True,
            lines={
                way: (OMEGAS, [1000 * ran.latency_s for ran in runs])
                for way, runs in by_way.items()
            },
        ),
        Chart(
            title="Fig. 7, two shuffles a minute",
            x="second",
            y="rows/s",
            lines={
                way: (range(len(found[way, 2].by_second)), found[way, 2].by_second)
                for way in _THREE
            },
        ),
    ]


def reassignment(setting: ElasticutorSetting) -> FigureResult:
    """Fig. 9a: the time to agree on the move of one shard, by number of executors upstream."""
    upstream = (1, 4, 16, 64, 256)
    took = {
        way: [agreement_s(setting.micro(omega=0, seconds=1, upstream=u), way) for u in upstream]
        for way in (RESOURCE, ELASTICUTOR)
    }
    rc, ec = took[RESOURCE], took[ELASTICUTOR]
    claims = judged(
        {
            "9-ec": 1000 * ec[2],
            "9-flat": ec[-1] / ec[0],
            "9-orders": log10(rc[2] / ec[2]),
            "9-grows": rc[-1] / rc[0],
        }
    )
    rows = [(u, 1000 * a, 1000 * b) for u, a, b in zip(upstream, rc, ec, strict=True)]
    lines = {way: (upstream, [1000 * each for each in times]) for way, times in took.items()}
    chart = Chart(
        title="Fig. 9a", x="executors upstream", y="ms", lines=lines, log_x=True, log_y=True
    )
    return FigureResult(
        claims=claims,
        tables=[Table(head=["upstream", "resource-centric ms", "elasticutor ms"], rows=rows)],
        charts=[chart],
    )


def scaling(setting: ElasticutorSetting) -> FigureResult:
    """Fig. 10: one executor on ever more cores, by the cost and the size of a row.

    Throughput is in multiples of what one core can do.
    """
    sizes = [hosts * 8 for hosts in (1, 2, 4, 8, 16, 32) if hosts <= setting.hosts]
    cases: dict[str, dict[str, float]] = {
        "0.01 ms": {"cost_s": 1e-5},
        "0.1 ms": {"cost_s": 1e-4},
        "1 ms": {},
        "10 ms": {"cost_s": 1e-2},
        "512 B": {"row_bytes": 512},
        "2 KB": {"row_bytes": 2048},
        "8 KB": {"row_bytes": 8192},
    }
    used: dict[str, list[float]] = {}
    for name, more in cases.items():
        used[name] = []
        for cores in sizes:
            micro = setting.micro(
                hosts=cores // 8, executors=1, shards=8192, load=1.0, omega=2, seconds=30, **more
            )
            used[name].append(simulate(micro, ELASTICUTOR).rows_per_s * micro.cost_s)
    most = sizes[-1]
    claims = judged(
        {
            "10-scales": used["1 ms"][-1],
            "10-8kb": used["8 KB"][-1],
            "10-light": used["0.01 ms"][-1],
        }
    )
    what = f"rows that one executor does on {most} cores, in cores' worth"
    claims[0] = replace(claims[0], what=what, paper=most)
    rows = [(name, *values) for name, values in used.items()]
    charts = [
        Chart(
            title=title,
            x="cores",
            y="cores' worth of rows",
            log_x=True,
            log_y=True,
            lines={name: (sizes, used[name]) for name in names},
        )
        for title, names in (
            ("Fig. 10, by cost of a row", ("0.01 ms", "0.1 ms", "1 ms", "10 ms")),
            ("Fig. 10, by size of a row", ("1 ms", "512 B", "2 KB", "8 KB")),
        )
    ]
    return FigureResult(
        claims=claims,
        tables=[Table(head=["one executor", *(f"{cores} cores" for cores in sizes)], rows=rows)],
        charts=charts,
    )


def granularity(setting: ElasticutorSetting) -> FigureResult:
    """Fig. 13: throughput by the number of executors y and of shards per executor z.

    The workloads are default, data-intensive and highly dynamic.
    """
    cores = setting.hosts * 8
    executors = (1, max(2, setting.hosts // 4), setting.hosts, cores)
    shards = (4, 16, 64, 256, 1024)
    workloads = {
        "default": {"omega": 2.0},
        "data-intensive": {"row_bytes": 8192.0},
        "highly dynamic": {"omega": 16.0},
    }
    seconds = min(30.0, setting.seconds)
    rows: list[Sequence[object]] = []
    found: dict[tuple[object, ...], float] = {}
    for name, more in workloads.items():
        for way in (STATIC, RESOURCE):
            found[name, way] = simulate(
                setting.micro(load=1.0, **{"seconds": seconds, **more}), way
            ).rows_per_s
        for y in executors:
            for z in shards:
                micro = setting.micro(
                    load=1.0, executors=y, shards=z, **{"seconds": seconds, **more}
                )
                found[name, y, z] = simulate(micro, ELASTICUTOR).rows_per_s
        rows += [
            (
                name,
                y,
                *(found[name, y, z] for z in shards),
                found[name, STATIC],
                found[name, RESOURCE],
            )
            for y in executors
        ]
    usual = [found["default", setting.hosts, z] for z in shards]
    one = [found[name, 1, 256] for name in workloads]
    fallen = found["default", cores, 256]
    claims = judged(
        {
            "13-shards": usual[3] / usual[0],
            "13-less": (usual[4] - usual[3]) / (usual[1] - usual[0]),
            "13-static": fallen / found["default", STATIC],
            "13-elastic": usual[3] / fallen,
            "13-one": one[1] / one[0],
        }
    )
    head = ["workload", "executors", *(f"{z} shards" for z in shards), "static", "resource-centric"]
    charts = [
        Chart(
            title=f"Fig. 13, {name}",
            x="shards of an executor",
            y="rows/s",
            log_x=True,
            lines={
                **{
                    f"{y} executors": (shards, [found[name, y, z] for z in shards])
                    for y in executors
                },
                **{way: (shards, [found[name, way]] * len(shards)) for way in (STATIC, RESOURCE)},
            },
        )
        for name in workloads
    ]
    return FigureResult(claims=claims, tables=[Table(head=head, rows=rows)], charts=charts)


def exchange(setting: ElasticutorSetting) -> FigureResult:
    """Fig. 16, Tables 2 and 3: the stock exchange."""
    found = {way: stocks.simulate(setting.exchange(), way) for way in WAYS}
    smaller = {
        hosts: stocks.simulate(setting.exchange(hosts), ELASTICUTOR)
        for hosts in (setting.hosts // 4, setting.hosts // 2)
    }
    sizes = {**smaller, setting.hosts: found[ELASTICUTOR]}
    rows = [
        (
            way,
            ran.rows_per_s,
            1000 * ran.latency_s,
            ran.moved_bytes_per_s / 1e6,
            ran.remote_bytes_per_s / 1e6,
            1000 * ran.scheduling_s,
        )
        for way, ran in found.items()
    ]
    claims = judged(_figure_16(found) | _table_2(found) | _table_3(sizes))
    head = [
        "stock exchange",
        "orders/s",
        "latency ms",
        "state moved MB/s",
        "remote data MB/s",
        "scheduling ms",
    ]
    scaled = Table(
        head=["hosts", "orders/s", "scheduling ms"],
        rows=[(hosts, ran.rows_per_s, 1000 * ran.scheduling_s) for hosts, ran in sizes.items()],
    )
    return FigureResult(
        claims=claims,
        tables=[Table(head=head, rows=rows), scaled],
        charts=_exchange_charts(found, sizes),
    )


def _figure_16(found: Mapping[str, SimulatedRun]) -> dict[str, float]:
    best = found[ELASTICUTOR]
    ours = {}
    for way, name in ((STATIC, "static"), (RESOURCE, "rc")):
        ours[f"16-throughput-{name}"] = 100 * (best.rows_per_s / found[way].rows_per_s - 1)
        ours[f"16-latency-{name}"] = log10(found[way].latency_s / best.latency_s)
    return ours


def _table_2(found: Mapping[str, SimulatedRun]) -> dict[str, float]:
    naive, best = found[NAIVE], found[ELASTICUTOR]
    state = naive.moved_bytes_per_s / max(1.0, best.moved_bytes_per_s)
    remote = naive.remote_bytes_per_s / max(1.0, best.remote_bytes_per_s)
    return {
        "t2-state": state,
        "t2-state-less": state,
        "t2-remote": remote,
        "t2-remote-less": remote,
    }


def _table_3(sizes: Mapping[int, SimulatedRun]) -> dict[str, float]:
    small, middle, large = (sizes[hosts].rows_per_s for hosts in sorted(sizes))
    slowest_ms = max(1000 * ran.scheduling_s for ran in sizes.values())
    return {"t3-2x": middle / small, "t3-4x": large / small, "t3-ms": slowest_ms}


def _exchange_charts(
    found: Mapping[str, SimulatedRun], sizes: Mapping[int, SimulatedRun]
) -> list[Chart]:
    return [
        Chart(
            title="Fig. 16a",
            x="second",
            y="orders/s",
            lines={way: (range(len(ran.by_second)), ran.by_second) for way, ran in found.items()},
        ),
        Chart(
            title="Fig. 16b",
            x="",
            y="mean latency, ms",
            log_y=True,
            lines={"latency": (list(WAYS), [1000 * found[way].latency_s for way in WAYS])},
        ),
        Chart(
            title="Table 3",
            x="hosts",
            y="orders/s",
            lines={ELASTICUTOR: (list(sizes), [ran.rows_per_s for ran in sizes.values()])},
        ),
    ]
