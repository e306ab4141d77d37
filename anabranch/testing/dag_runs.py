"""Builds the topology of a random DAG over files, and compares its results with the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import anabranch as ab
from anabranch.spark.session import Session
from anabranch.testing.compare import bag_differences, differences, read_results
from anabranch.testing.dags import Dag, DagNode, batches_of, columns_of, renamed
from anabranch.testing.events import write_batches
from anabranch.testing.reference.dags import DagStep, expected_of_dag


def write_dag(dag: Dag, root: Path, batches: int) -> list[DagStep]:
    """Writes the rows of all sources, one file per batch, and returns them by step."""
    given = {source.name: list(batches_of(dag, source, batches)) for source in dag.sources}
    for name, tables in given.items():
        write_batches(tables, root / name)
    return [{name: tables[i] for name, tables in given.items()} for i in range(batches)]


def build_dag(session: Session, dag: Dag, inputs: Path, outputs: Path) -> ab.Topology:
    """The topology of a DAG; each batch reads one file of each source."""
    app = ab.Topology("dag")
    streams: dict[str, Any] = {}
    for source in dag.sources:
        path = str(inputs / source.name)
        rows = (
            session.readStream.schema(session.read.parquet(path).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(path)
        )
        delay = timedelta(microseconds=source.delay_us)
        streams[source.name] = app.source(
            rows, event_time=source.time, delay=delay, name=source.name
        )
    for node in dag.nodes:
        streams[node.name] = _added(dag, node, [streams[each] for each in node.inputs])
        if not node.is_map:
            streams[node.name].to(ab.parquet(outputs / node.name))
    return app


def dag_differences(
    dag: Dag, steps: Sequence[DagStep], outputs: Path, *, finish: bool = False
) -> list[str]:
    """How the results of all operators differ from the reference, which is on the right."""
    return results_differ(
        dag,
        {n.name: read_results(outputs / n.name) for n in dag.results},
        expected_of_dag(dag, steps, finish=finish),
    )


def compare_runs(
    dag: Dag, root: Path, batches: Sequence[int | None], *, finish: bool
) -> tuple[list[str], int]:
    """How a disturbed run differs, and how many rows were compared.

    It is compared with an undisturbed run and with the reference. `batches` has the batch of each
    step, None for a closing step.
    """
    given = {
        source.name: [
            pq.read_table(file) for file in sorted((root / "files" / source.name).glob("*.parquet"))
        ]
        for source in dag.sources
    }
    steps = [
        None if batch is None else {name: tables[batch] for name, tables in given.items()}
        for batch in batches
    ]
    disturbed, undisturbed = (
        {node.name: read_results(root / run / "out" / node.name) for node in dag.results}
        for run in ("disturbed", "undisturbed")
    )
    wanted = expected_of_dag(dag, steps, finish=finish)
    found = [f"undisturbed: {text}" for text in results_differ(dag, disturbed, undisturbed)]
    found += [f"DuckDB: {text}" for text in results_differ(dag, disturbed, wanted)]
    return found, sum(table.num_rows for table in disturbed.values())


def results_differ(dag: Dag, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """How two sets of results differ, operator by operator."""
    differing: list[str] = []
    for node in dag.results:
        identity = [*node.by, "window_start", "window_end", "window_name"]
        pair = (found[node.name], wanted[node.name])
        texts = bag_differences(*pair) if node.kind == "join" else differences(*pair, identity)
        differing += [f"{node.name}: {text}" for text in texts]
    return differing


def _added(dag: Dag, node: DagNode, given: Sequence[Any]) -> Any:
    windows = [
        ab.hopping(
            timedelta(microseconds=length),
            every=timedelta(microseconds=every),
            start=timedelta(microseconds=start),
            name=name,
        )
        for name, length, every, start in node.windows
    ]
    if node.kind == "join":
        return ab.join(*given, by=list(node.by), window=windows, how=node.how, name=node.name)
    if node.kind == "windows":
        made = {
            n: ab.count() if text == "*" else getattr(ab, kind)(text)
            for n, kind, text in node.aggregates
        }
        return given[0].aggregate(by=list(node.by), windows=windows, name=node.name, **made)
    column, text = f"{node.name}_v", node.text
    if node.kind == "filter":
        return given[0].map(lambda df: df.filter(text), name=node.name)
    if node.kind == "column":
        return given[0].map(lambda df: df.selectExpr("*", f"{text} as {column}"), name=node.name)
    if node.kind == "explode":
        return given[0].map(
            lambda df: df.selectExpr("*", f"explode(sequence(0L, abs({text}) % 3)) as {column}"),
            name=node.name,
        )
    names = {
        each: renamed(node, each, kind) for each, kind in columns_of(dag, node.inputs[0]).items()
    }
    return given[0].map(lambda df: df.withColumnsRenamed(names), name=node.name)
