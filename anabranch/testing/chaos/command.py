"""`anabranch chaos`: random topologies, random faults, whole outputs compared with an undisturbed run and with DuckDB.

Each case runs in driver processes of its own, which are killed and started again as the plan says. A fault counts only when it
is known to have happened: by the mark that it left, by the driver's exit code, by what the journal of the driver says.

`steps_redone` is the number of attempts at a step whose work was thrown away: jobs that failed and ran again, and steps that the
driver's death cut off after their job had begun and before their commit record.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import msgspec
import typer

from anabranch.faults import parse
from anabranch.testing.chaos.compare import compare_case
from anabranch.testing.chaos.driver import DriverSpec, DriverStart, Place, read_journal
from anabranch.testing.chaos.plan import (
    COMMIT_LOST,
    DAMAGES,
    OTHER_SLOTS,
    REPLAN,
    REROUTE,
    RESIZE,
    ZOMBIE,
    Blow,
    CasePlan,
    Start,
    plan_cases,
)
from anabranch.testing.dag_runs import write_dag
from anabranch.testing.events import event_batches, write_batches
from anabranch.testing.processes import Tagged

CASE_FAULTS = 14
_SILENCE_S = 300.0  # a driver process that notes nothing for so long hangs
_CASES_A_ROUND = 5


@dataclass(slots=True)
class CaseResult:
    """What became of one case."""

    plan: CasePlan
    happened: Counter[str] = field(default_factory=Counter)
    redone: int = 0
    restored: int = 0
    drivers: int = 0
    rows: int = 0
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class ChaosResult:
    """What became of all cases."""

    seed: int
    case_faults: int
    cases: list[CaseResult] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def happened(self) -> Counter[str]:
        return sum((case.happened for case in self.cases), Counter())

    @property
    def differences(self) -> list[str]:
        return [
            f"case {case.plan.number}: {text}" for case in self.cases for text in case.differences
        ]

    def as_dict(self) -> dict[str, Any]:
        kinds = self.happened
        return {
            "chaos": "windows",
            "faults": kinds.total(),
            "kinds": dict(sorted(kinds.items())),
            "steps_redone": sum(case.redone for case in self.cases),
            "rows_compared": sum(case.rows for case in self.cases),
            "differences": len(self.differences),
            "seed": self.seed,
            "cases": len(self.cases),
            "case_faults": self.case_faults,
            "drivers_started": sum(case.drivers for case in self.cases),
            "shards_restored": sum(case.restored for case in self.cases),
            "seconds": round(self.seconds),
        }


def run_chaos(
    seed: int,
    faults: int,
    directory: Path,
    *,
    case_faults: int = CASE_FAULTS,
    plans: Iterator[CasePlan] | None = None,
    keep: bool = False,
) -> ChaosResult:
    """Runs cases, those of the seed unless others are given, until enough faults have happened.

    What differs is in the result; the files of cases that differ stay in the directory, or those of all.
    """
    result = ChaosResult(seed, case_faults)
    plans = plan_cases(seed, case_faults) if plans is None else plans
    began = time.monotonic()
    with Tagged() as processes:
        while (missing := faults - result.happened.total()) > 0:
            chosen = list(islice(plans, min(_CASES_A_ROUND, -(-missing // case_faults))))
            if not chosen or len(result.cases) > 2 * -(
                -faults // case_faults
            ):  # half of the faults do not happen
                break
            _say(
                f"{len(chosen)} cases with {sum(len(plan.blows) for plan in chosen)} faults, {missing} to go"
            )
            _undisturbed(chosen, directory, processes)
            for plan in chosen:
                if result.happened.total() >= faults:
                    break
                done = _disturbed(plan, directory, processes)
                result.cases.append(done)
                _report(done, result.happened.total(), faults)
                if not done.differences and not keep:
                    shutil.rmtree(directory / f"case-{plan.number}")
    result.seconds = time.monotonic() - began
    return result


def _undisturbed(plans: Sequence[CasePlan], directory: Path, processes: Tagged) -> None:
    """The input of each case, and its run without a fault; all in one driver."""
    starts: list[DriverStart] = []
    for plan in plans:
        root = directory / f"case-{plan.number}"
        if plan.dag is None:
            write_batches(event_batches(plan.events), root / "files")
        else:
            write_dag(plan.dag, root / "files", sum(plan.portions))
        starts += _driver_starts(plan, plan.undisturbed(), _place(root, "undisturbed"))
    began = time.monotonic()
    code = _Life(starts, directory / "undisturbed", processes).run()
    if code != 0:
        raise RuntimeError(
            f"the undisturbed run ended with {code}: {_tail(directory / 'undisturbed.log')}"
        )
    _say(f"undisturbed runs: {time.monotonic() - began:.0f} s")


def _disturbed(plan: CasePlan, directory: Path, processes: Tagged) -> CaseResult:
    """One case, one driver process after the other, and the comparison of all that it has written."""
    root, began = directory / f"case-{plan.number}", time.monotonic()
    place, result = _place(root, "disturbed"), CaseResult(plan)
    starts = _driver_starts(plan, plan.starts, place)
    while starts and not result.differences:
        many = next((i for i, each in enumerate(starts, start=1) if each.start.killed), len(starts))
        life, starts = starts[:many], starts[many:]
        result.drivers += 1
        log = root / f"driver-{result.drivers}"
        code = _Life(life, log, processes).run()
        expected = (0, -signal.SIGKILL) if life[-1].start.killed else (0,)
        if code not in expected:
            result.differences.append(
                f"driver {result.drivers} ended with {code}: {_tail(log.with_suffix('.log'))}"
            )
        _count(result, life, place, code)
    processes.settle()
    if not result.differences:
        told, result.rows = compare_case(plan, root)
        result.differences += told
    result.seconds = time.monotonic() - began
    return result


def _place(root: Path, name: str) -> Place:
    (root / name).mkdir(parents=True, exist_ok=True)
    return Place(root=str(root / name), files=str(root / "files"))


def _driver_starts(plan: CasePlan, starts: Sequence[Start], place: Place) -> list[DriverStart]:
    case = (plan.topology, plan.dag, plan.planner)
    return [
        DriverStart(
            number=i, place=place, topology=case[0], dag=case[1], planner=case[2], start=each
        )
        for i, each in enumerate(starts)
    ]


class _Life:
    """One driver process, from its start to its end or its death."""

    def __init__(self, starts: Sequence[DriverStart], path: Path, processes: Tagged) -> None:
        self._starts, self._path, self._processes = starts, path, processes

    def run(self) -> int | str:
        """The exit code, or what went wrong."""
        spec = self._path.with_suffix(".json")
        session = DriverSpec(session=str(self._path), starts=tuple(self._starts))
        spec.write_bytes(msgspec.json.encode(session))
        command = [sys.executable, "-m", "anabranch.testing.chaos.driver", str(spec)]
        with self._path.with_suffix(".log").open("wb") as log:
            driver = self._processes.start(command, log)
            try:
                return self._wait(driver)
            finally:
                self._processes.end(driver)
                shutil.rmtree(self._path, ignore_errors=True)

    def _wait(self, driver: subprocess.Popen[bytes]) -> int | str:
        said, since = -1, time.monotonic()
        stops = [
            blow.points[0]
            for each in self._starts
            for blow in each.start.blows
            if blow.kind == ZOMBIE
        ]
        marks = [Path(self._starts[-1].place.of("marks"), _mark(stop)) for stop in stops]
        while (code := driver.poll()) is None:
            if (now_said := self._journalled()) != said:
                said, since = now_said, time.monotonic()
            if time.monotonic() - since > _SILENCE_S:
                return f"no step and no end for {_SILENCE_S:g} s"
            if marks and marks[-1].exists() and self._processes.stopped():
                self._processes.kill_all_but_stopped()
                return driver.wait()
            time.sleep(0.05)
        return code

    def _journalled(self) -> int:
        journals = {each.place.of("journal.jsonl") for each in self._starts}
        return sum(journal.stat().st_size for journal in journals if journal.exists())


def _mark(point: str) -> str:
    """The name of the file that a fault leaves when it happens."""
    return str(parse(point)).replace("/", "_")


# What happened ------------------------------------------------------------------------------------------------------


def _count(result: CaseResult, life: Sequence[DriverStart], place: Place, code: int | str) -> None:
    """Adds the faults of a driver's life that are known to have happened."""
    journal = read_journal(place.of("journal.jsonl"))
    marks = {file.name for file in place.of("marks").glob("*")}
    for each in life:
        lines = [line for line in journal if line["start"] == each.number]
        for blow in each.start.blows:
            died = code == -signal.SIGKILL and each is life[-1]
            if has_happened(blow, lines, marks, died=died):
                result.happened[blow.kind] += 1
                result.redone += blow.undoes
        result.redone += sum(
            line["record"] == "event" and line["kind"] == "retry" for line in lines
        )
        result.restored += sum(line["restored"] for line in lines if line["record"] == "step")


