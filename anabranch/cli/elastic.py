"""`anabranch history` and `anabranch replay`: what a run decided, and what a policy would decide.

Neither needs Spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anabranch.cli.live import duration
from anabranch.elastic.observation import Observation
from anabranch.elastic.replay import Replayed, figures_of, kinds_of, replay, totals
from anabranch.elastic.settings import BALANCES, MODES, OFF, POLICIES, Elastic
from anabranch.errors import CheckpointError, TopologyError, unknown
from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.events import read_events
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.history import read_history

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Latency = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help='Target latency, from arrival to result, such as "2 seconds".'
    ),
]
MaxSlots = Annotated[
    int | None,
    typer.Option(metavar="N", help="The most slots per level. Default: the number of cores."),
]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="NAME", help=f"One of auto, {', '.join(POLICIES)}.")
]


def elastic_of(
    mode: str | None,
    latency: str | None,
    max_slots: int | None,
    policy: str = "auto",
    balance: str = "shards",
) -> Elastic | None:
    """The elastic settings on the command line; None if there are none."""
    if mode is not None and mode not in MODES:
        raise TopologyError(unknown("--elastic", mode, MODES))
    if policy not in {"auto", *POLICIES}:
        raise TopologyError(unknown("--policy", policy, ["auto", *POLICIES]))
    if balance not in BALANCES:
        raise TopologyError(unknown("--balance", balance, BALANCES))
    silent = mode is None and latency is None and max_slots is None and policy == "auto"
    if silent or mode == OFF:
        return None
    return Elastic(
        latency=latency, max_slots=max_slots, policy=policy, balance=balance, mode=mode or "on"
    )


def history_command(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="The directory or URI that the run was started with."
        ),
    ],
    last: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many events to print, the newest.")
    ] = 40,
    as_json: Json = False,
) -> None:
    """Show the events of a run: what happened, and what its controller decided and why.

    A summary of the recorded steps follows.

    Example: anabranch history out/checkpoint
    """
    files = Files(checkpoint)
    if open_checkpoint(files) is None:
        raise CheckpointError(f"{checkpoint} is not a checkpoint: it has no anabranch.json")
    events = read_events(files)
    try:
        steps = read_history(checkpoint)
    except CheckpointError:
        if files.exists("history") and files.list("history"):
            raise
        steps = []
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "checkpoint": checkpoint,
                    "steps": _summary(steps),
                    "events": [asdict(each) for each in events],
                }
            )
        )
        return
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("time (UTC)", "step", "what"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold")
    for each in events[-last:]:
        table.add_row(_clock(each.at), str(each.step), each.kind, escape(each.text))
    if events:
        console.print(table)
        console.print()
    more = f", the last {last} of them above" if len(events) > last else ""
    console.print(f"{len(events)} events{more}", markup=False)
    for line in _lines(steps):
        console.print(line, markup=False, soft_wrap=True)


def replay_command(
    history: Annotated[
        str,
        typer.Argument(
            metavar="HISTORY", help="A checkpoint, its directory `history`, or a file in it."
        ),
    ],
    *,
    policy: PolicyName = "auto",
    latency: Latency = None,
    max_slots: MaxSlots = None,
    min_slots: Annotated[int, typer.Option(metavar="N", help="The fewest slots per level.")] = 1,
    balance: Annotated[
        str, typer.Option(metavar="|".join(BALANCES), help="How to balance shards over slots.")
    ] = "shards",
    theta: Annotated[
        float,
        typer.Option(metavar="X", help="Shards move if a slot has X times the mean load."),
    ] = 1.2,
    as_json: Json = False,
) -> None:
    """Show what a policy would have decided in the recorded steps of a run.

    Rows and work are as recorded. If the policy would have had other slots, a step takes as long as
    its work takes on those.

    Example: anabranch replay out/checkpoint --policy incremental
    """
    wished = elastic_of("on", latency, max_slots, policy, balance)
    assert wished is not None
    settings = replace(wished, min_slots=min_slots, theta=theta)
    steps = read_history(history)
    found = replay(steps, settings)
    figures = asdict(totals(found))
    if as_json:
        shown = {
            "history": history,
            "policy": policy,
            **figures,
            "decisions": [_plain(each) for each in found if _decides(each)],
        }
        typer.echo(json.dumps(shown))
        return
    console = Console(highlight=False)
    for each in found:
        for line in _decision_lines(each):
            console.print(line, markup=False, soft_wrap=True)
    for line in _lines(steps):
        console.print(line, markup=False, soft_wrap=True)
    console.print(
        f"{policy}: {figures['resizes']} resizes, {figures['reroutes']} reroutes, "
        f"{figures['reversals']} reversals; "
        f"{figures['slot_seconds']:,.0f} slot-seconds "
        f"(recorded {figures['slot_seconds_recorded']:,.0f}); "
        f"a step {figures['step_s']:.2f} s on average "
        f"(recorded {figures['step_s_recorded']:.2f} s)",
        markup=False,
        soft_wrap=True,
    )


def _decides(each: Replayed) -> bool:
    return bool(each.decision) or bool(each.decision.notes) or bool(each.decision.effects)


def _decision_lines(each: Replayed) -> list[str]:
    """The decision of a step, the effects of earlier ones, and notes, as lines of text."""
    start = f"{_clock(each.seen.at)}  step {each.seen.step}  "
    lines = [
        f"{start}effect: {e.what}: {e.observed:.4g} {e.unit}, expected {e.expected:.4g}"
        for e in each.decision.effects
    ]
    lines += [f"{start}note: {note}" for note in each.decision.notes]
    return [*lines, f"{start}{each.decision.reason}"] if each.decision else lines


def _plain(each: Replayed) -> dict[str, Any]:
    decision = each.decision
    return {
        "step": decision.step,
        "at": each.seen.at,
        "changes": kinds_of(decision),
        "reason": decision.reason,
        "figures": figures_of(decision),
        "effects": [asdict(effect) for effect in decision.effects],
        "notes": list(decision.notes),
    }


def _summary(steps: Sequence[Observation]) -> dict[str, Any]:
    """A summary of the recorded steps."""
    batches = [each for each in steps if not each.closing]
    if not steps:
        return {"recorded": 0}
    count = max(1, len(batches))
    return {
        "recorded": len(steps),
        "first": steps[0].step,
        "last": steps[-1].step,
        "seconds": steps[-1].at - steps[0].at + steps[0].duration_s,
        "rows": sum(each.rows for each in batches),
        "mean_step_s": sum(each.duration_s for each in batches) / count,
        "longest_step_s": max((each.duration_s for each in batches), default=0.0),
        "slots": {each.name: each.route.slots for each in steps[-1].components},
        "backlog": {name: each.backlog for name, each in steps[-1].sources.items()},
        "lag_s": {name: each.lag_s for name, each in steps[-1].sources.items()},
    }


def _lines(steps: Sequence[Observation]) -> list[str]:
    figures = _summary(steps)
    if not steps:
        return ["no steps are recorded"]
    slots = ", ".join(f"{name} {count}" for name, count in figures["slots"].items())
    which = (
        f"{figures['recorded']} steps recorded ({figures['first']} to {figures['last']}, "
        f"{duration(figures['seconds'])})"
    )
    times = (
        f"a step with rows took {figures['mean_step_s']:.2f} s on average, "
        f"{figures['longest_step_s']:.2f} s at most"
    )
    return [f"{which}: {figures['rows']:,.0f} rows, {times}; slots at the end: {slots}"]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
