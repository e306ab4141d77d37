"""Four aggregations, each over the results of the one before.

They are (a, b, c, d) per minute, (a, b, c) per 5, (a, b) per 10, and (a) per 20 minutes. Both sides
and the reference are built from the same values. Anabranch runs the chain with its first operators
in one component, and each other operator in a component of its own. Native Spark runs it as chained
window aggregations of one query, in append mode.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.bench.data import DataSpec, InputFiles, write_input
from anabranch.bench.measure import SideRun
from anabranch.errors import AnabranchError
from anabranch.plan.planners.registry import UNFUSED
from anabranch.testing.compare import differences
from anabranch.testing.reference.chains import ROWS, ChainOperator, expected_of
from anabranch.topology.durations import format_duration

SCHEMA = "a BIGINT, b BIGINT, c BIGINT, d BIGINT, at TIMESTAMP, v DOUBLE"
_MINUTE_US = 60_000_000
_OF_ROWS = (("n", "count", "*"), ("total", "sum", "v"), ("top", "max", "v"))
_AGGREGATES = {"count": lambda _: ab.count(), "sum": ab.sum, "max": ab.max}
_OF_RESULTS = (("n", "sum", "n"), ("total", "sum", "total"), ("top", "max", "top"))


def _stage(name: str, minutes: int, reads: str = ROWS) -> ChainOperator:
    length = minutes * _MINUTE_US
    return ChainOperator(
        name=name,
        reads=reads,
        keys=tuple(name),
        windows=[(format_duration(length), length, length, 0)],
        aggregates=_OF_ROWS if reads == ROWS else _OF_RESULTS,
    )


CHAIN = (
    _stage("abcd", 1),
    _stage("abc", 5, "abcd"),
    _stage("ab", 10, "abc"),
    _stage("a", 20, "ab"),
)
LONGEST_US = max(length for stage in CHAIN for _, length, _, _ in stage.windows)
TEXT = " -> ".join(f"({', '.join(stage.keys)}) per {stage.windows[0][0]}" for stage in CHAIN)


def write_chain_input(
    spec: DataSpec, cardinalities: Mapping[str, int], directory: Path
) -> InputFiles:
    """The input, with the attributes of the chain instead of the key."""
    return write_input(spec, directory, partial(split_key, cardinalities=cardinalities), SCHEMA)


def split_key(table: pa.Table, cardinalities: Mapping[str, int]) -> pa.Table:
    """Replaces the key with attributes; each combination of them is one key."""
    key = table["key"].to_numpy()
    attributes = {}
    for name, values in cardinalities.items():
        attributes[name], key = pa.array(key % values), key // values
    return pa.table({**attributes, "at": table["at"], "v": table["v"]})


def chain_topology(
    rows: DataFrame, delay_s: int, fused: int, sinks: Mapping[str, Path]
) -> ab.Topology:
    """The chain with its first `fused` operators in one component.

    Raises an error if the plan has other components.
    """
    app = ab.Topology(f"bench_fusion_{fused}")
    stream: ab.Stream = app.source(rows, event_time="at", delay=timedelta(seconds=delay_s))
    operators = []
    for stage in CHAIN:
        made: dict[str, Any] = {
            name: _AGGREGATES[kind](given) for name, kind, given, *_ in stage.aggregates
        }
        [(_, length_us, _, _)] = stage.windows
        window = ab.tumbling(timedelta(microseconds=length_us))
        stream = stream.aggregate(by=list(stage.keys), windows=window, name=stage.name, **made)
        operators.append(stream)
        if stage.name in sinks:
            stream.to(ab.parquet(str(sinks[stage.name])))
    if fused > 1:
        app.fuse(*operators[:fused])
    wanted = [[stage.name for stage in CHAIN[:fused]], *([stage.name] for stage in CHAIN[fused:])]
    if (planned := components_of(app)) != wanted:
        raise AnabranchError(f"with {fused} fused the components are {planned}; wanted: {wanted}")
    return app


def components_of(app: ab.Topology) -> list[list[str]]:
    """The operators of each component of the plan."""
    facts = json.loads(app.explain("json", planner=UNFUSED))
    return [[each["name"] for each in component["operators"]] for component in facts["components"]]


def native_chain(rows: DataFrame, delay_s: int, last: ChainOperator = CHAIN[-1]) -> DataFrame:
    """The results of an operator and of all before it, in one query."""
    frame, time = rows.withWatermark("at", f"{delay_s} seconds"), "at"
    for stage in CHAIN[: CHAIN.index(last) + 1]:
        aggregates = [
            getattr(F, kind)(given).alias(name) for name, kind, given, *_ in stage.aggregates
        ]
        [(_, length_us, _, _)] = stage.windows
        window = F.window(time, f"{length_us} microseconds").alias("window")
        frame, time = frame.groupBy(window, *stage.keys).agg(*aggregates), "window"
    return frame.withColumn("window_name", F.lit(last.windows[0][0]))


class ChainReference:
    """The results of all operators of the chain by DuckDB, up to a watermark.

    Those of an operator are computed from those of the one before.
    """

    def __init__(self, source: InputFiles, operators: Collection[str]) -> None:
        self._source = source
        self._wanted = [stage for stage in CHAIN if stage.name in operators]
        self._rows = [pq.ParquetFile(file).read() for file in source.files]
        self._expected: dict[int, dict[str, pa.Table]] = {}

    def differences(self, run: SideRun) -> tuple[int, list[str]]:
        """How many rows were compared, and what is wrong with a run's results up to its watermark.

        The list is empty if nothing is wrong. The results of an operator are in a directory of its
        name; only those of the wanted operators are compared.
        """
        found = [f"{run.left_out} rows were left out of all windows"] if run.left_out else []
        compared = 0
        expected = self._at(run.watermark_us)
        for stage in self._wanted:
            actual = _read([file for file in run.files if file.parent.name == stage.name])
            compared += expected[stage.name].num_rows
            identity = [*stage.keys, "window_start", "window_end", "window_name"]
            found += [
                f"{stage.name}: {line}"
                for line in differences(actual, expected[stage.name], identity)
            ]
        return compared, found

    def _at(self, watermark_us: int) -> dict[str, pa.Table]:
        if watermark_us not in self._expected:
            delay_us = self._source.delay_s * 1_000_000
            self._expected[watermark_us] = expected_of(
                self._rows, CHAIN, "at", delay_us, watermark_us
            )
        return self._expected[watermark_us]


def _read(files: Sequence[Path]) -> pa.Table:
    tables = [pq.ParquetFile(file).read() for file in files]
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
