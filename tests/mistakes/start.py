"""Mistakes in what a topology is started with: refused before the first batch."""

from __future__ import annotations

import json
from pathlib import Path

import anabranch as ab
from tests.mistakes.job import Job
from tests.mistakes.mistake import Desk, Mistake


def _started(desk: Desk, **changes: object) -> object:
    return Job(desk).start(**changes)


def _again(desk: Desk, app: ab.Topology, **changes: object) -> object:
    """Starts another topology on a checkpoint that has a step."""
    job = Job(desk)
    job.run_to_end()
    return job.start(app, **changes)


def _file(desk: Desk) -> Path:
    path = desk.directory / "a-file"
    path.write_text("x", encoding="utf-8")
    return path


def _damaged(desk: Desk, name: str, text: str) -> object:
    job = Job(desk)
    job.run_to_end()
    path = next(job.checkpoint.glob(name))
    path.write_text(text, encoding="utf-8")
    return job.start()


def _other_format(desk: Desk) -> object:
    job = Job(desk)
    job.run_to_end()
    path = job.checkpoint / "anabranch.json"
    header = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**header, "format": 999}), encoding="utf-8")
    return job.start()


def _without_spark_part(desk: Desk) -> object:
    job = Job(desk)
    job.run_to_end()
    (job.checkpoint / "spark").rename(desk.directory / "spark-elsewhere")
    return job.run_to_end()


def _results_of_another(desk: Desk) -> object:
    job = Job(desk)
    job.run_to_end(sink=ab.parquet(desk.directory / "out"))
    for name in (desk.directory / "out").glob("step-*"):
        name.rename(name.with_name(name.name.replace("step-000000", "step-000099")))
    return Job(desk, "second").start(sink=ab.parquet(desk.directory / "out"))


def _open_root(desk: Desk) -> object:
    root = desk.directory / "root"
    root.mkdir()
    root.chmod(0o777)
    return _started(desk, state_root=root)


def _linked_root(desk: Desk) -> object:
    (desk.directory / "real").mkdir(mode=0o700)
    (desk.directory / "link").symlink_to(desk.directory / "real")
    return _started(desk, state_root=desk.directory / "link")


def _run(desk: Desk, act: object) -> object:
    """Does something with a run that is active, and stops it."""
    run = Job(desk).start()
    try:
        return act(run)  # type: ignore[operator]
    finally:
        run.stop()


