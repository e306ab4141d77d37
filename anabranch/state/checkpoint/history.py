"""What happened in every step, stored in the checkpoint as parquet: one row per step and component.

Figures of a component are lists by shard or by slot. `anabranch.metrics` declares all of them. Any
tool reads it: `duckdb -c "select step, duration_s, slots from 'checkpoint/history/*.parquet'"`.

Its size is limited: small files are merged, and the oldest are deleted. Nothing depends on it; a
crash loses the last few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.elastic.observation import (
    ComponentObservation,
    Floats,
    Observation,
    SourceObservation,
)
from anabranch.errors import CheckpointError
from anabranch.metrics import Metric, MetricUnit, Shown, shown_in
from anabranch.observer import Observer
from anabranch.plan.route import Route
from anabranch.state.checkpoint.files import Files

DIRECTORY = "history"
MOST_BYTES = 16 << 20
_SMALL_BYTES, _SMALL_FILES = 256 << 10, 8

_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


def _column(metric: Metric, where: Shown) -> pa.DataType:
    """The Arrow type of a figure."""
    if metric.unit is MetricUnit.CLOCK:
        kind = pa.timestamp("us", tz="UTC")
    elif metric.unit is MetricUnit.FIGURES:
        kind = pa.struct({each.name: _column(each, Shown.SOURCE) for each in _SOURCE})
    else:
        kind = _TYPES[metric.unit.type]
    return pa.list_(kind) if metric.shown[where] else kind


_COLUMNS, _SOURCE = tuple(shown_in(Shown.HISTORY)), tuple(shown_in(Shown.SOURCE))
SCHEMA = pa.schema({each.name: _column(each, Shown.HISTORY) for each in _COLUMNS})


class HistoryLog(Observer):
    """Collects observations, and writes them to a file when `flush` is called."""

    def __init__(self, files: Files, most_bytes: int = MOST_BYTES) -> None:
        self._files, self._most = files, most_bytes
        self._waiting: list[Observation] = []

    def observation(self, seen: Observation) -> None:
        """Adds a step. A step without components has no shards and is skipped."""
        if seen.components:
            self._waiting.append(seen)

    def flush(self) -> None:
        """Writes waiting steps, merges small files, and deletes the oldest above the size limit."""
        if not self._waiting:
            return
        steps, self._waiting = self._waiting, []
        self._write(table_of(steps))
        sizes = self._files.sizes(DIRECTORY)
        names = sorted(name for name in sizes if name.endswith(".parquet"))
        small = [name for name in names if sizes[name] < _SMALL_BYTES]
        if len(small) >= _SMALL_FILES:
            merged = self._write(
                _newest(
                    pa.concat_tables([_read(self._files, f"{DIRECTORY}/{name}") for name in small])
                )
            )
            for name in small:
                if name != merged:
                    self._files.remove(f"{DIRECTORY}/{name}")
            sizes = self._files.sizes(DIRECTORY)
            names = sorted(name for name in sizes if name.endswith(".parquet"))
        total = sum(sizes[name] for name in names)
        for name in names[:-1]:
            if total <= self._most:
                break
            self._files.remove(f"{DIRECTORY}/{name}")
            total -= sizes[name]

    def _write(self, table: pa.Table) -> str:
        steps = table["step"].to_numpy()
        name = f"steps-{steps.min():08d}-{steps.max():08d}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self._files.make(DIRECTORY)
        self._files.replace(f"{DIRECTORY}/{name}", sink.getvalue().to_pybytes())
        return name


def table_of(steps: Sequence[Observation]) -> pa.Table:
    """Observations as a table."""
    return pa.Table.from_pylist(
        [_row(seen, each) for seen in steps for each in seen.components], schema=SCHEMA
    )


# Columns that are not fields of the same name of an observation or of its components.
_MADE: dict[str, Callable[[Observation, ComponentObservation], Any]] = {
    "finished_at": lambda seen, _: round(seen.at * 1e6),
    "sources": lambda seen, _: [_source(name, each) for name, each in seen.sources.items()],
    "component": lambda _, each: f"{each.name}",
    "parents": lambda _, each: [f"{parent}" for parent in each.parents],
    "slots": lambda _, each: each.route.slots,
    "route_version": lambda _, each: each.route.version,
    "slot_of": lambda _, each: list(each.route.slot_of),
    "rows_in": lambda _, each: _whole(each.rows),
    "rows_out": lambda _, each: _whole(each.rows_out),
    "state_bytes": lambda _, each: each.state_bytes.astype(np.int64),
}
_OF_STEP = {each.name for each in fields(Observation)}


def _row(seen: Observation, each: ComponentObservation) -> dict[str, Any]:
    row = {}
    for name in SCHEMA.names:
        if name in _MADE:
            row[name] = _MADE[name](seen, each)
        else:
            row[name] = getattr(seen if name in _OF_STEP else each, name)
    return row


def _source(name: str, seen: SourceObservation) -> dict[str, Any]:
    figures = (each.name for each in _SOURCE if each.name != "name")
    return {"name": name, **{each: getattr(seen, each) for each in figures}}


def _whole(rows: Floats) -> npt.NDArray[np.int64]:
    """Fractions of rows rounded to integers, with the same sum."""
    return np.diff(np.rint(np.cumsum(rows)), prepend=0.0).astype(np.int64)


def observations_of(table: pa.Table) -> list[Observation]:
    """The steps of a table, oldest first. If a step occurs twice, the last one counts."""
    steps: dict[int, list[dict[str, Any]]] = {}
    for row in _newest(table).to_pylist():
        steps.setdefault(row["step"], []).append(row)
    return [_observation(rows) for _, rows in sorted(steps.items())]


def _newest(table: pa.Table) -> pa.Table:
    """Each step once, in its last version: after a crash, a step may be there from two attempts."""
    steps, at = table["step"].to_numpy(), table["finished_at"].cast(pa.int64()).to_numpy()
    last: dict[int, int] = {}
    for step, when in zip(steps.tolist(), at.tolist(), strict=True):
        last[step] = max(when, last.get(step, when))
    seen = set[tuple[int, str]]()
    keep = []
    for i, (step, when, name) in enumerate(
        zip(steps.tolist(), at.tolist(), table["component"].to_pylist(), strict=True)
    ):
        if when == last[step] and (step, name) not in seen:
            seen.add((step, name))
            keep.append(i)
    return table.take(keep)


def _observation(rows: Sequence[dict[str, Any]]) -> Observation:
    first = rows[0]
    figures = {name: first[name] for name in SCHEMA.names if name in _OF_STEP - {"sources"}}
    return Observation(
        at=(first["finished_at"] - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds(),
        sources={
            each.pop("name"): SourceObservation(**each) for each in map(dict, first["sources"])
        },
        components=tuple(_component(row) for row in rows),
        **figures,
    )


def _component(row: dict[str, Any]) -> ComponentObservation:
    listed = [each.name for each in _COLUMNS if each.shown[Shown.HISTORY] in {"shard", "slot"}]
    figures: dict[str, Any] = {
        name: None if row[name] is None else np.array(row[name], dtype=np.float64)
        for name in listed
        if name not in {"slot_of", "rows_in"}
    }
    return ComponentObservation(
        name=row["component"],
        level=row["level"],
        parents=tuple(row["parents"]),
        route=Route(tuple(row["slot_of"]), row["slots"], row["route_version"]),
        rows=np.array(row["rows_in"], dtype=np.float64),
        **figures,
    )


def read_history(location: str) -> list[Observation]:
    """The observations in a checkpoint, in its history directory, or in one file of it."""
    whole = Files(location)
    if location.endswith(".parquet"):
        parent, _, name = location.rpartition("/")
        tables = [_read(Files(parent or "."), name)]
    else:
        inside = DIRECTORY if whole.exists(DIRECTORY) else ""
        names = [f"{inside}/{name}" if inside else name for name in whole.list(inside)]
        tables = [_read(whole, name) for name in names if name.endswith(".parquet")]
    if not tables:
        raise CheckpointError(
            f"{location} has no history; valid: a checkpoint, its directory {DIRECTORY!r}, or a "
            "parquet file in it"
        )
    return observations_of(pa.concat_tables(tables))


def _read(files: Files, name: str) -> pa.Table:
    try:
        table = pq.read_table(pa.BufferReader(files.read(name)))
        return table.select(SCHEMA.names).cast(SCHEMA)
    except (OSError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{files.location}/{name} is not the history of a run: {error}"
        ) from error
