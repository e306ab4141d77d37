"""Compares the output of a disturbed run with its undisturbed run and independent references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.state.checkpoint.commits import open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.testing.chaos.applies import expected_work
from anabranch.testing.chaos.gathered import gathered_differences
from anabranch.testing.chaos.plan import CasePlan
from anabranch.testing.chaos.processes import PROCESSES, expected_of
from anabranch.testing.chaos.topologies import WHOLE
from anabranch.testing.compare import bag_differences, differences, read_results
from anabranch.testing.dag_runs import compare_runs
from anabranch.testing.events import without_far
from anabranch.testing.reference.chains import as_rows, closed_until
from anabranch.testing.reference.changes import Phase, expected_with_changes
from anabranch.testing.reference.windows import FinalWatermark, expected_late, expected_results

_WINDOW = ["window_start", "window_end", "window_name"]


def compare_case(plan: CasePlan, root: Path) -> tuple[list[str], int]:
    """What differs in results, late rows and totals of a case, and how many rows were compared."""
    if plan.dag is not None:
        found, rows = compare_runs(plan.dag, root, plan.batches(), finish=plan.finish)
        return [f"{text} ({plan.dag})" for text in [*found, *_other_totals(root)]], rows
    comparison = _Comparison(plan, root)
    comparison.compare_windows()
    comparison.compare_others()
    return [*comparison.differences, *_other_totals(root)], comparison.rows


class _Comparison:
    """Compares the sinks of a case one by one, and counts rows."""

    def __init__(self, plan: CasePlan, root: Path) -> None:
        self._plan, self._topology, self._root = plan, plan.topology, root
        self._query = plan.topology.query()
        files = sorted((root / "files").glob("*.parquet"))
        self._steps: list[pa.Table | None] = []
        for batch in plan.batches():
            self._steps.append(None if batch is None else pq.read_table(files[batch]))
        # No operator with state takes rows of the year 9999.
        self._taken = [None if each is None else without_far(each) for each in self._steps]
        self.differences: list[str] = []
        self.rows = 0

    def compare_windows(self) -> None:
        """Windows and sessions, their late rows, and the operator that reads their results."""
        steps, query = self._steps, self._query
        final: FinalWatermark = "finish" if self._plan.finish else "closing"
        wanted = expected_with_changes(
            self._taken, query, self._phases(), whole=WHOLE, final_watermark=final
        )
        self._compare("out", "results", "DuckDB", wanted, _by_window(query.keys))
        if self._topology.late_sink:
            late = expected_late(steps, query)
            self._compare("late", "late rows", "DuckDB", late, bag_differences)
        if (then := self._topology.then) is not None:
            until = closed_until(self._taken, "at", query.delay_us, final)
            second = expected_results([as_rows(wanted)], then.query(), final_watermark=until)
            self._compare("then", "second operator", "DuckDB", second, _by_window(then.keys))

    def _phases(self) -> list[Phase]:
        """The aggregates of each portion of the input; each portion ends with a closing step."""
        return [
            Phase(steps=size + 1, aggregates=self._topology.at(i).aggregates)
            for i, size in enumerate(self._plan.portions)
        ]

    def compare_others(self) -> None:
        """What else reads the source: processes, sketches with early results, and an apply."""
        steps, keys, delay_us = self._taken, self._query.keys, self._query.delay_us
        finish = self._plan.finish
        if self._topology.process:
            for name in PROCESSES:
                wanted = expected_of(name, steps, keys, delay_us, finish=finish)
                self._compare(name, f"process {name}", "tester", wanted, bag_differences)
        if self._topology.gathered:
            runs = self._read("gathered")
            found = gathered_differences(*runs, steps, keys, delay_us, finish=finish)
            self.differences += [f"gathered, {text}" for text in found]
        if self._topology.grouping is not None:
            worked, failed = expected_work(self._steps)
            self._compare("worked", "worked by apply", "a loop", worked, bag_differences)
            self._compare("failed", "failed in apply", "a loop", failed, bag_differences)

    def _read(self, sink: str) -> tuple[pa.Table, pa.Table]:
        """What the disturbed and the undisturbed run wrote to a sink."""
        disturbed = read_results(self._root / "disturbed" / sink)
        self.rows += disturbed.num_rows
        return disturbed, read_results(self._root / "undisturbed" / sink)

    def _compare(
        self,
        sink: str,
        name: str,
        reference: str,
        wanted: pa.Table,
        compare: Callable[[pa.Table, pa.Table], Sequence[str]],
    ) -> None:
        """Compares a sink with that of the undisturbed run, and with a reference."""
        disturbed, undisturbed = self._read(sink)
        found = [f"{name}, undisturbed: {text}" for text in compare(disturbed, undisturbed)]
        found += [f"{name}, {reference}: {text}" for text in compare(disturbed, wanted)]
        self.differences += found


def _by_window(keys: Sequence[str]) -> Callable[[pa.Table, pa.Table], Sequence[str]]:
    return partial(differences, keys=[*keys, *_WINDOW])


def _other_totals(root: Path) -> list[str]:
    disturbed, undisturbed = _totals(root / "disturbed"), _totals(root / "undisturbed")
    if disturbed == undisturbed:
        return []
    return [f"totals of the commit record: {disturbed}, undisturbed {undisturbed}"]


def _totals(root: Path) -> dict[str, int]:
    checkpoint = open_checkpoint(Files(str(root / "checkpoint")))
    return dict(checkpoint.last.rows) if checkpoint and checkpoint.last else {}
