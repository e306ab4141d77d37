"""The commands. Each --help says what the command does and shows an example that works."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from math import inf
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from anabranch.cli.elastic import (
    Latency,
    MaxSlots,
    PolicyName,
    elastic_of,
    history_command,
    replay_command,
)
from anabranch.cli.errors import complain, reporting_errors
from anabranch.cli.load import MistakeError, error_text, load_topology
from anabranch.cli.run import RunOptions, run_file
from anabranch.cli.state import state_command
from anabranch.errors import AnabranchError, CheckpointError, TopologyError, unknown
from anabranch.plan.explain import FORMATS
from anabranch.plan.planners.cost import Adaptation
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.files import Files

_EAGER = ("run", "explain", "plan", "state", "history", "replay")
_STYLE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A Python file that defines a Topology, best in a variable `app`."
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Continue the run of this checkpoint. Default: a temporary, empty one.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="First remove the checkpoint and the results of earlier runs."),
]
Slots = Annotated[
    int | None,
    typer.Option(metavar="N", help="Parallel tasks. Default: as before; at first, one per core."),
]
Shards = Annotated[
    int | None,
    typer.Option(metavar="N", help="Parts of the key space; fixed per checkpoint. Default: 64."),
]
For = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="TIME", help='End after this time, including the start: "45 seconds".'
    ),
]
Finish = Annotated[
    bool, typer.Option("--finish", help="At the end, close every window that is still open.")
]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="End when all input that exists is processed.")
]
Trigger = Annotated[
    str | None,
    typer.Option(metavar="TIME", help='Read a batch every "10 seconds". Default: at once.'),
]
Idle = Annotated[
    str,
    typer.Option(metavar="TIME", help="Close windows after this time without a batch, or `never`."),
]
Mode = Annotated[
    str | None,
    typer.Option(metavar="on|advise|off", help="Whether the run adapts its slots. Default: off."),
]
Plain = Annotated[bool, typer.Option("--plain", help="Print plain lines, not the live view.")]
Log = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Spark's log. Default: a temporary file, kept if the run fails."
    ),
]
Format = Annotated[str, typer.Option(metavar="|".join(FORMATS), help="The format to print.")]


class LazyGroup(TyperGroup):
    """Commands that are imported when they are called or listed: they need more packages."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [*_EAGER, *_LAZY]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _LAZY:
            return super().get_command(ctx, cmd_name)
        try:
            return typer.main.get_command(_LAZY[cmd_name]())
        except ImportError as error:
            return typer.main.get_command(_missing(cmd_name, error))


