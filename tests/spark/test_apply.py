"""`apply` on Spark: whole outputs for all forms, branches and groupings; failures; refusals."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.testing import read_results, write_batches

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = "id bigint, k string, x double, at timestamp"


def rows_of(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "k": f"k{i * i % 7}" if i % 11 else None,
            "x": i / 4 if i % 13 else None,
            "at": BEGIN + timedelta(seconds=i),
        }
        for i in range(first, first + count)
    ]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {
        "id": pa.int64(),
        "k": pa.string(),
        "x": pa.float64(),
        "at": pa.timestamp("us", tz="UTC"),
    }
    return pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    )


def doubled_by_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("y", pc.multiply(batch.column("x"), 2.0))


def doubled_by_pandas(frame: Any) -> Any:
    return frame.assign(y=frame["x"] * 2)


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "y": None if row["x"] is None else row["x"] * 2}


def fussy(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Nothing for every tenth row, two for every seventh; fails on some."""
    if row["id"] % 17 == 0:
        raise ValueError(f"no {row['id']},\nplease")
    return (
        []
        if row["id"] % 10 == 0
        else [{**row, "name": f"é{row['id']}"}] * (2 if row["id"] % 7 == 0 else 1)
    )


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)


def collected(frame: DataFrame) -> Counter[str]:
    found = frame.toArrow().to_pylist()
    return bag(found)


def per_minute(
    rows: list[dict[str, Any]], value: str
) -> dict[tuple[Any, datetime], tuple[int, float]]:
    """Count and sum per key and minute, in plain Python."""
    found: dict[tuple[Any, datetime], tuple[int, float]] = {}
    for row in rows:
        key = (row["k"], row["at"].replace(second=0, microsecond=0))
        n, total = found.get(key, (0, 0.0))
        found[key] = (n + 1, total + (row[value] or 0.0))
    return found


def windows_in(results: list[dict[str, Any]]) -> dict[tuple[Any, datetime], tuple[int, float]]:
    return {
        (r["k"], r["window"]["start"].astimezone(UTC)): (r["n"], r["s"] or 0.0) for r in results
    }


def test_all_forms_branches_chains_maps_and_dead_letters_give_what_plain_python_gives(
    spark: SparkSession,
) -> None:
    rows = rows_of(0, 300)
    frame = spark.createDataFrame(table_of(rows)).repartition(3)
    app = ab.Topology("forms")
    source = app.source(frame, event_time="at", name="rows")
    minute = ab.tumbling("1 minute")

    def summed(stream: ab.Stream, name: str, value: str) -> None:
        stream.aggregate(by="k", windows=minute, n=ab.count(), s=ab.sum(value), name=name)

    small = source.map(lambda df: df.filter("id < 200").withColumn("k", F.upper("k")), name="small")
    arrow = small.apply(
        doubled_by_arrow, schema="*, y double", name="arrow", grouping="hash", cost_by=["k"]
    )
    pandas = source.apply(
        doubled_by_pandas, schema="*, y double", form="pandas", name="pandas", batch_rows=7
    )
    chained = arrow.map(lambda df: df.filter("y > 3").drop("y")).apply(
        fussy, schema="*, name string", form="rows", name="chained", on_error="dead letter"
    )
    summed(pandas.map(lambda df: df.withColumn("z", F.col("y") + F.col("x"))), "of_pandas", "z")
    summed(chained, "of_chained", "x")
    summed(source, "of_rows", "x")
    found = app.run_batch(slots=3)

    first = [{**row, "k": row["k"] and row["k"].upper()} for row in rows if row["id"] < 200]
    into = [row for row in first if row["x"] is not None and row["x"] * 2 > 3]
    made = [each for row in into if row["id"] % 17 for each in fussy(row)]
    failed = [
        {**row, "error": f"ValueError: no {row['id']},\nplease"}
        for row in into
        if row["id"] % 17 == 0
    ]
    assert collected(found["arrow"]) == bag([doubled(row) for row in first])
    assert collected(found["pandas"]) == bag([doubled(row) for row in rows])
    assert collected(found["chained"]) == bag(made)
    assert failed
    assert collected(found["chained.failed"]) == bag(failed)
    thrice = [{**row, "z": None if row["x"] is None else 3 * row["x"]} for row in rows]
    for name, expected in (
        ("of_pandas", per_minute(thrice, "z")),
        ("of_chained", per_minute(made, "x")),
        ("of_rows", per_minute(rows, "x")),
    ):
        assert windows_in(found[name].toArrow().to_pylist()) == expected, name
    explained = json.loads(app.explain("json"))
    assert [each["stage"] for each in explained["applies"]] == [1, 1, 2]
    assert explained["exchanges"][:2] == [
        "rows to slots for arrow, pandas, whole",
        "rows to slots for chained, whole",
    ]
    assert "apply rows -> small -> arrow, form arrow, on error the step fails" in app.explain()
    assert (
        "grouping:  auto: round robin until the time of rows is measured, then by cost (osg) where it varies with (id, k, x)"
        in (app.explain())
    )


