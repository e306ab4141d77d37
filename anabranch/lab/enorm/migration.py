"""Enorm 7.2 to 7.5, Fig. 10 to 13: the cost of moving key groups (shards).

They move instantly, smoothly or disruptively. The state of a key takes `key_s` to be serialised,
moved and read. All else is the paper's simple job: partials of a minute, six machines of one core
at 70 % load, 50,000 keys per shard in Fig. 13. For Fig. 12 their number is not given: here it is a
tenth of that, so that a key comes some eight times in a pane.

Disruptively, both machines work on the state and the shard's rows wait. Instantly, rows go to the
new machine at once, and the keys that both machines have seen are merged when the pane closes. Flux
chooses the shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer

from anabranch.elastic.balance import THETA, apply_moves, flux
from anabranch.elastic.observation import Floats
from anabranch.lab.claims import Claim
from anabranch.lab.report import AsJson, Chart, LabReport, Plot, Seed, Table, show
from anabranch.lab.simulator import Cluster, Job, Moves, SimulatedTotals, Simulation
from anabranch.place.split import Period, combine_cost, split_cost

INSTANT, DISRUPTIVE, SMOOTH = "instant", "disruptive", "smooth"
_PANE_S, _LONGEST_S = 60.0, 600.0
_SIZES = (1_000, 10_000, 50_000, 100_000, 500_000)  # keys per shard
_NEGLIGIBLE_S = 0.1
_MODEL = "By the cost model of place/split.py, in which a split shard moves without its state."


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationSetting:
    """The cluster and the job."""

    hosts: int = 6
    shards: int = 60
    keys: int = 50_000  # per shard, in Fig. 13
    key_s: float = 20e-6
    row_s: float = 1e-4
    load: float = 0.7
    rises: int = 3  # how often the rows of a machine grow
    theta: float = THETA
    punctuation_s: float = 0.01  # until all machines have agreed
    seed: int = 1


def period(setting: MigrationSetting, keys: int, *, moved_shards: float = 1.0) -> Period:
    """The simple job over its longest window, for Enorm's cost model."""
    return Period(
        rows=setting.load * setting.hosts / setting.row_s * _LONGEST_S,
        row_cost_s=setting.row_s,
        windows=1,
        partials=_LONGEST_S / _PANE_S,
        shards=setting.shards,
        moved=moved_shards,
        state_cost_s=keys * setting.key_s,
        move_s=keys * setting.key_s,
    )


def pauses(setting: MigrationSetting) -> tuple[list[Claim], Table, list[Chart]]:
    """Fig. 10 and 11: how long rows of one shard wait, and how long a move takes, by state size."""
    instant = [
        setting.punctuation_s + split_cost(period(setting, keys)).latency_s for keys in _SIZES
    ]
    disruptive = [
        setting.punctuation_s + combine_cost(period(setting, keys)).latency_s for keys in _SIZES
    ]
    smooth = [
        0.0 for _ in _SIZES
    ]  # both machines serve their own windows until the last old one has closed
    claims = [
        _claim(
            "10-instant",
            "instant: longest pause, in s (paper: negligible)",
            _NEGLIGIBLE_S,
            max(instant),
            "<= paper",
            _MODEL,
        ),
        _claim(
            "10-flat",
            "instant: pause with the largest state / with the smallest",
            1,
            instant[-1] / instant[0],
            "<= 1.5 * paper",
            _MODEL,
        ),
        _claim(
            "10-grows",
            "disruptive: pause with the largest state / with the smallest",
            1,
            disruptive[-1] / disruptive[0],
            "> paper",
        ),
        _claim(
            "11-split",
            "split: time until done, in s (paper: negligible)",
            _NEGLIGIBLE_S,
            max(instant),
            "<= paper",
            _MODEL,
        ),
        _claim("11-smooth", "combine smoothly: pause, in s", 0, max(smooth), "== paper"),
        _claim(
            "11-smooth-lasts",
            "time until done, combine smoothly / move the largest state",
            1,
            _LONGEST_S / disruptive[-1],
            "> paper",
        ),
        _claim(
            "11-disruptive",
            "combine disruptively: pause with the largest state / with the smallest",
            1,
            disruptive[-1] / disruptive[0],
            "> paper",
        ),
    ]
    rows = list(zip(_SIZES, instant, disruptive, smooth, [_LONGEST_S] * len(_SIZES), strict=True))
    table = Table(
        head=["keys of a shard", "instant s", "disruptive s", "smooth s", "smooth done after s"],
        rows=rows,
    )
    lines: dict[str, tuple[Sequence[int], Sequence[float]]] = {
        INSTANT: (_SIZES, instant),
        DISRUPTIVE: (_SIZES, disruptive),
    }
    charts = [
        Chart(title="Fig. 10", x="keys of a shard", y="pause, s", lines=lines),
        Chart(
            title="Fig. 11",
            x="keys of a shard",
            y="s until done",
            log_y=True,
            lines={
                "split": (_SIZES, instant),
                "combine, smooth": (_SIZES, [_LONGEST_S] * len(_SIZES)),
                "combine, disruptive": (_SIZES, disruptive),
            },
        ),
    ]
    return claims, table, charts


