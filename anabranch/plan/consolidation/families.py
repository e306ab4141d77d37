"""Consolidation plans: how windows are formed from panes and from each other (Enorm 6.1).

A complete window can be a part of a longer one. With windows of 5 and 10 minutes, the second is
formed from two of the first, and not from ten panes.

The plan is a DAG of families. A family is a set of intervals of one length, of which one ends every
`every` panes. It is a window of the user, or a helper that only other families use. A family says
which parts make up each of its intervals. Parts are chosen by cost: the number of keys that must be
merged, or the number of parts as long as nothing has been measured.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from anabranch.plan.consolidation.nesting import PANE, Nested, Piece, nested_families, nested_merges
from anabranch.plan.panes import HOUR_US, Panes
from anabranch.topology.windows import AlignedWindow, Grid

_MANY_WAYS = 24  # a family does not use another if it would then need more different ways than this
_MANY_USED = 24  # a family uses at most this many others
_LONG = 1 << 12  # longer intervals take the longest parts that fit; no search for the cheapest
_LONG_TURN = (
    1 << 14
)  # intervals of a turn that are followed one by one, to count which are really needed
_WORTH = 0.9  # helpers take memory, so they must save a tenth of the merges

Keys = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Tile:
    """Adjacent partials: `count` intervals of a family, or `count` panes.

    The last one ends `back` panes before the whole interval does.
    """

    family: int
    back: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Family:
    """Intervals of `length` panes that end at `phase`, `phase + every`, and so on.

    `ways` are the parts of an interval. Successive intervals use them in turn.
    """

    length: int
    every: int
    phase: int
    windows: tuple[int, ...] = ()
    ways: tuple[tuple[Tile, ...], ...] = ()
    # For how many panes after it is formed an interval is still used; None: it is not used again.
    kept: int | None = None

    def parts(self, end: int) -> tuple[Tile, ...]:
        """The parts of the interval that ends before pane number `end`."""
        return self.ways[(end - self.phase) // self.every % len(self.ways)]


@dataclass(frozen=True, slots=True)
class Consolidation:
    """All families, each after those that it is formed from, and the cost per hour.

    The cost is the number of merged partials, as planned and without a plan.
    """

    families: tuple[Family, ...]
    of_window: tuple[int, ...]  # the family of each of the user's windows
    merges_per_hour: float
    naive_per_hour: float
    cost_per_hour: float
    measured: bool
    grid: Grid | None = None  # of the panes that families are counted in
    nested: tuple[Nested, ...] = ()  # families of windows that cut panes, numbered after the others

    @property
    def helpers(self) -> tuple[Family, ...]:
        return tuple(family for family in self.families if not family.windows)

    @property
    def formed_early(self) -> list[tuple[int, AlignedWindow]]:
        """Helpers that are formed as soon as their intervals end, before they are needed."""
        first = len(self.families)
        return [(first + i, e.window) for i, e in enumerate(self.nested) if not e.windows]

    def start_of(self, number: int, end_us: int) -> int:
        """The start of the interval of a family that ends at a time."""
        if number >= len(self.families):
            return self.nested[number - len(self.families)].window.start_of(end_us)
        assert self.grid is not None
        return end_us - self.families[number].length * self.grid.width_us

    def pieces(self, number: int, end_us: int) -> list[Piece]:
        """The parts of the interval of a family that ends at a time, oldest first."""
        if number >= len(self.families):
            return self.nested[number - len(self.families)].pieces(end_us)
        assert self.grid is not None
        width = self.grid.width_us
        found = []
        for part in self.families[number].parts((end_us - self.grid.offset_us) // width):
            last_us = end_us - part.back * width
            length = part.count if part.family == PANE else self.families[part.family].length
            found.append(Piece(part.family, last_us - length * width, last_us, part.count))
        return found

    def kept_until(self, number: int, end_us: int, now_us: int) -> int | None:
        """The watermark until which an interval that is formed now may be used again, or None."""
        last = np.array([end_us - 1], dtype=np.int64)
        until = [int(e.window.last_ends(last)[0]) for e in self.nested if e.base == number]
        if number < len(self.families) and (kept := self.families[number].kept) is not None:
            assert self.grid is not None
            until.append(now_us + kept * self.grid.width_us)
        return max(until, default=None)


def plan_consolidation(panes: Panes, keys: Keys | None = None) -> Consolidation:
    """The cheapest plan, with or without helpers.

    `keys` gives the number of keys with rows in a number of adjacent panes.
    """
    return _unmeasured(panes) if keys is None else _planned(panes, keys)


@functools.lru_cache(maxsize=256)
def _unmeasured(panes: Panes) -> Consolidation:
    return _planned(panes, None)


def _planned(panes: Panes, keys: Keys | None) -> Consolidation:
    weight = keys or (lambda _: 1.0)
    wanted = _wanted(panes)
    spaced = _spaced(panes, wanted, weight, measured=keys is not None)
    windows = [
        (i, panes.windows[family.windows[0]])
        for i, family in enumerate(spaced.families)
        if family.windows
    ]
    nested = nested_families(panes, len(spaced.families), windows)
    if not nested:
        return spaced
    merges, naive = nested_merges(nested, panes)
    of = {
        window: len(spaced.families) + i for i, each in enumerate(nested) for window in each.windows
    }
    of |= {window: i for i, each in enumerate(spaced.families) for window in each.windows}
    return replace(
        spaced,
        of_window=tuple(of[i] for i in range(len(panes.windows))),
        merges_per_hour=spaced.merges_per_hour + merges,
        naive_per_hour=spaced.naive_per_hour + naive,
        cost_per_hour=spaced.cost_per_hour + merges,
        nested=tuple(nested),
    )


def _spaced(
    panes: Panes, wanted: Sequence[Family], weight: Keys, *, measured: bool
) -> Consolidation:
    """The cheapest plan for the windows that are equally spaced."""
    if not wanted:
        return Consolidation((), (), 0.0, 0.0, 0.0, measured, panes.grid)
    assert panes.width_us is not None
    hourly = HOUR_US / panes.width_us
    best: Consolidation | None = None
    for helpers in _helper_sets(wanted):
        families = _formed([*wanted, *helpers], weight)
        cost = _per_hour(families, hourly, weight)
        if best is None or cost < _WORTH * best.cost_per_hour:
            naive = sum(len(f.windows) * hourly / f.every * f.length for f in wanted)
            of = {window: i for i, family in enumerate(families) for window in family.windows}
            best = Consolidation(
                families,
                tuple(of[i] for i in sorted(of)),
                _per_hour(families, hourly, lambda _: 1.0),
                naive,
                cost,
                measured,
                panes.grid,
            )
    assert best is not None
    return best


def keys_from(measured: Mapping[int, float]) -> Keys | None:
    """The number of keys with rows in a number of adjacent panes, interpolated from measurements.

    None if too few lengths were measured.
    """
    if len(measured) < 2 or not any(measured.values()):
        return None
    lengths = sorted(measured)
    keys = np.maximum.accumulate([measured[length] for length in lengths])
    return lambda length: float(np.interp(length, lengths, keys))


def _wanted(panes: Panes) -> list[Family]:
    """The equally spaced windows as families. Equal windows are one family."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for index, window in enumerate(panes.windows):
        shape = None if panes.grid is None else window.in_panes(panes.grid)
        if shape is not None:
            found.setdefault(shape, []).append(index)
    return [Family(*shape, windows=tuple(indexes)) for shape, indexes in found.items()]