app = typer.Typer(
    name="anabranch",
    cls=LazyGroup,
    help="Elastic, self-tuning keyed stream processing on Apache Spark.\n\n"
    'Start here: anabranch run examples/lending.py --finish --for "45 seconds"',
    **_STYLE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("state")(state_command)
app.command("history")(history_command)
app.command("replay")(replay_command)


def main(arguments: list[str] | None = None) -> NoReturn:
    """The command `anabranch`. A mistake is one line on stderr and exit code 2."""
    try:
        code = app(arguments, prog_name="anabranch", standalone_mode=False)
    except AnabranchError as error:
        complain(error_text(error))
        code = 2 if isinstance(error, TopologyError | CheckpointError) else 1
    except Exception as error:
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        text = " ".join(str(message()).split())
        complain(
            f"{text} Valid: {', '.join([*_EAGER, *_LAZY])}." if "No such command" in text else text
        )
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def anabranch(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Prints the version, or the help if there is no command."""
    if version:
        from anabranch import __version__

        typer.echo(f"anabranch {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    file: File,
    *,
    checkpoint: Checkpoint = None,
    fresh: Fresh = False,
    slots: Slots = None,
    shards: Shards = None,
    for_: For = None,
    finish: Finish = False,
    available_now: AvailableNow = False,
    trigger: Trigger = None,
    idle: Idle = "1 second",
    elastic: Mode = None,
    latency: Latency = None,
    max_slots: MaxSlots = None,
    policy: PolicyName = "auto",
    plain: Plain = False,
    log: Log = None,
) -> None:
    """Run the topology of a file and watch it.

    Results go to the file's sinks. Ctrl-C ends the run after the current step. With --elastic,
    --latency, --max-slots or --policy the run adapts its slots to the load.

    Example: anabranch run examples/lending.py --checkpoint out/checkpoint --for "45 seconds"
    --finish
    """
    options = RunOptions(
        file=file,
        checkpoint=checkpoint,
        fresh=fresh,
        slots=slots,
        shards=shards,
        seconds=for_,
        finish=finish,
        available_now=available_now,
        trigger=trigger,
        idle=idle,
        plain=plain,
        since=time.monotonic(),
        elastic=elastic_of(elastic, latency, max_slots, policy),
    )
    with reporting_errors(file, log):
        run_file(options)


@app.command()
def explain(
    file: File,
    format: Format = "text",
) -> None:
    """Print how a topology will run, and why: components, panes, partials, exchanges.

    Example: anabranch explain examples/lending.py --format mermaid
    """
    with reporting_errors(file, None):
        if format not in FORMATS:
            raise MistakeError(unknown("--format", format, FORMATS))
        with redirect_stdout(sys.stderr):  # the file may print too, but that is not the plan
            topology = load_topology(file)
        typer.echo(topology.explain(format))


@app.command()
def plan(
    file: File,
    stats: Annotated[
        str, typer.Option(metavar="CHECKPOINT", help="A checkpoint that this topology ran with.")
    ],
    *,
    planner: Annotated[
        str, typer.Option(metavar="NAME", help="The planner, such as auto, exact or greedy.")
    ] = AUTO,
    capacity: Annotated[
        float, typer.Option(metavar="ROWS", help="Rows per step that a slot can take.")
    ] = inf,
    moving: Annotated[
        float,
        typer.Option(
            metavar="ROWS", help="The cost of moving one byte of state, in rows on a stream."
        ),
    ] = 1.0,
    bound: Annotated[
        float, typer.Option(metavar="COST", help="The most that adapting a component may cost.")
    ] = inf,
    format: Format = "text",
) -> None:
    """Print the components that a topology would have, planned by the figures of an earlier run.

    The figures are the rates of its streams and the keys of its windows.

    With --capacity, the cost of a plan includes the state that moves when slots are added or
    removed. Without it, only communication counts.

    Example: anabranch plan examples/lending.py --stats out/checkpoint --planner exact
    """
    with reporting_errors(file, None):
        if format not in FORMATS:
            raise MistakeError(unknown("--format", format, FORMATS))
        if planner not in {AUTO, *PLANNERS}:
            raise MistakeError(unknown("--planner", planner, [AUTO, *PLANNERS]))
        adaptation = Adaptation(capacity=capacity, weight=moving, bound=bound)
        if open_checkpoint(Files(stats)) is None:
            raise MistakeError(f"--stats {stats} is not a checkpoint: it has no anabranch.json")
        with redirect_stdout(sys.stderr):
            topology = load_topology(file)
        typer.echo(
            topology.explain(format, checkpoint=stats, planner=planner, adaptation=adaptation)
        )


def _bench() -> typer.Typer:
    from anabranch.bench import bench_app

    return bench_app


def _chaos() -> typer.Typer:
    from anabranch.testing.chaos.command import chaos_command

    alone = typer.Typer(**_STYLE)
    alone.command("chaos")(chaos_command)
    return alone


def _lab() -> typer.Typer:
    from anabranch.lab import lab_app

    return lab_app


_LAZY: dict[str, Callable[[], typer.Typer]] = {"bench": _bench, "chaos": _chaos, "lab": _lab}


def _missing(name: str, error: ImportError) -> typer.Typer:
    """Takes the place of a command whose packages are not installed."""
    alone = typer.Typer(**_STYLE)

    @alone.command(
        name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
    )
    def command() -> None:
        complain(
            f"`anabranch {name}` needs more packages ({error}): pip install 'anabranch[bench]'"
        )
        raise typer.Exit(2)

    command.__doc__ = f"Not installed: pip install 'anabranch[bench]' ({error})."
    return alone
