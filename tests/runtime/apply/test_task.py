"""The tasks of a stage of applies, without Spark: every row enters its function once."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.elastic.grouping.steps import Grouping, after_step, new_grouping
from anabranch.runtime.apply.calls import ApplyCalls
from anabranch.runtime.apply.task import (
    ORDER,
    SLOT,
    VALUE,
    ApplyTask,
    ApplyWork,
    ScheduleTask,
)
from anabranch.runtime.passing import APPLY_REPORT, REPORT
from anabranch.runtime.reports import StepReports
from anabranch.runtime.tasks import Emitted
from anabranch.runtime.worker import TaskId
from anabranch.state.checkpoint.files import Files
from anabranch.topology.apply import ApplySpec, Osg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTINGS = Osg(window=4, mu=10.0)
ROWS = pa.schema([("to", pa.int32()), ("t", pa.int64()), ("p0", pa.int64()), ("p1", pa.string())])
SCHEMA = ROWS.append(pa.field(APPLY_REPORT, pa.string()))
GIVEN = pa.schema([("id", pa.int64()), ("k", pa.string())])
MADE = pa.schema([("name", pa.string()), ("id", pa.int64())])
APPLY, OTHER, READER = 7, 2, 3


@pytest.fixture
def run_in() -> Callable[[int, Any, Any], list[pa.RecordBatch]]:
    def run(partition: int, task: Any, batches: Any) -> list[pa.RecordBatch]:
        return list(task.run(iter(batches), TaskId(partition)))

    return run


def rows_of(numbers: range) -> pa.RecordBatch:
    """Rows for the apply, and every fifth one for another operator."""
    to = [OTHER if i % 5 == 0 else APPLY for i in numbers]
    keys = [f"k{i * i % 7}" for i in numbers]
    values = [None if i % 5 == 0 else i * i % 7 for i in numbers]
    return pa.record_batch(
        {
            "to": pa.array(to, pa.int32()),
            "t": pa.array([i if i % 5 == 0 else None for i in numbers], pa.int64()),
            "p0": pa.array(list(numbers), pa.int64()),
            "p1": pa.array(keys),
            VALUE: pa.array(values, pa.int64()),
            ORDER: pa.array([hash((i, "order")) for i in numbers], pa.int64()),
        }
    )


def named(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["id"] % 13 == 0:
        raise ValueError("thirteen")
    time.sleep(0.0005 if row["k"] == "k1" else 0)
    return None if row["id"] % 11 == 0 else {"id": row["id"], "name": f"{row['k']}-{row['id']}"}


def work_of(grouping: Grouping) -> ApplyWork:
    work = ApplySpec(
        fn=named,
        form="rows",
        cost_by=("k",),
        grouping=grouping.wanted,
        osg=SETTINGS,
        dead_letters=True,
    )
    return ApplyWork(
        number=APPLY,
        calls=ApplyCalls("named", work, GIVEN, MADE),
        places={"id": "p0", "k": "p1"},
        emits=(Emitted(number=READER, columns={"name": "p1", "id": "p0"}),),
        written=True,
        letters=True,
        grouping=grouping,
    )


def scheduled(
    run_in: Any, grouping: Grouping, partitions: list[list[pa.RecordBatch]], *, unordered: bool
) -> pa.Table:
    task = ScheduleTask(
        groupings={APPLY: (grouping, SETTINGS)},
        slots=grouping.slots,
        names=tuple(ROWS.names),
        unordered=unordered,
    )
    return pa.Table.from_batches(
        [each for i, part in enumerate(partitions) for each in run_in(i, task, part)]
    )


def in_slot(rows: pa.Table, slot: int) -> Iterator[pa.RecordBatch]:
    return iter(rows.filter(pa.compute.equal(rows[SLOT], slot)).to_batches())


@pytest.mark.parametrize("wanted", ["round robin", "hash", "osg"])
def test_steps_of_a_stage_do_every_row_once_and_learn(
    run_in: Any, tmp_path: Path, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.apply.task._TAKEN", 24)
    monkeypatch.setattr(
        "anabranch.runtime.apply.task._MEASURED", 16
    )  # of these; the others are done in any case
    grouping, ways = new_grouping(wanted, 3, SETTINGS), []
    for step in range(4):
        first = 200 * step
        batches = [
            [rows_of(range(first, first + 90)), rows_of(range(first + 90, first + 100))],
            [rows_of(range(first + 100, first + 200))],
        ]
        rows = scheduled(run_in, grouping, batches, unordered=False)
        assert len(rows) == 200
        task = ApplyTask(
            works=(work_of(grouping),),
            checkpoint=Files(str(tmp_path)),
            step=step,
            epoch=1,
            job=step,
            schema=SCHEMA,
        )
        made = pa.Table.from_batches(
            [each for slot in range(3) for each in run_in(slot, task, in_slot(rows, slot))], SCHEMA
        )
        mine = [i for i in range(first, first + 200) if i % 5]
        good = [i for i in mine if i % 13 and i % 11]
        assert sorted(made.filter(pa.compute.equal(made["to"], READER))["p0"].to_pylist()) == good
        passed = made.filter(pa.compute.equal(made["to"], OTHER)).sort_by("p0")
        assert (
            passed["p0"].to_pylist()
            == passed["t"].to_pylist()
            == [i for i in range(first, first + 200) if i % 5 == 0]
        )
        sent = made.filter(pa.compute.equal(made["to"], REPORT))[APPLY_REPORT].to_pylist()
        reports = {each.slot: each for each in StepReports.decoded(sent).of_apply("named")}
        assert list(reports) == [0, 1, 2]
        written = pa.concat_tables(
            [pq.read_table(tmp_path / r.results.path) for r in reports.values() if r.results]
        )
        assert sorted(written["name"].to_pylist()) == sorted(f"k{i * i % 7}-{i}" for i in good)
        letters = pa.concat_tables(
            [pq.read_table(tmp_path / r.letters.path) for r in reports.values() if r.letters]
        )
        assert Counter(letters["error"].to_pylist()) == {
            "ValueError: thirteen": sum(i % 13 == 0 for i in mine)
        }
        assert sum(report.failed for report in reports.values()) == len(letters)
        assert sum(report.seen.rows for report in reports.values()) == len(mine)
        ways.append(grouping.way)
        if wanted == "hash":
            keys = [
                set(pq.read_table(tmp_path / r.results.path)["name"].to_pylist())
                for r in reports.values()
                if r.results
            ]
            assert not set.intersection(
                *({name.partition("-")[0] for name in each} for each in keys)
            )
        grouping = after_step(grouping, {slot: report.seen for slot, report in reports.items()})
    assert ways == (["round robin", "osg", "osg", "osg"] if wanted == "osg" else [wanted] * 4)


def test_after_an_exchange_the_order_of_rows_does_not_decide_their_slots(run_in: Any) -> None:
    """A task that runs again may get its rows in another order; each must go to the same slot."""
    grouping = new_grouping("round robin", 3, SETTINGS)
    whole = rows_of(range(100))
    shuffled = whole.take(pa.array(np.random.default_rng(1).permutation(100)))
    found = []
    for batches in ([whole], [shuffled.slice(0, 33), shuffled.slice(33)]):
        rows = scheduled(run_in, grouping, [batches], unordered=True)
        found.append(dict(zip(rows["p0"].to_pylist(), rows[SLOT].to_pylist(), strict=True)))
    assert found[0] == found[1]
    assert Counter(slot for i, slot in found[0].items() if i % 5) == {0: 27, 1: 27, 2: 26}


def test_reports_of_earlier_stages_go_to_slot_0_and_pass_unchanged(
    run_in: Any, tmp_path: Path
) -> None:
    grouping = new_grouping("round robin", 3, SETTINGS)
    sent = pa.record_batch(
        {
            "to": pa.array([REPORT, APPLY], pa.int32()),
            "t": pa.nulls(2, pa.int64()),
            "p0": pa.array([None, 1], pa.int64()),
            "p1": pa.array([None, "k"]),
            APPLY_REPORT: pa.array(["of an earlier stage", None]),
            VALUE: pa.array([None, 1], pa.int64()),
            ORDER: pa.array([1, 2], pa.int64()),
        }
    )
    schedule = ScheduleTask(
        groupings={APPLY: (grouping, SETTINGS)},
        slots=3,
        names=tuple(SCHEMA.names),
        unordered=True,
    )
    [batch] = run_in(2, schedule, [sent])
    assert batch[SLOT].to_pylist() == [0, 2]
    task = ApplyTask(
        works=(work_of(grouping),),
        checkpoint=Files(str(tmp_path)),
        step=1,
        epoch=1,
        job=1,
        schema=SCHEMA,
    )
    made = pa.Table.from_batches(run_in(0, task, [batch.slice(0, 1)]), SCHEMA)
    assert made["to"].to_pylist() == [REPORT, REPORT]
    assert made[APPLY_REPORT][0].as_py() == "of an earlier stage"
