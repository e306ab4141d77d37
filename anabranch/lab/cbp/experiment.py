"""CBP 6.2, Fig. 3 to 5: random graphs of 100 operators, planned in several ways; 6.3, Linear Road.

The ways are greedy, as a set cover, and by placement. `graphs.py` draws the graphs, and
`linear_road.py` computes the latencies of Table 1. The paper does not give its adaptation policy;
ours is `Adaptation` in plan/planners/cost.py.

Plans are made from some minutes and judged in as many later ones, as in 6.3. A plan that was judged
by the minutes that it is made from would look too good: it avoids exactly the loads at which a slot
was added in them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer

from anabranch.lab.cbp.claims import FREQUENCIES, STREAMS, Figure, claims_of, road_claims
from anabranch.lab.cbp.graphs import Drawn, Load, linear_road, random_graph, rows_per_minute
from anabranch.lab.cbp.linear_road import Latency, Road, deployments, latency, row_cost_s
from anabranch.lab.report import AsJson, Chart, LabReport, Plot, Table, show
from anabranch.plan.planners.cbp import plan_greedily
from anabranch.plan.planners.chooser import plan_components
from anabranch.plan.planners.cola import place_slots
from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import Space, StreamGraph
from anabranch.plan.planners.set_cover import greedy_cover, pool, refine_partition
from anabranch.plan.planners.solution import FusionPlan, fusion_plan

WAYS = ("greedy", "mwsc", "cover", "baseline")
_SLOTS = 4  # per host: Storm's default


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """One plan: its costs in rows over the history, its number of components, its planning time."""

    communication: float
    adaptation: float
    components: int
    seconds: float


def cost_of(plan: FusionPlan, drawn: Drawn, rules: Adaptation, seconds: float) -> PlanCost:
    """The cost of a plan in the minutes after those that it was made from."""
    costs = Costs(Space(drawn.run, ordered=False), rules)
    of = {name: i for i, each in enumerate(plan.components) for name in each.operators}
    masks = [
        sum(1 << costs.space.unit_of[name] for name in each.operators) for each in plan.components
    ]
    return PlanCost(
        communication=sum(
            stream.rate for stream in drawn.run.streams if of[stream.source] != of[stream.target]
        ),
        adaptation=sum(costs.adaptation(mask) for mask in masks),
        components=len(masks),
        seconds=seconds,
    )


def greedy_cost(drawn: Drawn, rules: Adaptation) -> PlanCost:
    """Algorithm 1, without levels, as in the paper."""
    began = time.perf_counter()
    plan = plan_greedily(drawn.seen, rules, ordered=False)
    return cost_of(plan, drawn, rules, time.perf_counter() - began)


def costs_of_all(drawn: Drawn, rules: Adaptation, *, most: int, hosts: int) -> dict[str, PlanCost]:
    """Plans in each of the ways.

    MWSC is solved by integer program and by greedy cover, both over the same components.
    """
    found = {"greedy": greedy_cost(drawn, rules)}
    costs = Costs(Space(drawn.seen, ordered=False), rules)
    began = time.perf_counter()
    listed = pool(costs, most)
    pooled = time.perf_counter() - began
    for way, choose in (("mwsc", refine_partition), ("cover", greedy_cover)):
        began = time.perf_counter()
        plan = fusion_plan(costs, choose(costs, listed), way)
        found[way] = cost_of(plan, drawn, rules, pooled + time.perf_counter() - began)
    began = time.perf_counter()
    placed = place_slots(drawn.run, rules, hosts)
    found["baseline"] = PlanCost(
        communication=placed.communication,
        adaptation=placed.adaptation,
        components=len(drawn.run.operators),
        seconds=time.perf_counter() - began,
    )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CbpSetting:
    """What the experiments have in common."""

    operators: int = 100
    repeats: int = 3
    minutes: int = 30
    busy: float = 0.75
    drift: float = 0.02
    hosts: int = 30
    most: int = 300
    seed: int = 1

    def load(self, stream: str) -> Load:
        return Load(minutes=self.minutes, drift=self.drift, skewed=stream == "skewed")

    def rules(self, streams: StreamGraph, every: int = 1) -> Adaptation:
        """A slot does a quarter of the work of a host: Storm's supervisors have four slots."""
        return Adaptation(
            capacity=rows_per_minute(streams) / (_SLOTS * self.hosts * self.busy), every=every
        )


