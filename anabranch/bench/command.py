"""A benchmark as a command: its options are declared once, as the fields of a frozen dataclass.

A field annotated with `typer.Option` is an option of the command, with the field's default. Other
fields are for callers in Python only.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeAlias, TypeVar, get_args, get_type_hints

import typer
from rich.console import Console
from typer.models import OptionInfo

from anabranch.errors import AnabranchError, TopologyError

Options = TypeVar("Options")
Figures: TypeAlias = dict[str, Any]

# Options that several benchmarks have; each has its own defaults.
Rows: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Rows of input.")]
Keys: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Distinct keys.")]
Skew: TypeAlias = Annotated[
    float, typer.Option(metavar="S", help="Zipf exponent of the keys; 0 is uniform.")
]
Disorder: TypeAlias = Annotated[
    float,
    typer.Option(
        "--disorder", metavar="SECONDS", help="How much older than its arrival a row may be."
    ),
]
BatchRows: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Rows per batch.")]
RowsPerMinute: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Rows per minute of event time.")
]
Slots: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Anabranch's parallel tasks per component. Default: one per core."
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Seed of the generated input.")]
Native: TypeAlias = Annotated[
    bool, typer.Option("--native/--no-native", help="Also measure native Spark.")
]
Verify: TypeAlias = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Compare every result row with DuckDB's.")
]
Rounds: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Rounds of all sides, if there is time.")
]
Minutes: TypeAlias = Annotated[
    float,
    typer.Option(metavar="N", help="Plan rounds so that the benchmark ends within this time."),
]
Keep: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Keep input and results there, as parquet; must be empty or new."
    ),
]
_AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the figures as one JSON object, on the last line.")
]


def bench_command(
    options: type[Options],
    run: Callable[[Options, TextIO], Figures],
    show: Callable[[Figures, Console], None],
    text: str,
) -> Callable[..., None]:
    """A Typer command that runs a benchmark and prints its figures, as a table or as JSON.

    Exit code 1: results are wrong, or the benchmark failed. Exit code 2: a mistake in the options.
    """

    def command(*, as_json: bool, **given: Any) -> None:
        try:
            figures = run(options(**given), sys.stderr)
        except AnabranchError as error:
            typer.echo(f"anabranch: {error}", err=True)
            raise typer.Exit(2 if isinstance(error, TopologyError) else 1) from None
        if as_json:
            print(json.dumps(figures))
        else:
            show(figures, Console())
        if _is_wrong(figures):
            raise typer.Exit(1)

    command.__doc__ = text
    parameters = _parameters(options)
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameters(options: type[Any]) -> list[inspect.Parameter]:
    """The fields that are options, and `--json`."""
    hints = get_type_hints(options, include_extras=True)
    found = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(options)
        if any(isinstance(each, OptionInfo) for each in get_args(hints[field.name])[1:])
    ]
    last = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_AsJson
    )
    return [*found, last]


def _is_wrong(figures: Figures) -> bool:
    """Whether a check of the whole benchmark or of one of its cases has failed."""
    checked = (figures, *figures.get("cases", ()))
    return any(each.get(check) is False for each in checked for check in ("verified", "flat"))
