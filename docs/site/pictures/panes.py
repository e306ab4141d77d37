"""How panes are shared: rows are counted once, in panes, and windows are put together from those.

Panes by `plan/panes.py`, what each window is formed from by `plan/consolidation/`.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.plan.consolidation import PANE, Consolidation, Family, plan_consolidation
from anabranch.plan.panes import Panes, panes_of
from anabranch.topology.windows import Window, sliding, tumbling
from docs.site.svg import Canvas

MINUTE_US = 60_000_000
HOURS = 2
ROWS = (3, 1, 4, 2, 5, 1, 2, 3, 1, 4, 2, 2)  # rows that arrive in each pane
WINDOWS = (tumbling("10 minutes"), tumbling("30 minutes"), sliding("1 hour", every="30 minutes"))
NAMES = ("10 minutes", "30 minutes", "1 hour every 30 minutes")

_LEFT, _CELL, _TOP = 200.0, 54.0, 92.0
_COLOURS = ("blue", "green", "orange")


@dataclass(frozen=True, slots=True)
class Formed:
    """A window instance of the picture: its panes, how many rows are in it, from how many parts."""

    window: int
    first: int
    last: int
    rows: int
    parts: int
    of_panes: bool


def formed(panes: Panes, plan: Consolidation) -> list[Formed]:
    """All windows that start and end within the time shown."""
    last_us = HOURS * 60 * MINUTE_US
    found = []
    for closing in panes.closings(range(0, last_us, panes.width_us), None, last_us):
        if closing.start_us < 0:
            continue
        family: Family = plan.families[plan.of_window[closing.window]]
        first, last = closing.start_us // panes.width_us, closing.end_us // panes.width_us
        parts = family.parts(last)
        found.append(
            Formed(
                closing.window,
                first,
                last,
                sum(ROWS[first:last]),
                sum(part.count for part in parts),
                all(part.family == PANE for part in parts),
            )
        )
    return found


def draw_panes() -> Canvas:
    """Two hours of rows, their panes and three kinds of windows."""
    panes = panes_of(WINDOWS)
    plan = plan_consolidation(panes)
    count = HOURS * 60 * MINUTE_US // panes.width_us
    canvas = Canvas(_LEFT + count * _CELL + 24, 410, "How windows share panes")
    _draw_rows(canvas, count)
    for i, rows in enumerate(ROWS):
        canvas.rect(_LEFT + i * _CELL, _TOP, _CELL, 34, fill="box")
        canvas.text(_LEFT + (i + 0.5) * _CELL, _TOP + 17, str(rows), bold=True)
    minutes = panes.width_us // MINUTE_US
    _label(canvas, _TOP + 17, f"panes of {minutes} minutes", "each row is counted once", "ink")
    _draw_windows(canvas, formed(panes, plan))
    _draw_time(canvas, panes, count)
    separate = sum(_copies(window) for window in WINDOWS)
    canvas.text(
        _LEFT,
        386,
        f"Window by window, each row would be counted {separate} times.\n"
        f"Merges per key and hour: {plan.merges_per_hour:g}; "
        f"{plan.naive_per_hour:g} if every window were formed from panes.",
        colour="faint",
        anchor="start",
    )
    return canvas


def _copies(window: Window) -> int:
    """How many windows a row is in."""
    return window.length_us // window.every_us


def _label(canvas: Canvas, y: float, text: str, below: str, colour: str) -> None:
    canvas.text(_LEFT - 14, y - 8, text, anchor="end", bold=True, colour=colour)
    canvas.text(_LEFT - 14, y + 9, below, anchor="end", colour="faint", size=12)


def _draw_rows(canvas: Canvas, count: int) -> None:
    _label(canvas, 42, "rows", "by event time", "ink")
    for i in range(count):
        for j in range(ROWS[i]):
            x = _LEFT + i * _CELL + _CELL * (j + 1) / (ROWS[i] + 1)
            canvas.rect(x - 4, 36, 8, 8, fill="purple", stroke="none", radius=4)
        x = _LEFT + (i + 0.5) * _CELL
        canvas.line((x, 54), (x, _TOP - 4), arrow=True)


def _draw_windows(canvas: Canvas, windows: list[Formed]) -> None:
    lanes = {0: 0, 1: 0, 2: 0}
    tops = {0: 152.0, 1: 202.0, 2: 252.0}
    heights = {0: 28.0, 1: 28.0, 2: 28.0}
    for window, name in enumerate(NAMES):
        below = {0: "a pane", 1: "3 panes", 2: "2 of 30 minutes"}[window]
        mine = [each for each in windows if each.window == window]
        assert {0: (1, True), 1: (3, True), 2: (2, False)}[window] == (
            mine[0].parts,
            mine[0].of_panes,
        ), "the text beside the windows is what the plan says"
        _label(canvas, tops[window] + 14, name, f"each is {below}", _COLOURS[window])
        for each in mine:
            lane = lanes[window] % 2 if window == 2 else 0
            lanes[window] += 1
            x, wide = _LEFT + each.first * _CELL, (each.last - each.first) * _CELL
            y = tops[window] + lane * 34
            colour = _COLOURS[window]
            canvas.rect(x + 2, y, wide - 4, heights[window], fill=f"{colour}-fill", stroke=colour)
            canvas.text(x + wide / 2, y + heights[window] / 2, str(each.rows), bold=True)


def _draw_time(canvas: Canvas, panes: Panes, count: int) -> None:
    y = 334.0
    canvas.line((_LEFT, y), (_LEFT + count * _CELL + 14, y), arrow=True)
    for i in range(0, count + 1, 3):
        minutes = i * panes.width_us // MINUTE_US
        x = _LEFT + i * _CELL
        canvas.line((x, y - 4), (x, y + 4))
        canvas.text(x, y + 16, f"{10 + minutes // 60}:{minutes % 60:02d}", colour="faint", size=12)
