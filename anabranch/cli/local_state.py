"""`anabranch state --local`: the node-local state of all runs on this machine, and its removal."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from anabranch.cli.live import size
from anabranch.cli.load import MistakeError
from anabranch.spark.driver.opening import located
from anabranch.state.store.host import Host, default_root, open_host
from anabranch.state.store.local import LocalState, local_states, remove_state

ALL = "all"


def show_local(root: Path | None, removed: list[str], *, as_json: bool) -> None:
    """Lists the state of all runs below a state root, after removing the state of some."""
    place = default_root() if root is None else root
    host = open_host(str(place)) if place.is_dir() or place.is_symlink() else None
    if host is None and root is not None:
        raise MistakeError(f"--root {root} is not a directory; valid: a state root")
    gone = [] if host is None else _remove(host, removed)
    found = [] if host is None else local_states(host)
    if as_json:
        facts: dict[str, Any] = {
            "root": str(place),
            "removed": [asdict(each) for each in gone],
            "states": [asdict(each) for each in found],
        }
        typer.echo(json.dumps(facts))
        return
    _print(place, gone, found)


def _remove(host: Host, wanted: list[str]) -> list[LocalState]:
    """Removes the state of the named runs, but never that of an active one."""
    known = local_states(host)
    chosen: list[LocalState] = []
    for name in wanted:
        if name == ALL:
            chosen += [each for each in known if not each.active]
            continue
        named = [each for each in known if name == each.id or _is_at(each, name)]
        if not named:
            valid = ", ".join([*(each.location or each.id for each in known), ALL])
            raise MistakeError(f"--remove {name}: there is no such state; valid: {valid}")
        chosen += named
    gone = []
    for each in dict.fromkeys(chosen):
        if remove_state(host, each.id):
            gone.append(each)
        elif ALL not in wanted:
            raise MistakeError(
                f"--remove {each.location or each.id}: a run uses this state; stop the run first"
            )
    return gone


def _is_at(state: LocalState, name: str) -> bool:
    return state.location is not None and state.location.rstrip("/") == located(name)


def _print(root: Path, gone: list[LocalState], found: list[LocalState]) -> None:
    console = Console(highlight=False)
    for each in gone:
        text = f"removed {size(each.bytes)} of {each.location or each.id}"
        console.print(text, markup=False, soft_wrap=True)
    total = sum(each.bytes for each in found)
    text = f"state root {root}: {len(found)} runs, {size(total)}"
    console.print(text, style="bold", markup=False, soft_wrap=True)
    if not found:
        return
    table = Table(
        "last used (UTC)", "size", "active", "checkpoint", box=None, pad_edge=False,
        header_style="dim",
    )  # fmt: skip
    table.columns[1].justify = "right"
    table.columns[3].overflow = "fold"
    for each in found:
        used = datetime.fromtimestamp(each.used_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        active = "yes" if each.active else "no"
        table.add_row(used, size(each.bytes), active, each.location or f"unknown, id {each.id}")
    console.print(table)
