"""`anabranch chaos`: random topologies and faults; whole outputs are compared."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from anabranch.testing.chaos.dealing import plan_cases
from anabranch.testing.chaos.run import (
    CASE_FAULTS,
    ChaosResult,
    ChaosSettings,
    run_chaos,
    usable_cores,
)


def chaos_command(
    *,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same topologies and faults.")
    ] = 1,
    faults: Annotated[int, typer.Option(min=1, help="How many faults must happen.")] = 20,
    case_faults: Annotated[
        int, typer.Option(min=1, max=40, help="How many faults one topology gets.")
    ] = CASE_FAULTS,
    case: Annotated[
        int | None, typer.Option(min=1, help="Run only the topology with this number.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Topologies at the same time. Default: one per core.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Work in this directory and keep it.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object, on the last line.")
    ] = False,
) -> None:
    """Kills, stops and damages running topologies at random, and compares all results.

    Random topologies run AvailableNow over generated events. Half of them are DAGs of several
    sources, joins and components.

    Drivers and Python workers are killed at each point of the step protocol. Jobs fail half-way,
    workers stop and go on, node-local state is deleted or damaged, and Spark loses its last commit.
    Slots, the shards in them and plans change, in some topologies before every step. Restarts have
    other aggregates.

    Whole outputs are compared with an undisturbed run and with DuckDB. The exit status is 1 if
    anything differs, or if a topology ended with an error.
    """
    temporary = keep is None
    directory = (
        Path(tempfile.mkdtemp(prefix="anabranch-chaos-")) if keep is None else keep.absolute()
    )
    directory.mkdir(parents=True, exist_ok=True)
    settings = ChaosSettings(
        seed=seed,
        faults=faults,
        directory=directory,
        case_faults=case_faults,
        jobs=jobs or usable_cores(),
        keep=not temporary,
    )
    plans = plan_cases(seed, case_faults)
    began = time.monotonic()
    with _interruptible():
        try:
            result = run_chaos(
                settings,
                plans if case is None else islice(plans, case - 1, case),
                lambda text: _print_progress(f"{time.monotonic() - began:5.0f} s  {text}"),
            )
        except KeyboardInterrupt:
            if temporary:
                shutil.rmtree(directory, ignore_errors=True)
            raise
        except BaseException:
            _print_progress(f"files are in {directory}")
            raise
    _print(result, as_json=as_json)
    if result.failed:
        _print_commands(result, directory)
        raise typer.Exit(1)
    if temporary:
        shutil.rmtree(directory, ignore_errors=True)


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_commands(result: ChaosResult, directory: Path) -> None:
    _print_progress(f"files are in {directory}; to run a topology again:")
    command = f"anabranch chaos --seed {result.seed} --case-faults {result.case_faults}"
    for case in result.failed:
        _print_progress(f"  {command} --case {case.plan.number}")


def _print(result: ChaosResult, *, as_json: bool) -> None:
    figures = result.as_dict()
    for text in result.problems:
        print(text)
    if as_json:
        print(json.dumps(figures))
        return
    for name in ("kinds", "points", "did_not_happen"):
        print(f"{name.replace('_', ' ')}:" if figures[name] else f"{name.replace('_', ' ')}: none")
        for key, count in figures[name].items():
            print(f"{count:5d}  {key}")
    print(
        f"{figures['faults']} faults in {figures['cases']} topologies, "
        f"{figures['drivers_started']} drivers started, {figures['steps_redone']} steps redone, "
        f"{figures['shards_restored']} shards restored, {figures['seconds']} s (seed {result.seed})"
    )
    print(
        f"{figures['rows_compared']} rows compared, {figures['differences']} differences, "
        f"{figures['errors']} topologies ended with an error"
    )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turns SIGTERM into an exception, so that all processes are ended first."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    typer.run(chaos_command)
