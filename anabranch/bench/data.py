"""The benchmark's input: parquet files of keyed values with event times, one file per batch.

It is made from a seed. Keys follow Zipf's law over a shuffled key space. Rows arrive at a constant
rate of event time, and each row is up to `disorder_s` seconds older than its arrival. The watermark
delay covers the disorder, so no side drops a row and all must agree.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.float64())])
SPARK_SCHEMA = "key BIGINT, at TIMESTAMP, v DOUBLE"

_START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
# Spark splits a file only between row groups: with several per file, all cores read, on both
# sides.
_ROW_GROUPS_PER_FILE = 8
_FIRST_MTIME_S = 1_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """What the input is made from."""

    rows: int
    batch_rows: int
    keys: int
    skew: float
    disorder_s: float
    rows_per_minute: int
    seed: int

    @property
    def delay_s(self) -> int:
        """The watermark delay: the disorder in whole seconds, at least one."""
        return max(1, math.ceil(self.disorder_s))

    @property
    def batches(self) -> int:
        return math.ceil(self.rows / self.batch_rows)

    @property
    def batch_span_s(self) -> float:
        """Event time covered by a batch."""
        return self.batch_rows * 60 / self.rows_per_minute


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    """Files that were written: one per batch, in the order in which a file source takes them."""

    directory: Path
    files: tuple[Path, ...]
    rows: tuple[int, ...]
    newest_us: tuple[int, ...]  # the latest event time in this file and all before it
    delay_s: int
    schema: str = SPARK_SCHEMA

    def first(self, batches: int | None) -> InputFiles:
        """Only the first files, in a directory of links."""
        if batches is None or batches >= len(self.files):
            return self
        directory = self.directory.with_name(f"{self.directory.name}-{batches}")
        directory.mkdir(exist_ok=True)
        files = tuple(directory / file.name for file in self.files[:batches])
        for file, link in zip(self.files, files, strict=False):
            if not link.exists():
                os.link(file, link)
        return replace(
            self,
            directory=directory,
            files=files,
            rows=self.rows[:batches],
            newest_us=self.newest_us[:batches],
        )

    def watermark_us(self, batches: int | None = None) -> int:
        """The watermark after the first `batches` files (default: all)."""
        last = len(self.files) if batches is None else batches
        return self.newest_us[last - 1] - self.delay_s * 1_000_000


def generate(spec: DataSpec) -> Iterator[pa.Table]:
    """The batches, in order; equal for equal specs."""
    rng = np.random.default_rng(spec.seed)
    key_of_rank = rng.permutation(spec.keys).astype(np.int64)
    cumulative = np.cumsum(np.arange(1, spec.keys + 1, dtype=np.float64) ** -spec.skew)
    cumulative /= cumulative[-1]
    us_per_row = 60_000_000 / spec.rows_per_minute
    for first in range(0, spec.rows, spec.batch_rows):
        count = min(spec.batch_rows, spec.rows - first)
        rank = np.minimum(np.searchsorted(cumulative, rng.random(count)), spec.keys - 1)
        arrival = _START_US + ((first + np.arange(count)) * us_per_row).astype(np.int64)
        age = (rng.random(count) * spec.disorder_s * 1_000_000).astype(np.int64)
        value = np.round(rng.gamma(2.0, 50.0, count), 2)
        yield pa.table(
            [key_of_rank[rank], pa.array(arrival - age).cast(SCHEMA.field("at").type), value],
            schema=SCHEMA,
        )


def write_input(
    spec: DataSpec,
    directory: Path,
    shaped: Callable[[pa.Table], pa.Table] | None = None,
    schema: str = SPARK_SCHEMA,
) -> InputFiles:
    """Writes the batches as `batch-NNNNN.parquet`, with modification times one second apart.

    File sources read files in the order of these times. `shaped` replaces the key with other
    columns; `schema` is then the Spark schema of the result.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    rows: list[int] = []
    newest: list[int] = []
    for number, made in enumerate(generate(spec)):
        table = made if shaped is None else shaped(made)
        path = directory / f"batch-{number:05d}.parquet"
        pq.write_table(
            table, path, row_group_size=max(1, math.ceil(table.num_rows / _ROW_GROUPS_PER_FILE))
        )
        mtime = _FIRST_MTIME_S + number
        os.utime(path, (mtime, mtime))
        files.append(path)
        rows.append(table.num_rows)
        greatest = pc.max(table["at"]).cast(pa.int64()).as_py()
        newest.append(max(greatest, newest[-1]) if newest else greatest)
    return InputFiles(
        directory=directory,
        files=tuple(files),
        rows=tuple(rows),
        newest_us=tuple(newest),
        delay_s=spec.delay_s,
        schema=schema,
    )
