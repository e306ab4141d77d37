"""What every step was like, kept beside the checkpoint as parquet: one row for a step and a component, lists by shard and by slot.

Any tool reads it: `duckdb -c "select step, duration_s, slots from 'checkpoint/history/*.parquet'"`. It is bounded: small files are
merged, and the oldest are dropped. Nothing depends on it: what a crash loses of it are the last few steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.elastic.observation import ComponentSeen, Floats, Observation, SourceSeen
from anabranch.errors import CheckpointError
from anabranch.observer import Observer
from anabranch.plan.route import Route
from anabranch.state.checkpoint.files import Files

DIRECTORY = "history"
MOST_BYTES = 16 << 20
_SMALL_BYTES, _SMALL_FILES = 256 << 10, 8

_SOURCE = pa.struct(
    {
        "name": pa.string(),
        "rows": pa.float64(),
        "rows_per_s": pa.float64(),
        "backlog": pa.float64(),
        "lag_s": pa.float64(),
    }
)
SCHEMA = pa.schema(
    {
        "step": pa.int64(),
        "at": pa.timestamp("us", tz="UTC"),
        "duration_s": pa.float64(),
        "interval_s": pa.float64(),
        "cores": pa.int32(),
        "disturbed": pa.bool_(),
        "closing": pa.bool_(),
        "sources": pa.list_(_SOURCE),
        "component": pa.string(),
        "level": pa.int32(),
        "parents": pa.list_(pa.string()),
        "slots": pa.int32(),
        "route_version": pa.int64(),
        "slot_of": pa.list_(pa.int32()),  # by shard, as all that follow
        "rows_in": pa.list_(pa.int64()),
        "rows_out": pa.list_(pa.int64()),
        "cpu_s": pa.list_(pa.float64()),
        "busy_s": pa.list_(pa.float64()),
        "state_bytes": pa.list_(pa.int64()),
        "slot_s": pa.list_(pa.float64()),  # by slot
    }
)


class HistoryLog(Observer):
    """Collects observations, and writes them as a file with `flush`."""

    def __init__(self, files: Files, most_bytes: int = MOST_BYTES) -> None:
        self._files, self._most = files, most_bytes
        self._waiting: list[Observation] = []

    def observation(self, seen: Observation) -> None:
        """Takes in a step; without components there are no shards, and nothing to keep."""
        if seen.components:
            self._waiting.append(seen)

    def flush(self) -> None:
        """Writes what waits, merges small files, and drops the oldest where there are too many bytes."""
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


def _row(seen: Observation, each: ComponentSeen) -> dict[str, Any]:
    return {
        "step": seen.step,
        "at": round(seen.at * 1e6),
        "duration_s": seen.duration_s,
        "interval_s": seen.interval_s,
        "cores": seen.cores,
        "disturbed": seen.disturbed,
        "closing": seen.closing,
        "sources": [
            {
                "name": name,
                "rows": one.rows,
                "rows_per_s": one.rows_per_s,
                "backlog": one.backlog,
                "lag_s": one.lag_s,
            }
            for name, one in seen.sources.items()
        ],
        "component": each.name,
        "level": each.level,
        "parents": list(each.parents),
        "slots": each.route.slots,
        "route_version": each.route.version,
        "slot_of": list(each.route.slot_of),
        "rows_in": _whole(each.rows),
        "rows_out": _whole(each.rows_out),
        "cpu_s": each.cpu_s,
        "busy_s": each.busy_s,
        "state_bytes": each.state_bytes.astype(np.int64),
        "slot_s": each.slot_s,
    }


def _whole(rows: Floats) -> npt.NDArray[np.int64]:
    """Parts of rows as whole rows, as many in all."""
    return np.diff(np.rint(np.cumsum(rows)), prepend=0.0).astype(np.int64)


def observations_of(table: pa.Table) -> list[Observation]:
    """The steps of a table, oldest first; a step that is there twice counts as it was last."""
    steps: dict[int, list[dict[str, Any]]] = {}
    for row in _newest(table).to_pylist():
        steps.setdefault(row["step"], []).append(row)
    return [_observation(rows) for _, rows in sorted(steps.items())]


def _newest(table: pa.Table) -> pa.Table:
    """Each step once, as it was last: a driver that died may have left one that was done again."""
    steps, at = table["step"].to_numpy(), table["at"].cast(pa.int64()).to_numpy()
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
    return Observation(
        step=first["step"],
        at=(first["at"] - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds(),
        duration_s=first["duration_s"],
        interval_s=first["interval_s"],
        cores=first["cores"],
        disturbed=first["disturbed"],
        closing=first["closing"],
        sources={
            each["name"]: SourceSeen(
                rows=each["rows"],
                rows_per_s=each["rows_per_s"],
                backlog=each["backlog"],
                lag_s=each["lag_s"],
            )
            for each in first["sources"]
        },
        components=tuple(_component(row) for row in rows),
    )


def _component(row: dict[str, Any]) -> ComponentSeen:
    def floats(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array(row[name], dtype=np.float64)

    return ComponentSeen(
        name=row["component"],
        level=row["level"],
        parents=tuple(row["parents"]),
        route=Route(tuple(row["slot_of"]), row["slots"], row["route_version"]),
        rows=floats("rows_in"),
        rows_out=floats("rows_out"),
        cpu_s=floats("cpu_s"),
        busy_s=None if row["busy_s"] is None else floats("busy_s"),
        state_bytes=floats("state_bytes"),
        slot_s=floats("slot_s"),
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
            f"{location} has no history: valid are a checkpoint, its directory {DIRECTORY!r}, or a parquet file of that"
        )
    return observations_of(pa.concat_tables(tables))


def _read(files: Files, name: str) -> pa.Table:
    try:
        table = pq.read_table(pa.BufferReader(files.read(name)))
        return table.select(SCHEMA.names).cast(SCHEMA)
    except (OSError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise CheckpointError(f"{files.location}/{name} is no history of a run: {error}") from error
