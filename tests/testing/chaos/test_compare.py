"""Whole outputs are compared: what is missing, doubled or changed is a difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.testing.chaos.compare import compare_case
from anabranch.testing.chaos.dealing import plan_case
from anabranch.testing.chaos.plan import CasePlan
from anabranch.testing.events import event_batches, write_batches
from anabranch.testing.reference.windows import expected_late, expected_results


def case() -> CasePlan:
    plan, _ = plan_case(1, 1, [], dag=False)
    topology = replace(
        plan.topology, then=None, process=False, gathered=False, grouping=None, late_sink=True
    )
    return replace(plan, topology=topology, finish=True)


def write_runs(plan: CasePlan, root: Path) -> pa.Table:
    """The files that a run without a fault would leave, twice; and its results."""
    batches = list(event_batches(plan.events))
    write_batches(batches, root / "files")
    steps = [None if batch is None else batches[batch] for batch in plan.batches()]
    query = plan.topology.query()
    results = expected_results(steps, query, final_watermark="finish")
    for run in ("undisturbed", "disturbed"):
        for name, table in (("out", results), ("late", expected_late(steps, query))):
            (root / run / name).mkdir(parents=True)
            pq.write_table(table, root / run / name / "rows.parquet")
    return results


def test_equal_outputs_have_no_difference_and_all_rows_are_counted(tmp_path: Path) -> None:
    results = write_runs(case(), tmp_path)
    found, rows = compare_case(case(), tmp_path)
    assert found == []
    assert rows >= results.num_rows > 0


@pytest.mark.parametrize("change", ["missing", "doubled"])
def test_a_missing_or_duplicate_row_differs_from_the_run_and_from_duckdb(
    change: str, tmp_path: Path
) -> None:
    results = write_runs(case(), tmp_path)
    other = results.slice(1) if change == "missing" else pa.concat_tables([results, results[:1]])
    pq.write_table(other, tmp_path / "disturbed" / "out" / "rows.parquet")
    found, _ = compare_case(case(), tmp_path)
    assert any(text.startswith("results, undisturbed") for text in found)
    assert any(text.startswith("results, DuckDB") for text in found)
