"""`anabranch state`: what a checkpoint holds, read from its commit records and its durable log alone; no Spark, no Java."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from anabranch.aggregates.custom import Custom
from anabranch.aggregates.partials import Partial
from anabranch.cli.errors import complain
from anabranch.cli.live import instant, left_out, size
from anabranch.cli.load import MistakeError, error_text
from anabranch.cli.results import shown
from anabranch.errors import AnabranchError, CheckpointError
from anabranch.plan.consolidation import plan_consolidation
from anabranch.plan.model import JOINED
from anabranch.plan.operators.base import Kept, OperatorPlan
from anabranch.plan.operators.joins import SIDES, JoinPlan, JoinSide, join_side
from anabranch.plan.operators.sessions import NO_WINDOWS, over_session
from anabranch.plan.panes import Panes
from anabranch.runtime.process.vectorised import state_record
from anabranch.state.checkpoint.commits import Checkpoint, Contents, open_checkpoint
from anabranch.state.checkpoint.commits import Kept as Noted
from anabranch.state.checkpoint.files import Files
from anabranch.state.checkpoint.moved_cells import cells_of
from anabranch.state.codec.blob import Entries
from anabranch.state.codec.cells import decoded_keys, head_of
from anabranch.state.codec.joins import JoinEntries
from anabranch.state.memory.kinds import decoded, state_of
from anabranch.topology.durations import format_duration
from anabranch.topology.graph import Field
from anabranch.topology.process import StateColumn
from anabranch.types import element_of, to_arrow

_TRIES = 3
_PARTS = {
    "Moments": ("count", "mean", "squares"),
    "Earliest": ("at", "value"),
    "Latest": ("at", "value"),
    "AtLeast": ("count", "order", "value"),
    "AtGreatest": ("count", "order", "value"),
}
_T = TypeVar("_T")


def state_command(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="The directory or URI that the run was started with."
        ),
    ],
    shard: Annotated[
        int | None, typer.Option(metavar="N", help="Show rows of this shard's state.")
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The operator whose shards are shown, where there are several."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(metavar="K", min=0, help="How many rows of it.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a checkpoint holds: operators, shards, versions, sizes, watermark; with --shard, rows of state.

    Example: anabranch state out/checkpoint --shard 3 --rows 5
    """
    with _told():
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
    if operator is not None and operator not in header.operators:
        raise MistakeError(f"--operator {operator}; valid: {', '.join(header.operators)}")
    shown_of = operator or next(iter(header.operators))
    shards = [
        each
        for name in header.operators
        if operator in {None, name}
        for each in _shards(found, name)
    ]
    facts: dict[str, Any] = {
        "checkpoint": found.files.location,
        "topology": header.topology,
        "id": header.id,
        "operators": [
            {
                "operator": name,
                **kept.fingerprint,
                "partitioned by": ", ".join(last.attributes.get(name, ())) if last else "",
            }
            for name, kept in header.operators.items()
        ],
        "step": last.step if last else None,
        "batch_id": last.batch_id if last else None,
        "watermark_us": last.watermark_us if last else None,
        "max_event_us": last.max_event_us if last else None,
        "seen_us": dict(last.seen) if last else {},
        "routes": {
            name: {"slots": route.slots, "slot_of": list(route.slot_of), "version": route.version}
            for name, route in (last.routes.items() if last else ())
        },
        "rows": dict(last.rows) if last else {},
        "durable_bytes": sum(each["bytes"] for each in shards),
        "shards": shards,
    }
    if shard is not None:
        facts["shard"] = {
            "number": shard,
            "operator": shown_of,
            **_state(found, shown_of, shard, most),
        }
    return facts