class Stream:
    """A topology over a directory of files, one file per batch."""

    def __init__(self, spark: SparkSession, root: Path, batches: int = 4, rows: int = 60) -> None:
        self.spark, self.root = spark, root
        self.batches = [rows_of(i * rows, rows) for i in range(batches)]
        self.rows = [row for batch in self.batches for row in batch]
        write_batches([table_of(batch) for batch in self.batches], root / "in")

    def source(self, name: str = "stream") -> tuple[ab.Topology, ab.Stream]:
        frame = (
            self.spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.root / "in"))
        )
        app = ab.Topology(name)
        return app, app.source(frame, event_time="at", name="rows")

    def start(self, app: ab.Topology, where: str, **options: Any) -> ab.Run:
        given = {
            "slots": 3,
            "shards": 4,
            "state_root": self.root / "state",
            "availableNow": True,
            **options,
        }
        return app.start(checkpoint=self.root / where / "checkpoint", **given)


def test_groupings_and_faults_change_no_result_and_what_was_measured_steers_later_steps(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows to parquet without windows, windows after an apply, and dead letters.

    It runs twice, by turns and by cost; the second run has faults.
    """
    stream = Stream(spark, tmp_path, batches=3)
    settings = ab.Osg(window=4, mu=10.0)

    def slow(row: dict[str, Any]) -> list[dict[str, Any]]:
        import time

        time.sleep(0.002 if row["k"] == "k1" else 0.0002)
        return fussy(row)

    found = {}
    for grouping in ("round robin", "osg"):
        app, source = stream.source()
        place = tmp_path / grouping
        applied = source.apply(
            slow,
            schema="*, name string",
            form="rows",
            cost_by="k",
            grouping=grouping,
            on_error="dead letter",
            osg=settings,
        )
        applied.to(ab.parquet(place / "made"))
        applied.failed.to(ab.parquet(place / "failed"))
        applied.aggregate(by="k", windows=ab.tumbling("1 minute"), n=ab.count(), s=ab.sum("x")).to(
            ab.parquet(place / "sums")
        )
        source.map(lambda df: df.filter("id > 5").select("id", "at")).to(
            ab.parquet(place / "plain")
        )
        if grouping == "osg":
            monkeypatch.setenv("ANABRANCH_FAULTS", "apply.begin@2/1=fail;apply.written@3/0=kill")
            monkeypatch.setenv("ANABRANCH_FAULTS_FIRED", str(tmp_path))
        run = stream.start(app, grouping)
        assert run.awaitTermination(180)
        run.finish()
        found[grouping] = {
            name: bag(read_results(place / name).to_pylist())
            for name in ("made", "failed", "sums", "plain")
        }
    assert found["osg"] == found["round robin"]
    assert found["osg"]["made"] == bag(
        [each for row in stream.rows if row["id"] % 17 for each in fussy(row)]
    )
    assert found["osg"]["plain"] == bag(
        [{"id": r["id"], "at": r["at"]} for r in stream.rows if r["id"] > 5]
    )
    assert sum(found["osg"]["failed"].values()) == sum(row["id"] % 17 == 0 for row in stream.rows)
    assert [kind for kind in (each.kind for each in run.events) if kind == "retry"] == [
        "retry",
        "retry",
    ]
    steps = [each.applies["slow"] for each in run.recentProgress if each.applies]
    assert (steps[0].grouping, steps[-1].grouping) == ("round robin", "osg")
    assert (
        sum(each.failed for each in steps)
        == sum(each.left_out.get("failed", 0) for each in run.recentProgress)
        == 11
    )
    assert sum(each.rows_in for each in steps) == len(stream.rows)
    assert len(steps[-1].slot_s) == 3
    texts = [each.text for each in run.events if each.kind == "grouping"]
    assert len(texts) == 1
    assert texts[0].startswith("apply 'slow' groups rows by osg: as asked for; a row takes")
    app, source = stream.source()
    again = source.apply(slow, schema="*, name string", form="rows", cost_by="k")
    again.aggregate(by="k", windows=ab.tumbling("1 minute"), n=ab.count(), s=ab.sum("x"))
    assert "grouping:  auto: osg: as asked for; a row takes" in app.explain(
        checkpoint=tmp_path / "osg" / "checkpoint"
    )


def test_a_failure_names_the_row_and_leaves_the_stream_intact(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A topology without windows fails in its second step, and goes on with a fixed function."""
    stream = Stream(spark, tmp_path, batches=3, rows=20)

    def checked(frame: Any) -> Any:
        if (frame["id"] == 33).any():
            raise KeyError("thirty three")
        return frame[["id", "k"]]

    def build(fn: Any) -> ab.Topology:
        app, source = stream.source()
        applied = source.apply(fn, schema="id bigint, k string", form="pandas", name="checked")
        applied.map(lambda df: df.withColumn("twice", F.col("id") * 2)).to(
            ab.parquet(tmp_path / "out")
        )
        return app

    run = stream.start(build(checked), "job", retries=1)
    with pytest.raises(ab.StepError) as caught:
        run.awaitTermination(120)
    row = rows_of(33, 1)[0]
    assert str(caught.value).startswith(
        "step 2 of 'stream' failed after 2 attempts: apply 'checked' failed on row {'id': 33, 'k':"
    )
    assert f"'x': {row['x']}" in str(caught.value)
    assert "KeyError: 'thirty three' (at " in str(caught.value)
    assert [each.step for each in run.recentProgress] == [1]
    run = stream.start(build(lambda frame: frame[["id", "k"]]), "job", slots=2)
    assert run.awaitTermination(120)
    assert [each.step for each in run.recentProgress] == [2, 3]
    assert [each.slots for each in run.recentProgress] == [2, 2]
    expected = [{"id": row["id"], "k": row["k"], "twice": 2 * row["id"]} for row in stream.rows]
    assert bag(read_results(tmp_path / "out").to_pylist()) == bag(expected)


def test_results_of_windows_pass_an_apply_on_their_way_to_a_sink(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path, batches=2)
    app, source = stream.source()
    sums = source.aggregate(
        by="k", windows=ab.tumbling("1 minute"), n=ab.count(), s=ab.sum("x"), name="sums"
    )
    named = sums.apply(
        lambda row: {"k": row["k"], "text": f"{row['n']}"},
        schema="k string, text string",
        form="rows",
    )
    named.map(lambda df: df.filter("text <> '1'")).to(ab.parquet(tmp_path / "out"))
    run = stream.start(app, "job")
    assert run.awaitTermination(120)
    run.finish()
    counts = [(k, n) for (k, _), (n, _) in per_minute(stream.rows, "x").items() if n != 1]
    assert bag(read_results(tmp_path / "out").to_pylist()) == bag(
        [{"k": k, "text": f"{n}"} for k, n in counts]
    )
    with pytest.raises(
        ab.TopologyError, match=r"windows after apply 'apply' need the event time, column 'window'"
    ):
        named.compute("k", n=ab.count())
    kept = sums.apply(lambda row: row, schema="*", form="rows", name="kept")
    kept.aggregate(by="k", windows=ab.tumbling("1 hour"), n=ab.count(), name="hours")
    with pytest.raises(
        ab.NotYetError, match=r"reads apply 'kept', which is applied to results of windows"
    ):
        app.explain()


def test_what_makes_no_sense_is_refused_when_the_topology_is_built(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], SCHEMA + ", m map<string,int>")
    source = ab.Topology("refused").source(frame, event_time="at", name="rows")

    def refused(match: str, fn: Any = doubled, schema: Any = "*, y double", **options: Any) -> None:
        with pytest.raises(ab.TopologyError, match=match):
            source.apply(fn, schema=schema, **options)

    refused("apply\\(3\\) is not a function", fn=3)
    refused("unknown form 'polars'; valid: arrow, pandas, rows", form="polars")
    refused("unknown grouping 'random'; valid: auto, round robin, hash, osg", grouping="random")
    refused("unknown on_error 'skip'; valid: fail, dead letter", on_error="skip")
    refused("unknown column in cost_by 'z'; valid: id, k, x, at, m", cost_by=["z"])
    refused("column 'm' of type map<string,int> cannot be hashed", cost_by="m")
    refused("batch_rows=0; valid: 1 row or more", batch_rows=0)
    refused(r"osg=0.5; valid: ab.Osg\(", osg=0.5)
    refused("has a duplicate column 'x'", schema="*, x int")
    refused("schema='y dubble' is not a schema", schema="y dubble")
    refused("schema=5; valid: a string", schema=5)
    lost = source.apply(doubled, schema="id bigint", name="lost")
    with pytest.raises(
        ab.TopologyError,
        match="windows after apply 'lost' need the event time, column 'at' of type timestamp",
    ):
        lost.compute("id", n=ab.count())
    with pytest.raises(ab.TopologyError, match="apply 'lost' has no dead letters"):
        _ = lost.failed
