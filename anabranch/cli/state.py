"""`anabranch state`: what a checkpoint holds, read from its commit records and its durable log.

It needs neither Spark nor Java.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from anabranch.cli.errors import complain
from anabranch.cli.live import instant, left_out, size
from anabranch.cli.load import MistakeError, error_text
from anabranch.cli.local_state import show_local
from anabranch.cli.results import shown
from anabranch.errors import AnabranchError, CheckpointError
from anabranch.plan.ids import PartId
from anabranch.state.checkpoint.commits import Checkpoint, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.state.kinds import STATES

_TRIES = 3
_T = TypeVar("_T")


def state_command(
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="CHECKPOINT", help="The directory or URI that the run was started with."
        ),
    ] = None,
    *,
    shard: Annotated[
        int | None, typer.Option(metavar="N", help="Show rows of this shard's state.")
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Show this operator. Default: all; with --shard, the first one."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(metavar="K", min=0, help="Rows to show with --shard.")] = 10,
    local: Annotated[
        bool, typer.Option("--local", help="List the node-local state of all runs instead.")
    ] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="With --local: remove its state; `all`: that of all runs that are not active.",
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --local: the state root. Default: shared memory."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a checkpoint holds: operators, shards, versions, sizes, watermark.

    With --shard, show rows of state. With --local, show the node-local state of all runs on this
    machine.

    Example: anabranch state out/checkpoint --shard 3 --rows 5
    """
    with _user_errors():
        if local:
            if checkpoint is not None:
                raise MistakeError(
                    f"state {checkpoint} --local; valid: a checkpoint or --local. To remove its "
                    f"node-local state: --local --remove {checkpoint}"
                )
            show_local(root, remove or [], as_json=as_json)
            return
        if remove or root is not None:
            raise MistakeError("--remove and --root are for the node-local state: add --local")
        if checkpoint is None:
            raise MistakeError("state needs a checkpoint, or --local for the node-local state")
        facts = _steady(lambda: look(checkpoint, shard, rows, operator))
        if as_json:
            typer.echo(json.dumps(facts, default=_plain))
        else:
            _print(facts, Console(highlight=False))


def look(
    location: str, shard: int | None, most: int, operator: str | None = None
) -> dict[str, Any]:
    """What a checkpoint holds, as plain data."""
    found = open_checkpoint(Files(location))
    if found is None:
        raise MistakeError(f"{location} is not a checkpoint: it has no anabranch.json")
    header, last = found.header, found.last
    if shard is not None and not 0 <= shard < header.shards:
        raise MistakeError(f"--shard {shard}; valid: 0 to {header.shards - 1}")
    parts = {str(part): part for part in header.operators}
    if operator is not None and operator not in parts:
        raise MistakeError(f"--operator {operator}; valid: {', '.join(parts)}")
    shown_of = next(iter(header.operators)) if operator is None else parts[operator]
    shards = [
        each
        for name, part in parts.items()
        if operator in {None, name}
        for each in _shards(found, part)
    ]
    facts: dict[str, Any] = {
        "checkpoint": found.files.location,
        "topology": header.topology,
        "id": header.id,
        "operators": [
            {
                "operator": str(part),
                **note.fingerprint,
                "partitioned by": ", ".join(last.attributes.get(part, ())) if last else "",
            }
            for part, note in header.operators.items()
        ],
        "step": last.step if last else None,
        "batch_id": last.batch_id if last else None,
        "watermark_us": last.watermark_us if last else None,
        "max_event_us": last.max_event_us if last else None,
        "seen_us": dict(last.seen) if last else {},
        "routes": {
            str(name): {
                "slots": route.slots,
                "slot_of": list(route.slot_of),
                "version": route.version,
            }
            for name, route in (last.routes.items() if last else ())
        },
        "rows": dict(last.rows) if last else {},
        "durable_bytes": sum(each["bytes"] for each in shards),
        "shards": shards,
    }
    if shard is not None:
        facts["shard"] = {
            "number": shard,
            "operator": str(shown_of),
            **_state(found, shown_of, shard, most),
        }
    return facts