def _shards(found: Checkpoint, operator: str) -> list[dict[str, Any]]:
    """One entry a shard: its slot, its version, and the snapshot and deltas that a restore would read."""
    shards = []
    routes = found.last.routes if found.last else {}
    route = next(
        (
            each
            for name, each in routes.items()
            if operator.partition(": ")[0] in name.split(JOINED)
        ),
        None,
    )
    for number in range(found.header.shards):
        chain = found.chains.get(operator, {}).get(number, [])
        base = chain[0].snapshot[1] if chain and chain[0].snapshot else None
        deltas = [stored.delta[1] for stored in chain if stored.snapshot is None]
        shards.append(
            {
                "operator": operator,
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


def _state(found: Checkpoint, operator: str, shard: int, most: int) -> dict[str, Any]:
    """The merged state of a shard: one row a key and pane that an open window contains."""
    noted, last = found.header.operators[operator], found.last
    contents = noted.contents
    if contents.process is not None:
        return _cells(found, operator, shard, most)
    plan = _plan(operator, noted)
    logged = [
        decoded(plan, write.snapshot or write.delta) for write in found.writes(operator, shard)
    ]
    pane = format_duration(plan.panes.width_us)
    if not logged:
        return {"pane": pane, "total": 0, "rows": []}
    state = state_of(plan)
    for entries in logged:
        state.absorb([(shard, entries)])
    state.forget(noted.forgotten_us)
    state.drop(last.watermark_us if last else None)
    merged = state.snapshot([shard])[shard]
    table = (
        waiting_table(merged, plan.join)
        if isinstance(plan, JoinSide)
        else _table(merged, contents, plan)
    )
    table = table.sort_by([("pane", "ascending")])
    return {"pane": pane, "total": len(merged), "rows": table.slice(0, most).to_pylist()}


def _cells(found: Checkpoint, operator: str, shard: int, most: int) -> dict[str, Any]:
    """What a user's class keeps in a shard: one row a key."""
    noted = found.header.operators[operator]
    cells = cells_of(found, operator, shard)
    keys = decoded_keys(list(cells), [Field(name, kind) for name, kind in _keys(noted)])
    names = noted.contents.keys or ("key",)
    spelled = [
        dict(zip(names, key.values(), strict=True)) for key in keys.slice(0, most).to_pylist()
    ]
    rows = [
        {**key, **shown_cell(cell, noted.contents)}
        for key, cell in zip(spelled, cells.values(), strict=False)
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {
        "pane": None,
        "total": len(cells),
        "rows": [{name: row.get(name) for name in columns} for row in rows],
    }


def shown_cell(cell: bytes, contents: Contents) -> dict[str, Any]:
    """A cell for people: its state, its timers and when it expires. Types of the user's are not needed, and none is made."""
    head, state = head_of(cell)
    if contents.vectorised and contents.process is not None:
        declared = {each["name"]: each["type"]["kind"] for each in contents.process["fields"]}
        columns = [StateColumn(name=name, type=kind, default=0) for name, kind in declared.items()]
        record, _ = state_record(columns, [b"\0" + state])
        found: dict[str, Any] = {each.name: record[each.name][0].item() for each in columns}
    else:
        found = {"state": msgspec.msgpack.decode(state)}
    if head.timers:
        found["timers"] = {name: instant(at) for name, at in head.timers.items()}
    if head.expires_us is not None:
        found["expires"] = instant(head.expires_us)
    return found


def _plan(operator: str, noted: Noted) -> OperatorPlan:
    """As much of the plan as merging needs, from what the checkpoint's header says."""
    contents = noted.contents
    keys = tuple(Field(name, kind) for name, kind in _keys(noted))
    panes = Panes(width_us=noted.pane_us, offset_us=noted.pane_offset_us, windows=contents.windows)
    if contents.join:
        left, right = (
            tuple(Field(*each) for each in side) for side in (contents.left, contents.right)
        )
        join = JoinPlan(
            operator=operator,
            keys=keys,
            panes=panes,
            left=left,
            right=right,
            how="full",
            time_type="timestamp",
        )
        return join_side(join, "left", operator)
    kinds = {kind.__name__: kind for kind in _kinds(Partial)}  # type: ignore[type-abstract]
    kept: list[Kept] = []
    for each in contents.partials:
        if each.kind not in kinds:
            raise CheckpointError(
                f"the checkpoint holds partials of kind {each.kind}, which this version does not know"
            )
        if issubclass(kinds[each.kind], Custom):
            raise MistakeError(
                f"no rows can be shown: only the topology's own code can merge the state of udaf({each.input})"
            )
        first = kept[-1].columns.stop if kept else 0
        partial = kinds[each.kind](each.type, **each.parameters)
        kept.append(
            Kept(partial=partial, input=0, columns=slice(first, first + len(partial.columns)))
        )
    plan = OperatorPlan(
        operator=operator,
        keys=keys,
        panes=panes,
        consolidation=plan_consolidation(panes) if panes.windows else NO_WINDOWS,
        kept=tuple(kept),
        results=(),
        columns=tuple(column for each in kept for column in each.partial.columns),
        time_type="timestamp",
    )
    return plan if contents.session is None else over_session(plan, contents.session)


def _keys(noted: Noted) -> list[tuple[str, str]]:
    """Names and types of the keys, from the fingerprint."""
    if not noted.contents.keys:
        return [("", "int")]
    text = noted.fingerprint["keys"]
    found = []
    for name, after in itertools.zip_longest(noted.contents.keys, noted.contents.keys[1:]):
        start = text.index(f"{name}: ") + len(name) + 2
        end = len(text) if after is None else text.index(f", {after}: ", start)
        found.append((name, text[start:end]))
        text = text[end:]
    return found


def _kinds(kind: type[Partial]) -> Iterator[type[Partial]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


def _table(merged: Entries, contents: Contents, plan: OperatorPlan) -> pa.Table:
    keys = merged.keys.take(pa.array(merged.key))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        name: keys.column(i) for i, name in enumerate(contents.keys)
    }
    columns["pane"] = pa.array([instant(int(start)) for start in merged.pane], pa.string())
    for kept, note in zip(plan.kept, contents.partials, strict=True):
        parts, values = kept.partial.columns, merged.columns[kept.columns]
        unreached = [
            array == part.identity
            for array, part in zip(values, parts, strict=True)
            if part.identity not in (0, None)
        ]
        for i, (array, part) in enumerate(zip(values, parts, strict=True)):
            name = f"{note.kind.lower()}({note.input})" + (
                f".{_PARTS.get(note.kind, range(9))[i]}" if len(parts) > 1 else ""
            )
            if element_of(part.type) is not None:
                columns[name] = part.to_arrow(array)
            else:
                columns[name] = to_arrow(array, part.type, ~unreached[0] if unreached else None)
    return pa.table(columns)


def waiting_table(merged: JoinEntries, plan: JoinPlan) -> pa.Table:
    """The rows of both sides that wait in a join; of the other side's columns a row has none."""
    tables = []
    for side in SIDES:
        rows = merged.rows[side]
        keys = merged.keys.take(pa.array(rows.key))
        columns: dict[str, Any] = {"side": pa.array([side] * len(rows), pa.string())}
        columns |= {each.name: keys.column(i) for i, each in enumerate(plan.keys)}
        columns["pane"] = pa.array([instant(int(start)) for start in rows.pane], pa.string())
        columns["times"] = pa.array(rows.times, pa.int64())
        columns |= {each.name: rows.payload.column(i) for i, each in enumerate(plan.payload(side))}
        tables.append(pa.table(columns))
    return pa.concat_tables(tables, promote_options="default")


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
        f"watermark {instant(facts['watermark_us'])}, newest row {instant(facts['max_event_us'])} (UTC)"
    )
    console.print(
        f"{rows.pop('in', 0):,} rows in, {rows.pop('out', 0):,} results, left out: {left_out(rows)}"
    )
    if "shard" in facts:
        _print_shard(facts["shard"], console)
        return
    held = [each for each in facts["shards"] if each["version"] is not None]
    console.print(
        f"{len(held)} of {len(facts['shards'])} shards hold state, {size(facts['durable_bytes'])} in the durable log\n"
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
    """A run that goes on meanwhile may remove a file that was just listed: then what there is now is read."""
    for _ in range(_TRIES - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


@contextmanager
def _told() -> Iterator[None]:
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
