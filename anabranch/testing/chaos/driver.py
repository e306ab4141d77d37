"""The driver process of a chaos run: `python -m anabranch.testing.chaos.driver SPEC.json`.

It starts topologies one after the other, each AvailableNow on its checkpoint. It does what the plan
says before a start and between two steps. Everything that it sees goes into a journal, line by
line, since it may be killed at any time. It ends with 0 if all starts ended without an error, and
it ends itself when the process that started it is gone.
"""

from __future__ import annotations

import os
import random
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
from anabranch.plan.planners.registry import PLANNERS
from anabranch.spark.session import SHORT_LIVED, Session, spark_session
from anabranch.state.checkpoint.commits import Commit, open_checkpoint
from anabranch.testing.chaos.build import build
from anabranch.testing.chaos.evidence import Journal
from anabranch.testing.chaos.files import RunDirectory, perform
from anabranch.testing.chaos.plan import LIVE, REROUTE, RESIZE, Act, CasePlan, Start
from anabranch.testing.dag_runs import build_dag
from anabranch.testing.restless import act_after, disturb

_POLL_S = 0.005
_JAVA = "spark.driver.extraJavaOptions"
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStart:
    """One start of the topology of a case, with its number in the plan."""

    number: int
    directory: RunDirectory
    case: CasePlan
    start: Start


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSpec:
    """What a driver process does."""

    session: str  # a directory for Spark
    starts: tuple[DriverStart, ...]
    compiled: bool = True
    classes: str | None = None  # an archive of Java classes that makes the JVM start sooner
    archives: bool = False  # writes that archive at the end, and reads none


def run(session: Session, each: DriverStart) -> None:
    """Runs one start to its end: what comes before it, then the run with its faults."""
    directory, start, case = each.directory, each.start, each.case
    journal = Journal(directory.of("journal.jsonl"), each.number)
    _set_faults(directory, start)
    vars(route)["_CHAIN"] = case.topology.chain
    directory.publish(start.published)
    acts = [fault.act for fault in start.faults if fault.act]
    for act in acts:
        if act.after is None:
            journal.note("act", kind=act.kind, **perform(directory, act))
    directory.keep_copies()
    last = found.last if (found := open_checkpoint(directory.checkpoint())) else None
    journal.note(
        "start",
        slots=start.slots,
        slots_before=last.slots if last else None,
        step=last.step if last else 0,
    )
    started = _start(session, each, first=last is None)
    if case.restless:
        # Steps are numbered beforehand, and another plan may take a step of its own.
        disturb(started, each.number, plans=0.0)
    timed = [act for act in acts if act.after is not None]
    _ask(started, [act for act in timed if act.kind in LIVE], case.topology.shards)
    journal.note("running")
    _watch(started, each, journal, [act for act in timed if act.kind not in LIVE], last)
    if start.finish:
        observer = _Observer(journal, len(started.recentProgress), len(started.events))
        try:
            started.finish()
        finally:
            observer.note_new(started)
    journal.note("ended")


def _set_faults(directory: RunDirectory, start: Start) -> None:
    points = [point for fault in start.faults for point in fault.points]
    os.environ["ANABRANCH_FAULTS"] = ";".join(points)
    os.environ["ANABRANCH_FAULTS_FIRED"] = str(directory.of("marks"))
    directory.of("marks").mkdir(parents=True, exist_ok=True)


def _start(session: Session, each: DriverStart, *, first: bool) -> ab.Run:
    directory, case = each.directory, each.case
    if case.dag is None:
        app = build(session, case.topology.at(each.start.portion), directory)
    else:
        app = build_dag(session, case.dag, directory.of("input"), directory.of("out"))
    return app.start(
        checkpoint=directory.of("checkpoint"),
        slots=each.start.slots,
        shards=case.topology.shards,
        availableNow=True,
        state_root=directory.of("state"),
        lift=case.topology.lift,
        planner=case.planner if first else None,
    )


class _Observer:
    """Notes steps and events as they happen."""

    def __init__(self, journal: Journal, steps: int = 0, events: int = 0) -> None:
        self._journal, self._steps, self._events = journal, steps, events

    def note_new(self, run: ab.Run) -> int:
        """Notes what is new, and returns the last committed step (0: none in this run)."""
        progress, events = run.recentProgress, run.events
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
    """A random slot for each shard; all slots are used if there are enough shards."""
    table = [shard % slots for shard in range(shards)]
    random.Random(seed).shuffle(table)
    return table


def _ask(run: ab.Run, acts: Sequence[Act], shards: int) -> None:
    """Asks for each change after the step that its act names; the next step applies it."""

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
    """Asks for the plan of a planner; if that is the running plan, for another planner's."""
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
    """Waits for the end of a run, and does each damage as soon as the step before it is committed.

    Steps that only rewrite state, for another plan, are not counted in the plan of faults.
    """
    directory = each.directory
    observer, waiting, ended = _Observer(journal), list(acts), False
    before, uncounted = (last.step, last.replans) if last else (0, 0)
    try:
        while not ended:
            ended = bool(run.awaitTermination(_POLL_S))
            committed = max(before, observer.note_new(run)) - uncounted
            if committed and not any(directory.of("copies").iterdir()):
                directory.keep_copies()
            for act in [act for act in waiting if act.after is not None and act.after <= committed]:
                waiting.remove(act)
                journal.note("act", kind=act.kind, **perform(directory, act))
    finally:
        observer.note_new(run)


# The process ------------------------------------------------------------------------------------


def _session(spec: DriverSpec) -> Session:
    options = {**SHORT_LIVED, **({} if spec.compiled else _INTERPRETED)}
    if spec.classes is not None:
        which = "ArchiveClassesAtExit" if spec.archives else "SharedArchiveFile"
        options[_JAVA] += f" -XX:{which}={spec.classes} -Xlog:disable"
    return spark_session("anabranch-chaos", cores=2, directory=spec.session, settings=options)


def _end_jvm(session: Session) -> None:
    """Ends the JVM and waits for it: an archive of classes is written at its end."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _end_with_parent() -> None:
    """Ends this process and its JVM when the other end of standard input is gone."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main(path: str) -> None:
    """Does what the spec in a file says."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spec = msgspec.json.decode(Path(path).read_bytes(), type=DriverSpec)
    session = _session(spec)
    for each in spec.starts:
        run(session, each)
    if spec.archives:
        _end_jvm(session)
    os._exit(0)  # whoever started this process ends the JVM and the workers at once


if __name__ == "__main__":
    main(sys.argv[1])
