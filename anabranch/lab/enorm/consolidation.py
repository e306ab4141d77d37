"""Enorm 6.1, Fig. 7 and 8: merges of partials per hour, with and without a consolidation plan.

The planner of every run makes the plan. The state of a slot executes it over one key with a row in
each pane, and the merges that really happen in an hour are counted. Both numbers are printed and
must agree.
"""

from __future__ import annotations

import random
import statistics
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from anabranch.aggregates.partials import Count
from anabranch.errors import TopologyError
from anabranch.lab.claims import Claim
from anabranch.lab.report import AsJson, Chart, LabReport, Plot, Table, show
from anabranch.plan.consolidation import plan_consolidation
from anabranch.plan.ids import PartId
from anabranch.plan.operators.base import KeptPartial
from anabranch.plan.operators.windows import WindowsPlan
from anabranch.plan.panes import Panes
from anabranch.state.memory.keys import KeyTable
from anabranch.state.memory.windows import WindowsState
from anabranch.topology.durations import duration_us, format_duration
from anabranch.topology.graph import Field
from anabranch.topology.windows import Window, hopping, parse_windows

_MOST_PANES = 20_000
PAPER = "5m,10m,15m,20m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One set of windows: merges per key and hour, as planned, as executed, and without a plan."""

    windows: list[str]
    pane: str
    helpers: list[str]
    merges: float
    merges_done: float
    naive: float
    ratio: float