def figures(setting: CbpSetting, degrees: list[int]) -> list[Figure]:
    """Fig. 3 and 4 for each degree, all ways on the same graphs.

    Fig. 5 is by greedy at the last degree, where the most state moves.
    """
    found = []
    for degree in degrees:
        for stream in STREAMS:
            seeds = (1000 * setting.seed + i for i in range(setting.repeats))
            graphs = [
                random_graph(seed, setting.operators, degree, setting.load(stream))
                for seed in seeds
            ]
            costs = [
                costs_of_all(
                    drawn, setting.rules(drawn.seen), most=setting.most, hosts=setting.hosts
                )
                for drawn in graphs
            ]
            found += [
                _figure(degree, stream, way, 1, graphs, [each[way] for each in costs])
                for way in WAYS
            ]
            for every in FREQUENCIES[1:] if degree == degrees[-1] else ():
                slower = [greedy_cost(drawn, setting.rules(drawn.seen, every)) for drawn in graphs]
                found.append(_figure(degree, stream, "greedy", every, graphs, slower))
    return found


def _figure(
    degree: int, stream: str, way: str, every: int, graphs: list[Drawn], costs: list[PlanCost]
) -> Figure:
    runs = [
        (drawn.run.rate + drawn.sent, drawn, cost)
        for drawn, cost in zip(graphs, costs, strict=True)
    ]
    return Figure(
        degree=degree,
        stream=stream,
        way=way,
        every=every,
        saved=statistics.fmean(
            100 * (drawn.run.rate - cost.communication) / rows for rows, drawn, cost in runs
        ),
        moved=statistics.fmean(cost.adaptation for cost in costs),
        components=statistics.fmean(cost.components for cost in costs),
        seconds=statistics.fmean(cost.seconds for cost in costs),
    )


def road_rows(setting: CbpSetting) -> list[tuple[str, int, float, float, float]]:
    """The extended Linear Road of 180 operators over two hours, with and without levels."""
    streams = linear_road(setting.seed, replace(setting.load("skewed"), minutes=120))
    rules = Adaptation(capacity=Road().capacity)
    planners: dict[str, Callable[[], FusionPlan]] = {
        "greedy": lambda: plan_greedily(streams, rules, ordered=False),
        "greedy, level by level": lambda: plan_greedily(streams, rules),
        "chooser, level by level": lambda: plan_components(streams, rules),
    }
    rows = []
    for name, planner in planners.items():
        began = time.perf_counter()
        plan = planner()
        took = time.perf_counter() - began
        rows.append(
            (
                name,
                len(plan.components),
                100 * (1 - plan.communication / streams.rate),
                plan.adaptation,
                took,
            )
        )
    return rows


def road_latencies(setting: CbpSetting, networks: int) -> dict[tuple[str, int], Latency]:
    """Table 1: by deployment and 1/f, on average over some road networks.

    1/f above 1 is measured on the first network only.
    """
    found: dict[tuple[str, int], list[Latency]] = {}
    for i in range(networks):
        seed = 1000 * setting.seed + i
        streams = linear_road(seed, setting.load("skewed"))
        road = Road(seed=seed, hosts=setting.hosts)
        deployed = deployments(streams, Adaptation(capacity=road.capacity), road, setting.most)
        cost_s = row_cost_s(streams, deployed["baseline"].sent, road)
        for way, each in deployed.items():
            for every in FREQUENCIES if i == 0 else (1,):
                found.setdefault((way, every), []).append(
                    latency(streams, each, every, road, cost_s)
                )
    return {
        key: Latency(
            **{
                name: statistics.fmean(getattr(one, name) for one in many)
                for name in ("mean", "median", "p95", "most")
            }
        )
        for key, many in found.items()
    }


