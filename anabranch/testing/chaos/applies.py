"""An `apply` for chaos runs, and its expected results by a loop: no row, one, two, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

SCHEMA = "n bigint, half double, part int"
_TYPES = pa.schema([("n", pa.int64()), ("half", pa.float64()), ("part", pa.int32())])


def worked(row: dict[str, Any]) -> list[dict[str, Any]]:
    """No row for every seventh value, two for every fifth; every eleventh, and null, fails."""
    v = row["v"]
    if v is None or v % 11 == 0:
        raise ValueError(f"v is {v}")
    if v % 7 == 0:
        return []
    return [{"n": v, "half": v / 2, "part": part} for part in range(2 if v % 5 == 0 else 1)]


def expected_work(steps: Sequence[pa.Table | None]) -> tuple[pa.Table, pa.Table]:
    """The results of all steps, and the rows that failed, each with its error."""
    done: list[dict[str, Any]] = []
    failed: list[pa.Table] = []
    for step in (each for each in steps if each is not None):
        errors: list[str | None] = []
        for row in step.select(["v"]).to_pylist():
            try:
                done += worked(row)
                errors.append(None)
            except ValueError as error:
                errors.append(f"ValueError: {error}")
        letters = step.append_column("error", pa.array(errors, pa.string()))
        failed.append(letters.filter(letters["error"].is_valid()))
    return pa.Table.from_pylist(done, schema=_TYPES), pa.concat_tables(failed)
