"""Enorm 7.1 and 7.7, Fig. 9 and 16, at a small scale on Spark.

They show throughput by keys, windows and components. The benchmarks of `bench/` run it; the lab
does not use Spark directly. A split component is two components, with an exchange of partials
between them. For that part of Fig. 9, the chain of operators runs in two components and in one.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from anabranch.lab.claims import Claim
from anabranch.lab.report import AsJson, Chart, LabReport, Plot, Seed, Table, show

TWO, SIX = "5m,10m", "5m,10m,15m,20m,25m,30m"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputSetting:
    """How much to run."""

    rows: int = 300_000
    keys: int = 5_000
    rounds: int = 1
    minutes: float = 0.3  # per benchmark, of which there are four
    seed: int = 1


def windowed(setting: ThroughputSetting, keys: int, windows: str) -> dict[str, Any]:
    """Rows per second with this many keys per pane, and these windows."""
    from anabranch.bench.options import WindowsOptions
    from anabranch.bench.windows import windows as measure

    options = WindowsOptions(
        windows=windows,
        rows=setting.rows,
        keys=keys,
        skew=0.0,
        batch_rows=max(1, setting.rows // 8),
        rows_per_minute=max(1, setting.rows // 60),
        native=False,
        limit=False,
        verify=False,
        small_batch=False,
        rounds=setting.rounds,
        minutes=setting.minutes,
        seed=setting.seed,
    )
    return dict(measure(options, sys.stderr)["cases"][0])


def fused(setting: ThroughputSetting) -> dict[int, dict[str, Any]]:
    """The chain of four aggregations, with one to four of them in one component."""
    from anabranch.bench.fusion.command import fusion
    from anabranch.bench.options import FusionOptions

    options = FusionOptions(
        rows=setting.rows,
        batch_rows=max(1, setting.rows // 8),
        rows_per_minute=max(1, setting.rows // 60),
        native=False,
        verify=False,
        rounds=setting.rounds,
        minutes=2 * setting.minutes,
        seed=setting.seed,
    )
    return {case["fused"]: case for case in fusion(options, sys.stderr)["cases"]}


def experiment(setting: ThroughputSetting) -> LabReport:
    """Fig. 9 and 16."""
    chain = fused(setting)  # first, so that Spark is warm when single runs are compared
    base, keys, more = (
        windowed(setting, *way)
        for way in ((setting.keys, TWO), (2 * setting.keys, TWO), (setting.keys, SIX))
    )
    rates = [float(each["anabranch_rows_per_s"]) for each in (base, keys, more)]
    speeds = {number: float(case["anabranch_rows_per_s"]) for number, case in chain.items()}
    small = "A step has a fixed cost beside rows and exchanges, and small inputs do not hide it."
    claims = [
        _claim(
            "9-keys",
            "throughput, twice the keys / once: slightly less",
            1,
            rates[1] / rates[0],
            ">= 0.75 * paper",
        ),
        _claim(
            "9-windows",
            "throughput, six windows / two: slightly less",
            1,
            rates[2] / rates[0],
            ">= 0.75 * paper",
        ),
        _claim(
            "9-split",
            "throughput, split into two components / combined in one",
            1,
            speeds[3] / speeds[4],
            "< paper",
            small,
        ),
        _claim(
            "16",
            "throughput, four operators fused / none",
            3,
            speeds[4] / speeds[1],
            ">= 0.5 * paper",
            small,
        ),
        _claim(
            "16-components",
            "throughput, one component / two (paper: 512 s / 456 s)",
            1,
            speeds[4] / speeds[3],
            "> paper",
            small,
        ),
    ]
    tables = [
        Table(
            head=["keys", "windows", "rows/s"],
            rows=[
                (setting.keys, 2, rates[0]),
                (2 * setting.keys, 2, rates[1]),
                (setting.keys, 6, rates[2]),
            ],
        ),
        Table(
            head=["operators fused", "rows/s", "s per batch"],
            rows=[(n, speeds[n], chain[n]["anabranch_batch_s"]) for n in sorted(chain)],
        ),
    ]
    charts = [
        Chart(
            title="Fig. 9",
            x="",
            y="rows/s",
            lines={"combined": (["2 windows", "twice the keys", "6 windows"], rates)},
        ),
        Chart(
            title="Fig. 16",
            x="operators fused",
            y="s for all rows",
            lines={
                "chain": (
                    [str(n) for n in sorted(speeds)],
                    [setting.rows / speeds[n] for n in sorted(speeds)],
                )
            },
        ),
    ]
    return LabReport(
        lab="enorm-throughput",
        claims=claims,
        settings=asdict(setting),
        tables=tables,
        charts=charts,
    )


def _claim(name: str, what: str, paper: float, ours: float, test: str, why: str = "") -> Claim:
    return Claim(id=f"enorm-{name}", what=what, paper=paper, ours=ours, test=test, why=why)


def throughput_command(
    *,
    rows: Annotated[int, typer.Option(min=1200, help="Rows of each benchmark's input.")] = 300_000,
    keys: Annotated[
        int, typer.Option(min=1, help="Distinct keys; twice as many are tried, too.")
    ] = 5_000,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of each benchmark, if there is time.")
    ] = 1,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Plan each of the four benchmarks for this time.")
    ] = 0.3,
    seed: Seed = 1,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure keys, windows and fused operators on Spark (Enorm 7.1 and 7.7).

    Runs Fig. 9 and 16 at a small scale.

    Example: anabranch lab enorm-throughput --rows 120000 --rounds 1
    """
    show(
        experiment(
            ThroughputSetting(rows=rows, keys=keys, rounds=rounds, minutes=minutes, seed=seed)
        ),
        as_json=as_json,
        plot=plot,
    )
