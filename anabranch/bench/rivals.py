"""Native Structured Streaming, as someone who knows Spark well would write the same job.

It uses a watermark, `groupBy(window, key)`, append mode and parquet. It has as many shuffle
partitions as cores (the default of 200 is ruinous), and the state store that is faster in a short
trial. There are three forms:

- `rows`: every row is copied into each of its windows; several windows are an array, exploded.
- `queries`: one plain `rows` query per window, because Spark takes one `window` per query. This is
  what everyone writes.
- `panes`: two aggregations in one query, first by pane, then the closed panes into the windows
  (Spark's chained time windows). It is not quite the same job: it drops a row whose pane has closed
  even if a longer window is open (the input has no such rows). Averages are computed by hand, and
  the column of exploded windows needs Spark's internal mark of event time.

CPU time of a batch of 500,000 rows, warm. Case C: `queries` 37 to 50 s in all, `rows` 52 to 59 s,
`panes` 23 to 27 s, a `panes` query for each window 29 s. Case B: `panes` 3.4 s, `rows` 3.7 s.
Native is measured as `queries` (with very many windows as `rows`), and also as `panes`;
`--native-form` chooses one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.bench.cases import WindowCase, copies
from anabranch.bench.data import InputFiles
from anabranch.bench.measure import SideRun
from anabranch.topology import Window

_POLL_S = 0.5
_MANY_QUERIES = 8
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
STATE_STORES = {
    "memory": f"{_PACKAGE}.HDFSBackedStateStoreProvider",
    "rocksdb": f"{_PACKAGE}.RocksDBStateStoreProvider",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSettings:
    """How native Spark runs a case."""

    store: str
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """When a run that takes too long is cut short.

    After `after_s`, if it has so many batches; after `at_last_s` in any case.
    """

    after_s: float
    batches: int
    at_last_s: float


def read_stream(spark: SparkSession, source: InputFiles) -> DataFrame:
    """The input as a stream, one file per batch: the same for both sides."""
    return (
        spark.readStream.schema(source.schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source.directory))
    )


def forms_for(case: WindowCase) -> tuple[str, ...]:
    """The forms in which a case is measured; the usual one comes first.

    For several windows the fastest form is measured too.
    """
    if len(case.windows) == 1:
        return ("rows",)
    return ("queries" if len(case.windows) <= _MANY_QUERIES else "rows", "panes")


def native_results(rows: DataFrame, case: WindowCase, delay_s: int, form: str) -> DataFrame:
    """The results of a case: key, window, window_name, n, total, mean, top."""
    marked = rows.withWatermark("at", f"{delay_s} seconds")
    if form == "rows":
        aggregates = (
            F.count("*").alias("n"),
            F.sum("v").alias("total"),
            F.avg("v").alias("mean"),
            F.max("v").alias("top"),
        )
        return _by_window(marked, case, delay_s, aggregates)
    pane = F.window("at", f"{case.pane_us} microseconds")
    partials = F.count("*").alias("n"), F.sum("v").alias("total"), F.max("v").alias("top")
    panes = (
        marked.groupBy(pane.alias("pane"), "key")
        .agg(*partials)
        .withColumn("at", F.window_time("pane"))
        .drop("pane")
    )
    mean = F.sum("total") / F.sum("n")
    merged = (
        F.sum("n").alias("n"),
        F.sum("total").alias("total"),
        mean.alias("mean"),
        F.max("top").alias("top"),
    )
    return _by_window(panes, case, delay_s, merged)


def _by_window(
    rows: DataFrame, case: WindowCase, delay_s: int, aggregates: Sequence[Column]
) -> DataFrame:
    if len(case.windows) == 1:
        [only] = case.windows
        window = F.window("at", f"{only.length_us} microseconds", f"{only.every_us} microseconds")
        return (
            rows.groupBy(window.alias("window"), "key")
            .agg(*aggregates)
            .withColumn("window_name", F.lit(only.name))
        )
    # Spark takes one `window` per query: several are an array, exploded. The alias keeps the mark
    # that `withWatermark` has put on the event time. Without it Spark does not know that these
    # are event-time windows, and refuses append mode.
    mark = {"spark.watermarkDelayMs": delay_s * 1000}
    values = [name for name in rows.columns if name != "at"]
    every = F.concat(
        *(_windows_of_row(window, number) for number, window in enumerate(case.windows))
    )
    each = rows.select(*values, F.explode(every).alias("in"))
    named = each.select(
        *values,
        F.col("in.number").alias("number"),
        F.col("in.window").alias("window", metadata=mark),
    )
    names = F.array(*(F.lit(window.name) for window in case.windows))
    grouped = named.groupBy("number", "window", "key").agg(*aggregates)
    return grouped.withColumn("window_name", names[F.col("number")]).drop("number")


def _windows_of_row(window: Window, number: int) -> Column:
    """An array of all windows that a row is in."""
    length, every = window.length_us, window.every_us
    start = f"(unix_micros(at) div {every} - i) * {every}"
    found = f"""transform(sequence(0, {copies(window) - 1}), i -> named_struct(
        'number', {number},
        'window', named_struct(
            'start', timestamp_micros({start}), 'end', timestamp_micros({start} + {length}))))"""
    return F.expr(
        found if length % every == 0 else f"filter({found}, each -> each.window.end > at)"
    )


def run_native(
    spark: SparkSession,
    source: InputFiles,
    case: WindowCase,
    place: Path,
    settings: NativeSettings,
    stop: Stop | None = None,
) -> SideRun:
    """One run over the input, from an empty checkpoint; `stop` may cut it short."""
    if settings.form == "queries":
        return _run_queries(
            spark, source.first(stop.batches if stop else None), case, place, settings
        )
    results = native_results(read_stream(spark, source), case, source.delay_s, settings.form)
    return run_query(results, source, place, place / "results", settings.store, stop)


def _run_queries(
    spark: SparkSession, source: InputFiles, case: WindowCase, place: Path, settings: NativeSettings
) -> SideRun:
    """One query per window, one after another: the time of a batch is the sum over all of them."""
    runs = []
    for number, window in enumerate(case.windows):
        alone = replace(case, windows=(window,))
        results = native_results(read_stream(spark, source), alone, source.delay_s, "rows")
        runs.append(
            run_query(
                results,
                source,
                place / str(number),
                place / "results" / str(number),
                settings.store,
            )
        )
    return SideRun(
        side="native",
        batch_s=tuple(sum(each) for each in zip(*(run.batch_s for run in runs), strict=True)),
        watermark_us=source.watermark_us(),
        files=tuple(file for run in runs for file in run.files),
        queries=tuple(query for run in runs for query in run.queries),
    )


def run_query(
    results: DataFrame,
    source: InputFiles,
    place: Path,
    target: Path,
    store: str = "memory",
    stop: Stop | None = None,
) -> SideRun:
    """One run of a native query that appends parquet files to `target`.

    `stop` may cut it short.
    """
    conf = results.sparkSession.conf
    conf.set(_PROVIDER, STATE_STORES[store])
    conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    writer = results.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start(str(target))
    began = time.monotonic()
    cut = False
    while query.isActive and not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
        lasted = time.monotonic() - began
        enough = stop and lasted > stop.after_s and len(batch_seconds(query)) >= stop.batches
        if enough or (stop and lasted > stop.at_last_s):
            query.stop()
            cut = True
    return SideRun(
        side="native",
        batch_s=batch_seconds(query),
        watermark_us=_watermark_us(query, source.watermark_us()) if cut else source.watermark_us(),
        files=committed_files(target),
        lasted_s=time.monotonic() - began if cut else 0.0,
        queries=(str(query.runId),),
    )


def batch_seconds(query: StreamingQuery) -> tuple[float, ...]:
    """Spark's own time of each trigger with input."""
    return tuple(
        each.durationMs["triggerExecution"] / 1000
        for each in query.recentProgress
        if each.numInputRows > 0
    )


