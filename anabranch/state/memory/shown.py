"""The state of a shard as a table, which `anabranch state` shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.plan.operators.base import OperatorPlan
from anabranch.plan.operators.joins import SIDES, JoinContents, JoinSide
from anabranch.plan.operators.noted import AggregateContents
from anabranch.state.codec.blob import Entries
from anabranch.state.codec.joins import JoinEntries
from anabranch.types import element_of, to_arrow

_COLUMNS = {
    "Moments": ("count", "mean", "squares"),
    "Earliest": ("at", "value"),
    "Latest": ("at", "value"),
    "AtLeast": ("count", "order", "value"),
    "AtGreatest": ("count", "order", "value"),
}


def partials_table(
    merged: Entries,
    contents: AggregateContents,
    plan: OperatorPlan,
    instant: Callable[[int], str],
) -> pa.Table:
    """One row per key and pane, with the columns of all partials."""
    keys = merged.keys.take(pa.array(merged.key))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        name: keys.column(i) for i, (name, _) in enumerate(contents.keys)
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
            name = f"{note.kind.lower()}({note.input})"
            if len(parts) > 1:
                name += f".{_COLUMNS.get(note.kind, range(9))[i]}"
            if element_of(part.type) is not None:
                columns[name] = part.to_arrow(array)
            else:
                columns[name] = to_arrow(array, part.type, ~unreached[0] if unreached else None)
    return pa.table(columns)


def waiting_table(
    merged: JoinEntries,
    contents: JoinContents,  # noqa: ARG001 - the plan has all that is shown
    plan: JoinSide,
    instant: Callable[[int], str],
) -> pa.Table:
    """The rows of both sides that wait in a join. Columns of the other side are null."""
    tables = []
    for side in SIDES:
        rows = merged.rows[side]
        keys = merged.keys.take(pa.array(rows.key))
        columns: dict[str, Any] = {"side": pa.array([side] * len(rows), pa.string())}
        columns |= {each.name: keys.column(i) for i, each in enumerate(plan.keys)}
        columns["pane"] = pa.array([instant(int(start)) for start in rows.pane], pa.string())
        columns["times"] = pa.array(rows.times, pa.int64())
        columns |= {
            each.name: rows.payload.column(i) for i, each in enumerate(plan.join.payload(side))
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables, promote_options="default")
