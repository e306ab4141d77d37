"""The cost of a small batch while ever more keys are stored.

The cost of a step of `process` should depend on the keys that it touches only. In one run, the
state grows to each number of keys in a few large batches. Then small batches follow, each with rows
of a few of the stored keys. The measured time is that of the longest slot task of each step, from
when it has its rows until its state is written and logged. Steps that compact the log count too.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.bench.data import SCHEMA, SPARK_SCHEMA, InputFiles
from anabranch.bench.keyed.sides import run_process
from anabranch.bench.options import KeyedOptions
from anabranch.bench.side import Bench, emptied

_LARGE = 500_000
_FIRST_MTIME_S = 1_600_000_000
_START_US = 1_767_225_600_000_000


def flat(bench: Bench[KeyedOptions], place: Path, form: str = "per-key-rows") -> dict[str, Any]:
    """The figures for each number of stored keys."""
    options, levels = bench.options, bench.options.levels
    source, small = _write(options, emptied(place) / "input")
    bench.say(f"flat: {len(source.files)} batches, up to {levels[-1]:,} keys, {form}")
    steps: list[ab.Progress] = []
    run_process(bench, form, source, place / "run", on_end=steps.extend)
    batches = [step for step in steps if step.batch_id is not None]
    found: list[dict[str, Any]] = []
    for stored in levels:
        mine = [batches[i] for i in small[stored]]
        each = [max(step.slot_s.values()) for step in mine]
        phases = {
            name: round(median(s.slot_phases_s.get(name, 0.0) for s in mine), 5)
            for name in mine[0].slot_phases_s
        }
        found.append(
            {
                "stored": stored,
                "keys_held": mine[-1].key_numbers,
                "median_s": round(median(each), 5),
                "max_s": round(max(each), 5),
                "step_median_s": round(median(step.duration_s for step in mine), 4),
                "slots_phases_s": phases,
                "state_mb": round(mine[-1].state_bytes / 2**20, 1),
                "each_s": [round(s, 5) for s in each],
            }
        )
    ratios = {
        f"{name}_ratio": round(_most_over_least([level[f"{name}_s"] for level in found]), 3)
        for name in ("median", "max")
    }
    held = [level["keys_held"] == level["stored"] for level in found]
    return {
        "case": "flat",
        "form": form,
        "touched": options.touched,
        "levels": found,
        **ratios,
        "verified": all(held),
    }


def _most_over_least(values: list[float]) -> float:
    return max(values) / min(values)


def _write(options: KeyedOptions, directory: Path) -> tuple[InputFiles, dict[int, range]]:
    """Writes files of new keys up to each level, then small ones.

    Also returns the numbers of the small batches of each level.
    """
    directory.mkdir(parents=True)
    rng = np.random.default_rng(options.seed)
    files: list[Path] = []
    rows: list[int] = []
    small: dict[int, range] = {}
    known = 0
    for stored in options.levels:
        for first in range(known, stored, _LARGE):
            _file(directory, files, rows, np.arange(first, min(first + _LARGE, stored)))
        known = stored
        uncounted = (
            options.steps if stored == options.levels[0] else 3
        )  # to warm up; later ones follow large batches
        for _ in range(uncounted):
            _file(directory, files, rows, rng.choice(stored, options.touched, replace=False))
        start = len(files)
        for _ in range(options.steps):
            _file(directory, files, rows, rng.choice(stored, options.touched, replace=False))
        small[stored] = range(start, len(files))
    newest = tuple(_START_US + i for i in range(len(files)))
    source = InputFiles(
        directory=directory,
        files=tuple(files),
        rows=tuple(rows),
        newest_us=newest,
        delay_s=1,
        schema=SPARK_SCHEMA,
    )
    return source, small


def _file(
    directory: Path, files: list[Path], rows: list[int], keys: np.ndarray[Any, np.dtype[np.int64]]
) -> None:
    path = directory / f"batch-{len(files):05d}.parquet"
    at = pa.array(np.full(len(keys), _START_US + len(files))).cast(SCHEMA.field("at").type)
    table = pa.table([pa.array(keys, pa.int64()), at, pa.array(np.ones(len(keys)))], schema=SCHEMA)
    pq.write_table(table, path, row_group_size=max(1, -(-len(keys) // 4)))
    os.utime(path, (_FIRST_MTIME_S + len(files), _FIRST_MTIME_S + len(files)))
    files.append(path)
    rows.append(len(keys))
