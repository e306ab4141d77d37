"""Runs chaos cases side by side, each in its own processes and directories.

A case runs undisturbed first, then disturbed, in driver processes that are killed and started again
as the plan says; then everything that it has written is compared. A fault counts only when it is
known to have happened.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from anabranch.testing.chaos.compare import compare_case
from anabranch.testing.chaos.dealing import plan_case, plan_cases
from anabranch.testing.chaos.driver import DriverSpec, DriverStart
from anabranch.testing.chaos.evidence import has_happened, mark_of, read_journal
from anabranch.testing.chaos.files import RunDirectory
from anabranch.testing.chaos.life import InterruptedRunError, Lives
from anabranch.testing.chaos.plan import CasePlan, Start
from anabranch.testing.dag_runs import write_dag
from anabranch.testing.events import event_batches, write_batches
from anabranch.testing.processes import Tagged
from anabranch.topology.apply import OSG

CASE_FAULTS = 14
_ARCHIVE_DRIVERS = 8  # writing an archive of classes costs as much as it saves in some five drivers


@dataclass(slots=True)
class CaseResult:
    """The outcome of one case."""

    plan: CasePlan
    happened: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    redone: int = 0
    restored: int = 0
    drivers: int = 0
    rows: int = 0
    differences: list[str] = field(default_factory=list)
    error: str | None = None
    seconds: float = 0.0

    @property
    def missed(self) -> Counter[str]:
        return Counter(fault.kind for fault in self.plan.faults) - self.happened

    @property
    def failed(self) -> bool:
        return bool(self.differences) or self.error is not None


@dataclass(slots=True)
class ChaosResult:
    """The outcome of all cases."""

    seed: int
    case_faults: int
    cases: list[CaseResult] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def happened(self) -> Counter[str]:
        return sum((case.happened for case in self.cases), Counter())

    @property
    def failed(self) -> list[CaseResult]:
        return [case for case in self.cases if case.failed]

    @property
    def problems(self) -> list[str]:
        """Differences and errors, each with its case."""
        found = []
        for case in self.failed:
            texts = [*case.differences, *([case.error] if case.error else [])]
            found += [f"case {case.plan.number}: {text}" for text in texts]
        return found

    def as_dict(self) -> dict[str, Any]:
        kinds = self.happened
        points = sum((case.points for case in self.cases), Counter[str]())
        missed = sum((case.missed for case in self.cases), Counter[str]())
        return {
            "chaos": "windows",
            "seed": self.seed,
            "faults": kinds.total(),
            "kinds": dict(sorted(kinds.items())),
            "points": dict(sorted(points.items())),
            "did_not_happen": dict(sorted(missed.items())),
            "cases": len(self.cases),
            "case_faults": self.case_faults,
            "drivers_started": sum(case.drivers for case in self.cases),
            "steps_redone": sum(case.redone for case in self.cases),
            "shards_restored": sum(case.restored for case in self.cases),
            "rows_compared": sum(case.rows for case in self.cases),
            "differences": sum(len(case.differences) for case in self.cases),
            "errors": sum(case.error is not None for case in self.cases),
            "seconds": round(self.seconds),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosSettings:
    """How many faults, and how they are run."""

    seed: int
    faults: int
    directory: Path
    case_faults: int = CASE_FAULTS
    jobs: int = 1
    keep: bool = False  # the files of all cases, not only of those that failed


def run_chaos(
    settings: ChaosSettings,
    plans: Iterator[CasePlan] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> ChaosResult:
    """Runs cases until enough faults have happened: those of the seed, unless others are given.

    Cases run in rounds: each round has as many cases as plan the missing faults. So which cases run
    depends on the seed and on what happened, not on which case ended first.
    """
    result = ChaosResult(settings.seed, settings.case_faults)
    plans = plan_cases(settings.seed, settings.case_faults) if plans is None else plans
    most = 2 * -(-settings.faults // settings.case_faults)  # half of the faults do not happen
    began = time.monotonic()
    while (missing := settings.faults - result.happened.total()) > 0 and not result.failed:
        chosen = list(islice(_until(plans, missing), most - len(result.cases)))
        if not chosen:
            break
        _Round(settings, result, report).run(chosen)
    result.cases.sort(key=lambda case: case.plan.number)
    result.seconds = time.monotonic() - began
    return result


def _until(plans: Iterator[CasePlan], faults: int) -> Iterator[CasePlan]:
    """Takes plans until they have this many faults."""
    for plan in plans:
        yield plan
        faults -= len(plan.faults)
        if faults <= 0:
            return


class _Round:
    """Some cases that run side by side."""

    def __init__(
        self, settings: ChaosSettings, result: ChaosResult, report: Callable[[str], None]
    ) -> None:
        self._settings, self._result, self._report = settings, result, report
        self._stopping = threading.Event()
        self._classes = settings.directory / "classes.jsa"

    def run(self, plans: Sequence[CasePlan]) -> None:
        drivers = sum(1 + sum(start.killed for start in plan.starts) for plan in plans)
        done, count = len(self._result.cases), len(self._result.cases) + len(plans)
        self._report(
            f"{len(plans)} topologies with {sum(len(plan.faults) for plan in plans)} faults in "
            f"{drivers} driver processes, {self._settings.jobs} side by side"
        )
        with ThreadPoolExecutor(self._settings.jobs) as pool:
            running: set[Future[CaseResult | None]] = set()
            try:
                if drivers >= _ARCHIVE_DRIVERS and not self._classes.exists():
                    running.add(pool.submit(self._archive_classes))
                running |= {pool.submit(self._run_case, plan) for plan in plans}
                while running:
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for case in (each.result() for each in ended):
                        if case is not None:
                            done += 1
                            self._result.cases.append(case)
                            self._report(self._progress(case, done, count))
            finally:
                self._stopping.set()
                pool.shutdown(cancel_futures=True)

    def _progress(self, case: CaseResult, done: int, count: int) -> str:
        text = (
            f"topology {done} of {count} (case {case.plan.number}): "
            f"{case.happened.total()} of {len(case.plan.faults)} faults happened, "
            f"{case.drivers} drivers, {case.redone} steps redone, {case.rows} rows compared, "
            f"{len(case.differences)} differences, {case.seconds:.0f} s; "
            f"{self._result.happened.total()} of {self._settings.faults} faults so far"
        )
        lines = [text]
        if case.missed:
            lines.append(f"  did not happen: {', '.join(sorted(case.missed.elements()))}")
        lines += [f"  {text}" for text in case.differences]
        lines += [f"  ended by an error: {case.error}"] if case.error else []
        return "\n".join(lines)

    def _run_case(self, plan: CasePlan) -> CaseResult:
        root = self._settings.directory / f"case-{plan.number}"
        result, began = CaseResult(plan), time.monotonic()
        try:
            with Tagged() as processes:
                _CaseRun(plan, root, Lives(processes, self._stopping), self._classes, result).run()
        except InterruptedRunError:
            raise
        except Exception:  # noqa: BLE001 - one case must not end the others
            result.error = traceback.format_exc()
        result.seconds = time.monotonic() - began
        if not result.failed and not self._settings.keep:
            shutil.rmtree(root)
        return result

    def _archive_classes(self) -> None:
        """Writes the Java classes that drivers load to an archive, for drivers that start later."""
        root, draft = self._settings.directory / "archive", self._classes.with_suffix(".draft")
        plan, _ = plan_case(self._settings.seed, 0, [], dag=False)
        topology = replace(plan.topology, process=True, gathered=True, grouping=OSG)
        plan = replace(plan, topology=topology, portions=plan.portions[:1])
        _write_input(plan, root)
        starts = _starts(plan, plan.undisturbed(), _directory(root, "undisturbed"))
        spec = DriverSpec(
            session=str(root / "session"), starts=tuple(starts), classes=str(draft), archives=True
        )
        with Tagged() as processes:
            code = Lives(processes, self._stopping).run(spec, root / "driver.log")
        if code == 0 and draft.exists():
            draft.rename(self._classes)
        else:
            self._report(f"no archive of classes: {_tail(root / 'driver.log')}")
        shutil.rmtree(root, ignore_errors=True)


class _CaseRun:
    """One case: its driver processes one after the other, and the comparison of what they wrote."""

    def __init__(
        self, plan: CasePlan, root: Path, lives: Lives, classes: Path, result: CaseResult
    ) -> None:
        self._plan, self._root, self._lives = plan, root, lives
        self._classes, self._result = classes, result
        self._disturbed = _directory(root, "disturbed")

    def run(self) -> None:
        """Runs the undisturbed run in the first driver process too: its JVM is warm then."""
        plan, result = self._plan, self._result
        _write_input(plan, self._root)
        undisturbed = _starts(plan, plan.undisturbed(), _directory(self._root, "undisturbed"))
        for life in _lives(_starts(plan, plan.starts, self._disturbed)):
            self._run_life([*undisturbed, *life], life)
            undisturbed = []
            if result.error is not None:
                break
        self._lives.settle()
        marks = self._marks()
        for fault in plan.faults:
            result.points.update(p.split("@")[0] for p in fault.points if mark_of(p) in marks)
        if result.error is None:
            result.differences, result.rows = compare_case(plan, self._root)

    def _run_life(self, starts: Sequence[DriverStart], disturbed: Sequence[DriverStart]) -> None:
        result = self._result
        result.drivers += 1
        log = self._root / f"driver-{result.drivers}.log"
        spec = DriverSpec(
            session=str(self._root / "session"),
            starts=tuple(starts),
            compiled=self._plan.compiled,
            classes=str(self._classes) if self._classes.exists() else None,
        )
        code = self._lives.run(spec, log)
        if code != 0 and not (code == -signal.SIGKILL and disturbed[-1].start.killed):
            result.error = f"driver {result.drivers} ended with {code}: {_tail(log)}"
        self._count(disturbed, died=code == -signal.SIGKILL)

    def _count(self, life: Sequence[DriverStart], *, died: bool) -> None:
        """Adds the faults of a driver's life that are known to have happened."""
        journal, marks, result = self._journal(), self._marks(), self._result
        for each in life:
            lines = [line for line in journal if line["start"] == each.number]
            for fault in each.start.faults:
                if has_happened(fault, lines, marks, died=died and each is life[-1]):
                    result.happened[fault.kind] += 1
                    result.redone += fault.undoes
            for line in lines:
                result.redone += line["record"] == "event" and line["kind"] == "retry"
                result.restored += line["restored"] if line["record"] == "step" else 0

    def _journal(self) -> list[dict[str, Any]]:
        return read_journal(self._disturbed.of("journal.jsonl"))

    def _marks(self) -> set[str]:
        return {file.name for file in self._disturbed.of("marks").glob("*")}


def _lives(starts: Sequence[DriverStart]) -> Iterator[list[DriverStart]]:
    """Groups starts by driver process: each ends with a start that kills it, or with the last."""
    life = []
    for each in starts:
        life.append(each)
        if each.start.killed or each is starts[-1]:
            yield life
            life = []


def _write_input(plan: CasePlan, root: Path) -> None:
    if plan.dag is None:
        batches = replace(plan.events, batches=sum(plan.portions))
        write_batches(event_batches(batches), root / "files")
    else:
        write_dag(plan.dag, root / "files", sum(plan.portions))


def _directory(root: Path, name: str) -> RunDirectory:
    (root / name).mkdir(parents=True, exist_ok=True)
    return RunDirectory(root=str(root / name), files=str(root / "files"))


def _starts(plan: CasePlan, starts: Sequence[Start], directory: RunDirectory) -> list[DriverStart]:
    bare = replace(plan, starts=())
    return [
        DriverStart(number=i, directory=directory, case=bare, start=each)
        for i, each in enumerate(starts)
    ]


def _tail(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return text[-2000:].strip() or "it printed nothing"


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