def _shards(found: Checkpoint, part: PartId) -> list[dict[str, Any]]:
    """One entry per shard: its slot, its version, and what a restore would read."""
    shards = []
    routes = found.last.routes if found.last else {}
    mine = [each for name, each in routes.items() if part.operator in name.operators]
    route = mine[0] if mine else None
    for number in range(found.header.shards):
        chain = found.chains.get(part, {}).get(number, [])
        base = chain[0].snapshot[1] if chain and chain[0].snapshot else None
        deltas = [stored.delta[1] for stored in chain if stored.snapshot is None]
        shards.append(
            {
                "operator": str(part),
                "shard": number,
                "slot": route.slot_of[number] if route else None,
                "version": str(chain[-1].version) if chain else None,
                "step": chain[-1].version.step if chain else None,
                "snapshot_bytes": base,
                "deltas": len(deltas),
                "bytes": (base or 0) + sum(deltas),
            }
        )
    return shards


def _state(found: Checkpoint, part: PartId, shard: int, most: int) -> dict[str, Any]:
    """The merged state of a shard."""
    kind = found.header.operators[part].contents.kind
    shown_state = STATES[kind].shown(found, part, shard, most, instant)
    return {
        "pane": shown_state.pane,
        "total": shown_state.total,
        "rows": shown_state.rows,
    }


def _print(facts: dict[str, Any], console: Console) -> None:
    console.print(
        f"topology {facts['topology']}, checkpoint {facts['checkpoint']}",
        style="bold",
        markup=False,
        soft_wrap=True,
    )
    for operator in facts["operators"]:
        for part, text in operator.items():
            console.print(f"  {part + ':':<12} {text}", markup=False, soft_wrap=True)
    if facts["step"] is None:
        console.print("no step is committed yet")
        return
    rows = dict(facts["rows"])
    batch = "none" if facts["batch_id"] is None else facts["batch_id"]
    console.print(f"step {facts['step']}, last batch {batch}")
    for name, route in facts["routes"].items():
        console.print(
            f"component {name}: {route['slots']} slots by route version {route['version']}",
            markup=False,
        )
    console.print(
        f"watermark {instant(facts['watermark_us'])}, "
        f"newest row {instant(facts['max_event_us'])} (UTC)"
    )
    console.print(
        f"{rows.pop('in', 0):,} rows in, {rows.pop('out', 0):,} results, left out: {left_out(rows)}"
    )
    if "shard" in facts:
        _print_shard(facts["shard"], console)
        return
    held = [each for each in facts["shards"] if each["version"] is not None]
    console.print(
        f"{len(held)} of {len(facts['shards'])} shards hold state, "
        f"{size(facts['durable_bytes'])} in the durable log\n"
    )
    names = ("operator", "shard", "slot", "step", "snapshot", "deltas", "bytes", "version")
    table = Table(*names, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for each in held:
        base = "-" if each["snapshot_bytes"] is None else size(each["snapshot_bytes"])
        numbers = (
            each["shard"],
            each["slot"],
            each["step"],
            base,
            each["deltas"],
            size(each["bytes"]),
            each["version"],
        )
        table.add_row(each["operator"], *map(str, numbers))
    console.print(table)


def _print_shard(shard: dict[str, Any], console: Console) -> None:
    rows = shard["rows"]
    what = f"shard {shard['number']} of {shard['operator']}"
    held = (
        f"{shard['total']:,} keys"
        if shard["pane"] is None
        else f"{shard['total']:,} rows of state, panes of {shard['pane']}"
    )
    console.print(f"{what}: {held}; {len(rows)} shown\n", markup=False)
    if rows:
        table = Table(*rows[0], box=None, pad_edge=False, header_style="dim")
        for row in rows:
            table.add_row(*(shown(value) for value in row.values()))
        console.print(table)


def _steady(read: Callable[[], _T]) -> _T:
    """Reads, and reads again if a file is missing: an active run may remove files meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


@contextmanager
def _user_errors() -> Iterator[None]:
    try:
        yield
    except (MistakeError, CheckpointError, OSError) as error:
        complain(error_text(error))
        raise typer.Exit(2) from None
    except AnabranchError as error:
        complain(error_text(error))
        raise typer.Exit(1) from None


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
