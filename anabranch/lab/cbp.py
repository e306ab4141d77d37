"""CBP 6.2, Fig. 3 to 5: random graphs of 100 operators, planned greedily, as a set cover and by placement; and 6.3, Linear Road.

Drawn as the paper's Fig. 2 says. What it leaves open: rows from the source go to all operators without another input; a selectivity
is held within 0 and 2; a slot takes `capacity` rows a minute; of the skewed stream's 10,000 keys (Zipf, exponent 1) a share `drift`
changes places each minute. The paper's adaptation policy is not told: see plan/adaptation.py for ours. Latencies (Table 1) are not
judged by plans alone.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from anabranch.lab.claims import Claim, as_line, as_table, claims_table
from anabranch.plan.adaptation import Adaptation, Costs
from anabranch.plan.cbp import plan_greedily
from anabranch.plan.chooser import plan_components
from anabranch.plan.cola import place_slots
from anabranch.plan.components import ComponentPlan, component_plan
from anabranch.plan.set_cover import greedy_cover, pool, refined_partition
from anabranch.plan.streams import Operator, Space, Stream, Streams

WAYS = ("greedy", "mwsc", "cover", "baseline")
STREAMS = ("uniform", "skewed")
FREQUENCIES = (1, 2, 5, 10)
_RATE = 600_000  # rows of a source a minute: a Poisson process of 10,000 a second
_STATE = 10_000
_KEYS = 10_000

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How rows fall on shards, minute by minute."""

    minutes: int = 60
    shards: int = 64
    skewed: bool = False
    drift: float = 0.02

    def shares(self, chance: np.random.Generator) -> Array:
        """The share of each shard in each minute."""
        if not self.skewed:
            return np.full((self.minutes, self.shards), 1 / self.shards)
        weights = 1 / np.arange(1, _KEYS + 1)
        shard_of = chance.integers(0, self.shards, _KEYS)
        rows = []
        for _ in range(self.minutes):
            rows.append(np.bincount(shard_of, weights, minlength=self.shards) / weights.sum())
            moved = chance.choice(_KEYS, int(self.drift * _KEYS), replace=False)
            shard_of[moved] = shard_of[chance.permutation(moved)]
        return np.array(rows)