def overhead(setting: MigrationSetting, way: str, part: float, keys_of_shard: int) -> float:
    """Additional CPU in percent for moving a share of the state once, in the middle of a pane.

    How often each key comes before and after the move is random. Disruptively, the partials from
    before are moved. Instantly, a key that comes on both sides is one more key to merge.
    """
    chance = np.random.default_rng([setting.seed, 31])
    job = period(setting, keys_of_shard, moved_shards=0.0)
    keys = keys_of_shard * setting.shards
    rows = job.rows / _LONGEST_S * _PANE_S / keys  # of a key per pane
    chosen = chance.random(keys) < part
    before, after = chance.poisson(rows / 2, keys) > 0, chance.poisson(rows / 2, keys) > 0
    carried = chosen & before if way == DISRUPTIVE else chosen & before & after
    return 100 * float(carried.sum()) * setting.key_s / split_cost(job).cpu_s


def overheads(setting: MigrationSetting) -> tuple[list[Claim], Table, list[Chart]]:
    """Fig. 12."""
    parts = (0.0, 0.25, 0.5, 0.75, 1.0)
    instant, disruptive, rare, rare_disruptive = (
        [overhead(setting, way, part, keys) for part in parts]
        for keys in (setting.keys // 10, setting.keys)
        for way in (INSTANT, DISRUPTIVE)
    )
    ratio = max(max(a, b) / min(a, b) for a, b in zip(instant[1:], disruptive[1:], strict=True))
    note = (
        "A key comes eight times per pane here. With ten times the keys each comes less than "
        "once, and instant costs a third of disruptive."
    )
    claims = [
        _claim(
            "12",
            "overheads of instant and disruptive: largest ratio",
            1,
            ratio,
            "<= 1.5 * paper",
            note,
        )
    ]
    rows = [
        (100 * part, *four)
        for part, *four in zip(parts, instant, disruptive, rare, rare_disruptive, strict=True)
    ]
    moved_percent = [100 * part for part in parts]
    chart = Chart(
        title="Fig. 12",
        x="% of the state moved",
        y="% more CPU",
        lines={INSTANT: (moved_percent, instant), DISRUPTIVE: (moved_percent, disruptive)},
    )
    return (
        claims,
        Table(
            head=[
                "% of state moved",
                "% more CPU, instant",
                "disruptive",
                "instant, rare keys",
                "disruptive, rare keys",
            ],
            rows=rows,
        ),
        [chart],
    )


@dataclass
class Fluxed:
    """Flux over shards, called again and again."""

    setting: MigrationSetting
    way: str

    def tick(self, run: Simulation) -> None:
        """Makes one move per pair of machines, from the more to the less loaded."""
        loads = run.measured()[0]
        held = run.held[0]
        moves = [
            m
            for m in flux(loads, run.core_of[0].tolist(), self.setting.hosts, self.setting.theta)
            if not held[m.shard]
        ]
        if not moves:
            return
        took = self.setting.keys * self.setting.key_s
        shards = np.array([move.shard for move in moves])
        cores = np.array(apply_moves(run.core_of[0].tolist(), moves))[shards]
        pause = took if self.way == DISRUPTIVE else 0.0
        for core in (*run.core_of[0][shards], *cores):
            run.rows[0, core] += took / 2 / self.setting.row_s if self.way == DISRUPTIVE else 0.0
        run.move(
            Moves(
                0, shards, cores, np.full(len(shards), run.now + self.setting.punctuation_s + pause)
            )
        )


def latencies(setting: MigrationSetting, way: str, every_s: float) -> tuple[float, list[float]]:
    """Fig. 13: mean latency while one machine after another gets half as many rows more.

    Also returns its course in steps of 10 s.
    """
    chance = np.random.default_rng([setting.seed, 37])
    shards = setting.shards
    job = Job(name="compute", cost_s=setting.row_s, shards=shards, shard_bytes=0.0)
    table = np.arange(shards) % setting.hosts
    share = np.full(shards, 1 / shards)
    run = Simulation(
        Cluster(hosts=setting.hosts, cores_per_host=1), [job], [table], [share], queue=1e12
    )
    offered = setting.load * setting.hosts / setting.row_s
    mover = Fluxed(setting, way)
    course: list[float] = []
    weights = np.ones(shards)

    def go(seconds: float, weights: Floats) -> None:
        run.share([weights / weights.sum()])
        for _ in range(round(seconds / 10)):
            ticks = every_s if every_s < 10 else 10.0
            tick = mover if every_s <= 10 or (len(course) + 1) % round(every_s / 10) == 0 else None
            run.run(10, offered * float(weights.sum()) / shards, 0.1, tick, ticks)
            course.append(run.totals.latency_s(setting.row_s))
            total.done += run.totals.done
            total.inside += run.totals.inside + run.totals.waits
            run.totals = SimulatedTotals()

    total = SimulatedTotals()
    go(300, weights)
    total.done = total.inside = 0.0
    for host in chance.permutation(setting.hosts)[: setting.rises]:
        here = run.core_of[0] == host
        extra = np.where(
            here, 0.5 / setting.load * shards / setting.hosts / max(1, here.sum()), 0.0
        )
        for minute in (1, 2, 3):
            go(60, weights + extra * minute / 3)
        go(120, weights + extra)
    return total.inside / total.done + setting.row_s, course


def adapting(setting: MigrationSetting) -> tuple[list[Claim], Table, list[Chart]]:
    """Fig. 13."""
    ways = {
        "instant": (INSTANT, 5.0),
        "disruptive, 1 min": (DISRUPTIVE, 60.0),
        "disruptive, 5 min": (DISRUPTIVE, 300.0),
    }
    found = {name: latencies(setting, *way) for name, way in ways.items()}
    instant, minute, five = (found[name][0] for name in ways)
    claims = [
        _claim(
            "13-instant",
            "mean latency, disruptive every minute / instant",
            10,
            minute / instant,
            ">= 0.5 * paper",
        ),
        _claim(
            "13-often",
            "mean latency, disruptive every five minutes / every minute",
            1,
            five / minute,
            "> paper",
        ),
    ]
    lines = {
        name: ([(i + 1) / 6 for i in range(len(course))], [1000 * ms for ms in course])
        for name, (_, course) in found.items()
    }
    chart = Chart(title="Fig. 13", x="minute", y="latency, ms", lines=lines, log_y=True)
    table = Table(
        head=["migration", "mean latency ms"],
        rows=[(name, 1000 * mean) for name, (mean, _) in found.items()],
    )
    return claims, table, [chart]


def _claim(name: str, what: str, paper: float, ours: float, test: str, note: str = "") -> Claim:
    return Claim(id=f"enorm-{name}", what=what, paper=paper, ours=float(ours), test=test, note=note)


def experiment(setting: MigrationSetting) -> LabReport:
    """All four figures."""
    parts = [part(setting) for part in (pauses, overheads, adapting)]
    return LabReport(
        lab="enorm-migration",
        claims=[claim for claims, _, _ in parts for claim in claims],
        settings=asdict(setting),
        tables=[table for _, table, _ in parts],
        charts=[chart for _, _, charts in parts for chart in charts],
    )


def migration_command(
    *,
    hosts: Annotated[int, typer.Option(min=2, help="Machines of one core.")] = 6,
    shards: Annotated[int, typer.Option(min=2, help="Key groups of the component.")] = 60,
    keys: Annotated[int, typer.Option(min=1, help="Keys of a shard in Fig. 12 and 13.")] = 50_000,
    key_us: Annotated[
        float,
        typer.Option(
            min=0.01, help="Microseconds to serialise, carry and read the state of a key."
        ),
    ] = 20.0,
    theta: Annotated[
        float, typer.Option(min=1, help="Most loaded machine over mean that Flux lets be.")
    ] = THETA,
    seed: Seed = 1,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Move key groups between machines, in three ways (Enorm 7.2 to 7.5).

    The ways are instantly, smoothly and disruptively. Runs Fig. 10 to 13.

    Example: anabranch lab enorm-migration --keys 100000
    """
    setting = MigrationSetting(
        hosts=hosts, shards=shards, keys=keys, key_s=key_us / 1e6, theta=theta, seed=seed
    )
    show(experiment(setting), as_json=as_json, plot=plot)
