"""A run as the user sees it: a live view in a terminal, plain lines elsewhere, and a summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from anabranch.cli.results import Watched, moment, results_tables
from anabranch.elastic.observation import Decision
from anabranch.metrics import Metric, MetricUnit, Progress, Shown, label_of, shown_in
from anabranch.observer import Event
from anabranch.spark.api.run import Run

_RECENT = 5  # steps over which the rate is computed
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARKED = 12


@dataclass(slots=True)
class Ledger:
    """What a run has done so far, added up from its progress."""

    steps: int = 0
    rows_in: int = 0
    rows_out: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    recent: list[Progress] = field(default_factory=list)
    events: int = 0

    def take(self, run: Run) -> tuple[list[Progress], list[Event]]:
        """Counts the new steps. Returns them, and the new events."""
        last = self.recent[-1].step if self.recent else 0
        new = [each for each in run.recentProgress if each.step > last]
        for each in new:
            self.steps += 1
            self.rows_in += each.rows_in
            self.rows_out += each.rows_out
            for reason, rows in each.left_out.items():
                self.left_out[reason] = self.left_out.get(reason, 0) + rows
        self.recent = [*self.recent, *new][-_SPARKED:]
        events = run.events[self.events :]
        self.events += len(events)
        return new, events


class LiveView:
    """A view that redraws itself in place a few times per second.

    Anything else that is printed appears above it.
    """

    def __init__(self, console: Console, title: str, ledger: Ledger, watched: Watched) -> None:
        self._console, self._title, self._ledger, self._watched = console, title, ledger, watched
        self._events: list[Event] = []
        self._decision: Decision | None = None
        self._started = time.monotonic()
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, run: Run, doing: str) -> None:
        _, events = self._ledger.take(run)
        self._events = [*self._events, *events][-3:]
        self._decision = run.decision
        self._live.update(self._picture(doing))

    def _picture(self, doing: str) -> RenderableType:
        seconds = time.monotonic() - self._started
        hint = "Ctrl-C stops it" if doing == "running" else "Ctrl-C again ends at once"
        title = Text.assemble(
            (self._title, "bold cyan"), f"  {doing}, {seconds:.0f} s  ", (hint, "dim")
        )
        if not self._ledger.recent:
            return Group(
                title, Text("the first step takes longest: Spark compiles it", style="dim")
            )
        # Subtract the lines of the title, the figures and the header of the steps.
        left = self._console.size.height - 9
        decided = []
        if self._decision is not None:
            decided.append(_line(controller_line(self._decision), "green"))
        left -= len(decided)
        events = self._events[-(left - 2) :] if left > 2 else []
        left -= len(events) + bool(events)
        steps = self._ledger.recent[-max(1, min(_RECENT, left)) :]
        parts: list[RenderableType] = [
            title,
            Text(),
            figures(self._ledger),
            *decided,
            Text(),
            recent_steps(steps),
        ]
        for table in results_tables(
            self._watched, "latest results", self._console.width, left - len(steps)
        ):
            parts += [Text(), table]
        if events:
            parts += [Text(), *(_line(event_line(each), "yellow") for each in events)]
        return Group(*parts)


class PlainView:
    """One line per step, but at most one per second, for logs and pipes."""

    def __init__(
        self,
        ledger: Ledger,
        say: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._say, self._clock = ledger, say, clock
        self._waiting: list[Progress] = []
        self._said = float("-inf")

    def show(self, run: Run, doing: str) -> None:
        new, events = self._ledger.take(run)
        self._waiting += new
        for event in events:
            self._say(event_line(event))
        now = self._clock()
        if self._waiting and (now - self._said >= 1.0 or doing == "ended"):
            self._say(step_line(self._waiting, rows_per_second(self._ledger.recent[-_RECENT:])))
            self._waiting, self._said = [], now


def figures(ledger: Ledger) -> Table:
    """The most important figures of a run, in two columns."""
    last, recent = ledger.recent[-1], ledger.recent
    lag = ""
    if (
        last.watermark_us is not None
        and last.max_event_us is not None
        and last.max_event_us >= last.watermark_us
    ):
        lag = f", {duration((last.max_event_us - last.watermark_us) / 1e6)} behind"
    rates = sparks([each.rows_per_s for each in recent if not each.closing])
    times = sparks([each.duration_s for each in recent])
    texts = {
        "rows_per_s": f"{rows_per_second(recent[-_RECENT:]):,.0f}  {rates}",
        "duration_s": f"{FORMATS[MetricUnit.SECONDS](last.duration_s)}  {times}",
        "rows_in": FORMATS[MetricUnit.ROWS](ledger.rows_in),
        "rows_out": FORMATS[MetricUnit.ROWS](ledger.rows_out),
        "slots": f"{last.slots} for {last.shards} shards",
        "state_bytes": size(last.state_bytes),
        "left_out": left_out(ledger.left_out),
        "watermark_us": f"{instant(last.watermark_us)}{lag}",
    }
    pairs = [(label_of(name), text) for name, text in texts.items()]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for style in ("dim", "bold", "dim", "bold"):
        table.add_column(style=style, no_wrap=True, min_width=9 if style == "dim" else 22)
    for left, right in zip(pairs[::2], pairs[1::2], strict=True):
        table.add_row(*map(escape, (*left, *right)))
    return table


def recent_steps(steps: Sequence[Progress]) -> Table:
    """One line per step, with the figures that `anabranch.metrics` declares for it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    columns = list(shown_in(Shown.STEPS))
    for each in columns:
        if each.unit is MetricUnit.EVENT_TIME:
            table.add_column(f"{each.label} (UTC)", no_wrap=True)
        else:
            table.add_column(each.label, justify="right", min_width=7, no_wrap=True)
    for step in steps:
        table.add_row(*(cell(each, step) for each in columns))
    return table


