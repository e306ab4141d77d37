"""What a disturbed run has written, against its undisturbed run and independent references."""

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
from anabranch.testing.compare import bag_differences, differences, read_results
from anabranch.testing.dag_runs import compare_runs
from anabranch.testing.reference.chains import as_rows, closed_until
from anabranch.testing.reference.windows import FinalWatermark, expected_late, expected_results

_WINDOW = ["window_start", "window_end", "window_name"]


def compare_case(plan: CasePlan, root: Path) -> tuple[list[str], int]:
    """What differs in results, late rows and totals of a case, and how many rows were compared."""
    if plan.dag is not None:
        told, rows = compare_runs(plan.dag, root, plan.batches(), finish=plan.finish)
        return [f"{text} ({plan.dag})" for text in [*told, *_other_totals(root)]], rows
    compared = _Compared(root)
    topology, query = plan.topology, plan.topology.query()
    files = sorted((root / "files").glob("*.parquet"))
    steps = [None if batch is None else pq.read_table(files[batch]) for batch in plan.batches()]
    final: FinalWatermark = "finish" if plan.finish else "closing"
    wanted = expected_results(steps, query, final_watermark=final)
    by_window = partial(differences, keys=[*query.keys, *_WINDOW])
    compared.see("out", "results", "DuckDB", wanted, by_window)
    if topology.late_sink:
        compared.see("late", "late rows", "DuckDB", expected_late(steps, query), bag_differences)
    if (then := topology.then) is not None:
        until = closed_until(steps, "at", query.delay_us, final)
        second = expected_results([as_rows(wanted)], then.query(), final_watermark=until)
        compared.see(
            "then",
            "second operator",
            "DuckDB",
            second,
            partial(differences, keys=[*then.keys, *_WINDOW]),
        )
    if topology.process:
        for name in PROCESSES:
            made = expected_of(name, steps, query.keys, query.delay_us, finish=plan.finish)
            compared.see(name, f"process {name}", "tester", made, bag_differences)
    if topology.gathered:
        found, calm = compared.read("gathered")
        told = gathered_differences(
            found, calm, steps, query.keys, query.delay_us, finish=plan.finish
        )
        compared.told += [f"gathered, {text}" for text in told]
    if topology.grouping is not None:
        worked, failed = expected_work(steps)
        compared.see("worked", "worked by apply", "a loop", worked, bag_differences)
        compared.see("failed", "failed in apply", "a loop", failed, bag_differences)
    return [*compared.told, *_other_totals(root)], compared.rows


class _Compared:
    """Compares one sink after the other, and counts its rows."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.told: list[str] = []
        self.rows = 0

    def read(self, sink: str) -> tuple[pa.Table, pa.Table]:
        """What the disturbed and the undisturbed run wrote into a sink."""
        found, calm = (
            read_results(self._root / run / sink) for run in ("disturbed", "undisturbed")
        )
        self.rows += found.num_rows
        return found, calm

    def see(
        self,
        sink: str,
        name: str,
        by: str,
        wanted: pa.Table,
        compare: Callable[[pa.Table, pa.Table], Sequence[str]],
    ) -> None:
        """Compares a sink with the undisturbed run's and with what a reference wants."""
        found, calm = self.read(sink)
        self.told += [f"{name}, undisturbed: {text}" for text in compare(found, calm)]
        self.told += [f"{name}, {by}: {text}" for text in compare(found, wanted)]


def _other_totals(root: Path) -> list[str]:
    totals = [_totals(root / name) for name in ("disturbed", "undisturbed")]
    return (
        []
        if totals[0] == totals[1]
        else [f"totals of the commit record: {totals[0]}, undisturbed {totals[1]}"]
    )


def _totals(root: Path) -> dict[str, int]:
    checkpoint = open_checkpoint(Files(str(root / "checkpoint")))
    return dict(checkpoint.last.rows) if checkpoint and checkpoint.last else {}
