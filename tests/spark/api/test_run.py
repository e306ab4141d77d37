"""The life of a run: one job per step, closing steps, resizes, restarts, refusals, sinks."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.metrics import Shown, shown_in
from anabranch.spark.jvm import needed_columns
from anabranch.testing import (
    EventPlan,
    WindowQuery,
    differences,
    event_batches,
    expected_results,
    read_results,
    write_batches,
)

MINUTE_US = 60_000_000
QUERY = WindowQuery(
    keys=["k"],
    event_time="at",
    windows=[
        ("1 minute", MINUTE_US, MINUTE_US, 0),
        ("5 minutes every 1 minute", 5 * MINUTE_US, MINUTE_US, 0),
    ],
    aggregates=[("n", "count", "*"), ("total", "sum", "v")],
    delay_us=10_000_000,
)
IDENTITY = ["k", "window_start", "window_end", "window_name"]


class Job:
    """A topology over a directory of files, one file per batch."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.steps: list[pa.Table | None] = []

    def add(self, *seconds_and_values: tuple[int, float], key: int = 1) -> None:
        rows = [(key, s * 1_000_000, v) for s, v in seconds_and_values]
        self.add_table(table(rows))

    def add_table(self, rows: pa.Table) -> None:
        write_batches([rows], self.root / "in", first=sum(step is not None for step in self.steps))
        self.steps.append(rows)

    def topology(
        self, *sinks: object, by: list[str] | None = None, **aggregates: ab.Aggregate
    ) -> ab.Topology:
        (self.root / "in").mkdir(exist_ok=True)
        schema = "k bigint, at timestamp, v double, unused string"
        frame = (
            self.spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.root / "in"))
        )
        app = ab.Topology("job")
        windowed = app.source(frame, event_time="at", delay="10 seconds").aggregate(
            by=["k"] if by is None else by,
            windows=[ab.tumbling("1 minute"), ab.sliding("5 minutes", every="1 minute")],
            **(aggregates or {"n": ab.count(), "total": ab.sum("v")}),
        )
        for sink in sinks or (ab.parquet(self.root / "out"),):
            windowed.to(sink)
        return app

    def start(self, app: ab.Topology | None = None, **options: Any) -> ab.Run:
        given = {"slots": 2, "shards": 8, "state_root": self.root / "state", **options}
        return (app or self.topology()).start(checkpoint=self.root / "checkpoint", **given)

    def results(self) -> pa.Table:
        return read_results(self.root / "out")

    def differences(self, final: Any = "closing") -> list[str]:
        return differences(
            self.results(), expected_results(self.steps, QUERY, final_watermark=final), IDENTITY
        )


def table(rows: list[tuple[int, int, float]]) -> pa.Table:
    keys, times, values = zip(*rows, strict=True)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "v": pa.array(values, pa.float64()),
            "unused": pa.array(["x"] * len(rows)),
        }
    )


def generated(batches: int, rows: int = 400, span_us: int = 3 * MINUTE_US) -> list[pa.Table]:
    plan = EventPlan(
        seed=7, batches=batches, rows=rows, keys=40, span_us=span_us, disorder_us=20_000_000
    )
    return [
        pa.table(
            {
                "k": b["k"],
                "at": b["at"],
                "v": b["v"].cast(pa.float64()),
                "unused": pa.array(["x"] * len(b)),
            }
        )
        for b in event_batches(plan)
    ]


def wait_until(condition: Callable[[], bool], run: ab.Run, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, (
            f"not in {seconds} s; steps {run.recentProgress}, error {run.exception()}"
        )
        assert run.exception() is None, run.exception()
        time.sleep(0.02)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


@pytest.mark.parametrize("lift", ["lift first", "route first"])
def test_a_step_is_one_spark_job_and_its_exchanges_are_those_of_explain(
    job: Job, spark: SparkSession, lift: str
) -> None:
    for batch in generated(3):
        job.add_table(batch)
    app = job.topology(ab.parquet(job.root / "out"), ab.memory())
    plans: list[str] = []
    run = job.start(app, availableNow=True, lift=lift)
    levels = run._stepper.state.levels
    build = levels.job

    def watched(*arguments: Any) -> DataFrame:
        frame = build(*arguments)
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return frame

    levels.job = watched  # type: ignore[method-assign]
    run.awaitTermination(120)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(run.query.runId))
    batches = [p for p in run.recentProgress if p.batch_id is not None]
    assert len(batches) == 3
    assert len(jobs) == len(batches)
    for metric in shown_in(Shown.PROGRESS):
        assert all(metric.holds(getattr(each, metric.name)) for each in run.recentProgress), (
            metric.name
        )
    with_rows = [plan for plan in plans if "ExistingRDD" in plan]
    wanted = len(json.loads(app.explain("json"))["exchanges"])
    assert with_rows
    for plan in with_rows:
        assert plan.count("Exchange ") == wanted
        assert plan.count("Scan ExistingRDD") == 1


