"""Enorm 7.6, Fig. 14 and 15: random jobs of 50, 100 and 150 operators, fused in several ways.

The ways are each score, and the baseline. Jobs are drawn as the paper describes them under "Large
Job". It does not say by how much the number of attributes changes from one operator to the next.
Here it is -`change` to +`change`, within 1 and all attributes.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import Annotated

import typer

from anabranch.lab.claims import Claim
from anabranch.lab.report import AsJson, Chart, LabReport, Plot, Table, show
from anabranch.plan.planners.fusion import Score, fuse, fuse_baseline
from anabranch.plan.planners.problem import PlannerOperator, StreamEdge, StreamGraph

WAYS = (
    "comm",
    "pa",
    "baseline",
    "baseline alone",
)  # alone: operators that are already fused never join


def random_job(
    chance: random.Random, operators: int, attributes: int = 30, change: int = 3
) -> StreamGraph:
    """A job in levels; each operator sends its rows to the next level.

    Each operator there gets a random share of the rest.
    """
    names = [f"a{i}" for i in range(attributes)]
    size = attributes // 2
    made = []
    for i in range(operators):
        made.append(PlannerOperator(name=f"o{i}", attributes=frozenset(chance.sample(names, size))))
        size = min(attributes, max(1, size + chance.randint(-change, change)))
    levels = chance.randint(3, max(3, int(0.75 * operators)))
    level_of = [i * levels // operators for i in range(operators)]
    streams = []
    for i in range(operators):
        left = 1000.0
        for j in (j for j in range(operators) if level_of[j] == level_of[i] + 1):
            rate = chance.uniform(0, left) * chance.random()
            left -= rate
            streams.append(StreamEdge(f"o{i}", f"o{j}", rate))
    return StreamGraph(tuple(made), tuple(streams))


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """Averages over all jobs of one size, for each way to fuse."""

    operators: int
    components: dict[str, float]
    communication: dict[str, float]  # in percent of the rate of all streams
    ms: dict[str, float]


def average(
    jobs: int, operators: int, seed: int, *, attributes: int, change: int, ordered: bool
) -> Averages:
    """Fuses many random jobs in every way."""
    chance = random.Random(f"{seed}/{operators}")
    components: dict[str, list[float]] = {way: [] for way in WAYS}
    communication: dict[str, list[float]] = {way: [] for way in WAYS}
    ms: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(jobs):
        job = random_job(chance, operators, attributes, change)
        rest = [operator.name for operator in job.operators[1:]]
        chance.shuffle(rest)
        order = [job.operators[0].name, *rest]
        for way in WAYS:
            began = time.perf_counter()
            plan = (
                fuse(job, Score(way), ordered=ordered)
                if way in (Score.COMM, Score.PA)
                else fuse_baseline(job, order, whole=way == "baseline", ordered=ordered)
            )
            ms[way].append(1000 * (time.perf_counter() - began))
            components[way].append(len(plan.components))
            communication[way].append(100 * plan.communication / job.rate)
    return Averages(
        operators=operators,
        components={way: statistics.fmean(components[way]) for way in WAYS},
        communication={way: statistics.fmean(communication[way]) for way in WAYS},
        ms={way: statistics.fmean(ms[way]) for way in WAYS},
    )


def claims_of(all_sizes: list[Averages]) -> list[Claim]:
    """Fig. 14: COMM forms the most components. Fig. 15: it has the least communication.

    Figures are ratios; the paper's ratio is 1.
    """
    found = []
    for each in all_sizes:
        for id_, what, of, test in (
            ("enorm-14", "components", each.components, "> paper"),
            ("enorm-15", "communication", each.communication, "< paper"),
        ):
            for other in ("pa", "baseline"):
                ratio = of["comm"] / of[other]
                found.append(
                    Claim(
                        id=f"{id_}-{other}-{each.operators}",
                        what=f"{what}, comm / {other}, {each.operators} operators",
                        paper=1,
                        ours=ratio,
                        test=test,
                    )
                )
    return found


def experiment(
    sizes: list[int],
    *,
    jobs: int,
    attributes: int = 30,
    change: int = 3,
    ordered: bool = False,
    seed: int = 1,
) -> LabReport:
    """Fig. 14 and 15."""
    found = [
        average(jobs, size, seed, attributes=attributes, change=change, ordered=ordered)
        for size in sizes
    ]
    rows = [
        (each.operators, way, each.components[way], each.communication[way], each.ms[way])
        for each in found
        for way in WAYS
    ]
    charts = [
        Chart(
            title=title,
            x="operators",
            y=label,
            lines={
                way: (sizes, [getattr(each, of)[way] for each in found])
                for way in ("comm", "pa", "baseline")
            },
        )
        for title, label, of in (
            ("Fig. 14", "components", "components"),
            ("Fig. 15", "communication between components, %", "communication"),
        )
    ]
    figures = [
        {
            "operators": e.operators,
            "components": e.components,
            "communication_percent": e.communication,
            "ms": e.ms,
        }
        for e in found
    ]
    return LabReport(
        lab="enorm-fusion",
        claims=claims_of(found),
        settings={
            "sizes": sizes,
            "jobs": jobs,
            "attributes": attributes,
            "change": change,
            "ordered": ordered,
            "seed": seed,
        },
        tables=[
            Table(
                head=["operators", "way", "components", "communication %", "ms a plan"], rows=rows
            )
        ],
        charts=charts,
        more={"figures": figures},
    )


def fusion_command(
    *,
    sizes: Annotated[
        str, typer.Option(help="Numbers of operators, separated by commas.")
    ] = "50,100,150",
    jobs: Annotated[int, typer.Option(min=1, help="Random jobs of each size.")] = 500,
    attributes: Annotated[int, typer.Option(min=2, help="Partition attributes to draw from.")] = 30,
    change: Annotated[
        int,
        typer.Option(
            min=0,
            help="By how many attributes an operator may have more or fewer than the one before.",
        ),
    ] = 3,
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered",
            help="Only plans that run level by level, as on Spark; the paper's need not.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="One seed gives the same jobs.")] = 1,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Fuse random jobs by both scores and by the paper's baseline (Enorm 7.6, Fig. 14 and 15).

    Example: anabranch lab enorm-fusion --sizes 50 --jobs 100 --ordered
    """
    report = experiment(
        [int(size) for size in sizes.split(",")],
        jobs=jobs,
        attributes=attributes,
        change=change,
        ordered=ordered,
        seed=seed,
    )
    show(report, as_json=as_json, plot=plot)
