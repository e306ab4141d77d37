"""Compares every result row of a side with DuckDB, which computes the windows again.

Nothing of the engine is used here. SQL groups the rows of the input files by key and pane, pairs
each pane with its windows, and a plain GROUP BY does the rest. The comparison is the one that all
tests use; it takes one window at a time, to need little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from anabranch.bench.cases import WindowCase, copies
from anabranch.bench.measure import SideRun
from anabranch.testing.compare import differences
from anabranch.testing.reference.database import connect
from anabranch.topology import Window

_MANY_COPIES = 100
_IDENTITY = ["key", "window_start", "window_end"]


class Reference:
    """The windows of one case over one input. Use it in a `with` statement."""

    def __init__(self, case: WindowCase, files: Sequence[Path]) -> None:
        self._case = case
        self._db = connect()
        self._db.execute(
            f"""CREATE TEMP TABLE panes AS
                SELECT key, epoch_us("at") // {case.pane_us} * {case.pane_us} AS pane,
                       count(*) AS n, sum(v) AS total, max(v) AS top
                FROM read_parquet(?) GROUP BY ALL""",
            [[str(file) for file in files]],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    def differences(self, run: SideRun) -> tuple[int, list[str]]:
        """How many rows were compared, and what is wrong with a run's results up to its watermark.

        The list is empty if nothing is wrong.
        """
        found = [f"{run.left_out} rows were left out of all windows"] if run.left_out else []
        compared = 0
        for window in self._case.windows:
            actual = self._results(run.files, window)
            expected = self._expected(window, run.watermark_us)
            compared += expected.num_rows
            found += [f"{window.name}: {line}" for line in differences(actual, expected, _IDENTITY)]
        return compared, found + self._strangers(run.files)

    def _expected(self, window: Window, watermark_us: int) -> pa.Table:
        length, every = window.length_us, window.every_us
        if copies(window) > _MANY_COPIES and every == self._case.pane_us:
            return self._expected_long(window, watermark_us)
        back = (copies(window) - 1) * every
        return self._db.sql(f"""
            SELECT key, start AS window_start, start + {length} AS window_end,
                   CAST(sum(n) AS BIGINT) AS n, sum(total) AS total,
                   sum(total) / sum(n) AS mean, max(top) AS top
            FROM (SELECT *, unnest(range(last - {back}, last + 1, {every})) AS start
                  FROM (SELECT *, pane // {every} * {every} AS last FROM panes))
            WHERE start + {length} > pane AND start + {length} <= {watermark_us}
            GROUP BY key, start
        """).to_arrow_table()

    def _expected_long(self, window: Window, watermark_us: int) -> pa.Table:
        """The same for a pane that is in very many windows.

        It has every key at every pane, and SQL window functions over that.
        """
        length, every = window.length_us, window.every_us
        return self._db.sql(f"""
            WITH edges AS (
                     SELECT min(pane) - {length - every} AS low, max(pane) AS high FROM panes),
                 spine AS (
                     SELECT key, unnest(range(low, high + 1, {every})) AS pane
                     FROM (SELECT DISTINCT key FROM panes), edges),
                 every_pane AS (
                     SELECT key, pane, n, total, top
                     FROM spine LEFT JOIN panes USING (key, pane)),
                 summed AS (SELECT key, pane AS window_start, pane + {length} AS window_end,
                            CAST(sum(n) OVER ahead AS BIGINT) AS n,
                            sum(total) OVER ahead AS total, max(top) OVER ahead AS top
                            FROM every_pane WINDOW ahead AS (PARTITION BY key ORDER BY pane
                            ROWS BETWEEN CURRENT ROW AND {length // every - 1} FOLLOWING))
            SELECT key, window_start, window_end, n, total, total / n AS mean, top FROM summed
            WHERE n IS NOT NULL AND window_end <= {watermark_us}
        """).to_arrow_table()

    def _results(self, files: Sequence[Path], window: Window) -> pa.Table:
        if not files:
            return pa.table({})
        return self._db.sql(
            """SELECT key, epoch_us("window"."start") AS window_start,
                      epoch_us("window"."end") AS window_end, n, total, mean, top
               FROM read_parquet(?) WHERE window_name = ?""",
            params=[[str(file) for file in files], window.name],
        ).to_arrow_table()

    def _strangers(self, files: Sequence[Path]) -> list[str]:
        """Rows of a window that the case does not have."""
        if not files:
            return []
        names = [window.name for window in self._case.windows]
        rows = self._db.execute(
            "SELECT window_name, count(*) FROM read_parquet(?) WHERE NOT list_contains(?, "
            "window_name) GROUP BY ALL",
            [[str(file) for file in files], names],
        ).fetchall()
        return [f"{number} rows of an unknown window {name!r}" for name, number in rows]


def verify_all(
    differences: Callable[[SideRun], tuple[int, list[str]]],
    runs: Sequence[SideRun],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Compares every result row of some runs with a reference: rows compared, and differences."""
    compared: dict[str, int] = {}
    found: list[str] = []
    for run in runs:
        rows, wrong = differences(run)
        compared[run.side] = compared.get(run.side, 0) + rows
        found += [f"{run.side}: {line}" for line in wrong]
    for line in found:
        say(f"DIFFERENT: {line[:500]}")
    rows_text = ", ".join(f"{side} {number:,}" for side, number in compared.items())
    say(f"rows compared: {rows_text}; {len(found) or 'no'} differences")
    return {
        "verified": not found,
        "rows_compared": compared,
        "differences": [line[:500] for line in found[:10]],
    }