def _helper_sets(wanted: Sequence[Family]) -> Iterable[list[Family]]:
    """Sets of helpers to try.

    None at all; for each slide, lengths that double; and adjacent intervals whose lengths double.
    """
    yield []
    longest = max(family.length for family in wanted)
    shapes = sorted(
        {(family.every, family.phase) for family in wanted if family.length >= 3 * family.every}
    )
    for every, phase in shapes[:4]:
        yield [
            Family(length, every, phase % every)
            for length in _doublings(every, longest)
            if length > 1
        ]
    if longest <= _LONG:
        yield [Family(length, length, 0) for length in _doublings(2, min(longest, 2 * _MANY_WAYS))]


def _doublings(first: int, below: int) -> list[int]:
    found = []
    while first < below:
        found.append(first)
        first *= 2
    return found


def _formed(families: Sequence[Family], weight: Keys) -> tuple[Family, ...]:
    """The families with their ways, from the shortest to the longest.

    Helpers that no family uses are left out.
    """
    shapes: dict[tuple[int, int, int], Family] = {}
    for family in families:
        shapes.setdefault((family.length, family.every, family.phase), family)
    formed: list[Family] = []
    for family in sorted(shapes.values(), key=lambda each: (each.length, each.every, each.phase)):
        formed.append(replace(family, ways=_ways(family, formed, weight)))
    return _kept(_used(formed))