def count_merges(windows: tuple[Window, ...], pane_us: int) -> Counted:
    """Plans a set of windows over panes of a width, and executes the plan for some whole turns."""
    for window in windows:
        for what in (window.length_us, window.every_us, window.offset_us):
            if what % pane_us:
                raise TopologyError(
                    f"window {window.name!r} is not made of panes of {format_duration(pane_us)}"
                )
    panes = Panes(width_us=pane_us, offset_us=0, windows=windows)
    plan = plan_consolidation(panes)
    turns = int(np.lcm.reduce([family.every * len(family.ways) for family in plan.families]))
    longest = max(family.length for family in plan.families)
    if longest + turns > _MOST_PANES:
        raise TopologyError(
            f"these windows repeat after {turns} panes; at most {_MOST_PANES} are tried: take "
            "wider panes"
        )
    warm = -(-3 * longest // turns) * turns
    state = _state(panes)
    done = 0
    for number in range(warm + turns):
        one = np.ones(1, dtype=np.int64)
        state.add(np.zeros(1, dtype=np.int32), np.array([number * pane_us]), [one])
        until = (number + 1) * pane_us
        for each in state.close(until - pane_us, until):
            panes_in = (each.closing.end_us - max(each.closing.start_us, 0)) // pane_us
            if each.columns[0].tolist() != [panes_in]:
                raise AssertionError(
                    f"window {each.closing} has {each.columns[0]} rows, not {panes_in}"
                )
        if number == warm - 1:
            done = state.merges
        state.drop(until)
    hours = turns * pane_us / 3_600_000_000
    return Counted(
        windows=[window.name for window in windows],
        pane=format_duration(pane_us),
        helpers=[format_duration(family.length * pane_us) for family in plan.helpers],
        merges=round(plan.merges_per_hour, 6),
        merges_done=round((state.merges - done) / hours, 6),
        naive=round(plan.naive_per_hour, 6),
        ratio=round(plan.naive_per_hour / plan.merges_per_hour, 3),
    )


def _state(panes: Panes) -> WindowsState:
    count = Count("bigint")
    plan = WindowsPlan(
        part=PartId("lab"),
        keys=(Field("k", "int"),),
        panes=panes,
        consolidation=plan_consolidation(panes),
        kept=(KeptPartial(partial=count, input=0, columns=slice(0, 1)),),
        results=(),
        columns=count.columns,
        time_type="timestamp",
    )
    state = WindowsState(plan, KeyTable(pa.schema([("k0", pa.int32())])))
    state.number(pa.table({"k0": pa.array([0], pa.int32())}), np.zeros(1, dtype=np.int64))
    return state


def random_windows(chance: random.Random) -> tuple[Window, ...]:
    """Two to six windows of 1 to 60 minutes.

    The slide is the length or a divisor of it, so that they repeat soon.
    """
    found: dict[str, Window] = {}
    while len(found) < chance.randint(2, 6):
        length = chance.choice([n for n in range(1, 61) if 60 % n == 0 or n % 5 == 0])
        every = chance.choice([n for n in range(1, length + 1) if length % n == 0])
        window = hopping(f"{length} minutes", every=f"{every} minutes")
        found[window.name] = window
    return tuple(found.values())


def experiment(
    windows: tuple[Window, ...], width_us: int, random_sets: int, seed: int
) -> LabReport:
    """Fig. 7 and 8 if the windows are the paper's, and this many random sets in addition."""
    given = count_merges(windows, width_us)
    chance = random.Random(seed)
    others = [
        count_merges(_fitting(random_windows(chance), width_us), width_us)
        for _ in range(random_sets)
    ]
    carried = max(abs(each.merges - each.merges_done) for each in (given, *others))
    claims = [
        _claim("enorm-7-carried-out", "merges planned minus merges done, at most", 0, carried)
    ]
    if given.windows == [window.name for window in parse_windows(PAPER)] and width_us == 60_000_000:
        claims = [
            _claim("enorm-7", "merges per hour, planned", 86, given.merges),
            _claim("enorm-7-naive", "merges per hour, naive", 240, given.naive),
            *claims,
        ]
    rows = [
        (", ".join(each.windows), each.pane, each.merges, each.merges_done, each.naive, each.ratio)
        for each in (given, *others)
    ]
    bars = (["planned", "naive"], [given.merges, given.naive])
    return LabReport(
        lab="enorm-consolidation",
        claims=claims,
        settings={
            "windows": given.windows,
            "pane": given.pane,
            "random_sets": random_sets,
            "seed": seed,
        },
        tables=[
            Table(
                head=[
                    "windows",
                    "pane",
                    "merges per hour",
                    "carried out",
                    "naive",
                    "naive / planned",
                ],
                rows=rows,
            )
        ],
        charts=[
            Chart(
                title="Fig. 7 and 8",
                x="",
                y="merged partials per key and hour",
                lines={"merges": bars},
            )
        ],
        more=_facts(given, others, seed),
    )


def _claim(name: str, what: str, paper: float, ours: float) -> Claim:
    return Claim(id=name, what=what, paper=paper, ours=ours, test="== paper")


def consolidation_command(
    *,
    windows: Annotated[
        str, typer.Option(help="LENGTH or LENGTH/SLIDE, separated by commas.")
    ] = PAPER,
    pane: Annotated[str, typer.Option(help="The partials that arrive.")] = "1m",
    random_sets: Annotated[
        int,
        typer.Option("--random", min=0, help="How many random sets of windows to plan as well."),
    ] = 20,
    seed: Annotated[int, typer.Option(help="One seed gives the same random sets.")] = 1,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Count merges of partials, with and without a consolidation plan (Enorm 6.1).

    Counts are per key and hour. Runs Fig. 7 and 8.

    Example: anabranch lab enorm-consolidation --windows 7m/1m,21m/1m --random 100
    """
    width_us = duration_us(pane, "--pane")
    report = experiment(parse_windows(windows), width_us, random_sets, seed)
    show(report, as_json=as_json, plot=plot)
    if not all(claim.holds for claim in report.claims):
        raise typer.Exit(1)


def _fitting(windows: tuple[Window, ...], width_us: int) -> tuple[Window, ...]:
    """The same windows in units of the panes."""
    scale = width_us / 60_000_000
    return tuple(
        replace(
            w,
            name=f"{w.name} x{scale:g}",
            length_us=int(w.length_us * scale),
            every_us=int(w.every_us * scale),
        )
        if scale != 1
        else w
        for w in windows
    )


def _facts(given: Counted, others: list[Counted], seed: int) -> dict[str, Any]:
    facts: dict[str, Any] = {**asdict(given), "seed": seed}
    if others:
        facts["random"] = {
            "sets": len(others),
            "ratio_median": statistics.median(each.ratio for each in others),
            "ratio_least": min(each.ratio for each in others),
            "planned_as_done": all(each.merges == each.merges_done for each in others),
            "cases": [asdict(each) for each in others],
        }
    return facts
