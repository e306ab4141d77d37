"""From reports to observations, without Spark: reports are made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.plan.make import make_plan
from anabranch.plan.route import even_route
from anabranch.spark.driver.observe import Conditions, NoQuery, StepWatch, observe
from anabranch.spark.driver.source_progress import BatchProgress
from tests.spark.driver.reports_by_hand import (
    FIRST,
    SECOND,
    SHARDS,
    W0,
    W1,
    commit,
    graph,
    progress,
    report,
)


def test_components_that_feed_each_other() -> None:
    plan = make_plan(graph(), "unfused")
    routes = {FIRST: even_route(SHARDS, 2), SECOND: even_route(SHARDS, 1)}
    reports = [
        report(FIRST, 1, {W0: {1: (10, 2), 3: (30, 3)}}),
        report(FIRST, 0, {W0: {0: (5, 1), 2: (0, 0)}}),
        report(SECOND, 0, {W1: {0: (6, 0), 1: (0, 1), 2: (0, 0), 3: (0, 0)}}),
    ]
    made = commit(1, routes)
    seen = observe(
        plan, made, progress(made, reports), reports, Conditions(cores=2, interval_s=3.0)
    )
    first, second = seen.components
    assert (first.name, first.level, first.parents) == ("w0", 1, ())
    assert (second.name, second.level, second.parents) == ("w1", 2, ("w0",))
    assert first.rows.tolist() == [5, 10, 0, 30]
    assert first.rows_out.tolist() == [1, 2, 0, 3]
    assert first.state_bytes.tolist() == [100, 200, 300, 400]
    assert first.cpu_s.tolist() == pytest.approx([0.005, 0.01, 0, 0.03])
    assert first.work_s.tolist() == pytest.approx([0.02, 0.04, 0, 0.12])
    assert first.slot_s.tolist() == pytest.approx([0.77, 0.91])
    assert seen.sources["visits"].rows == 45
    assert seen.sources["visits"].lag_s == 4.0
    assert (seen.between, seen.interval_s, seen.disturbed, seen.closing) == (6, 3.0, False, False)


def test_fused_operators_count_the_rows_that_enter_and_leave() -> None:
    plan = make_plan(graph(), "fusion by attributes")
    [component] = plan.components
    reports = [report(component.name, 0, {W0: {0: (5, 1), 1: (10, 2)}, W1: {0: (1, 0), 1: (2, 4)}})]
    made = commit(1, {component.name: even_route(SHARDS, 1)})
    [seen] = observe(plan, made, progress(made, reports), reports, Conditions(cores=2)).components
    assert seen.rows.tolist() == [5, 10, 0, 0]
    assert seen.rows_out.tolist() == [1, 6, 0, 0]
    assert seen.cpu_s.sum() == pytest.approx(0.018)


class Query(NoQuery):
    def __init__(self, *batches: int) -> None:
        self._batches = list(batches)

    def last_progress(self) -> BatchProgress:
        if not self._batches:
            raise RuntimeError("the query has ended")
        number = self._batches.pop(0)
        return BatchProgress(batch_id=number, seconds=5.0, rows=(50.0,), backlog=(None,))


def test_an_observation_waits_for_what_spark_says_about_its_own_batch() -> None:
    plan = make_plan(graph(), "fusion by attributes")
    name = plan.components[0].name
    reports = [report(name, 0, {W0: {0: (5, 1)}})]
    made = commit(1, {name: even_route(SHARDS, 1)})
    seen = observe(plan, made, progress(made, reports), reports, Conditions(cores=1))
    watch, query = StepWatch(), Query(0, 0)
    assert watch.complete(query) is None
    watch.keep(seen, 0)
    first = watch.complete(query)
    assert first is not None
    assert (first.duration_s, first.rows) == (5.0, 50.0)
    assert watch.complete(query) is None, "each observation is given once"
    watch.keep(replace(seen, step=2, at=seen.at + 2), 1)
    second = watch.complete(query)
    assert second is not None
    assert second.duration_s == 2.0, "Spark's progress is of another batch"
    watch.keep(replace(seen, step=3, at=seen.at + 4), 2)
    third = watch.complete(query)
    assert third is not None, "a query that has ended does not answer"
    assert third.duration_s == 2.0
