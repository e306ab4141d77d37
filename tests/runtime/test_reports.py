"""Reports of tasks: they come back as they were sent, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.elastic.grouping.osg import measure_rows, new_task
from anabranch.elastic.grouping.steps import TaskObservation
from anabranch.plan.ids import ComponentId, PartId
from anabranch.runtime.reports import (
    ApplyReport,
    NodeReport,
    ShardReport,
    SlotReport,
    StepReports,
    Written,
    decoded,
    encoded,
    files_of,
    moving_mean,
)
from anabranch.state.checkpoint.commits import Stored
from anabranch.state.store.version import Version
from anabranch.topology.apply import Osg

W = ComponentId(("w",))


def slot_report(slot: int, **given: Any) -> SlotReport:
    times: dict[str, Any] = {"host": "h", "pid": 1, "started": 0.5, "ended": 2.0, "cpu_s": 0.25}
    return SlotReport(**{"component": W, "slot": slot, "nodes": (), **times, **given})


def apply_report(slot: int) -> ApplyReport:
    settings = Osg(window=4, mu=10.0)
    task, sent = measure_rows(new_task(settings), np.arange(10), np.random.rand(10), settings)  # noqa: NPY002
    seen = TaskObservation(task=task, sent=sent, rows=10, seconds=0.1, estimated_s=None)
    return ApplyReport(
        apply="a",
        slot=slot,
        started=0.1,
        ended=0.2,
        seen=seen,
        rows_out=7,
        failed=1,
        results=Written(path="results/1", rows=7),
        letters=None,
    )


def test_a_report_of_a_slot_comes_back_as_it_was_sent() -> None:
    stored = Stored(version=Version(3, "t"), file="state/3/f.bin", delta=(0, 5))
    shard = ShardReport(rows_in=3, rows_out=1, cpu_s=0.1, state_bytes=100, stored=stored)
    node = NodeReport(
        part=PartId("w", "session"),
        shards={7: shard},
        missing=(2,),
        left_out={"late": 4},
        keys_in={6: 2.5},
    )
    sent = slot_report(1, nodes=(node,), phases={"read": 0.1}, seen_us={4: -5})
    assert decoded(encoded(sent)) == sent


def test_the_sketches_of_an_apply_come_back_bit_by_bit() -> None:
    sent = apply_report(1)
    back = decoded(encoded(sent).decode())
    assert isinstance(back, ApplyReport)
    assert (back.apply, back.slot, back.rows_out, back.results) == ("a", 1, 7, sent.results)
    for mine, theirs in ((back.seen.task.sketches, sent.seen.task.sketches),):
        assert np.array_equal(mine.times, theirs.times)
        assert np.array_equal(mine.frequencies, theirs.frequencies)
    assert back.seen.sent is not None
    assert sent.seen.sent is not None
    assert np.array_equal(back.seen.sent.times, sent.seen.sent.times)
    assert measure_rows(back.seen.task, np.arange(3), np.ones(3), Osg(window=4))[0].rows == 13


def test_the_reports_of_a_job_are_sorted_out_and_must_be_complete() -> None:
    sent: list[bytes | str] = [encoded(slot_report(0)), encoded(apply_report(1)).decode()]
    sent += [encoded(apply_report(0))]
    found = StepReports.decoded(sent)
    assert [each.slot for each in found.slots] == [0]
    assert [each.slot for each in found.of_apply("a")] == [0, 1]
    found.check_complete([("a", 0), ("a", 1), (W, 0)])
    with pytest.raises(RuntimeError, match=r"not reported exactly once: w 1$"):
        found.check_complete([("a", 0), ("a", 1), (W, 0), (W, 1)])
    twice = StepReports.decoded([*sent, sent[0]])
    with pytest.raises(RuntimeError, match=r"not reported exactly once: w 0$"):
        twice.check_complete([("a", 0), ("a", 1), (W, 0)])


def test_all_reports_together_answer_the_driver() -> None:
    a, b = PartId("a"), PartId("b")
    nodes = (
        NodeReport(part=a, shards={}, missing=(1, 2), next_end_us=30, keys_in={1: 4.0}),
        NodeReport(part=b, shards={}, next_end_us=20),
    )
    other = (NodeReport(part=a, shards={}, missing=(5,), keys_in={1: 2.0}),)
    found = StepReports(
        (slot_report(0, nodes=nodes, seen_us={3: 10}), slot_report(1, nodes=other, seen_us={3: 12}))
    )
    assert found.missing() == {a: [1, 2, 5]}
    assert found.next_end_us() == 20
    assert found.latest_event_us({"source": 3, "silent": 4}) == {"source": 12}
    assert moving_mean({a: {1: 10.0, 9: 1.0}}, found) == {a: {1: 8.0, 9: 1.0}, b: {}}
    assert files_of([None, Written(path="x", rows=1)]) == ("x",)
