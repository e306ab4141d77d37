"""What the driver reads out of the reports of all slots."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.runtime.reports import (
    NodeReport,
    Report,
    ShardReport,
    Written,
    check_complete,
    missing_in,
    moving_mean,
    seen_in,
)
from anabranch.state.checkpoint.log import Stored
from anabranch.state.store.version import Version


def report(
    slot: int, *, component: str = "c", seen: dict[int, int] | None = None, **nodes: NodeReport
) -> Report:
    return Report(
        component=component,
        slot=slot,
        host="h",
        pid=1,
        started=0.0,
        ended=1.0,
        cpu_s=0.5,
        nodes=nodes,
        seen_us=seen or {},
    )


def test_a_report_comes_back_from_its_bytes() -> None:
    stored = Stored(version=Version(3, "t"), file="f", delta=(0, 5), snapshot=(5, 9), since=2)
    shard = ShardReport(rows_in=1, rows_out=2, cpu_s=0.5, state_bytes=9, stored=stored)
    node = NodeReport(shards={7: shard}, results=Written(path="p", rows=2), keys_in={3: 1.5})
    made = report(1, o=node, seen={0: -5})
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


def test_slots_that_reported_twice_or_not_at_all_are_named() -> None:
    wanted = [("c", 0), ("c", 1), ("d", 0)]
    good = [report(1), report(0, component="d"), report(0)]
    check_complete(good, wanted)
    with pytest.raises(RuntimeError, match=r"exactly once: c 1$"):
        check_complete([report(0), report(0, component="d")], wanted)
    with pytest.raises(RuntimeError, match=r"exactly once: c 0$"):
        check_complete([*good, report(0)], wanted)


def test_missing_shards_of_an_operator_are_those_of_all_slots() -> None:
    found = missing_in(
        [
            report(0, o=NodeReport(shards={}, missing=(1, 2)), p=NodeReport(shards={})),
            report(1, o=NodeReport(shards={}, missing=(5,))),
        ]
    )
    assert found == {"o": [1, 2, 5]}


def test_the_newest_event_time_of_a_source_is_that_of_the_operator_that_reports_it() -> None:
    reports = [report(0, seen={4: 10, 5: 99}), report(1, seen={4: 30}), report(2)]
    assert seen_in(reports, {"a": 4, "b": 6}) == {"a": 30}


def test_the_mean_of_keys_is_summed_over_slots_and_moves_half_way() -> None:
    before = {"o": {1: 10.0, 7: 3.0}}
    reports = [
        report(0, o=NodeReport(shards={}, keys_in={1: 4.0, 2: 6.0})),
        report(1, o=NodeReport(shards={}, keys_in={1: 2.0})),
    ]
    assert moving_mean(before, reports) == {"o": {1: 8.0, 7: 3.0, 2: 6.0}}
