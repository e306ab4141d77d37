"""Reports and records of steps, made by hand: the driver's modules are tested without Spark."""

from __future__ import annotations

import msgspec

from anabranch.aggregates.functions import count
from anabranch.aggregates.functions import sum as total
from anabranch.elastic.grouping.osg import new_task
from anabranch.elastic.grouping.steps import TaskObservation
from anabranch.metrics import Progress
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.route import Route
from anabranch.runtime.reports import (
    ApplyReport,
    NodeReport,
    ShardReport,
    SlotReport,
    StepReports,
    Written,
)
from anabranch.runtime.tasks import Watermarks
from anabranch.spark.driver.job import JobResult
from anabranch.spark.driver.progress import progress_of
from anabranch.spark.driver.record import Counts, StepOutcome
from anabranch.state.checkpoint.commits import Commit
from anabranch.topology import Compute, Consolidate, Field, Graph, Source, tumbling
from anabranch.topology.apply import Osg
from anabranch.topology.graph import Named

FIELDS = (Field("a", "bigint"), Field("b", "bigint"), Field("at", "timestamp"))
SHARDS = 4
W0, W1 = PartId("w0"), PartId("w1")
FIRST, SECOND = ComponentId(("w0",)), ComponentId(("w1",))  # for a plan that does not fuse
FUSED = ComponentId(("w0", "w1"))


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


def report(
    component: ComponentId, slot: int, nodes: dict[PartId, dict[int, tuple[int, int]]]
) -> SlotReport:
    """A slot with rows in and out by operator and shard; a row takes 1 ms of CPU, 4 ms of work."""
    rows = sum(given for shards in nodes.values() for given, _ in shards.values())
    return SlotReport(
        component=component,
        slot=slot,
        host="h",
        pid=1,
        started=0.0,
        ended=9.9,
        cpu_s=0.001 * rows,
        phases={"read": 0.001 * rows, "open": 0.5, "load": 0.25, "merge": 0.003 * rows},
        nodes=tuple(node_report(part, shards) for part, shards in nodes.items()),
    )


def node_report(part: PartId, shards: dict[int, tuple[int, int]]) -> NodeReport:
    return NodeReport(
        part=part,
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
        results=(Written(path="results", rows=sum(out for _, out in shards.values())),),
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


def progress(made: Commit, reports: list[SlotReport]) -> Progress:
    """A step of two seconds; it ended at 10 seconds plus its number."""
    outcome = StepOutcome(
        step=made.step,
        batch_id=made.batch_id,
        marks=Watermarks(late_before_us=None, close_until_us=0),
        reports=StepReports(tuple(reports)),
        counts=Counts(),
        event_us={},
    )
    job = JobResult(reports=outcome.reports, attempts=1)
    times = (8.0 + made.step, 10.0 + made.step)
    return progress_of(made, outcome, job, applies={}, phases_s={}, times=times)


def with_nodes(found: SlotReport, *nodes: NodeReport) -> SlotReport:
    """The report of a slot with other operators."""
    return msgspec.structs.replace(found, nodes=nodes)


def applied(name: str, slot: int, rows: int, rows_out: int) -> ApplyReport:
    task = new_task(Osg())
    return ApplyReport(
        apply=name,
        slot=slot,
        started=0.0,
        ended=1.0,
        seen=TaskObservation(task=task, sent=None, rows=rows, seconds=0.5, estimated_s=None),
        rows_out=rows_out,
        failed=2,
        results=None,
        letters=None,
    )
