"""Native Structured Streaming, as someone who knows Spark well would write the same job.

Watermark, `groupBy(window, key)`, append mode, parquet; as many shuffle partitions as cores (200, the default, are ruinous) and
the state store that a short trial finds faster. Several windows in one case are one query: every row is exploded into all of its
windows, so that the source is read once and shuffled once. That is no slower than a query for each window, and no other native
form gives the same results for rows that are late for some windows only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.bench.cases import Case, copies
from anabranch.bench.data import SPARK_SCHEMA, Input
from anabranch.bench.measure import SideRun
from anabranch.topology import Window

_POLL_S = 0.5
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
STATE_STORES = {"memory": f"{_PACKAGE}.HDFSBackedStateStoreProvider", "rocksdb": f"{_PACKAGE}.RocksDBStateStoreProvider"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """When a run that takes too long may be cut short: after this time, but not before it has this many batches."""

    after_s: float
    batches: int


def read_stream(spark: SparkSession, source: Input) -> DataFrame:
    """The input as a stream, one file a batch: the same for both sides."""
    return spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source.directory))


def native_results(rows: DataFrame, case: Case, delay_s: int) -> DataFrame:
    """The results of a case: key, window, window_name, n, total, mean, top."""
    marked = rows.withWatermark("at", f"{delay_s} seconds")
    if len(case.windows) == 1:
        [only] = case.windows
        window = F.window("at", f"{only.length_us} microseconds", f"{only.every_us} microseconds")
        grouped = marked.groupBy(window.alias("window"), "key").agg(*_aggregates())
        return grouped.withColumn("window_name", F.lit(only.name))
    # The alias carries the mark that `withWatermark` has put on the event time: without it Spark cannot know that these are
    # event-time windows, and refuses append mode.
    mark = {"spark.watermarkDelayMs": delay_s * 1000}
    each = marked.select(
        "key", "v", F.explode(F.concat(*(_windows_of_row(w, i) for i, w in enumerate(case.windows)))).alias("in")
    )
    named = each.select("key", "v", F.col("in.number").alias("number"), F.col("in.window").alias("window", metadata=mark))
    grouped = named.groupBy("number", "window", "key").agg(*_aggregates())
    names = F.array(*(F.lit(window.name) for window in case.windows))
    return grouped.withColumn("window_name", names[F.col("number")]).drop("number")


def _aggregates() -> tuple[Column, ...]:
    return F.count("*").alias("n"), F.sum("v").alias("total"), F.avg("v").alias("mean"), F.max("v").alias("top")


def _windows_of_row(window: Window, number: int) -> Column:
    """An array of all windows that a row lies in."""
    length, every = window.length_us, window.every_us
    start = f"(unix_micros(at) div {every} - i) * {every}"
    found = f"""transform(sequence(0, {copies(window) - 1}), i -> named_struct('number', {number}, 'window',
        named_struct('start', timestamp_micros({start}), 'end', timestamp_micros({start} + {length}))))"""
    return F.expr(found if length % every == 0 else f"filter({found}, each -> each.window.end > at)")


def run_native(spark: SparkSession, source: Input, case: Case, place: Path, store: str, stop: Stop | None = None) -> SideRun:
    """One run over the input, from an empty checkpoint; with `stop`, perhaps not to its end."""
    spark.conf.set(_PROVIDER, STATE_STORES[store])
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    results = native_results(read_stream(spark, source), case, source.delay_s)
    writer = results.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "results"))
    began = time.monotonic()
    cut = False
    while query.isActive and not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # it takes fractions
        if stop and time.monotonic() - began > stop.after_s and len(batch_seconds(query)) >= stop.batches:
            query.stop()
            cut = True
    return SideRun(
        side="native",
        batch_s=batch_seconds(query),
        watermark_us=_watermark_us(query) if cut else source.watermark_us(),
        files=committed_files(place / "results"),
    )


def batch_seconds(query: StreamingQuery) -> tuple[float, ...]:
    """Spark's own time of each trigger that had input."""
    return tuple(each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress if each.numInputRows > 0)


def _watermark_us(query: StreamingQuery) -> int:
    """The watermark of the last batch that was committed: it closes the windows of that batch."""
    text = query.recentProgress[-1].eventTime["watermark"]
    from datetime import datetime

    return round(datetime.fromisoformat(text).timestamp() * 1000) * 1000


def committed_files(directory: Path) -> tuple[Path, ...]:
    """The files that the sink's log names: others are from batches that did not end."""
    found: set[Path] = set()
    for entry in (directory / "_spark_metadata").glob("*"):
        if entry.name.startswith("."):
            continue
        lines = entry.read_text(encoding="utf-8").splitlines()[1:]
        found |= {Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines}
    return tuple(sorted(found))


def choose_state_store(spark: SparkSession, source: Input, case: Case, place: Path, rounds: int = 2) -> dict[str, float]:
    """Seconds that a short trial took with each state store, the better of its rounds, without the first batch; fastest first."""
    seconds: dict[str, list[float]] = {store: [] for store in STATE_STORES}
    for number in range(rounds):
        for store in STATE_STORES:
            run = run_native(spark, source, case, place / f"{store}-{number}", store)
            seconds[store].append(sum(run.batch_s[1:]))
    best: Sequence[tuple[str, float]] = sorted(
        ((store, min(each)) for store, each in seconds.items()), key=lambda pair: pair[1]
    )
    return dict(best)
