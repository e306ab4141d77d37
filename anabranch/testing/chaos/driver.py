"""The driver process of a chaos run: `python -m anabranch.testing.chaos.driver SPEC.json`.

It starts topologies one after the other, each AvailableNow on its checkpoint, and does what the plan says before a start and
between two steps. All that it sees goes into a journal, line by line, since it may be killed at any time. It ends with 0 when all
starts have ended well, and it ends itself when the process that started it is gone.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import anabranch as ab
from anabranch.plan import route
from anabranch.plan.planners.registry import AUTO, PLANNERS
from anabranch.spark.session import SHORT_LIVED, Session, local_session
from anabranch.state.checkpoint.commits import Commit, open_checkpoint
from anabranch.state.checkpoint.files import Files
from anabranch.testing.chaos.applies import SCHEMA, worked
from anabranch.testing.chaos.gathered import gathered
from anabranch.testing.chaos.plan import (
    COMMIT_LOST,
    DAMAGES,
    LIVE,
    REROUTE,
    RESIZE,
    Act,
    Start,
    TopologySpec,
)
from anabranch.testing.chaos.processes import PROCESSES
from anabranch.testing.dag_runs import build_dag
from anabranch.testing.dags import Dag
from anabranch.testing.restless import act_after, disturb

_POLL_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The directories of one run of one case."""

    root: str
    files: str  # all files of the input, of which some are published

    def of(self, name: str) -> Path:
        return Path(self.root, name)

    def checkpoint(self) -> Files:
        return Files(str(self.of("checkpoint")))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStart:
    """One start of one topology, with its number in the plan."""

    number: int
    place: Place
    topology: TopologySpec
    start: Start
    dag: Dag | None = None
    planner: str = AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSpec:
    """What a driver process does."""

    session: str  # a directory for Spark
    starts: tuple[DriverStart, ...]


class Journal:
    """What happened in a start, a JSON object a line; a killed process loses none of them."""

    def __init__(self, path: Path, start: int) -> None:
        self._path, self._start = path, start

    def note(self, record: str, **values: Any) -> None:
        with self._path.open("ab") as file:
            file.write(
                msgspec.json.encode({"start": self._start, "record": record, **values}) + b"\n"
            )


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All lines of a journal; a last line that is cut off is left out."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n")[:-1]]


def publish(place: Place, count: int) -> None:
    """Makes the first files of each source's input visible to it, with their times."""
    every = sorted(Path(place.files).rglob("*.parquet"))
    for directory in {file.parent for file in every}:
        source = place.of("input") / directory.relative_to(place.files)
        source.mkdir(parents=True, exist_ok=True)
        for file in [each for each in every if each.parent == directory][:count]:
            if not (source / file.name).exists():
                os.link(file, source / file.name)


