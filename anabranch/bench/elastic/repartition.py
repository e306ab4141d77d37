"""Spark's way to change the parallelism of a stateful query.

Stop the query, rewrite all its state for another number of partitions, start the query.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.bench.data import InputFiles
from anabranch.bench.rivals import STATE_STORES, batch_seconds
from anabranch.errors import AnabranchError

_CONF = {
    "spark.sql.streaming.stateStore.providerClass": STATE_STORES[
        "rocksdb"
    ],  # the only store that Spark can repartition
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A repartition is a batch of its own that the log of the file sink does not have: its next
    # compaction would end the query.
    "spark.sql.streaming.fileSink.log.compactInterval": "100000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned:
    """How long a change of partitions interrupted the query, and its parts."""

    # From the request to the end of the first batch after it, minus the usual time of such a batch.
    seconds: float
    stop_s: float
    repartition_s: float
    restart_s: float
    batch_s: float
    state_rows: int


def repartitioned(
    spark: SparkSession, source: InputFiles, place: Path, before: int, after: int, batches: int
) -> Repartitioned:
    """Runs a query over the first batches, then over one more with other partitions."""
    shutil.rmtree(place, ignore_errors=True)
    files = place / "in"
    files.mkdir(parents=True)
    conf = {**_CONF, "spark.sql.shuffle.partitions": str(before)}
    own = {name: spark.conf.get(name, None) for name in conf}
    try:
        for name, value in conf.items():
            spark.conf.set(name, value)
        _publish(source, files, 0, batches)
        query = _started(spark, source, files, place)
        query.processAllAvailable()
        usual = batch_seconds(query)[-5:]
        state_rows = sum(each.numRowsTotal for each in query.recentProgress[-1].stateOperators)
        began = time.monotonic()
        query.stop()
        stopped = time.monotonic()
        # Not earlier: a query that is stopped within a batch cannot be repartitioned.
        _publish(source, files, batches, batches + 1)
        manager = spark._streamingCheckpointManager  # noqa: SLF001 - Spark's only way
        manager.repartition(str(place / "checkpoint"), after)
        written = time.monotonic()
        query = _started(spark, source, files, place)
        query.processAllAvailable()
        ended = time.monotonic()
        if not query.recentProgress:
            raise AnabranchError("the native query did not resume after its repartition")
        query.stop()
    finally:
        for name, was in own.items():
            spark.conf.set(name, was) if was is not None else spark.conf.unset(name)
    return Repartitioned(
        seconds=ended - began - median(usual),
        stop_s=stopped - began,
        repartition_s=written - stopped,
        restart_s=ended - written,
        batch_s=median(usual),
        state_rows=state_rows,
    )


def _publish(source: InputFiles, directory: Path, first: int, last: int) -> None:
    for file in source.files[first:last]:
        shutil.copy2(file, directory / file.name)


def _started(spark: SparkSession, source: InputFiles, files: Path, place: Path) -> StreamingQuery:
    rows: DataFrame = (
        spark.readStream.schema(source.schema).option("maxFilesPerTrigger", 1).parquet(str(files))
    )
    grouped = rows.withWatermark("at", f"{source.delay_s} seconds").groupBy(
        F.window("at", "1 hour"), "key"
    )
    results = grouped.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    writer: Any = results.writeStream.format("parquet").outputMode("append")
    started: StreamingQuery = writer.option("checkpointLocation", str(place / "checkpoint")).start(
        str(place / "results")
    )
    return started
