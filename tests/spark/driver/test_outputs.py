"""Which files of a step go to which sink, and that a sink that fails is named; without Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.errors import StepError
from anabranch.plan.make import make_plan
from anabranch.runtime.reports import NodeReport, StepReports, Written
from anabranch.spark.driver.outputs import Outputs, written_for
from anabranch.spark.outlets import Outlet, WrittenRows, written_rows
from anabranch.spark.sinks import StepResults, Target
from tests.spark.driver.reports_by_hand import FUSED, W0, W1, graph, report, with_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAN = make_plan(graph(), "fusion by attributes")


class Kept(Target):
    def __init__(self, error: str | None = None) -> None:
        self.files: list[tuple[str, ...]] = []
        self._error = error

    def write(self, results: StepResults) -> None:
        if self._error is not None:
            raise OSError(self._error)
        self.files.append(results.names)


def outlet(operator: str, target: Target, *, late: bool = False) -> Outlet:
    return Outlet(name=f"to {operator}", operator=operator, late=late, target=target)


def reports() -> StepReports:
    found = []
    for slot in range(2):
        node = NodeReport(
            part=W0,
            shards={},
            results=(Written(path=f"results-{slot}", rows=1),),
            late=Written(path=f"late-{slot}", rows=1) if slot else None,
        )
        other = NodeReport(part=W1, shards={})
        found.append(with_nodes(report(FUSED, slot, {}), node, other))
    return StepReports(tuple(found))


def outputs(outlets: Sequence[Outlet]) -> tuple[Outputs, Any]:
    checkpoint = SimpleNamespace(files=None)
    context: Any = SimpleNamespace(outlets=tuple(outlets), checkpoint=checkpoint, session=None)
    made = Outputs(context)
    for each in outlets:
        made._schemas[each.operator, each.late] = (None, None)  # type: ignore[assignment]
    state: Any = SimpleNamespace(plan=PLAN, written_from=None)
    return made, state


def test_a_sink_gets_the_files_that_all_slots_wrote_for_it() -> None:
    kept = Kept()
    assert written_for(outlet("w0", kept), PLAN, reports()) == ("results-0", "results-1")
    assert written_for(outlet("w0", kept, late=True), PLAN, reports()) == ("late-1",)
    assert written_for(outlet("w1", kept), PLAN, reports()) == ()


def test_a_sink_of_one_window_gets_its_files_and_one_of_all_gets_all() -> None:
    results = tuple(Written(path=f"of-{window}", rows=1, window=window) for window in ("day", None))
    node = NodeReport(part=W0, shards={}, results=results)
    found = StepReports((with_nodes(report(FUSED, 0, {}), node),))
    day = replace(outlet("w0", Kept()), window="day")
    assert written_for(day, PLAN, found) == ("of-day",)
    assert written_for(replace(day, window="hour"), PLAN, found) == ()
    assert written_for(outlet("w0", Kept()), PLAN, found) == ("of-day", "of-None")
    every = [day, day, replace(day, window="hour"), outlet("w0", Kept(), late=True)]
    assert written_rows(every, "w0") == WrittenRows(
        results=False, late=True, windows=("day", "hour")
    )
    assert written_rows([outlet("w0", Kept()), day], "w0").results


def test_sinks_are_written_one_after_another_between_the_points_of_the_protocol() -> None:
    first, second, points = Kept(), Kept(), list[str]()
    made, state = outputs([outlet("w0", first), outlet("w1", second)])
    made.write(state, 1, reports(), points.append)
    assert (first.files, second.files) == ([("results-0", "results-1")], [()])
    assert points == ["sinks.before", "sinks.half", "sinks.after"]


def test_a_sink_that_fails_is_named() -> None:
    made, state = outputs([outlet("w0", Kept("disk full"))])
    with pytest.raises(StepError, match=r"sink 'to w0' .* failed in step 7, .*: disk full"):
        made.write(state, 7, reports(), lambda _: None)