def test_only_the_columns_that_are_needed_are_read(job: Job) -> None:
    frame = job.spark.createDataFrame([], "k bigint, at timestamp, v double, unused string")
    assert needed_columns(
        frame, frame.filter("v > 0").select("k", (F.col("v") * 2).alias("w"))
    ) == {"k", "v"}


def test_rows_that_a_map_leaves_out_move_the_watermark_too_and_only_they_need_an_observation(
    job: Job,
) -> None:
    for at in (10, 100, 200):
        job.add((at, 1.0), (at + 30, -1.0))
    maps = {
        "none": (lambda df: df, True),
        "a column more": (lambda df: df.withColumn("w", F.col("v") * 2), True),
        "fewer rows": (lambda df: df.filter("v > 0"), False),
        "another time": (lambda df: df.withColumn("at", F.expr("at - interval 1 hour")), False),
    }
    for name, (fn, watched) in maps.items():
        frame = job.spark.readStream.schema("k bigint, at timestamp, v double").option(
            "maxFilesPerTrigger", 1
        )
        app = ab.Topology("job")
        rows = app.source(
            frame.parquet(str(job.root / "in")), event_time="at", delay="10 seconds"
        ).map(fn)
        rows.aggregate(by="k", windows=ab.tumbling("1 minute"), n=ab.count()).to(ab.memory())
        place = job.root / name
        run = app.start(
            checkpoint=place / "checkpoint",
            state_root=place / "state",
            slots=2,
            shards=8,
            availableNow=True,
        )
        run.awaitTermination(120)
        seconds = [
            None if each.watermark_us is None else each.watermark_us / 1e6
            for each in run.recentProgress
        ]
        assert seconds == [None, 30.0, 120.0, 220.0], name
        assert bool(run._stepper.state.levels.lift.watched) == watched, name


def test_windows_close_while_the_input_pauses(job: Job) -> None:
    job.add((0, 1.0), (30, 2.0), (61, 3.0))
    job.add((75, 4.0))
    run = job.start(idle="0.2 seconds")
    try:
        wait_until(lambda: any(p.batch_id is None for p in run.recentProgress), run)
    finally:
        run.stop()
    job.steps.append(None)
    assert job.differences() == []
    assert [row["n"] for row in job.results().to_pylist() if row["window_name"] == "1 minute"] == [
        2
    ]
    assert run.exception() is None


def test_a_run_is_used_like_a_streaming_query(job: Job) -> None:
    run = job.start(processingTime="50 ms", idle="1 hour")
    assert (run.isActive, run.lastProgress, run.recentProgress) == (True, None, [])
    job.add((0, 1.0), (30, 2.0), (61, 3.0))
    job.add((75, 4.0))
    run.processAllAvailable()
    job.steps.append(None)
    assert job.differences() == [], "the windows that the watermark allows are written"
    assert [each.batch_id for each in run.recentProgress] == [0, 1, None]
    assert run.lastProgress == run.recentProgress[-1]
    assert (run.name, run.id, run.runId) == ("job", run.query.id, run.query.runId)
    assert {"message", "isDataAvailable", "isTriggerActive"} == set(run.status)
    assert run.awaitTermination(0.01) is False
    with pytest.raises(ab.TopologyError, match=r"timeout=0; valid: a positive number of seconds"):
        run.awaitTermination(0)
    run.stop()
    run.stop()
    run.processAllAvailable()
    assert (run.isActive, run.exception()) == (False, None)
    assert run.awaitTermination() is None
    assert run.awaitTermination("1 second") is True
    again = job.start(availableNow=True)
    again.processAllAvailable()
    assert (again.id, again.isActive) == (run.id, False)
    assert again.runId != run.runId


