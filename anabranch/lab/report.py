"""The result of an experiment: claims, tables for people, charts in the paper's form.

And how it is printed, written as JSON, and drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.errors import TopologyError
from anabranch.lab.claims import Claim, as_line, as_table, check_ids, claims_table

AsJson = Annotated[bool, typer.Option("--json", help="The last line of output is one JSON object.")]
Seed = Annotated[int, typer.Option(help="One seed gives the same figures.")]

_WIDE, _HIGH = 5.2, 3.6  # inches, of one chart
_IN_A_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One figure: lines over x, or bars where x is a list of words."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[Any], Sequence[float]]]
    log_x: bool = False
    log_y: bool = False

    @property
    def bars(self) -> bool:
        return any(isinstance(x, str) for xs, _ in self.lines.values() for x in xs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of figures."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureResult:
    """The results for one figure or table of the paper."""

    claims: list[Claim]
    tables: list[Table]
    charts: list[Chart]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """All that an experiment found."""

    lab: str
    claims: Sequence[Claim]
    settings: Mapping[str, Any]
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ids(self.claims)


def show(report: LabReport, *, as_json: bool, plot: str | None) -> None:
    """Prints tables and claims, draws charts into `plot`, and prints a line of JSON if asked."""
    for table in report.tables:
        typer.echo(as_table(table.head, table.rows) + "\n")
    typer.echo(claims_table(report.claims))
    if plot is not None:
        draw(report.charts, plot)
        typer.echo(f"drawn: {plot}")
    if as_json:
        typer.echo(as_line(report.lab, report.claims, report.settings, **report.more))


def check_plot(file: str | None) -> str | None:
    """Refuses a file that nothing can be drawn into, before an experiment runs."""
    if file is None:
        return None
    suffix = Path(file).suffix
    if suffix not in (".png", ".svg", ".pdf"):
        raise TopologyError(f"--plot {file!r} ends in {suffix!r}; valid: .png, .svg, .pdf")
    if not Path(file).absolute().parent.is_dir():
        raise TopologyError(f"--plot {file!r} is in a folder that does not exist")
    if not _installed("matplotlib"):
        raise TopologyError(
            "--plot needs matplotlib, which is not installed: pip install 'anabranch[lab]'"
        )
    return file


Plot = Annotated[
    str | None,
    typer.Option(callback=check_plot, help="Draw the figures into a file: .png, .svg or .pdf."),
]


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # the module was imported, and has no spec
        return False


def draw(charts: Sequence[Chart], file: str) -> None:
    """Draws all charts on one page."""
    from matplotlib.figure import Figure

    columns = min(_IN_A_ROW, max(1, len(charts)))
    rows = -(-max(1, len(charts)) // columns)
    page = Figure(figsize=(_WIDE * columns, _HIGH * rows), layout="constrained")
    for place, chart in enumerate(charts):
        _draw_one(page.add_subplot(rows, columns, place + 1), chart)
    page.savefig(file)


def _draw_one(axes: Any, chart: Chart) -> None:
    width = 0.8 / len(chart.lines)
    for i, (name, (xs, ys)) in enumerate(chart.lines.items()):
        if chart.bars:
            axes.bar([place + i * width for place in range(len(xs))], ys, width, label=name)
            axes.set_xticks([place + 0.4 - width / 2 for place in range(len(xs))], list(xs))
        else:
            axes.plot(xs, ys, label=name, marker="o" if len(xs) < 30 else None, linewidth=1.2)
    if chart.log_x and not chart.bars:
        axes.set_xscale("log", base=2)
    if chart.log_y:
        axes.set_yscale("log")
    axes.set_title(chart.title, fontsize=9)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.legend(fontsize=7)
