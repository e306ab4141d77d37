"""Sessions computed a second time: step by step and row by row, in plain Python.

What a session is depends on when rows come: a closed session is gone, and a row that comes later
begins another one. So the steps are followed one by one. If no row is at or before the watermark
before its step, the sessions are those of all rows at once, which one SQL query computes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Arrived: TypeAlias = tuple[Hashable, int, int]
"""A row: its key, its event time in microseconds, and its number."""


@dataclass(frozen=True, slots=True)
class SessionRows:
    """A session: its key, its window, and the numbers of its rows in the order of their times."""

    key: Hashable
    start_us: int
    end_us: int
    rows: tuple[int, ...]


class SessionSteps:
    """The sessions of one gap while steps pass."""

    def __init__(self, gap_us: int) -> None:
        self.gap_us = gap_us
        self.watermark_us: int | None = None
        self._open: dict[
            Hashable, list[tuple[int, int]]
        ] = {}  # time and number of the rows of a key that are in open sessions

    def step(
        self, rows: Iterable[Arrived], until_us: int | None
    ) -> tuple[list[SessionRows], list[int]]:
        """The sessions that a step closes, and the numbers of its late rows.

        A row is late if a session of this row alone would have ended at the watermark of the step
        before.
        """
        late = []
        for key, at_us, number in rows:
            if self.watermark_us is not None and at_us + self.gap_us <= self.watermark_us:
                late.append(number)
            else:
                self._open.setdefault(key, []).append((at_us, number))
        if until_us is None:
            return [], late
        self.watermark_us = until_us
        closed = [session for session in self.open() if session.end_us <= until_us]
        gone = {(session.key, number) for session in closed for number in session.rows}
        self._open = {
            key: [row for row in held if (key, row[1]) not in gone]
            for key, held in self._open.items()
        }
        return closed, late

    def open(self) -> list[SessionRows]:
        """The sessions that are open, as they are now."""
        found = []
        for key, held in self._open.items():
            run: list[tuple[int, int]] = []
            for row, after in pairwise([*sorted(held), None]):
                assert row is not None
                run.append(row)
                if after is None or after[0] - row[0] > self.gap_us:
                    found.append(
                        SessionRows(
                            key, run[0][0], row[0] + self.gap_us, tuple(number for _, number in run)
                        )
                    )
                    run = []
        return found