def has_happened(
    blow: Blow, lines: Sequence[dict[str, Any]], marks: set[str], *, died: bool
) -> bool:
    """True when the journal of its start, the marks and the driver's end prove that a fault has happened."""
    if not all(_mark(point) in marks for point in blow.points) or (blow.ends_driver and not died):
        return False
    events = [line["kind"] for line in lines if line["record"] == "event"]
    changed = any(
        line["record"] == "act" and line["kind"] == blow.kind and line["files"] for line in lines
    )
    if blow.kind in DAMAGES:
        return changed
    if blow.kind == COMMIT_LOST:
        return changed and "batch again" in events
    if blow.kind in {RESIZE, REROUTE, REPLAN}:
        return ("plan" if blow.kind == REPLAN else blow.kind) in events
    if blow.kind == OTHER_SLOTS:
        start = next((line for line in lines if line["record"] == "start"), None)
        ran = {line["slots"] for line in lines if line["record"] == "step"}
        return (
            start is not None and start["slots"] != start["slots_before"] and start["slots"] in ran
        )
    return True


# Output -------------------------------------------------------------------------------------------------------------


def _report(case: CaseResult, counted: int, wanted: int) -> None:
    planned, happened = len(case.plan.blows), case.happened.total()
    _say(
        f"case {case.plan.number}: {happened} of {planned} faults happened, {case.drivers} drivers, {case.redone} steps redone, "
        f"{case.rows} rows compared, {len(case.differences)} differences, {case.seconds:.0f} s ({counted} of {wanted} faults)"
    )
    missed = Counter(blow.kind for blow in case.plan.blows) - case.happened
    if missed:
        _say(f"  did not happen: {', '.join(sorted(missed.elements()))}")
    for text in case.differences:
        _say(f"  {text}")