def _watermark_us(query: StreamingQuery, otherwise: int) -> int:
    """The watermark of the last committed batch: it closes the windows of that batch.

    Queries without a watermark get `otherwise`.
    """
    text = query.recentProgress[-1].eventTime.get("watermark") if query.recentProgress else None
    return (
        otherwise if text is None else round(datetime.fromisoformat(text).timestamp() * 1000) * 1000
    )


def committed_files(directory: Path) -> tuple[Path, ...]:
    """The files that the sink's log names: others are from batches that did not end."""
    found: set[Path] = set()
    for entry in (directory / "_spark_metadata").glob("*"):
        if entry.name.startswith("."):
            continue
        lines = entry.read_text(encoding="utf-8").splitlines()[1:]
        found |= {Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines}
    return tuple(sorted(found))


def choose_state_store(
    spark: SparkSession, source: InputFiles, case: WindowCase, place: Path, rounds: int = 2
) -> dict[str, float]:
    """The seconds of a short trial with each state store, fastest first.

    It is the better of its rounds, without the first batch.
    """
    seconds: dict[str, list[float]] = {store: [] for store in STATE_STORES}
    for number in range(rounds):
        for store in STATE_STORES:
            settings = NativeSettings(store=store, form=forms_for(case)[0])
            run = run_native(spark, source, case, place / f"{store}-{number}", settings)
            seconds[store].append(sum(run.batch_s[1:]))
    best: Sequence[tuple[str, float]] = sorted(
        ((store, min(each)) for store, each in seconds.items()), key=lambda pair: pair[1]
    )
    return dict(best)