def test_process_all_available_raises_what_ended_the_run(job: Job) -> None:
    def broken(frame: DataFrame, step: int) -> None:
        raise ValueError("no such table")

    run = job.start(job.topology(broken), processingTime="50 ms", idle="1 hour")
    job.add((0, 1.0), (61, 3.0), (75, 4.0))
    with pytest.raises(
        ab.StepError, match="failed in step 2, which was not committed: ValueError: no such table"
    ):
        run.processAllAvailable()
    assert isinstance(run.exception(), ab.StepError)
    assert not run.isActive
    with pytest.raises(
        ab.StepError, match="failed in step 2, which was not committed: ValueError: no such table"
    ):
        run.awaitTermination()


def test_the_end_of_input_closes_what_the_watermark_allows_and_the_next_run_goes_on(
    job: Job,
) -> None:
    job.add((0, 1.0), (61, 2.0))
    job.start(availableNow=True).awaitTermination(120)
    job.steps.append(None)
    assert len(job.results()) == 0
    job.add((50, 10.0), (62, 3.0), (135, 4.0))
    job.add((20, 99.0), (136, 5.0))
    run = job.start(availableNow=True, slots=3)
    run.awaitTermination(120)
    job.steps.append(None)
    assert job.differences() == []
    assert {p.slots for p in run.recentProgress} == {3}
    run.finish()
    assert job.differences("finish") == []
    again = job.start(availableNow=True)
    again.awaitTermination(120)
    assert again.recentProgress == []


def test_slots_change_while_running_without_restart_or_copied_state(job: Job) -> None:
    batches = generated(12)
    run = job.start(idle=None, slots=1)
    query, sizes = run.query, {}
    for slots, part in zip(
        (None, 4, 2, 3), (batches[:3], batches[3:6], batches[6:9], batches[9:]), strict=True
    ):
        if slots is not None:
            run.resize(slots)
        for batch in part:
            job.add_table(batch)
            wait_until(lambda: len(run.recentProgress) == len(job.steps), run)
            sizes[len(job.steps)] = len(
                {path.stat().st_ino for path in job.root.glob("state/*/*/*/data.mdb")}
            )
    run.stop()
    assert run.query is query
    assert [p.slots for p in run.recentProgress] == [1] * 3 + [4] * 3 + [2] * 3 + [3] * 3
    assert all(p.restored == 0 for p in run.recentProgress)
    assert set(sizes.values()) == {8}
    resizes = [event.text for event in run.events if event.kind == "resize"]
    assert [text.split(":")[0] for text in resizes] == [
        "slots 1 -> 4",
        "slots 4 -> 2",
        "slots 2 -> 3",
    ]
    run.finish()
    assert job.differences("finish") == []
    first = [p.duration_s for p in run.recentProgress if p.step in {4, 7, 10}]
    others = sorted(p.duration_s for p in run.recentProgress if p.step in {5, 6, 8, 9, 11, 12})
    print(
        f"step after a resize: {[round(s, 3) for s in first]} s, other steps: median {others[len(others) // 2]:.3f} s"
    )