def _tail(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return text[-2000:].strip() or "it said nothing"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# The command --------------------------------------------------------------------------------------------------------


def chaos_command(
    *,
    seed: Annotated[
        int, typer.Option(help="One seed gives the same topologies and the same plan of faults.")
    ] = 1,
    faults: Annotated[int, typer.Option(min=1, help="How many faults must happen.")] = 20,
    case_faults: Annotated[
        int, typer.Option(min=1, max=40, help="How many faults one topology gets.")
    ] = CASE_FAULTS,
    case: Annotated[
        int | None, typer.Option(min=1, help="Run the topology of this number alone.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Work in this directory and leave it there.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The last line of output is one JSON object.")
    ] = False,
) -> None:
    """Kills, stops and damages a running topology at random, and compares all results with those of an undisturbed run.

    Random topologies run AvailableNow over generated events; half of them are DAGs of several sources, joins and components.
    Drivers and Python workers are killed at each point of the step protocol, jobs fail half-way, workers stop and go on, node-local
    state is deleted or damaged, Spark loses its last commit, slots, the shards in them and plans change, in some topologies before
    every step. Whole outputs are compared with an undisturbed run and with DuckDB. Ends with 1 when anything differs.
    """
    directory = (
        Path(tempfile.mkdtemp(prefix="anabranch-chaos-")) if keep is None else keep.absolute()
    )
    directory.mkdir(parents=True, exist_ok=True)
    plans = plan_cases(seed, case_faults)
    plans = plans if case is None else islice(plans, case - 1, case)
    with _interruptible():
        try:
            result = run_chaos(
                seed, faults, directory, case_faults=case_faults, plans=plans, keep=keep is not None
            )
        except KeyboardInterrupt:
            if keep is None:
                shutil.rmtree(directory, ignore_errors=True)
            raise
        except BaseException:
            _say(f"files are in {directory}")
            raise
    _print(result, as_json=as_json)
    if result.differences:
        _again(result, directory)
        raise typer.Exit(1)
    if keep is None:
        shutil.rmtree(directory, ignore_errors=True)


def _again(result: ChaosResult, directory: Path) -> None:
    _say(f"files are in {directory}; to run a topology again:")
    for case in result.cases:
        if case.differences:
            _say(
                f"  anabranch chaos --seed {result.seed} --case-faults {result.case_faults} --case {case.plan.number}"
            )


def _print(result: ChaosResult, *, as_json: bool) -> None:
    figures = result.as_dict()
    for text in result.differences:
        print(text)
    if as_json:
        print(json.dumps(figures))
        return
    for kind, count in figures["kinds"].items():
        print(f"{count:5d}  {kind}")
    print(
        f"{figures['faults']} faults in {figures['cases']} topologies, {figures['steps_redone']} steps redone, "
        f"{figures['shards_restored']} shards restored, {figures['drivers_started']} drivers started, {figures['seconds']} s"
    )
    print(
        f"{figures['rows_compared']} rows compared, {figures['differences']} differences (seed {result.seed})"
    )


@contextmanager
def _interruptible() -> Iterator[None]:
    """A request to end is an exception here, so that all processes are ended before."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    typer.run(chaos_command)