def _ways(family: Family, shorter: Sequence[Family], weight: Keys) -> tuple[tuple[Tile, ...], ...]:
    usable, ways = _usable(family, shorter)
    if not usable:
        return ((Tile(PANE, 0, family.length),),)
    ends = (family.phase + i * family.every for i in range(ways))
    if family.length > _LONG:
        return tuple(_longest_first(family, end, usable, shorter) for end in ends)
    return tuple(_parts(_cheapest(family, end, usable, shorter, weight), shorter) for end in ends)


def _usable(family: Family, shorter: Sequence[Family]) -> tuple[list[int], int]:
    """The families from which this one can be formed, and how many ways that needs.

    Families come first whose intervals always have the same place in an interval of this one.
    """

    def turns(other: Family) -> int:
        return lcm(family.every, other.every) // family.every

    ways = 1
    usable: list[int] = []
    for i in sorted(range(len(shorter)), key=lambda i: (turns(shorter[i]), -shorter[i].length)):
        if (
            len(usable) < _MANY_USED
            and shorter[i].length > 1
            and (together := lcm(ways, turns(shorter[i]))) <= _MANY_WAYS
        ):
            ways = together
            usable.append(i)
    return usable, ways


def _cheapest(
    family: Family, end: int, usable: Sequence[int], shorter: Sequence[Family], weight: Keys
) -> list[int]:
    """The cheapest parts of the interval that ends at `end`, oldest first.

    They are a shortest path over the edges of its panes.
    """
    costs = {PANE: weight(1)} | {i: weight(shorter[i].length) for i in usable}
    # Among equally cheap ways, choose recent parts, which are stored for a shorter time.
    best: list[tuple[float, int]] = [(0.0, 0)] + [(float("inf"), 0)] * family.length
    came: list[int] = [PANE] * (family.length + 1)
    for back in range(family.length):
        for i in (PANE, *usable):
            to = back + (1 if i == PANE else shorter[i].length)
            if to <= family.length and (
                i == PANE or (end - back - shorter[i].phase) % shorter[i].every == 0
            ):
                found = (best[back][0] + costs[i], best[back][1] + back)
                if found < best[to]:
                    best[to], came[to] = found, i
    parts, at = [], family.length
    while at:
        parts.append(came[at])
        at -= 1 if came[at] == PANE else shorter[came[at]].length
    return parts


def _longest_first(
    family: Family, end: int, usable: Sequence[int], shorter: Sequence[Family]
) -> tuple[Tile, ...]:
    """The longest part that fits, again and again from the oldest pane, with panes between parts.

    If that makes too many parts, only panes are used.
    """
    parts: list[Tile] = []
    at, start = family.length, end - family.length
    by_length = sorted(usable, key=lambda i: -shorter[i].length)
    while at and len(parts) < _LONG:
        # How many panes are before the next interval of each family that fits into the rest.
        gaps = (
            (i, (shorter[i].phase - shorter[i].length - start) % shorter[i].every)
            for i in by_length
        )
        fitting = [(i, gap) for i, gap in gaps if gap + shorter[i].length <= at]
        i, gap = min(fitting, key=lambda each: each[1], default=(PANE, at))
        if gap:
            parts.append(Tile(PANE, at - gap, gap))
        if i != PANE:
            parts.append(Tile(i, at - gap - shorter[i].length))
            gap += shorter[i].length
        at, start = at - gap, start + gap
    return tuple(parts) if not at else (Tile(PANE, 0, family.length),)


