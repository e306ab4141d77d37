"""Elasticutor 5: Fig. 6, 7, 9, 10, 13 and 16, Tables 2 and 3.

The policies of `elastic/` run on the simulator. `figures.py` runs the experiments, `micro.py` and
`stocks.py` hold the workloads with what the paper leaves open, `paradigms.py` the four ways.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from anabranch.elastic.balance import THETA
from anabranch.lab.elasticutor.figures import (
    ElasticutorSetting,
    dynamics,
    exchange,
    granularity,
    reassignment,
    scaling,
)
from anabranch.lab.report import AsJson, LabReport, Plot, Seed, show

__all__ = ["PARTS", "ElasticutorSetting", "elasticutor_command", "experiment"]

PARTS = {
    "dynamics": dynamics,
    "reassignment": reassignment,
    "scaling": scaling,
    "granularity": granularity,
    "exchange": exchange,
}


def experiment(setting: ElasticutorSetting, parts: tuple[str, ...] = tuple(PARTS)) -> LabReport:
    """Runs the given figures."""
    found = [PARTS[name](setting) for name in parts]
    return LabReport(
        lab="elasticutor",
        claims=[claim for part in found for claim in part.claims],
        settings={**asdict(setting), "parts": list(parts)},
        tables=[table for part in found for table in part.tables],
        charts=[chart for part in found for chart in part.charts],
    )


def elasticutor_command(
    *,
    hosts: Annotated[int, typer.Option(min=4, help="Hosts of 8 cores.")] = 32,
    seconds: Annotated[float, typer.Option(min=30, help="Simulated time of a run.")] = 60.0,
    load: Annotated[
        float,
        typer.Option(
            min=0.1, max=1.0, help="Rows offered, as a part of what all cores can do (Fig. 6, 7)."
        ),
    ] = 0.7,
    theta: Annotated[
        float, typer.Option(min=1, help="Most loaded slot over mean that balancing lets be.")
    ] = THETA,
    seed: Seed = 1,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Compare static, resource-centric and executor-centric elasticity (Elasticutor 5).

    The popularity of keys is shuffled. Runs Fig. 6 to 16, and Tables 2 and 3.

    Example: anabranch lab elasticutor --hosts 8 --seconds 30
    """
    show(
        experiment(
            ElasticutorSetting(hosts=hosts, seconds=seconds, load=load, theta=theta, seed=seed)
        ),
        as_json=as_json,
        plot=plot,
    )