def test_lost_and_damaged_state_is_restored_from_the_durable_log(job: Job) -> None:
    for batch in generated(3):
        job.add_table(batch)
    job.start(availableNow=True).awaitTermination(120)
    job.steps.append(None)
    shards = sorted(job.root.glob("state/*/*/[0-9]*"))
    assert len(shards) == 8
    shutil.rmtree(shards[0])
    (shards[1] / "data.mdb").write_bytes(b"\xff" * 50_000)
    raw = (shards[2] / "data.mdb").read_bytes()
    (shards[2] / "data.mdb").write_bytes(raw[: len(raw) // 2])
    for batch in generated(5)[3:]:
        job.add_table(batch)
    run = job.start(availableNow=True)
    run.awaitTermination(120)
    job.steps.append(None)
    assert job.differences() == []
    assert run.recentProgress[0].restored == 3
    assert [event.kind for event in run.events] == ["restore"]


def test_a_batch_that_spark_brings_again_is_done_already(job: Job) -> None:
    for batch in generated(2):
        job.add_table(batch)
    job.start(availableNow=True).awaitTermination(120)
    job.steps.append(None)
    for name in ("1", ".1.crc"):  # with Hadoop's checksums, where it writes them
        (job.root / "checkpoint/spark/commits" / name).unlink(missing_ok=True)
    run = job.start(availableNow=True)
    run.awaitTermination(120)
    assert [event.kind for event in run.events] == ["batch again"]
    assert job.differences() == []


def test_a_checkpoint_that_does_not_fit_is_refused(job: Job) -> None:
    for batch in generated(2):
        job.add_table(batch)
    job.start(availableNow=True).awaitTermination(120)
    with pytest.raises(
        ab.CheckpointError,
        match=r"keys: the checkpoint has \[k: bigint\], the topology has \[none\]",
    ):
        job.start(job.topology(by=[]))
    with pytest.raises(
        ab.CheckpointError, match=r"shards: the checkpoint has \[8\], the topology has \[16\]"
    ):
        job.start(shards=16)
    with pytest.raises(ab.TopologyError, match=r"slots=9; valid: 1 to 8"):
        job.start(slots=9)
    shutil.rmtree(job.root / "checkpoint/spark")
    with pytest.raises(
        ab.CheckpointError, match=r"Spark runs batch 0, but checkpoint .* expects batch 2"
    ):
        job.start(availableNow=True).awaitTermination(120)


def test_a_directory_with_results_of_another_checkpoint_is_refused(job: Job) -> None:
    for batch in generated(3):
        job.add_table(batch)
    job.start(availableNow=True).awaitTermination(120)
    with pytest.raises(
        ab.TopologyError, match=r"out holds results up to step 4, but this checkpoint is at step 1"
    ):
        job.topology().start(checkpoint=job.root / "another", state_root=job.root / "state")


def test_two_runs_share_a_session(spark: SparkSession, tmp_path: Path) -> None:
    jobs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        jobs.append(Job(spark, tmp_path / name))
    for batch in generated(2):
        for each in jobs:
            each.add_table(batch)
    runs = [each.start(availableNow=True) for each in jobs]
    for each, run in zip(jobs, runs, strict=True):
        run.awaitTermination(120)
        each.steps.append(None)
        assert each.differences() == []


def test_every_sink_gets_the_same_rows(
    job: Job, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for batch in generated(3):
        job.add_table(batch)
    memory, seen = ab.memory(), []
    root = job.root

    def function(frame: DataFrame, step: int) -> None:
        seen.append((step, frame.count()))

    app = job.topology(
        ab.parquet(root / "out"),
        ab.csv(root / "csv"),
        ab.json(root / "json"),
        ab.parquet(root / "gzip", compression="gzip"),
        ab.console(3),
        ab.writer("parquet", path=str(root / "writer")),
        memory,
        function,
    )
    job.start(app, availableNow=True).awaitTermination(180)
    job.steps.append(None)
    assert job.differences() == []
    rows = len(job.results())
    assert rows == len(memory.rows()) == memory.table().num_rows == sum(count for _, count in seen)
    assert spark.read.json(str(root / "json")).count() == rows
    assert spark.read.parquet(str(root / "writer")).count() == rows
    assert (
        spark.read.parquet(str(root / "gzip"))
        .exceptAll(spark.read.parquet(str(root / "out")))
        .count()
        == 0
    )
    csv = spark.read.option("header", True).csv(str(root / "csv"))
    assert csv.columns == ["k", "window_start", "window_end", "window_name", "n", "total"]
    assert csv.count() == rows
    assert "window_name=5 minutes every 1 minute" in capsys.readouterr().out


def test_a_failing_sink_ends_the_run_with_its_name_and_the_next_run_repeats_the_step(
    job: Job,
) -> None:
    for batch in generated(3):
        job.add_table(batch)

    def broken(frame: DataFrame, step: int) -> None:
        raise ValueError("no such table")

    run = job.start(job.topology(broken, ab.parquet(job.root / "out")), availableNow=True)
    with pytest.raises(ab.StepError, match=r"sink 'sink_1' .* failed in step 2, .*: no such table"):
        run.awaitTermination(120)
    assert isinstance(run.exception(), ab.StepError)
    job.start(availableNow=True).awaitTermination(120)
    job.steps.append(None)
    assert job.differences() == []


def test_too_little_space_ends_the_run_and_loses_nothing(job: Job) -> None:
    job.add_table(generated(1)[0])
    job.start(availableNow=True).awaitTermination(120)
    job.steps.append(None)
    rows = 60_000
    large = table([(key, 60 * MINUTE_US + key, 1.0) for key in range(rows)])
    write_batches([large], job.root / "in", first=1)
    with pytest.raises(ab.StepError, match=r"its limit is 0.25 MiB; nothing is lost"):
        job.start(availableNow=True, state_limit=1 << 18).awaitTermination(180)
    job.steps.append(large)
    job.start(availableNow=True).awaitTermination(180)
    job.steps.append(None)
    assert job.differences() == []


def test_a_static_topology_gives_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    batches = generated(2)
    pq.write_table(pa.concat_tables(batches), tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    app = ab.Topology("static")
    stream = app.source(frame, event_time="at", name="rows")
    windowed = stream.aggregate(
        by="k", windows=ab.tumbling("1 minute"), n=ab.count(), total=ab.sum("v"), name="minutes"
    )
    before = spark.conf.get("spark.sql.shuffle.partitions")
    found = app.run_batch({stream: frame.limit(10_000)})
    again = app.run_batch({"rows": frame})
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    query = WindowQuery(
        keys=["k"],
        event_time="at",
        windows=QUERY.windows[:1],
        aggregates=QUERY.aggregates,
        delay_us=0,
    )
    expected = expected_results([pa.concat_tables(batches)], query, final_watermark="finish")
    for results in (found, again):
        assert differences(results[windowed.name].toArrow(), expected, IDENTITY) == []
        assert results["minutes.late"].count() == 0
    empty = app.run_batch({"rows": frame.filter("false")})
    assert empty["minutes"].count() == 0
    assert empty["minutes"].columns == ["k", "window", "window_name", "n", "total"]
    with pytest.raises(ab.TopologyError, match="unknown source 'loans'; valid: rows"):
        app.run_batch({"loans": frame})


def test_mistakes_are_refused_when_the_topology_is_built(job: Job, spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [], "k bigint, at timestamp, v double, t bigint, s string, m map<string,int>"
    )
    app = ab.Topology("mistakes")
    stream = app.source(frame, event_time="at")
    with pytest.raises(
        ab.TopologyError, match="unknown event-time column 'when'; valid: k, at, v, t, s"
    ):
        app.source(frame, event_time="when")
    with pytest.raises(ab.TopologyError, match='give its unit, such as unit="seconds"'):
        app.source(frame, event_time="t")
    with pytest.raises(ab.TopologyError, match="event time 's' has type string; valid: timestamp"):
        app.source(frame, event_time="s")
    with pytest.raises(ab.TopologyError, match="unknown unit 'fortnights'"):
        app.source(frame, event_time="t", unit="fortnights")
    with pytest.raises(
        ab.TopologyError, match=r"aggregate 'x': nope does not fit the stream's columns \(k, at"
    ):
        stream.compute(by=["k"], x=ab.sum("nope"))
    with pytest.raises(
        ab.TopologyError, match=r"the filter of 'x' .* has type double; valid: boolean"
    ):
        stream.compute(by=["k"], x=ab.sum("v", where="v + 1"))
    with pytest.raises(ab.TopologyError, match="deterministic"):
        stream.map(lambda df: df.withColumn("r", F.rand()))
    with pytest.raises(ab.TopologyError, match="must keep the event-time column 'at'"):
        stream.map(lambda df: df.drop("at"))
    with pytest.raises(ab.TopologyError, match="must return a DataFrame, got int"):
        stream.map(lambda _: 5)  # type: ignore[arg-type, return-value]
    with pytest.raises(ab.TopologyError, match="not a sink"):
        stream.aggregate(by="k", windows=ab.tumbling("1m"), n=ab.count()).to("out")
    with pytest.raises(ab.TopologyError, match="late rows cannot carry column 'm'"):
        stream.aggregate(by="k", windows=ab.tumbling("1m"), n=ab.count(), name="w").late.to(
            ab.memory()
        )
    one = ab.Topology("one")
    one.source(frame, event_time="at").aggregate(by="k", windows=ab.tumbling("1m"), n=ab.count())
    with pytest.raises(ab.TopologyError, match="not a streaming DataFrame"):
        one.start(checkpoint=job.root / "c")
    streaming = spark.readStream.format("rate").load()
    live = ab.Topology("live").source(streaming, event_time="timestamp")
    with pytest.raises(ab.TopologyError, match="must be stateless; it has Aggregate"):
        live.map(lambda df: df.groupBy("timestamp").count())
    with pytest.raises(ab.TopologyError, match=r"processingTime 5 is not a time"):
        job.start(processingTime=5)
