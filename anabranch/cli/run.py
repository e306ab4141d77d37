"""`anabranch run`: loads a file, starts its topology, follows it to its end, and sums it up."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import typer
from rich.console import Console

from anabranch.cli.checkpoints import RunCheckpoint, checkpoint_for
from anabranch.cli.errors import FailedError
from anabranch.cli.follow import Until, follow
from anabranch.cli.live import Ledger, LiveView, PlainView, duration, left_out
from anabranch.cli.load import MistakeError, error_place, error_text, load_topology
from anabranch.cli.results import LatestResults, Watched, results_tables
from anabranch.elastic.settings import Elastic
from anabranch.spark.api.run import Run
from anabranch.spark.api.topology import Topology
from anabranch.spark.api.trigger import TriggerOptions
from anabranch.topology.durations import duration_us

_WATCHED_KEYS = 4
_LINES_AT_END, _LINES_OF_EACH = 27, 8
_WIDE = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `anabranch run`, as they were written."""

    file: Path
    checkpoint: str | None
    fresh: bool
    slots: int | None
    shards: int | None
    seconds: str | None
    finish: bool
    available_now: bool
    trigger: str | None
    idle: str
    plain: bool
    since: float
    elastic: Elastic | None = None

    def until(self) -> Until:
        seconds = None if self.seconds is None else duration_us(self.seconds, "--for") / 1e6
        return Until(seconds=seconds, finish=self.finish, since=self.since)

    def as_trigger(self) -> TriggerOptions:
        """The trigger as arguments of `start()`."""
        if self.available_now:
            return {"availableNow": True}
        if self.trigger is None:
            return {}
        us = duration_us(self.trigger, "--trigger", zero=True)
        return {"processingTime": timedelta(microseconds=us)}

    def check(self) -> None:
        """Refuses options that contradict each other, before Spark is started."""
        self.until()
        if self.available_now and self.trigger is not None:
            raise MistakeError("--available-now and --trigger exclude each other")
        self.as_trigger()
        if self.idle != "never":
            duration_us(self.idle, "--idle", zero=True)


def run_file(options: RunOptions) -> None:
    """Runs the topology of a file to its end."""
    options.check()
    console = Console(highlight=False)
    if options.plain or not console.is_terminal:
        console = Console(highlight=False, width=_WIDE, no_color=True, force_terminal=False)
    with _busy(console, "starting Spark"):
        topology = load_topology(options.file)
    topology.explain()  # refuses what cannot run, before anything is removed
    sinks = [f"{sink.target}{' (late rows)' if sink.late else ''}" for sink in topology.graph.sinks]
    watched, ledger = _watched(topology), Ledger()
    with checkpoint_for(topology, options.checkpoint, fresh=options.fresh) as place:
        with _busy(console, "starting the run"):
            run = _start(topology, options, place)
        began = time.monotonic()
        try:
            why = _follow(run, topology.name, options, console, ledger, watched)
        except Exception as error:
            raise FailedError(f"{error_place(error, options.file)}{error_text(error)}") from error
        _summary(
            console,
            ledger,
            watched,
            f"{topology.name} ended after {duration(time.monotonic() - began)}, {why}",
        )
        for text in sinks or [
            "nowhere: the topology has no sink; add one with .to(ab.parquet(...))"
        ]:
            console.print(f"results: {text}", markup=False, soft_wrap=True)
        if not place.temporary:
            text = (
                f"checkpoint: {place.location}; inspect it with: anabranch state {place.location}"
            )
            if options.elastic is not None:
                text += f", anabranch history {place.location}"
            console.print(text, markup=False, soft_wrap=True)


def _start(topology: Topology, options: RunOptions, place: RunCheckpoint) -> Run:
    return topology.start(
        checkpoint=place.location,
        slots=options.slots,
        shards=options.shards,
        idle=None if options.idle == "never" else options.idle,
        elastic=options.elastic,
        **options.as_trigger(),
    )


def _watched(topology: Topology) -> dict[str, LatestResults]:
    """What to watch: results that go to a sink; without sinks, those of every operator."""
    graph, found = topology.graph, dict[str, LatestResults]()
    windowed = [each.name for each in graph.operators if each.stateful]
    written = [sink.input for sink in graph.sinks if not sink.late]
    watchable = [each for each in written if graph.stream_of(each)[0].stateful]
    for stream in dict.fromkeys(watchable if written else windowed):
        node = graph.stream_of(stream)[0]
        operator = node.name
        name = next(each for each in (operator, stream, f"{operator} itself") if each not in found)
        found[name] = LatestResults(_WATCHED_KEYS, node.first_keys)
        topology.add_sink(stream, found[name], late=False, name=f"the terminal: {name}")
    return found


def _follow(
    run: Run, name: str, options: RunOptions, console: Console, ledger: Ledger, watched: Watched
) -> str:
    if not console.is_terminal:
        return follow(run, PlainView(ledger, typer.echo), options.until())
    with LiveView(console, name, ledger, watched) as view:
        return follow(run, view, options.until())


def _summary(console: Console, ledger: Ledger, watched: Watched, first: str) -> None:
    lines = max(_LINES_AT_END, _LINES_OF_EACH * len(watched))
    for table in results_tables(watched, "the last results", console.width, lines):
        console.print(table)
        console.print()
    totals = f"{ledger.steps:,} steps, {ledger.rows_in:,} rows in, {ledger.rows_out:,} results"
    console.print(
        f"{first}: {totals}, left out: {left_out(ledger.left_out)}", markup=False, soft_wrap=True
    )


def _busy(console: Console, doing: str) -> AbstractContextManager[object]:
    return console.status(doing) if console.is_terminal else nullcontext()
