"""From reports to observations, and from decisions to the next step, without Spark: reports are made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anabranch.elastic import Elastic, Evaluation, Guards, Wanted
from anabranch.errors import TopologyError
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.make import make_plan
from anabranch.plan.model import Plan
from anabranch.plan.route import Route, even_route
from anabranch.runtime.reports import NodeReport, Report, ShardReport
from anabranch.spark.driver.changes import Pending
from anabranch.spark.driver.observe import Place, observe
from anabranch.spark.driver.progress import Event, Progress, progress_of
from anabranch.spark.driver.source_progress import BatchProgress
from anabranch.spark.driver.steering import Steering, offer_of
from anabranch.state.checkpoint.commits import Commit
from anabranch.state.checkpoint.statistics import Statistics
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, count, tumbling
from anabranch.topology import sum as total
from anabranch.topology.graph import Named

FIELDS = (Field("a", "bigint"), Field("b", "bigint"), Field("at", "timestamp"))
SHARDS = 4


def graph() -> Graph:
    counts = (Named(name="n", aggregate=count(), input_type="int"),)
    sums = (Named(name="n", aggregate=total("n"), input_type="bigint"),)
    return (
        Graph(name="t")
        .add(Source(name="visits", fields=FIELDS, event_time="at", unit_us=None, delay_us=0))
        .add(Compute(name="c0", input="visits", by=FIELDS[:2], aggregates=counts))
        .add(Consolidate(name="w0", input="c0", windows=(tumbling("1 minute"),)))
        .add(Compute(name="c1", input="w0", by=FIELDS[:1], aggregates=sums))
        .add(Consolidate(name="w1", input="c1", windows=(tumbling("5 minutes"),)))
    )


W0, W1, BOTH = (ComponentId(names) for names in (("w0",), ("w1",), ("w0", "w1")))


def report(
    component: ComponentId, slot: int, nodes: dict[str, dict[int, tuple[int, int]]]
) -> Report:
    """A slot with rows in and out by operator and shard; each row takes 1 ms of CPU and 4 ms of work."""
    rows = sum(given for shards in nodes.values() for given, _ in shards.values())
    return Report(
        component=component,
        slot=slot,
        host="h",
        pid=1,
        started=0.0,
        ended=9.9,
        cpu_s=0.001 * rows,
        phases={"read": 0.001 * rows, "open": 0.5, "load": 0.25, "merge": 0.003 * rows},
        nodes=tuple(
            NodeReport(
                part=PartId(name),
                shards={
                    shard: ShardReport(
                        rows_in=given,
                        rows_out=out,
                        cpu_s=0.001 * given,
                        state_bytes=100 * (shard + 1),
                        stored=None,
                    )
                    for shard, (given, out) in shards.items()
                },
            )
            for name, shards in nodes.items()
        ),
    )


def commit(step: int, routes: dict[ComponentId, Route]) -> Commit:
    return Commit(
        step=step,
        epoch=1,
        batch_id=step - 1,
        watermark_us=0,
        next_us=0,
        seen={"visits": 7_000_000},
        routes=routes,
        stored={},
    )


def progress(made: Commit, reports: list[Report], **given: Any) -> Progress:
    from dataclasses import replace

    found = progress_of(made, reports, {"in": 0, "out": 0}, 1, 0, closing=False)
    return replace(found, finished_at=10.0 + made.step, duration_s=2.0, **given)


def test_components_that_feed_each_other() -> None:
    plan = make_plan(graph(), "unfused")
    routes = {W0: even_route(SHARDS, 2), W1: even_route(SHARDS, 1)}
    reports = [
        report(W0, 1, {"w0": {1: (10, 2), 3: (30, 3)}}),
        report(W0, 0, {"w0": {0: (5, 1), 2: (0, 0)}}),
        report(W1, 0, {"w1": {0: (6, 0), 1: (0, 1), 2: (0, 0), 3: (0, 0)}}),
    ]
    made = commit(1, routes)
    seen = observe(plan, made, progress(made, reports), reports, Place(cores=2, interval_s=3.0))
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
    reports = [
        report(component.name, 0, {"w0": {0: (5, 1), 1: (10, 2)}, "w1": {0: (1, 0), 1: (2, 4)}})
    ]
    made = commit(1, {component.name: even_route(SHARDS, 1)})
    [seen] = observe(plan, made, progress(made, reports), reports, Place(cores=2)).components
    assert seen.rows.tolist() == [5, 10, 0, 0]
    assert seen.rows_out.tolist() == [1, 6, 0, 0]
    assert seen.cpu_s.sum() == pytest.approx(0.018)


def test_a_plan_is_offered_with_the_rows_that_it_saves() -> None:
    unfused = make_plan(graph(), "unfused")
    fused = make_plan(graph(), "auto", rates={"w0": 1000.0, "w1": 40.0})
    offer = offer_of(unfused, fused)
    assert offer is not None
    assert (offer.before, offer.after) == (("w0", "w1"), ("w0 + w1",))
    assert (offer.rows_before, offer.rows_after) == (40.0, 0.0)
    assert offer_of(fused, fused) is None


class Stub:
    """As much of a Stepper as steering needs."""

    def __init__(self, plan: Plan, routes: dict[ComponentId, Route]) -> None:
        self.plan, self.routes, self.pending, self.statistics = (
            plan,
            routes,
            Pending(),
            Statistics(),
        )
        self.events: list[Event] = []
        self.checkpoint = SimpleNamespace(header=SimpleNamespace(shards=SHARDS))

    def event(self, kind: str, text: str, figures: dict[str, float] | None = None) -> None:
        self.events.append(Event(at=0.0, step=0, kind=kind, text=text, figures=figures or {}))

    def begin(self) -> None:
        for name, _, after in list(self.pending.take_routes(self.routes)):
            self.routes[name] = after


class More:
    def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> Wanted:
        return Wanted(
            slots=dict.fromkeys((each.name for each in seen.components), 2), reason="more"
        )


HASTY = Guards(
    warm_up_steps=1, settle_steps=0, judge_steps=1, confirm_steps=1, cool_down_s=0.0, pause=1e9
)


def run(stub: Stub, steering: Steering, steps: int) -> None:
    """Steps of one component with as many rows in each shard."""
    for number in range(1, steps + 1):
        steering.before(stub)  # type: ignore[arg-type]
        stub.begin()
        route = stub.routes[BOTH]
        made = commit(number, dict(stub.routes))
        reports = []
        for slot in range(route.slots):
            rows = {shard: (100, 1) for shard in range(SHARDS) if route.slot_of[shard] == slot}
            reports.append(report(BOTH, slot, {"w0": rows, "w1": {}}))
        steering.after(stub, made, progress(made, reports), reports)  # type: ignore[arg-type]


def test_what_is_decided_is_applied_to_the_next_step_and_its_effect_told() -> None:
    plan = make_plan(graph(), "fusion by attributes")
    stub = Stub(plan, {BOTH: even_route(SHARDS, 1)})
    steering = Steering(
        Elastic(policy=More(), max_slots=4, guards=HASTY, replan=False), Place(cores=4), None, None
    )
    steering.told = lambda: BatchProgress(batch_id=0, seconds=2.5, rows=(400.0,), backlog=(None,))
    run(stub, steering, 8)
    assert stub.routes[BOTH].slots == 2
    assert [event.kind for event in stub.events] == ["decision", "effect"]
    decision, effect = stub.events
    assert decision.text == "w0 + w1: 1 -> 2 slots (more)"
    assert decision.figures["w0 + w1: slots after"] == 2
    assert effect.figures["observed"] < effect.figures["before"]
    assert effect.figures["observed"] == pytest.approx(effect.figures["expected"], rel=0.05)


def test_advice_changes_nothing() -> None:
    stub = Stub(make_plan(graph(), "fusion by attributes"), {BOTH: even_route(SHARDS, 1)})
    elastic = Elastic(policy=More(), max_slots=4, guards=HASTY, mode="advise")
    run(stub, Steering(elastic, Place(cores=4), None, None), 8)
    assert stub.routes[BOTH].version == 1
    assert [event.kind for event in stub.events] == ["advice"]


def test_a_better_plan_is_looked_for_now_and_then_and_handed_over() -> None:
    unfused = make_plan(graph(), "unfused")
    stub = Stub(unfused, {W0: even_route(SHARDS, 1), W1: even_route(SHARDS, 1)})
    for name, rows in (("w0", 400), ("w1", 40)):
        stub.statistics.add(name, ("k",), [rows, *[0] * (SHARDS - 1)], 0, 0)
    guards = Guards(
        warm_up_steps=1,
        settle_steps=0,
        judge_steps=1,
        confirm_steps=1,
        cool_down_s=0.0,
        pause=1e9,
        replan_s=0.0,
    )
    asked: list[tuple[str, Any]] = []

    def planning(by: str, rates: Any) -> Plan:
        asked.append((by, rates))
        return make_plan(graph(), by, rates=rates)

    steering = Steering(
        Elastic(policy="static", balance="none", guards=guards), Place(cores=4), planning, None
    )
    for number in range(1, 8):
        steering.before(stub)  # type: ignore[arg-type]
        if stub.pending.plan is not None:
            break
        made = commit(number, dict(stub.routes))
        reports = [
            report(W0, 0, {"w0": dict.fromkeys(range(SHARDS), (100, 10))}),
            report(W1, 0, {"w1": dict.fromkeys(range(SHARDS), (10, 1))}),
        ]
        steering.after(stub, made, progress(made, reports), reports)  # type: ignore[arg-type]
    assert stub.pending.plan is not None
    assert [each.name for each in stub.pending.plan.components] == [BOTH]
    assert asked[-1] == ("auto", {"w0": 400.0, "w1": 40.0})
    assert [event.kind for event in stub.events] == ["decision"]


def test_a_policy_that_fails_is_off_and_said_so_once() -> None:
    class Broken:
        def wanted(self, seen: Evaluation, latency_s: float | None, most: int) -> Wanted:
            raise ZeroDivisionError("of the user")

    stub = Stub(make_plan(graph(), "fusion by attributes"), {BOTH: even_route(SHARDS, 1)})
    run(stub, Steering(Elastic(policy=Broken(), guards=HASTY), Place(cores=4), None, None), 8)
    assert [event.text for event in stub.events] == [
        "the controller failed and is off from now on: ZeroDivisionError: of the user"
    ]


def test_wishes_are_checked_and_a_number_of_slots_goes_first() -> None:
    routes = {W0: even_route(SHARDS, 2), W1: even_route(SHARDS, 1)}
    pending = Pending()
    with pytest.raises(TopologyError, match="slots=5; valid: 1 to 4"):
        pending.resize(5, SHARDS)
    with pytest.raises(
        TopologyError, match=r"slot_of=\[0, 1\]; valid: a slot from 0 to 3 for each of the 4 shards"
    ):
        pending.reroute([0, 1], None, routes, SHARDS)
    with pytest.raises(TopologyError, match=r"slot_of=\[0, 0, 0, 4\]"):
        pending.reroute([0, 0, 0, 4], None, routes, SHARDS)
    with pytest.raises(TopologyError, match="unknown component 'w7'; valid: w0, w1"):
        pending.reroute([0, 0, 0, 0], "w7", routes, SHARDS)
    pending.reroute([1, 1, 0, 0], "w0", routes, SHARDS)
    [(name, before, after)] = list(pending.take_routes(routes))
    assert (name, before, after) == (W0, routes[W0], Route((1, 1, 0, 0), 2, 2))
    pending.reroute([1, 1, 0, 0], None, routes, SHARDS)
    pending.resize(3, SHARDS)
    assert {name: after.slots for name, _, after in pending.take_routes(routes)} == {
        W0: 3,
        W1: 3,
    }
    assert list(pending.take_routes(routes)) == []
    assert np.array_equal(routes[W0].slot_of, (0, 1, 0, 1))
