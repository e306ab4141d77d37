# ruff: noqa: ARG002, N802, N803, RUF012 - the APIs decide on names and attributes
"""Running count and sum per key, in every way that Spark has for Python state, and as `process`.

All sides return, for each batch and each key with rows in it, the number of its rows so far and the
sum of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import anabranch as ab
from anabranch.bench.data import InputFiles
from anabranch.bench.measure import SideRun
from anabranch.bench.options import KeyedOptions
from anabranch.bench.rivals import Stop, batch_seconds, read_stream, run_query
from anabranch.bench.side import Bench, OnEnd, emptied, run_topology
from anabranch.spark.tuning import step_settings_on

OUTPUT = "key BIGINT, n BIGINT, total DOUBLE"
STATE = "n BIGINT, total DOUBLE"
BARE, BARE_COMBINED = "bare", "bare-combined"


@dataclass
class Account:
    """The state of a key."""

    n: int = 0
    total: float = 0.0


class PerKeyAggregates:
    """In plain Python, key by key.

    It needs only these two aggregates of a key's rows, so rows are combined in the JVM.
    """

    state: Account
    output = "n bigint, total double"
    columns = {"count": ab.count(), "sum": ab.sum("v")}

    def process(self, key: int, rows: ab.Rows, state: Account, ctx: ab.Context) -> Any:
        """Adds the new rows of a key, which are combined into one."""
        state.n += rows.count[0]
        state.total += rows.sum[0]
        return ((state.n, state.total),)


class PerKeyRows:
    """In plain Python, key by key, with all rows."""

    state: Account
    output = "n bigint, total double"
    columns = ("v",)

    def process(self, key: int, rows: ab.Rows, state: Account, ctx: ab.Context) -> Any:
        """Adds up the rows of a key."""
        state.n += len(rows)
        state.total += sum(rows.v)
        return ((state.n, state.total),)


class VectorisedAggregates:
    """All keys of a slot at once, over aggregates of their rows that the JVM computes."""

    state = {"n": "bigint", "total": "double"}
    output = "n bigint, total double"
    columns = {"count": ab.count(), "sum": ab.sum("v")}

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        """Adds the new rows of each key, which are combined into one."""
        state.n += rows["count"]
        state.total += rows["sum"]
        return {"n": state.n, "total": state.total}


class VectorisedRows:
    """All rows of a slot at once."""

    state = {"n": "bigint", "total": "double"}
    output = "n bigint, total double"
    columns = ("v",)

    def process(self, rows: ab.SlotRows, state: ab.SlotState, ctx: ab.SlotContext) -> Any:
        """Adds up the rows of all keys."""
        state.n += np.bincount(rows.key, minlength=len(state))
        state.total += np.bincount(rows.key, rows["v"], minlength=len(state))
        return {"n": state.n, "total": state.total}


FORMS: dict[str, type] = {
    "per-key": PerKeyAggregates,
    "vectorised": VectorisedAggregates,
    "per-key-rows": PerKeyRows,
    "vectorised-rows": VectorisedRows,
}


def run_process(
    bench: Bench[KeyedOptions],
    form: str,
    source: InputFiles,
    place: Path,
    _left_s: float = 0.0,
    on_end: OnEnd = lambda _: None,
) -> SideRun:
    """One run of `process` over the input, from an empty checkpoint."""
    emptied(place)
    app = ab.Topology("bench_keyed")
    rows = app.source(
        read_stream(bench.spark, source), event_time="at", delay=f"{source.delay_s} seconds"
    )
    rows.process("key", FORMS[form], order="arrival", name="running").to(
        ab.parquet(str(place / "results"))
    )
    run = run_topology(bench, app, source, place, on_end=on_end)
    return SideRun(
        side=form,
        batch_s=run.batch_s,
        watermark_us=run.watermark_us,
        files=run.files,
        left_out=run.left_out,
        inner_s=run.inner_s,
        slot_s=run.slot_s,
        state_bytes=run.state_bytes,
    )


class _RowProcessor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, total = self._state.get() or (0, 0.0)
        for row in rows:
            n += 1
            total += row.v
        self._state.update((n, total))
        yield Row(key=key[0], n=n, total=total)

    def close(self) -> None:
        pass


class _PandasProcessor(_RowProcessor):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        n, total = self._state.get() or (0, 0.0)
        for frame in rows:
            n += len(frame)
            total += float(frame["v"].sum())
        self._state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


def _update(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    n, total = state.get if state.exists else (0, 0.0)
    for frame in frames:
        n += len(frame)
        total += float(frame["v"].sum())
    state.update((n, total))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


def _with_rows(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithState(_RowProcessor(), OUTPUT, "Append", "None")


def _with_frames(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithStateInPandas(
        _PandasProcessor(), OUTPUT, "Append", "None"
    )


def _with_groups(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").applyInPandasWithState(_update, OUTPUT, STATE, "append", "NoTimeout")


RIVALS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "transformWithState": (_with_rows, "rocksdb"),  # it needs this store
    "transformWithStateInPandas": (_with_frames, "rocksdb"),
    "applyInPandasWithState": (_with_groups, "memory"),
}


def run_rival(
    bench: Bench[KeyedOptions],
    rival: str,
    source: InputFiles,
    place: Path,
    stop: Stop,
    _left_s: float = 0.0,
) -> SideRun:
    """One run of a rival over the input; it may be cut short."""
    emptied(place)
    query, store = RIVALS[rival]
    results = query(read_stream(bench.spark, source).select("key", "v"))
    run = run_query(results, source, place, place / "results", store, stop)
    return SideRun(
        side=rival, batch_s=run.batch_s, watermark_us=source.watermark_us(), files=run.files
    )


def limit_of(form: str) -> str:
    """The bare limit of a form."""
    return BARE if form.endswith("-rows") else BARE_COMBINED


def run_bare(
    bench: Bench[KeyedOptions], name: str, source: InputFiles, place: Path, _left_s: float = 0.0
) -> SideRun:
    """A bare limit, without state and results.

    Rows of a batch are exchanged by key and counted by Python, or combined by Spark SQL.
    """
    emptied(place)

    def batch(rows: DataFrame, _number: int) -> None:
        if name == BARE:
            rows.select("key", "v").repartition(bench.slots, "key").mapInArrow(
                _drained, "n bigint"
            ).collect()
        else:
            rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("v")).write.format("noop").mode(
                "append"
            ).save()

    with step_settings_on(bench.spark, local_query=True):
        writer = (
            read_stream(bench.spark, source)
            .writeStream.foreachBatch(batch)
            .trigger(availableNow=True)
        )
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    query.awaitTermination()
    return SideRun(
        side=name, batch_s=batch_seconds(query), watermark_us=source.watermark_us(), files=()
    )


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})
