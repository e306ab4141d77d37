"""`anabranch lab all`: every experiment, one after another, and the page made from what they find:
docs/research/papers.md.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import TopologyError, unknown
from anabranch.lab.cbp import experiment as cbp
from anabranch.lab.claims import Claim, as_facts
from anabranch.lab.dabs import experiment as dabs
from anabranch.lab.dabs import osg
from anabranch.lab.elasticutor import experiment as elasticutor
from anabranch.lab.enorm import consolidation as enorm_consolidation
from anabranch.lab.enorm import fusion as enorm_fusion
from anabranch.lab.enorm import migration as enorm_migration
from anabranch.lab.enorm import throughput as enorm_throughput
from anabranch.lab.report import AsJson, LabReport, Seed
from anabranch.topology.windows import parse_windows

_MINUTE_US = 60_000_000
PAPERS = {
    "enorm": "Enorm (DEBS 2016)",
    "cbp": "CBP",
    "elasticutor": "Elasticutor",
    "dabs": "DABS-Storm",
    "osg": "OSG (DABS-Storm 5)",
}
SPARK = "enorm-throughput"
PAGE = Path("docs/research/papers.md")
_WIDTH = 110
_HOW = (
    (
        "A claim is tested by direction, by a factor (our effect is at least half as strong as "
        "the paper's) or exactly. A test compares our figure with the paper's. A direction is a "
        "ratio or a difference, so the paper's side is 1 or 0."
    ),
    (
        "Figures of the papers' clusters come from the simulator in `anabranch/lab/`. Its modules "
        f"say what the papers leave open, and what was chosen. `{SPARK}` is measured on Spark."
    ),
)


def _cbp(seed: int) -> LabReport:
    return cbp.experiment(cbp.CbpSetting(seed=seed), [3, 5, 10])


def _consolidation(seed: int) -> LabReport:
    return enorm_consolidation.experiment(
        parse_windows(enorm_consolidation.PAPER), _MINUTE_US, 20, seed
    )


LABS: Mapping[str, Callable[[int], LabReport]] = {
    "enorm-consolidation": _consolidation,
    "enorm-migration": lambda seed: enorm_migration.experiment(
        enorm_migration.MigrationSetting(seed=seed)
    ),
    "enorm-fusion": lambda seed: enorm_fusion.experiment([50, 100, 150], jobs=100, seed=seed),
    SPARK: lambda seed: enorm_throughput.experiment(enorm_throughput.ThroughputSetting(seed=seed)),
    "cbp": _cbp,
    "elasticutor": lambda seed: elasticutor.experiment(elasticutor.ElasticutorSetting(seed=seed)),
    "dabs": lambda seed: dabs.experiment(dabs.DabsSetting(seed=seed)),
    "osg": lambda seed: osg.experiment(osg.OsgSetting(seed=seed)),
}


@dataclass(frozen=True, slots=True)
class TimedReport:
    """A report, and the seconds that it took."""

    report: LabReport
    seconds: float


def run_all(names: Sequence[str], seed: int) -> list[TimedReport]:
    """Runs experiments, and prints a line about each."""
    found = []
    for name in names:
        began = time.monotonic()
        report = LABS[name](seed)
        took = time.monotonic() - began
        held = sum(claim.holds for claim in report.claims)
        typer.echo(f"{name}: {held} of {len(report.claims)} claims hold ({took:.0f} s)")
        found.append(TimedReport(report, took))
    return found


def as_page(found: Sequence[TimedReport], seed: int) -> str:
    """The page: what holds, what does not, and why."""
    claims = [claim for ran in found for claim in ran.report.claims]
    held = sum(claim.holds for claim in claims)
    lines = [
        "# The papers' claims, on Anabranch's own planners and policies",
        "",
        (
            f"Made by `anabranch lab all{_which(found)} --seed {seed}`; do not edit. {held} of "
            f"{len(claims)} claims hold."
        ),
    ]
    for each in _HOW:
        lines += ["", *textwrap.wrap(each, _WIDTH)]
    for prefix, title in PAPERS.items():
        own = [claim for claim in claims if claim.id.partition("-")[0] == prefix]
        if own:
            lines += ["", f"## {title}", "", *_table(own)]
    failed = [claim for claim in claims if not claim.holds]
    lines += ["", "## What does not hold, and why", ""]
    reasons = [(claim.id, claim.why or "No reason is known.") for claim in failed]
    lines += _by_text(reasons) or ["Everything holds."]
    noted = [(claim.id, claim.note) for claim in claims if claim.note]
    if noted:
        lines += ["", "## What depends on a choice or a constant of ours", "", *_by_text(noted)]
    lines += ["", "## Settings", ""]
    for ran in found:
        given = "; ".join(f"{name}: {_value(each)}" for name, each in ran.report.settings.items())
        lines += _item(f"`{ran.report.lab}`: {given}")
    lines += [
        f"- `{name}`: not run for this page"
        for name in LABS
        if name not in {ran.report.lab for ran in found}
    ]
    return "\n".join(lines) + "\n"


def _which(found: Sequence[TimedReport]) -> str:
    names = [ran.report.lab for ran in found]
    if set(names) == set(LABS):
        return ""
    return " --no-spark" if set(names) == set(LABS) - {SPARK} else f" --only {','.join(names)}"


def _by_text(texts: Sequence[tuple[str, str]]) -> list[str]:
    """An item per text, with the ids of all claims that share it."""
    ids: dict[str, list[str]] = {}
    for name, text in texts:
        ids.setdefault(text, []).append(f"**{name}**")
    return [line for text, names in ids.items() for line in _item(f"{', '.join(names)}: {text}")]


def _item(text: str) -> list[str]:
    """The lines of an item of a list."""
    return textwrap.wrap(
        f"- {text}",
        _WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _value(setting: object) -> str:
    """A setting as people read it."""
    if isinstance(setting, list | tuple):
        return ", ".join(map(_value, setting))
    return setting if isinstance(setting, str) else json.dumps(setting)


def _table(claims: Sequence[Claim]) -> list[str]:
    rows = [
        "| claim | what | paper | ours | test | holds |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for claim in claims:
        verdict = "yes" if claim.holds else "**no**"
        rows.append(
            f"| {claim.id} | {claim.what} | {claim.paper:,.4g} | {claim.ours:,.4g} | "
            f"`{claim.test}` | {verdict} |"
        )
    return rows


def all_command(
    *,
    only: Annotated[
        str | None, typer.Option(help=f"Experiments separated by commas: {', '.join(LABS)}.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help=f"Also run {SPARK}, which needs Java.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(help=f"Write the page there; without --only or --no-spark: {PAGE}."),
    ] = None,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Run every experiment and write docs/research/papers.md: what holds, what does not, and why.

    Example: anabranch lab all --only osg,dabs --out papers.md
    """
    names = (
        [name.strip() for name in only.split(",")]
        if only
        else [name for name in LABS if spark or name != SPARK]
    )
    for name in names:
        if name not in LABS:
            raise TopologyError(unknown("--only", name, LABS))
    page = out or (PAGE if set(names) == set(LABS) else None)
    if page is not None and not page.absolute().parent.is_dir():
        raise TopologyError(f"--out {page} is in a folder that does not exist")
    found = run_all(names, seed)
    if page is not None:
        page.write_text(as_page(found, seed), encoding="utf-8")
        typer.echo(f"written: {page}")
    if as_json:
        claims = as_facts([claim for ran in found for claim in ran.report.claims])
        settings = {"seed": seed, **{ran.report.lab: dict(ran.report.settings) for ran in found}}
        typer.echo(json.dumps({"lab": "all", "claims": claims, "settings": settings}))