def _parts(families: Sequence[int], shorter: Sequence[Family]) -> tuple[Tile, ...]:
    """Parts with their ends, from parts given oldest first. Adjacent panes become one part."""
    found: list[Tile] = []
    back = 0
    for i, group in itertools.groupby(reversed(families)):
        for count in [len(list(group))] if i == PANE else [1] * len(list(group)):
            found.append(Tile(i, back, count))
            back += count if i == PANE else shorter[i].length
    return tuple(reversed(found))


def _used(formed: Sequence[Family]) -> list[Family]:
    """The families without helpers that no window needs. Parts get the new numbers."""
    needed = {i for i, family in enumerate(formed) if family.windows}
    for i in range(len(formed) - 1, -1, -1):
        if i in needed:
            needed |= {part.family for way in formed[i].ways for part in way if part.family != PANE}
    number = {old: new for new, old in enumerate(sorted(needed))} | {PANE: PANE}
    return [
        replace(
            formed[i],
            ways=tuple(
                tuple(replace(part, family=number[part.family]) for part in way)
                for way in formed[i].ways
            ),
        )
        for i in sorted(needed)
    ]


def _turn(families: Sequence[Family]) -> int:
    """The number of panes after which everything repeats."""
    return lcm(*(family.every * len(family.ways) for family in families))


def _asked(families: Sequence[Family]) -> list[dict[int, list[int]]] | None:
    """The intervals of each family that are needed in one turn, by their ends.

    For each interval, it has the times at which it is used, counted from its end. An interval is
    formed when it is first used, and that uses its parts. None if a turn is too long to follow.
    """
    turn = _turn(families)
    if sum(turn // family.every for family in families) > _LONG_TURN:
        return None
    asked: list[dict[int, list[int]]] = [{} for _ in families]
    for i in range(len(families) - 1, -1, -1):
        family = families[i]
        if family.windows:
            for end in range(family.phase, turn + family.phase, family.every):
                asked[i].setdefault(end % turn, []).append(0)
        for end, lags in asked[i].items():
            for part in family.parts(end):
                if part.family != PANE:
                    asked[part.family].setdefault((end - part.back) % turn, []).append(
                        min(lags) + part.back
                    )
    return asked


def _kept(families: Sequence[Family]) -> tuple[Family, ...]:
    """The families, with how long their intervals are used after they are formed."""
    asked = _asked(families)
    if asked is not None:
        spans = [
            max((max(lags) - min(lags) for lags in each.values() if len(lags) > 1), default=None)
            for each in asked
        ]
    else:  # as if a family could be formed at any time between its first and its last use
        uses: list[list[int]] = [[0] if family.windows else [] for family in families]
        for i in range(len(families) - 1, -1, -1):
            for part in (part for way in families[i].ways for part in way if part.family != PANE):
                uses[part.family] += [
                    min(uses[i]) + part.back,
                    (0 if families[i].windows else max(uses[i])) + part.back,
                ]
        spans = [max(each) - min(each) if len(each) > 1 else None for each in uses]
    return tuple(replace(family, kept=span) for family, span in zip(families, spans, strict=True))


def _per_hour(families: Sequence[Family], hourly: float, weight: Keys) -> float:
    """The cost of all intervals of an hour: the sum of the weights of their parts."""

    def cost(parts: Iterable[Tile]) -> float:
        return sum(
            part.count * weight(1 if part.family == PANE else families[part.family].length)
            for part in parts
        )

    asked = _asked(families)
    if asked is not None:
        once = sum(
            cost(family.parts(end))
            for family, each in zip(families, asked, strict=True)
            for end in each
        )
        return once * hourly / _turn(families)
    return sum(
        hourly / family.every * sum(map(cost, family.ways)) / len(family.ways)
        for family in families
    )