STARTED = [
    Mistake("no slots", lambda d: _started(d, slots=0), ("slots", "0", "1")),
    Mistake("slots in words", lambda d: _started(d, slots="two"), ("slots", "'two'", "1")),
    Mistake("no shards", lambda d: _started(d, shards=0), ("shards", "0", "1")),
    Mistake("fewer retries than none", lambda d: _started(d, retries=-1), ("retries=-1", "0 or")),
    Mistake("an unknown lift", lambda d: _started(d, lift="up"), ("'up'", "lift first")),
    Mistake("an unknown planner", lambda d: _started(d, planner="best"), ("'best'", "unfused")),
    Mistake("idle in words", lambda d: _started(d, idle="soon"), ("'soon'", "10 minutes")),
    Mistake(
        "an interval in words",
        lambda d: _started(d, processingTime="soon", availableNow=None),
        ("'soon'", "10 minutes"),
    ),
    Mistake(
        "two triggers",
        lambda d: _started(d, processingTime="1 second", availableNow=True),
        ("processingTime", "availableNow"),
    ),
    Mistake(
        "a continuous trigger",
        lambda d: _started(d, continuous="1 second", availableNow=None),
        ("continuous", "processingTime"),
    ),
    Mistake("an unknown option", lambda d: _started(d, slot=2), ("'slot'", "slots")),
    Mistake("elastic=True", lambda d: _started(d, elastic=True), ("True", "ab.Elastic(")),
    Mistake("a latency in words", lambda _: ab.Elastic(latency="low"), ("'low'", "10 minutes")),
    Mistake("an unknown policy", lambda _: ab.Elastic(policy="magic"), ("'magic'", "autoscale")),
    Mistake(
        "fewer slots at most than at least",
        lambda _: ab.Elastic(min_slots=4, max_slots=2),
        ("max_slots", "2", "4"),
    ),
    Mistake("an unknown mode", lambda _: ab.Elastic(mode="maybe"), ("'maybe'", "advise")),
    Mistake("a checkpoint without name", lambda d: _started(d, checkpoint=""), ("''", "directory")),
    Mistake("a checkpoint that is a file", lambda d: _started(d, checkpoint=_file(d)), ("a-file",)),
    Mistake(
        "a checkpoint below a file",
        lambda d: _started(d, checkpoint=_file(d) / "below"),
        ("a-file/below",),
    ),
    Mistake(
        "a checkpoint on an unknown system",
        lambda d: _started(d, checkpoint="what://ever"),
        ("what://ever",),
    ),
    Mistake(
        "another key",
        lambda d: _again(d, Job(d).topology(by="ms")),
        ("page: string", "ms: int", "another checkpoint directory"),
    ),
    Mistake(
        "another event time",
        lambda d: _again(d, Job(d).topology(event_time="then")),
        ("at: timestamp", "then: timestamp"),
    ),
    Mistake(
        "other shards", lambda d: _again(d, Job(d).topology(), shards=8), ("64", "8", "shards")
    ),
    Mistake(
        "another name",
        lambda d: _again(d, Job(d).topology(name="others")),
        ("'pages'", "'others'", "name='pages'"),
    ),
    Mistake(
        "a damaged header",
        lambda d: _damaged(d, "anabranch.json", "{"),
        ("anabranch.json", "damaged"),
    ),
    Mistake(
        "a damaged record",
        lambda d: _damaged(d, "commits/*.json", "no"),
        ("commits/", "damaged"),
    ),
    Mistake("a format of the future", _other_format, ("format 999", "this version reads")),
    Mistake("Spark's part is gone", _without_spark_part, ("batch 0", "expects batch")),
    Mistake("results of another run", _results_of_another, ("/out", "step", "another")),
    Mistake("a root that is a file", lambda d: _started(d, state_root=_file(d)), ("a-file",)),
    Mistake("a root that is open to all", _open_root, ("/root", "chmod 700")),
    Mistake("a root that is a link", _linked_root, ("/link", "link")),
    Mistake(
        "static rows",
        lambda d: d.pages().to(ab.memory()).app.start(checkpoint=d.directory / "c"),
        ("'clicks'", "run_batch()"),
    ),
    Mistake(
        "a topology without operators",
        lambda d: d.clicks().app.start(checkpoint=d.directory / "c"),
        ("'t'", "aggregate"),
    ),
    Mistake(
        "streaming rows for a batch",
        lambda d: Job(d).topology().run_batch(),
        ("static", "'clicks'"),
    ),
    Mistake(
        "rows for an unknown source",
        lambda d: d.pages().app.run_batch({"other": d.rows()}),
        ("'other'", "clicks"),
    ),
    Mistake(
        "rows with other columns",
        lambda d: d.pages().app.run_batch(d.rows().select("at")),
        ("'clicks'", "page: string"),
    ),
    Mistake("resize to none", lambda d: _run(d, lambda run: run.resize(0)), ("0", "1")),
    Mistake("resize beyond shards", lambda d: _run(d, lambda run: run.resize(65)), ("65", "64")),
    Mistake(
        "a route of two shards",
        lambda d: _run(d, lambda run: run.reroute([0, 0])),
        ("[0, 0]", "64"),
    ),
    Mistake("replan by magic", lambda d: _run(d, lambda r: r.replan("magic")), ("'magic'", "auto")),
    Mistake(
        "wait in words",
        lambda d: _run(d, lambda run: run.awaitTermination("soon")),
        ("'soon'", "minutes"),
    ),
]
