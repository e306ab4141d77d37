"""Input with a large state and keys whose popularity is shuffled.

Each key comes once at first; then batches follow Zipf's law over a permutation of the keys. All
rows are in one hour of event time, so a window of an hour holds every key until the end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.bench.data import InputFiles

SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
SPARK_SCHEMA = "key BIGINT, at TIMESTAMP, v BIGINT"
FILL_ROWS = 250_000
_START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_HOUR_US = 3_600_000_000
_FIRST_MTIME_S = 1_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedSpec:
    """What the input is made from.

    After `every` batches the keys are permuted again, `shuffles` times.
    """

    keys: int
    batch_rows: int
    every: int
    shuffles: int
    skew: float
    seed: int

    @property
    def fills(self) -> int:
        """The batches at the beginning, which bring each key once."""
        return -(-self.keys // FILL_ROWS)

    @property
    def batches(self) -> int:
        return self.fills + self.every * (1 + self.shuffles)


def write_keyed_input(spec: KeyedSpec, directory: Path) -> InputFiles:
    """Writes one file per batch; equal specs give equal files."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(spec.seed)
    popularity = np.cumsum(np.arange(1, spec.keys + 1, dtype=np.float64) ** -spec.skew)
    popularity /= popularity[-1]
    order = chance.permutation(spec.keys)
    files, rows, newest = [], [], []
    for number in range(spec.batches):
        if number < spec.fills:
            keys = np.arange(
                number * FILL_ROWS, min(spec.keys, (number + 1) * FILL_ROWS), dtype=np.int64
            )
        else:
            if number > spec.fills and (number - spec.fills) % spec.every == 0:
                order = chance.permutation(spec.keys)
            rank = np.minimum(
                np.searchsorted(popularity, chance.random(spec.batch_rows)), spec.keys - 1
            )
            keys = order[rank].astype(np.int64)
        at = np.full(
            len(keys), _START_US + number * (_HOUR_US // (2 * spec.batches)), dtype=np.int64
        )
        table = pa.table(
            [keys, pa.array(at).cast(SCHEMA.field("at").type), chance.integers(0, 1000, len(keys))],
            schema=SCHEMA,
        )
        path = directory / f"batch-{number:05d}.parquet"
        pq.write_table(table, path, row_group_size=max(1, -(-table.num_rows // 8)))
        os.utime(path, (_FIRST_MTIME_S + number, _FIRST_MTIME_S + number))
        files.append(path)
        rows.append(table.num_rows)
        newest.append(int(at[0]))
    return InputFiles(
        directory=directory,
        files=tuple(files),
        rows=tuple(rows),
        newest_us=tuple(newest),
        delay_s=1,
        schema=SPARK_SCHEMA,
    )
