"""What a run looks like: figures, lines, and a picture that fits the terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from anabranch.cli.live import (
    Ledger,
    LiveView,
    PlainView,
    controller_line,
    duration,
    instant,
    left_out,
    rows_per_second,
    size,
    sparks,
)
from anabranch.cli.results import LatestResults, shown
from anabranch.elastic.observation import Decision, Expected, Resize
from anabranch.metrics import Progress
from anabranch.observer import Event
from anabranch.plan.route import even_route

if TYPE_CHECKING:
    from tests.cli.conftest import PlayedRun

Step = Callable[..., Progress]


def test_the_ledger_counts_every_step_once(played: PlayedRun, step: Step) -> None:
    ledger = Ledger()
    played.recentProgress = [step(1, left_out={"late": 2}), step(2)]
    assert [each.step for each in ledger.take(played)[0]] == [1, 2]  # type: ignore[arg-type]
    played.recentProgress += [step(3, left_out={"late": 1, "outside": 5})]
    assert [each.step for each in ledger.take(played)[0]] == [3]  # type: ignore[arg-type]
    assert (ledger.steps, ledger.rows_in, ledger.rows_out) == (3, 3000, 30)
    assert ledger.left_out == {"late": 3, "outside": 5}


def test_plain_lines_come_once_a_second_and_events_at_once(played: PlayedRun, step: Step) -> None:
    said: list[str] = []
    now = [0.0]
    view = PlainView(Ledger(), said.append, lambda: now[0])
    played.recentProgress = [step(1)]
    view.show(played, "running")  # type: ignore[arg-type]
    now[0] = 0.5
    played.recentProgress += [step(2), step(3, left_out={"late": 4})]
    played.events = [Event(at=0.0, step=3, kind="resize", text="slots 2 -> 3")]
    view.show(played, "running")  # type: ignore[arg-type]
    now[0] = 1.0
    view.show(played, "running")  # type: ignore[arg-type]
    view.show(played, "ended")  # type: ignore[arg-type]
    rest = "slots 2 of 64 shards, state 3.0 MiB, watermark 2026-01-01"
    assert said == [
        f"step 1, 1,000 rows, 2,000 rows/s, 0.50 s, 10 results, left out 0, {rest} 00:01",
        "resize: slots 2 -> 3",
        (
            f"steps 2 to 3, 2,000 rows, 1,200 rows/s, 1.00 s, 20 results, left out 4 late, {rest} "
            "00:03"
        ),
    ]


def test_the_last_steps_are_printed_even_within_a_second(played: PlayedRun, step: Step) -> None:
    said: list[str] = []
    view = PlainView(Ledger(), said.append, lambda: 0.0)
    for number in (1, 2):
        played.recentProgress += [step(number, batch_id=None, rows_in=0)]
        view.show(played, "ended")  # type: ignore[arg-type]
    assert [line.split(",")[:2] for line in said] == [
        ["step 1", " closing"],
        ["step 2", " closing"],
    ]


@pytest.mark.parametrize("operators", [1, 3])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (60, 12)])
def test_the_live_view_fits_the_terminal(
    played: PlayedRun, step: Step, width: int, height: int, operators: int
) -> None:
    latest = LatestResults(8)
    day = {"start": datetime(2026, 1, 1, tzinfo=UTC), "end": datetime(2026, 1, 2, tzinfo=UTC)}
    latest._take(
        {"area": f"area {i}", "window": day, "window_name": "1 day", "n": i} for i in range(100)
    )
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None
    )
    view = LiveView(
        console,
        "lending",
        Ledger(),
        dict.fromkeys(("areas", "overall", "more")[:operators], latest),
    )
    played.recentProgress = [step(number) for number in range(1, 50)]
    played.events = [
        Event(at=0.0, step=3, kind="retry", text=f"event {i}: " + "long " * 50) for i in range(9)
    ]
    view.show(played, "running")  # type: ignore[arg-type]
    lines = [line.rstrip() for line in _lines(console, view._live.renderable)]
    text = "\n".join(lines)
    assert re.search(r"lending  running, \d+ s", text)
    assert "1,000" in text
    assert "retry: event 8" in text or height < 20
    assert len(lines) < height
    assert ("latest results of overall (times in UTC)" in text) == (operators > 1 and height >= 40)
    assert ("latest results (times in UTC)" in text) == (operators == 1 and height > 20)
    assert max(map(len, lines)) <= width


def test_before_the_first_step_the_view_says_what_it_waits_for(played: PlayedRun) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None)
    view = LiveView(console, "lending", Ledger(), {"areas": LatestResults(1)})
    view.show(played, "running")  # type: ignore[arg-type]
    assert "the first step takes longest" in "\n".join(_lines(console, view._live.renderable))


def test_a_rate_counts_pauses_and_leaves_out_closing_steps(step: Step) -> None:
    assert (
        rows_per_second([step(1), step(2), step(3, batch_id=None, rows_in=0, finished_at=9000.0)])
        == 2000 / 1.5
    )
    assert rows_per_second([step(1, batch_id=None)]) == 0.0
    assert rows_per_second([]) == 0.0


_NEW_YEAR = datetime(2026, 1, 1)  # noqa: DTZ001 - results may have no time zone


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (size(0), "0 bytes"),
        (size(1536), "1.5 KiB"),
        (size(200 << 20), "200 MiB"),
        (size(5 << 30), "5.0 GiB"),
        (duration(0.2), "0 s"),
        (duration(61), "1 min 1 s"),
        (duration(7200), "2 h"),
        (duration(90_061), "1 d 1 h"),
        (instant(None), "none yet"),
        (instant(0), "1970-01-01 00:00"),
        (instant(-1_000_000), "1969-12-31 23:59:59"),
        (instant(9 * 10**18), "9000000000000000000 us"),
        (sparks([0, 1, 2]), "▁▅█"),
        (sparks([]), ""),
        (sparks([0.0]), ""),
        (left_out({}), "0"),
        (left_out({"late": 1200, "outside": 1}), "1,200 late, 1 outside"),
        (shown(None), "null"),
        (shown(True), "True"),
        (shown(1234567), "1,234,567"),
        (shown(1234.5), "1,234"),
        (shown(12.345), "12.35"),
        (shown(-0.12345), "-0.1235"),
        (shown(float("nan")), "nan"),
        (shown("x"), "x"),
        (shown([{"word": "the", "n": 1200}, {"word": "a", "n": 7}]), "the 1,200, a 7"),
        (shown(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))), "2025-12-31 23:00"),
        (
            shown({"start": _NEW_YEAR, "end": _NEW_YEAR.replace(second=30)}),
            "2026-01-01 00:00 - 00:00:30",
        ),
    ],
)
def test_values_are_written_for_people(given: str, text: str) -> None:
    assert given == text


def _lines(console: Console, renderable: Any) -> list[str]:
    return [
        "".join(part.text for part in line) for line in console.render_lines(renderable, pad=False)
    ]


def test_the_live_view_says_what_the_controller_does(played: PlayedRun, step: Step) -> None:
    out = io.StringIO()
    console = Console(file=out, width=120, height=24, force_terminal=True, no_color=True)
    played.recentProgress = [step(1)]
    with LiveView(console, "lending", Ledger(), {}) as view:
        view.show(played, "running")  # type: ignore[arg-type]
        assert "controller" not in _drawn(view, console)
        played.decision = Decision(step=1, reason="warming up: step 1 of 3")
        view.show(played, "running")  # type: ignore[arg-type]
        assert "controller after step 1 waits: warming up: step 1 of 3" in _drawn(view, console)
    route = even_route(8, 4)
    change = Resize(
        component="areas", route=route, before=2, expected=Expected(before=1.0, after=0.5)
    )
    decided = Decision(
        step=7,
        changes=(change,),
        reason="areas: 2 -> 4 slots (latency predicted 3.10 s, target 2.00 s)",
    )
    assert controller_line(decided) == f"controller after step 7 decides: {decided.reason}"
    assert controller_line(replace(decided, advice=True)).startswith(
        "controller after step 7 advises: areas"
    )


def _drawn(view: LiveView, console: Console) -> str:
    with console.capture() as taken:
        console.print(view._picture("running"))
    return taken.get()