def cell(metric: Metric, step: Progress) -> str:
    """A figure of a step as text, formatted by its unit. Lists are summed."""
    value = getattr(step, metric.name)
    if metric.name == "batch_id" and value is None:
        return "closing"
    if isinstance(value, Mapping):
        value = sum(value.values())
    return FORMATS[metric.unit](value)


def step_line(steps: Sequence[Progress], rate: float) -> str:
    """One line about one step or several."""
    first, last = steps[0], steps[-1]
    reasons: dict[str, int] = {}
    for each in steps:
        for reason, rows in each.left_out.items():
            reasons[reason] = reasons.get(reason, 0) + rows
    facts = [
        f"step {last.step}" if len(steps) == 1 else f"steps {first.step} to {last.step}",
        "closing"
        if all(each.closing for each in steps)
        else f"{sum(s.rows_in for s in steps):,} rows",
        f"{rate:,.0f} rows/s",
        f"{sum(each.duration_s for each in steps):.2f} s",
        f"{sum(each.rows_out for each in steps):,} results",
        f"left out {left_out(reasons)}",
        f"slots {last.slots} of {last.shards} shards",
        f"state {size(last.state_bytes)}",
        f"watermark {instant(last.watermark_us)}",
    ]
    return ", ".join(facts)


def _line(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def controller_line(decision: Decision) -> str:
    """What the controller decided after a step, or why it changed nothing."""
    decides = "advises" if decision.advice else "decides"
    waits = "sees" if decision.reason == "all is well" else "waits"
    verb = decides if decision else waits
    return f"controller after step {decision.step} {verb}: {decision.reason}"


def event_line(event: Event) -> str:
    """One line about an event."""
    return f"{event.kind}: {event.text}"


def rows_per_second(steps: Sequence[Progress]) -> float:
    """Rows over time, including pauses between steps. Closing steps do not count."""
    batches = [each for each in steps if not each.closing]
    if not batches:
        return 0.0
    began = batches[0].finished_at - batches[0].duration_s
    return sum(each.rows_in for each in batches) / max(batches[-1].finished_at - began, 1e-9)


def left_out(reasons: Mapping[str, int]) -> str:
    """The rows that no open window took, by reason."""
    return ", ".join(f"{rows:,} {reason}" for reason, rows in reasons.items()) or "0"


def sparks(values: Iterable[float]) -> str:
    """A row of small bars; the largest value has the highest."""
    values = list(values)
    top = max(values, default=0.0)
    return "".join(_SPARKS[min(7, int(8 * value / top))] for value in values) if top > 0 else ""


def size(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return (
                f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
            )
        count /= 1024
    return f"{count:.1f} GiB"


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = round(seconds)
    parts = [
        (whole // 86_400, "d"),
        (whole % 86_400 // 3600, "h"),
        (whole % 3600 // 60, "min"),
        (whole % 60, "s"),
    ]
    first = next((i for i, (amount, _) in enumerate(parts) if amount), 3)
    return (
        " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount) or "0 s"
    )


def instant(us: int | None) -> str:
    """Microseconds since 1970 as a time in UTC."""
    if us is None:
        return "none yet"
    try:
        return moment(datetime.fromtimestamp(us // 1_000_000, UTC))
    except (OverflowError, ValueError, OSError):
        return f"{us} us"


FORMATS: dict[MetricUnit, Callable[[Any], str]] = {
    **dict.fromkeys(MetricUnit, str),
    MetricUnit.COUNT: "{:d}".format,
    MetricUnit.ROWS: "{:,}".format,
    MetricUnit.ESTIMATE: "{:,.0f}".format,
    MetricUnit.RATE: "{:,.0f}".format,
    MetricUnit.SECONDS: "{:.2f} s".format,
    MetricUnit.SHARE: "{:.0%}".format,
    MetricUnit.BYTES: size,
    MetricUnit.EVENT_TIME: instant,
}
