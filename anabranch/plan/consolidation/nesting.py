"""How windows are formed that are not equally spaced, such as months: from one shorter family each.

A month over panes of ten minutes would need some 4,400 merges when it closes. So it is formed from
days, and each day is formed as soon as it ends. If no window of the user is a day, days are a
helper. A day is formed from adjacent windows of the user, from helpers of 24 panes and their
multiples, or from panes if these are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.plan.panes import HOUR_US, Panes
from anabranch.topology.durations import format_duration
from anabranch.topology.windows import AlignedWindow, Grid, Window

PANE = -1  # instead of the number of a family: panes themselves
_MANY = 64  # the most parts to merge when an interval ends; above that, a helper is used
_STEP = 24  # panes per helper, and helpers per next longer helper


@dataclass(frozen=True, slots=True)
class Piece:
    """Adjacent partials: one interval of a family, or at most `count` panes."""

    family: int
    start_us: int
    end_us: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Intervals of a window, formed from the intervals of one other family inside them.

    Panes fill the rest at both ends.
    """

    window: AlignedWindow
    base: int  # number of the other family, or PANE
    inside: AlignedWindow | None  # the intervals of that family
    windows: tuple[int, ...] = ()  # of the user; none: a helper, formed when its intervals end

    @property
    def parts(self) -> float:
        """The mean number of intervals of the other family in one interval."""
        return 0.0 if self.inside is None else self.window.mean_us / self.inside.mean_us

    def pieces(self, end_us: int) -> list[Piece]:
        """The parts of the interval that ends at a time, oldest first."""
        start_us = at_us = self.window.start_of(end_us)
        if self.inside is None:
            return [Piece(PANE, start_us, end_us)]
        pieces: list[Piece] = []
        following = self.inside.first_end(start_us - 1)  # they are adjacent: ends are starts
        while (last := self.inside.first_end(following)) <= end_us:
            if at_us < following:
                pieces.append(Piece(PANE, at_us, following))
            pieces.append(Piece(self.base, following, last))
            at_us = following = last
        return [*pieces, Piece(PANE, at_us, end_us)] if at_us < end_us else pieces


def nested_families(
    panes: Panes, number: int, spaced: Sequence[tuple[int, AlignedWindow]]
) -> list[Nested]:
    """The families of all windows that cut panes, each after the one that it is formed from.

    Their numbers begin at `number`. `spaced` has equally spaced windows and their families.
    """
    sides = [(i, window) for i, window in spaced if window.gapless and window.copies == 1]
    found: list[Nested] = []
    for family in sorted(_wanted(panes), key=lambda each: each.window.mean_us):
        base = _finer(family.window, found, number)
        if base is None and panes.grid is not None:
            held = [*sides, *((number + i, each.window) for i, each in enumerate(found))]
            helpers = _helpers(family.window, panes.grid, held, number + len(found))
            held += [(number + len(found) + i, each.window) for i, each in enumerate(helpers)]
            found += helpers
            base = _longest_inside(family.window, held)
        number_of, inside = base or (PANE, None)
        found.append(replace(family, base=number_of, inside=inside))
    return found


def nested_merges(families: Sequence[Nested], panes: Panes) -> tuple[float, float]:
    """Merges per hour: as planned, and pane by pane."""
    planned = naive = 0.0
    for each in families:
        by_panes = panes.per_hour
        planned += by_panes if each.inside is None else each.parts * HOUR_US / each.window.mean_us
        naive += len(each.windows) * by_panes
    return planned, naive


def _wanted(panes: Panes) -> list[Nested]:
    """The windows that cut panes, without duplicates, and helpers for long ones."""
    found: dict[tuple[object, ...], Nested] = {}
    for index, window in enumerate(panes.windows):
        if window.grid is None:
            held = found.get(window.series)
            found[window.series] = Nested(
                window=held.window if held else window,
                base=PANE,
                inside=None,
                windows=(*(held.windows if held else ()), index),
            )
    for window in [each.window for each in found.values()]:
        helper = window.helper
        many = panes.width_us is not None and window.mean_us > _MANY * panes.width_us
        if helper is not None and many:
            found.setdefault(helper.series, Nested(window=helper, base=PANE, inside=None))
    return list(found.values())


def _finer(
    window: AlignedWindow, found: Sequence[Nested], number: int
) -> tuple[int, AlignedWindow] | None:
    """The longest family whose intervals always make up a window completely."""
    fitting = [
        (number + i, each.window)
        for i, each in enumerate(found)
        if each.window.refines(window) and each.window.series != window.series
    ]
    return fitting[-1] if fitting else None


def _longest_inside(
    window: AlignedWindow, sides: Sequence[tuple[int, AlignedWindow]]
) -> tuple[int, AlignedWindow] | None:
    """The longest family of which a window always contains some intervals."""
    fitting = [each for each in sides if 2 * each[1].mean_us <= window.mean_us]
    return max(fitting, key=lambda each: each[1].mean_us, default=None)


def _helpers(
    window: AlignedWindow, grid: Grid, sides: Sequence[tuple[int, AlignedWindow]], number: int
) -> list[Nested]:
    """Equally spaced helpers, each formed from the one before.

    Empty if a window has few enough parts without them.
    """
    longest = _longest_inside(window, sides)
    part_us = grid.width_us if longest is None else longest[1].mean_us
    if window.mean_us <= _MANY * part_us:
        return []
    found: list[Nested] = []
    inside: AlignedWindow | None = None
    length_us = grid.width_us * _STEP
    while 2 * length_us <= window.mean_us:
        helper = Window(
            name=format_duration(length_us),
            length_us=length_us,
            every_us=length_us,
            offset_us=grid.offset_us,
        )
        base = PANE if inside is None else number + len(found) - 1
        found.append(Nested(window=helper, base=base, inside=inside))
        inside, length_us = helper, length_us * _STEP
    return found
