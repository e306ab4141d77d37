"""Online shuffle grouping (DABS-Storm 5): the bound of its greedy assignment, against round robin.

Values of rows follow Zipf's law, and each value has a cost between 1 and 64 ms. Rows arrive at even
times, such that tasks are busy most of the time; a task processes them one after another. Sketches
and answers reach the scheduler at the end of a batch of rows. In the middle of the stream the costs
of all values are drawn again. Completion times are compared with round robin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import numpy as np
import typer

from anabranch.elastic.grouping.osg import greedy, new_scheduler, new_task
from anabranch.elastic.grouping.sketches import Osg, Values
from anabranch.elastic.observation import Floats
from anabranch.lab.claims import Claim
from anabranch.lab.dabs.grouped import grouped
from anabranch.lab.report import AsJson, Chart, LabReport, Plot, Seed, Table, show
from anabranch.lab.simulator import zipf

_BATCH = 32
_SKEWED = (
    "With a skew of 1.5 and a window of 64 rows. With a skew of 1 and a window of 256 rows, OSG "
    "was no better than round robin."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OsgSetting:
    """A stream and its tasks."""

    rows: int = 20_000
    tasks: int = 5
    values: int = 1000
    skew: float = 1.5  # as in Fig. 14 to 17
    busy: float = 0.95
    window: int = 64
    mu: float = 0.2
    tries: int = 300
    streams: int = 5  # averages are over several streams: a few values make up most of one
    seed: int = 1

    @property
    def osg(self) -> Osg:
        return Osg(window=self.window, mu=self.mu, seed=self.seed)


def best_makespan(costs: Floats, slots: int) -> float:
    """The optimum, by trying all assignments of a few rows; the first slot does not matter."""
    places = np.indices((slots,) * (len(costs) - 1)).reshape(len(costs) - 1, -1)
    loads = [
        (places == slot).T @ costs[1:] + (costs[0] if slot == 0 else 0.0) for slot in range(slots)
    ]
    return float(np.max(loads, axis=0).min())


def worst_ratio(setting: OsgSetting) -> tuple[float, float]:
    """The highest makespan over (2 - 1/k) times the optimum, for random and for the worst rows.

    The second figure is for the worst rows only.
    """
    chance = np.random.default_rng([setting.seed, 23])
    found = []
    for _ in range(setting.tries):
        slots = int(chance.integers(2, 4))
        costs = chance.choice(
            [chance.random(7), chance.integers(1, 20, 7).astype(float), chance.pareto(1.2, 7) + 0.1]
        )
        found.append(_ratio(costs, slots, best_makespan(costs, slots)))
    worst = []
    for slots in range(
        2, 17
    ):  # small rows that fill all slots, then one as long as a slot's share: the optimum is k
        costs = np.array([1.0] * (slots * (slots - 1)) + [float(slots)])
        worst.append(_ratio(costs, slots, float(slots)))
    return max(*found, *worst), max(worst)


def _ratio(costs: Floats, slots: int, best: float) -> float:
    _, after = greedy(np.tile(costs, (slots, 1)), np.zeros(slots))
    return float(after.max()) / ((2 - 1 / slots) * best)


def completion_s(setting: OsgSetting, *, by_cost: bool) -> Floats:
    """The time from arrival to end of each row."""
    chance = np.random.default_rng([setting.seed, 29])
    values = chance.permutation(1_000_003)[: setting.values].astype(np.int64)
    kinds = chance.choice(setting.values, setting.rows, p=zipf(setting.values, setting.skew))
    half = setting.rows // 2
    first, second = (
        chance.permutation(np.geomspace(0.001, 0.064, setting.values)) for _ in range(2)
    )
    costs = np.concatenate([first[kinds[:half]], second[kinds[half:]]])
    gap = (
        np.repeat([costs[:half].mean(), costs[half:].mean()], [half, setting.rows - half])
        / setting.tasks
        / setting.busy
    )
    arrives = np.cumsum(gap)
    places = (
        _by_cost(setting, values[kinds], costs)
        if by_cost
        else np.arange(setting.rows) % setting.tasks
    )
    took = np.empty(setting.rows)
    for slot in range(setting.tasks):
        here = np.flatnonzero(places == slot)
        ends = np.cumsum(costs[here])
        begins = np.maximum.accumulate(
            arrives[here] - (ends - costs[here])
        )  # Lindley: a row begins when it has arrived and the last row has ended
        took[here] = begins + ends - arrives[here]
    return took


def _by_cost(setting: OsgSetting, values: Values, costs: Floats) -> Values:
    scheduler = new_scheduler(setting.tasks)
    tasks = [new_task(setting.osg) for _ in range(setting.tasks)]
    places = np.empty(len(values), dtype=np.int64)
    for at in range(0, len(values), _BATCH):
        batch = slice(at, at + _BATCH)
        scheduler, tasks, places[batch] = grouped(
            scheduler, tasks, values[batch], costs[batch], setting.osg
        )
    return places


def experiment(setting: OsgSetting) -> LabReport:
    """The bound, the comparison with round robin, and the time after costs have changed."""
    bound, tight = worst_ratio(setting)
    both = [
        [
            completion_s(replace(setting, seed=100 * setting.seed + i), by_cost=way)
            for way in (True, False)
        ]
        for i in range(setting.streams)
    ]
    ours, turns = np.mean(both, axis=0)
    half, tenth = setting.rows // 2, setting.rows // 10
    parts = {
        "before": slice(tenth, half),
        "just after": slice(half, half + tenth),
        "after": slice(half + tenth, None),
    }
    rows = [
        (name, 1000 * ours[part].mean(), 1000 * turns[part].mean()) for name, part in parts.items()
    ]
    claims = [
        Claim(
            id="osg-bound",
            what="largest makespan / ((2 - 1/k) * optimum)",
            paper=1,
            ours=bound,
            test="<= paper",
        ),
        Claim(
            id="osg-bound-tight",
            what="the same for the rows that are worst for OSG",
            paper=1,
            ours=tight,
            test="== paper",
        ),
        Claim(
            id="osg-rr",
            what="mean completion time, OSG / round robin",
            paper=1,
            ours=_mean_ratio(both, parts["before"]),
            test="< paper",
            note=_SKEWED,
        ),
        Claim(
            id="osg-adapts",
            what="mean completion time after all costs have changed, OSG / round robin",
            paper=1,
            ours=_mean_ratio(both, parts["after"]),
            test="< paper",
            note=_SKEWED,
        ),
    ]
    step = max(1, setting.rows // 200)
    at = list(range(0, setting.rows - step + 1, step))
    lines = {
        name: (at, [float(1000 * took[i : i + step].mean()) for i in at])
        for name, took in (("OSG", ours), ("round robin", turns))
    }
    return LabReport(
        lab="osg",
        claims=claims,
        settings=asdict(setting),
        tables=[Table(head=["rows", "OSG ms", "round robin ms"], rows=rows)],
        charts=[
            Chart(
                title="costs change in the middle",
                x="row",
                y="completion time, ms",
                lines=lines,
                log_y=True,
            )
        ],
    )


def _mean_ratio(both: Sequence[Sequence[Floats]], part: slice) -> float:
    """The geometric mean over the streams: some have far more unequal costs than others."""
    return float(
        np.exp(np.mean([np.log(ours[part].mean() / turns[part].mean()) for ours, turns in both]))
    )


def osg_command(
    *,
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the stream.")] = 20_000,
    tasks: Annotated[int, typer.Option(min=2, help="Tasks of the operator.")] = 5,
    skew: Annotated[float, typer.Option(min=0, help="Of the values, by Zipf.")] = 1.5,
    busy: Annotated[
        float, typer.Option(min=0.1, max=1, help="Share of the time that tasks must work.")
    ] = 0.95,
    window: Annotated[
        int, typer.Option(min=1, help="Rows of a task between two looks at its sketches (N).")
    ] = 64,
    mu: Annotated[
        float, typer.Option(min=0, help="Relative change below which sketches are stable.")
    ] = 0.2,
    seed: Seed = 1,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Assign rows to tasks by what their values cost, and in turn (DABS-Storm 5).

    Example: anabranch lab osg --tasks 10 --skew 1.0
    """
    setting = OsgSetting(
        rows=rows, tasks=tasks, skew=skew, busy=busy, window=window, mu=mu, seed=seed
    )
    show(experiment(setting), as_json=as_json, plot=plot)