def build(session: Session, spec: TopologySpec, place: Place) -> ab.Topology:
    """The topology of a spec, reading one file a batch."""
    source = str(place.of("input"))
    rows = (
        session.readStream.schema(session.read.parquet(source).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(source)
    )
    app = ab.Topology("chaos")
    makers: dict[str, Any] = {
        name: getattr(ab, name) for name in (each[1] for each in spec.aggregates)
    }
    stream = app.source(rows, event_time="at", delay=f"{spec.delay_us} microseconds")
    results = stream.aggregate(
        by=list(spec.keys),
        windows=[*spec.built_windows(), *spec.sessions()],
        share=spec.share,
        name="windows",
        **{
            name: makers[kind](expression, where=where)
            for name, kind, expression, where in spec.aggregates
        },
    )
    results.to(ab.parquet(place.of("out"), **({"compression": "zstd"} if spec.spark_sink else {})))
    if spec.late_sink:
        results.late.to(ab.parquet(place.of("late")))
    if (then := spec.then) is not None:
        made = results.aggregate(
            by=list(then.keys),
            windows=then.window,
            name="then",
            rows=ab.count(),
            names=ab.max("window_name"),
        )
        made.to(ab.parquet(place.of("then")))
    if spec.process:
        for name, (cls, order) in PROCESSES.items():
            stream.process(list(spec.keys), cls, order=order, name=name).to(
                ab.parquet(place.of(name))
            )
    if spec.gathered:
        gathered(stream, spec.keys).to(ab.parquet(place.of("gathered")))
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
        applied.to(ab.parquet(place.of("worked")))
        applied.failed.to(ab.parquet(place.of("failed")))
    return app


def run(session: Session, each: DriverStart) -> None:
    """One start: what comes before it, then the run with what happens in it, until it has ended."""
    place, start = each.place, each.start
    journal = Journal(place.of("journal.jsonl"), each.number)
    vars(route)["_CHAIN"] = each.topology.chain
    os.environ["ANABRANCH_FAULTS"] = ";".join(
        point for blow in start.blows for point in blow.points
    )
    os.environ["ANABRANCH_FAULTS_FIRED"] = str(place.of("marks"))
    place.of("marks").mkdir(parents=True, exist_ok=True)
    publish(place, start.published)
    acts = [blow.act for blow in start.blows if blow.act]
    for act in acts:
        if act.after is None:
            journal.note("act", kind=act.kind, **perform(place, act))
    keep_copies(place)
    last = found.last if (found := open_checkpoint(place.checkpoint())) else None
    journal.note(
        "start",
        slots=start.slots,
        slots_before=last.slots if last else None,
        step=last.step if last else 0,
    )
    app = (
        build(session, each.topology, place)
        if each.dag is None
        else build_dag(session, each.dag, place.of("input"), place.of("out"))
    )
    started = app.start(
        checkpoint=place.of("checkpoint"),
        slots=start.slots,
        shards=each.topology.shards,
        trigger="availableNow",
        state_root=place.of("state"),
        lift=each.topology.lift,
        planner=each.planner if last is None else None,
    )
    if each.topology.restless and each.dag is None:
        disturb(
            started, each.number, plans=0.0
        )  # another plan may take a step of its own, and steps are numbered beforehand
    timed = [act for act in acts if act.after is not None]
    _ask(started, [act for act in timed if act.kind in LIVE], each.topology.shards)
    _watch(started, each, journal, [act for act in timed if act.kind not in LIVE], last)
    if start.finish:
        seen = _Seen(journal, len(started.progress), len(started.events))
        try:
            started.finish()
        finally:
            seen.look(started)
    journal.note("ended")


class _Seen:
    """Notes steps and events as they come."""

    def __init__(self, journal: Journal, steps: int = 0, events: int = 0) -> None:
        self._journal, self._steps, self._events = journal, steps, events

    def look(self, run: ab.Run) -> int:
        """Notes what is new, and gives the last step that is committed (0: none in this run)."""
        progress, events = run.progress, run.events
        for event in events[self._events :]:
            self._journal.note("event", kind=event.kind, step=event.step, text=event.text)
        for step in progress[self._steps :]:
            self._journal.note(
                "step",
                step=step.step,
                batch=step.batch_id,
                slots=step.slots,
                attempts=step.attempts,
                restored=step.restored,
                seconds=round(step.duration_s, 3),
            )
        self._events, self._steps = len(events), len(progress)
        return progress[-1].step if progress else 0


def shuffled(shards: int, slots: int, seed: int) -> list[int]:
    """Another slot for shards, with all slots in use as far as there are shards."""
    table = [shard % slots for shard in range(shards)]
    random.Random(seed).shuffle(table)
    return table


def _ask(run: ab.Run, acts: Sequence[Act], shards: int) -> None:
    """Has the run changed before the step that follows the one that each act says."""

    def asked(act: Act) -> Callable[[], None]:
        if act.kind == RESIZE:
            return lambda: run.resize(act.slots)
        if act.kind == REROUTE:
            return lambda: run.reroute(shuffled(shards, act.slots, act.seed))
        return lambda: _replan(run, act.planner)

    by_step: dict[int, list[Callable[[], None]]] = {}
    for act in acts:
        by_step.setdefault(act.after or 0, []).append(asked(act))
    act_after(run, by_step)


def _replan(run: ab.Run, first: str) -> None:
    """Asks for the plan of a planner, or, where that one runs already, of the first that would have another."""
    stepper = run._stepper  # noqa: SLF001
    running = [each.name for each in stepper.state.plan.components]
    for planner in (first, *(name for name in sorted(PLANNERS) if name != first)):
        run.replan(planner)
        wanted = stepper.requests.waiting.plan
        if wanted is not None and [each.name for each in wanted.components] != running:
            return


def _watch(
    run: ab.Run, each: DriverStart, journal: Journal, acts: Sequence[Act], last: Commit | None
) -> None:
    """Waits for the end of a run, and does damage as soon as the step is committed that it follows, be it in the middle of the next.

    Steps that only wrote state anew, for another plan, are not counted in the plan of faults.
    """
    place = each.place
    seen, waiting, ended = _Seen(journal), list(acts), False
    try:
        while not ended:
            ended = run.wait(_POLL_S)
            committed = max(last.step if last else 0, seen.look(run)) - (
                last.replans if last else 0
            )
            if committed and not any(place.of("copies").iterdir()):
                keep_copies(place)
            for act in [act for act in waiting if act.after is not None and act.after <= committed]:
                waiting.remove(act)
                journal.note("act", kind=act.kind, **perform(place, act))
    finally:
        seen.look(run)


# Damage -------------------------------------------------------------------------------------------------------------


def perform(place: Place, act: Act) -> dict[str, Any]:
    """Does to the files of a run what an act says, and says how many it has changed."""
    if act.kind == COMMIT_LOST:
        return {"files": delete_last_commit(place.of("checkpoint") / "spark")}
    if act.kind not in DAMAGES:
        return {"files": 0}
    rng = random.Random(act.seed)
    found = open_checkpoint(place.checkpoint())
    committed = (
        sorted({shard for shards in found.chains.values() for shard in shards}) if found else []
    )
    chosen = (
        sorted(rng.sample(committed, max(1, round(act.share * len(committed)))))
        if committed
        else []
    )
    files = [
        file for shard in chosen for file in place.of("state").glob(f"*/*/{shard:05d}/data.mdb")
    ]
    return {
        "files": sum(damage(act.kind, file, place.of("copies"), rng) for file in files),
        "shards": chosen,
    }


def damage(kind: str, file: Path, copies: Path, rng: random.Random) -> bool:
    """Deletes, truncates or overwrites a shard's file, or puts an older copy in its place; False where nothing changes."""
    size = file.stat().st_size
    if kind == "state deleted":
        shutil.rmtree(file.parent)
    elif kind == "state truncated":
        os.truncate(file, rng.choice((0, 100, 4096, size // 2, max(0, size - 4096))))
    elif kind == "state overwritten":
        with file.open("r+b") as opened:
            for _ in range(rng.randint(1, 4)):
                opened.seek(rng.choice((0, 4096, rng.randrange(size + 1))))
                opened.write(rng.randbytes(rng.choice((64, 1000, 8192))))
    else:
        copy = copies / _copy_name(file)
        if not copy.exists() or copy.read_bytes() == file.read_bytes():
            return False
        draft = file.with_suffix(".draft")
        shutil.copyfile(copy, draft)
        draft.replace(file)
    return True


def keep_copies(place: Place) -> None:
    """Copies every shard's file, to be put back later."""
    place.of("copies").mkdir(exist_ok=True)
    for file in place.of("state").glob("*/*/*/data.mdb"):
        shutil.copyfile(file, place.of("copies") / _copy_name(file))


def _copy_name(file: Path) -> str:
    """A copy belongs to an operator and a shard."""
    return f"{file.parent.parent.name} {file.parent.name}"


def delete_last_commit(spark: Path) -> int:
    """Deletes Spark's record that its last batch is done, where it is the last word of Spark's log; Spark then calls again."""
    commits, offsets = (
        [int(file.name) for file in (spark / name).glob("*") if file.name.isdigit()]
        for name in ("commits", "offsets")
    )
    if not commits or max(commits) != max(offsets, default=-1):
        return 0
    (spark / "commits" / str(max(commits))).unlink()
    (spark / "commits" / f".{max(commits)}.crc").unlink(missing_ok=True)
    return 1


# The process --------------------------------------------------------------------------------------------------------


def _end_with_parent() -> None:
    """Ends this process and its JVM when the other end of standard input is gone."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(path: str) -> None:
    """Does what the spec in a file says."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spec = msgspec.json.decode(Path(path).read_bytes(), type=DriverSpec)
    session = local_session("anabranch-chaos", spec.session, options=SHORT_LIVED)
    for each in spec.starts:
        run(session, each)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