def experiment(setting: CbpSetting, degrees: list[int], networks: int = 3) -> LabReport:
    """Fig. 3 to 5 and Table 1."""
    found = figures(setting, degrees)
    road = road_rows(setting)
    latencies = road_latencies(setting, networks)
    tables = [
        Table(
            head=[
                "degree",
                "stream",
                "way",
                "1/f",
                "saved %",
                "rows of state moved",
                "components",
                "seconds",
            ],
            rows=[
                (f.degree, f.stream, f.way, f.every, f.saved, f.moved, f.components, f.seconds)
                for f in found
            ],
        ),
        Table(
            head=[
                "Linear Road, 180 operators",
                "components",
                "saved %",
                "rows of state moved",
                "seconds",
            ],
            rows=road,
        ),
        Table(
            head=["Linear Road, latency", "1/f", "mean ms", "median ms", "95 % ms", "maximum ms"],
            rows=[
                (way, every, each.mean, each.median, each.p95, each.most)
                for (way, every), each in latencies.items()
            ],
        ),
    ]
    roads = [
        dict(zip(("planner", "components", "saved", "moved", "seconds"), row, strict=True))
        for row in road
    ]
    return LabReport(
        lab="cbp",
        claims=claims_of(found) + road_claims(latencies),
        settings={"degrees": degrees, "networks": networks, **asdict(setting)},
        tables=tables,
        charts=_charts(found, degrees),
        more={"figures": [asdict(f) for f in found], "linear_road": roads},
    )


def _charts(found: list[Figure], degrees: list[int]) -> list[Chart]:
    by = {(f.degree, f.stream, f.way, f.every): f for f in found}
    charts = []
    for part, stream in zip("ab", STREAMS, strict=True):
        for number, label, value in (
            (3, "communication, %", "saved"),
            (4, "rows of state moved", "moved"),
        ):
            lines = {
                way: (
                    [str(d) for d in degrees],
                    [_bar(by[d, stream, way, 1], value) for d in degrees],
                )
                for way in ("greedy", "mwsc", "baseline")
            }
            charts.append(
                Chart(title=f"Fig. {number}{part}, {stream}", x="degree", y=label, lines=lines)
            )
        moved = [by[degrees[-1], stream, "greedy", every].moved for every in FREQUENCIES]
        charts.append(
            Chart(
                title=f"Fig. 5{part}, {stream}",
                x="1/f",
                y="rows of state moved",
                lines={"greedy": (FREQUENCIES, moved)},
            )
        )
    return charts


def _bar(figure: Figure, value: str) -> float:
    return 100 - figure.saved if value == "saved" else figure.moved


def cbp_command(
    *,
    degrees: Annotated[
        str, typer.Option(help="Streams for each operator, separated by commas.")
    ] = "3,5,10",
    operators: Annotated[int, typer.Option(min=2, help="Operators of a random graph.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Random graphs of each degree.")] = 3,
    minutes: Annotated[
        int,
        typer.Option(
            min=20,
            help="Minutes of statistics that a plan is made from, and as many to judge it.",
        ),
    ] = 30,
    busy: Annotated[
        float,
        typer.Option(
            min=0.1, max=1, help="Share of what all hosts can do that the operators need."
        ),
    ] = 0.75,
    drift: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of the skewed keys that change places in a minute."),
    ] = 0.02,
    hosts: Annotated[
        int, typer.Option(min=1, help="Hosts that the baseline places slots on.")
    ] = 30,
    most: Annotated[
        int, typer.Option(min=1, help="Sets that are listed for MWSC before larger ones are grown.")
    ] = 300,
    networks: Annotated[
        int, typer.Option(min=1, help="Road networks of which latencies are means.")
    ] = 3,
    seed: Annotated[int, typer.Option(help="One seed gives the same graphs.")] = 1,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Plan components by cost, and compare with placement by communication only (CBP 6).

    Runs Fig. 3 to 5 and Table 1.

    Example: anabranch lab cbp --degrees 3 --repeats 1
    """
    setting = CbpSetting(
        operators=operators,
        repeats=repeats,
        minutes=minutes,
        busy=busy,
        drift=drift,
        hosts=hosts,
        most=most,
        seed=seed,
    )
    show(
        experiment(setting, [int(degree) for degree in degrees.split(",")], networks),
        as_json=as_json,
        plot=plot,
    )
