"""Builds the topology of a chaos case from plain values, over files."""

from __future__ import annotations

from typing import Any

import anabranch as ab
from anabranch.spark.api.streams import Stream
from anabranch.spark.session import Session
from anabranch.testing.chaos.applies import SCHEMA, worked
from anabranch.testing.chaos.files import RunDirectory
from anabranch.testing.chaos.gathered import gathered
from anabranch.testing.chaos.processes import PROCESSES
from anabranch.testing.chaos.topologies import TopologySpec


def build(session: Session, spec: TopologySpec, directory: RunDirectory) -> ab.Topology:
    """The topology of a spec, reading one file per batch."""
    source = str(directory.of("input"))
    rows = (
        session.readStream.schema(session.read.parquet(source).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
    )
    app = ab.Topology("chaos")
    stream = app.source(rows, event_time="at", delay=f"{spec.delay_us} microseconds")
    _add_windows(stream, spec, directory)
    if spec.process:
        for name, (cls, order) in PROCESSES.items():
            made = stream.process(list(spec.keys), cls, order=order, name=name)
            made.to(ab.parquet(directory.of(name)))
    if spec.gathered:
        gathered(stream, spec.keys).to(ab.parquet(directory.of("gathered")))
    if spec.grouping is not None:
        applied = stream.apply(
            worked,
            schema=SCHEMA,
            form="rows",
            cost_by="v",
            grouping=spec.grouping,
            on_error="dead letter",
            name="worked",
        )
        applied.to(ab.parquet(directory.of("worked")))
        applied.failed.to(ab.parquet(directory.of("failed")))
    return app


def _add_windows(stream: Stream, spec: TopologySpec, directory: RunDirectory) -> None:
    aggregates: dict[str, Any] = {}
    for name, kind, expression, where in spec.aggregates:
        aggregates[name] = getattr(ab, kind)(expression, where=where)
    results = stream.aggregate(
        by=list(spec.keys),
        windows=[*spec.built_windows(), *spec.built_calendars(), *spec.sessions()],
        share=spec.share,
        name="windows",
        **aggregates,
    )
    options = {"compression": "zstd"} if spec.spark_sink else {}
    results.to(ab.parquet(directory.of("out"), **options))
    if spec.late_sink:
        results.late.to(ab.parquet(directory.of("late")))
    if (then := spec.then) is not None:
        made = results.aggregate(
            by=list(then.keys),
            windows=then.window,
            name="then",
            rows=ab.count(),
            names=ab.max("window_name"),
        )
        made.to(ab.parquet(directory.of("then")))