def random_graph(seed: int, operators: int, degree: int, load: Load) -> tuple[Streams, float]:
    """A graph with `degree` streams for each operator, and the rows that its source sends."""
    chance = np.random.default_rng([seed, operators, degree])
    edges: set[tuple[int, int]] = set()
    while len(edges) < min(degree * operators, operators * (operators - 1) // 2):
        a, b = sorted(chance.choice(operators, 2, replace=False).tolist())
        edges.add((a, b))
    keys = [frozenset(f"a{k}" for k in chance.choice(4, 2, replace=False)) for _ in range(operators)]
    selectivity = np.clip(chance.normal(0.5, 1.0, operators), 0, 2)
    followers = {i: sorted(b for a, b in edges if a == i) for i in range(operators)}
    roots = sorted(set(range(operators)) - {b for _, b in edges})
    taken = np.zeros(operators)
    taken[roots] = _RATE / len(roots)
    rates = {}
    for i in range(operators):
        for j, part in zip(followers[i], chance.dirichlet(np.ones(len(followers[i]))) if followers[i] else (), strict=True):
            rates[i, j] = float(selectivity[i] * taken[i] * part)
            taken[j] += rates[i, j]
    states = chance.poisson(_STATE, operators)
    noise = np.random.default_rng([seed, operators, degree, 1 + load.skewed])
    shares = load.shares(noise)
    made = [
        Operator(name=f"o{i}", attributes=keys[i], state=float(states[i]), loads=noise.poisson(taken[i] * shares).astype(float))
        for i in range(operators)
    ]
    streams = [Stream(f"o{a}", f"o{b}", rate * load.minutes) for (a, b), rate in rates.items()]
    return Streams(tuple(made), tuple(streams)), float(_RATE * load.minutes)


def linear_road(seed: int, load: Load, roads: int = 30, joints: int = 10) -> Streams:
    """The extended Linear Road: six operators for each road of a random network; o6 follows vehicles on to the next roads.

    The paper's Fig. 6 is a drawing; keys of o1 to o4 are those of its Fig. 1, the rest and the selectivities are ours.
    """
    chance = np.random.default_rng([seed, roads, joints])
    pairs = [(a, b) for a in range(joints) for b in range(a + 1, joints)]
    network = [pairs[i] for i in sorted(chance.choice(len(pairs), roads, replace=False))]
    keys = {
        1: "ts vid spd dir seg pos",
        2: "vid dir seg",
        3: "dir seg",
        4: "dir seg",
        5: "dir seg pos",
        6: "vid",
    }
    inner = {(1, 2): 1.0, (1, 3): 1.0, (1, 5): 1.0, (1, 6): 0.2, (2, 4): 0.2, (3, 4): 0.05, (5, 4): 0.01}
    shares = load.shares(chance)
    operators, streams = [], []
    for road, (_, end) in enumerate(network):
        taken = {1: 1.0, **{o: sum(rate for (_, b), rate in inner.items() if b == o) for o in range(2, 7)}}
        following = [r for r, (start, _) in enumerate(network) if start == end]
        for o, rate in taken.items():
            operators.append(
                Operator(
                    name=f"r{road}.o{o}",
                    attributes=frozenset(keys[o].split()),
                    state=0.0 if o == 1 else float(chance.poisson(_STATE)),
                    loads=chance.poisson(_RATE / roads * rate * shares).astype(float),
                )
            )
        minute = _RATE / roads * load.minutes
        streams += [Stream(f"r{road}.o{a}", f"r{road}.o{b}", minute * rate) for (a, b), rate in inner.items()]
        streams += [Stream(f"r{road}.o6", f"r{r}.o6", minute * 0.2 / len(following)) for r in following]
    return Streams(tuple(operators), tuple(streams))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One plan: its costs in rows over the history, the number of its components, and the time it took."""

    communication: float
    adaptation: float
    components: int
    seconds: float


def cost_of(plan: ComponentPlan, began: float) -> Cost:
    """The costs of a plan whose making began then."""
    return Cost(
        communication=plan.communication,
        adaptation=plan.adaptation,
        components=len(plan.components),
        seconds=time.perf_counter() - began,
    )


def greedy_cost(streams: Streams, adaptation: Adaptation) -> Cost:
    """Algorithm 1, without levels as in the paper."""
    began = time.perf_counter()
    return cost_of(plan_greedily(streams, adaptation, ordered=False), began)


def costs_of_all(streams: Streams, adaptation: Adaptation, *, most: int, hosts: int) -> dict[str, Cost]:
    """Plans in each of the ways; MWSC by integer program and by greedy cover, both over the same components."""
    found = {"greedy": greedy_cost(streams, adaptation)}
    began = time.perf_counter()
    costs = Costs(Space(streams, ordered=False), adaptation)
    listed = pool(costs, most)
    pooled = time.perf_counter()
    found["mwsc"] = cost_of(component_plan(costs, refined_partition(costs, listed), "mwsc"), began)
    found["cover"] = cost_of(
        component_plan(costs, greedy_cover(costs, listed), "cover"), time.perf_counter() - (pooled - began)
    )
    began = time.perf_counter()
    placed = place_slots(streams, adaptation, hosts)
    found["baseline"] = Cost(
        communication=placed.communication,
        adaptation=placed.adaptation,
        components=len(streams.operators),
        seconds=time.perf_counter() - began,
    )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the experiments have in common."""

    operators: int
    repeats: int
    minutes: int
    capacity: float
    drift: float
    hosts: int
    most: int
    seed: int

    def load(self, stream: str) -> Load:
        return Load(minutes=self.minutes, drift=self.drift, skewed=stream == "skewed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Means over the repeats of one degree, stream, way and 1/f."""

    degree: int
    stream: str
    way: str
    every: int
    saved: float  # percent of all rows that operators take, those from the source included (the paper's 100 n_c / N_1)
    moved: float  # rows of state over the history
    components: float
    seconds: float


def figures(setting: Setting, degrees: list[int]) -> list[Figure]:
    """Fig. 3 and 4 for each degree; Fig. 5 by the greedy planner at the first degree."""
    found = []
    for degree in degrees:
        for stream in STREAMS:
            graphs = [
                random_graph(setting.seed + i, setting.operators, degree, setting.load(stream)) for i in range(setting.repeats)
            ]
            rules = Adaptation(capacity=setting.capacity)
            costs = [costs_of_all(graph, rules, most=setting.most, hosts=setting.hosts) for graph, _ in graphs]
            found += [_figure(degree, stream, way, 1, graphs, [each[way] for each in costs]) for way in WAYS]
            for every in FREQUENCIES[1:] if degree == degrees[0] else ():
                rules = Adaptation(capacity=setting.capacity, every=every)
                slower = [greedy_cost(graph, rules) for graph, _ in graphs]
                found.append(_figure(degree, stream, "greedy", every, graphs, slower))
    return found


def _figure(degree: int, stream: str, way: str, every: int, graphs: list[tuple[Streams, float]], costs: list[Cost]) -> Figure:
    saved = [100 * (graph.rate - c.communication) / (graph.rate + sent) for (graph, sent), c in zip(graphs, costs, strict=True)]
    return Figure(
        degree=degree,
        stream=stream,
        way=way,
        every=every,
        saved=statistics.fmean(saved),
        moved=statistics.fmean(c.adaptation for c in costs),
        components=statistics.fmean(c.components for c in costs),
        seconds=statistics.fmean(c.seconds for c in costs),
    )


def claims_of(found: list[Figure]) -> list[Claim]:
    """Fig. 3 to 5. Directions are ratios, of which the paper's is 1; a base of nothing moved counts as one row."""
    by = {(f.degree, f.stream, f.way, f.every): f for f in found}
    degrees = sorted({f.degree for f in found})
    claims = []
    for degree, way, paper in ((3, "greedy", 20.0), (3, "mwsc", 27.8), (10, "greedy", 40.0), (10, "mwsc", 60.0)):
        if degree in degrees:
            ours = by[degree, "uniform", way, 1].saved
            what = f"{way} saves % of communication, degree {degree}"
            claims.append(Claim(id="cbp-3a", what=what, paper=paper, ours=ours, test=">= 0.5 * paper"))
    most = max(f.saved for f in found if f.way == "baseline")
    claims.append(Claim(id="cbp-3a", what="baseline saves at most, %", paper=20, ours=most, test="<= paper"))
    for way, test in (("greedy", "<= 1.05 * paper"), ("mwsc", "<= 1.05 * paper"), ("baseline", "> paper")):
        left = [(100 - by[d, "skewed", way, 1].saved) / (100 - by[d, "uniform", way, 1].saved) for d in degrees]
        ratio = statistics.fmean(left)
        what = f"{way}, communication skewed / uniform{' (the paper: 1.03)' if way == 'baseline' else ''}"
        claims.append(Claim(id="cbp-3b", what=what, paper=1, ours=ratio, test=test))
    for stream in STREAMS:
        for way in ("greedy", "mwsc"):
            ratio = min(by[d, stream, way, 1].moved / max(by[d, stream, "baseline", 1].moved, 1) for d in degrees)
            claims.append(Claim(id="cbp-4", what=f"adaptation {way} / baseline, {stream}", paper=1, ours=ratio, test="> paper"))
    for way in ("greedy", "mwsc", "baseline"):
        ratio = min(by[d, "skewed", way, 1].moved / max(by[d, "uniform", way, 1].moved, 1) for d in degrees)
        claims.append(Claim(id="cbp-4", what=f"adaptation skewed / uniform, {way}", paper=1, ours=ratio, test="> paper"))
    for stream in STREAMS:
        moved = [by[degrees[0], stream, "greedy", every].moved for every in FREQUENCIES]
        falls = max(b / max(a, 1) for a, b in itertools.pairwise(moved))
        steps = zip(itertools.pairwise(moved), itertools.pairwise(FREQUENCIES), strict=True)
        slopes = [(a - b) / (g - f) for (a, b), (f, g) in steps]
        gentler = max(b / max(a, 1) for a, b in itertools.pairwise(slopes))
        for what, ours in (("cost at one 1/f / at the one before", falls), ("slope / the slope before", gentler)):
            claims.append(Claim(id="cbp-5", what=f"greatest {what}, {stream}", paper=1, ours=ours, test="< paper"))
    return claims


def road_rows(setting: Setting) -> list[tuple[str, int, float, float, float]]:
    """The extended Linear Road of 180 operators over two hours, with and without levels."""
    streams = linear_road(setting.seed, replace(setting.load("skewed"), minutes=120))
    rules = Adaptation(capacity=setting.capacity)
    planners: dict[str, Callable[[], ComponentPlan]] = {
        "greedy": lambda: plan_greedily(streams, rules, ordered=False),
        "greedy, level by level": lambda: plan_greedily(streams, rules),
        "chooser, level by level": lambda: plan_components(streams, rules),
    }
    rows = []
    for name, planner in planners.items():
        began = time.perf_counter()
        plan = planner()
        took = time.perf_counter() - began
        rows.append((name, len(plan.components), 100 * (1 - plan.communication / streams.rate), plan.adaptation, took))
    return rows


def cbp_command(
    *,
    degrees: Annotated[str, typer.Option(help="Streams for each operator, separated by commas.")] = "3,5,10",
    operators: Annotated[int, typer.Option(min=2, help="Operators of a random graph.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Random graphs of each degree.")] = 3,
    minutes: Annotated[int, typer.Option(min=20, help="Statistics windows of a minute.")] = 60,
    capacity: Annotated[float, typer.Option(min=1, help="Rows that a slot takes in a minute.")] = 5000,
    drift: Annotated[float, typer.Option(min=0, max=1, help="Share of the skewed keys that change places in a minute.")] = 0.02,
    hosts: Annotated[int, typer.Option(min=1, help="Hosts that the baseline places slots on.")] = 30,
    most: Annotated[int, typer.Option(min=1, help="Sets that are listed for MWSC before larger ones are grown.")] = 1000,
    seed: Annotated[int, typer.Option(help="One seed gives the same graphs.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="The last line of output is one JSON object.")] = False,
) -> None:
    """Plan components by cost, and compare with the placement of slots by communication alone (CBP 6.2, Fig. 3 to 5).

    Example: anabranch lab cbp --degrees 3 --repeats 1
    """
    setting = Setting(
        operators=operators,
        repeats=repeats,
        minutes=minutes,
        capacity=capacity,
        drift=drift,
        hosts=hosts,
        most=most,
        seed=seed,
    )
    found = figures(setting, [int(degree) for degree in degrees.split(",")])
    head = ["degree", "stream", "way", "1/f", "saved %", "rows of state moved", "components", "seconds"]
    rows = [(f.degree, f.stream, f.way, f.every, f.saved, f.moved, f.components, f.seconds) for f in found]
    typer.echo(as_table(head, rows) + "\n")
    road = road_rows(setting)
    head = ["Linear Road, 180 operators", "components", "saved %", "rows of state moved", "seconds"]
    typer.echo(as_table(head, road) + "\n")
    claims = claims_of(found)
    typer.echo(claims_table(claims))
    if as_json:
        roads = [dict(zip(("planner", "components", "saved", "moved", "seconds"), row, strict=True)) for row in road]
        settings = {"degrees": degrees, **asdict(setting)}
        typer.echo(as_line("cbp", claims, settings, figures=[asdict(f) for f in found], linear_road=roads))
