"""Random topologies of chaos runs as plain values: windows, and what else reads the source."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

from anabranch.plan.lifting import LIFT_FIRST, ROUTE_FIRST
from anabranch.plan.planners.registry import AUTO, UNFUSED
from anabranch.testing.events import FAR_US, HOUR_US, MINUTE_US, SECOND_US, EventPlan, KeyKind
from anabranch.testing.reference.chains import HAPPENED
from anabranch.testing.reference.windows import WindowQuery
from anabranch.topology.apply import HASH, OSG, ROUND_ROBIN
from anabranch.topology.calendar import CalendarWindow, calendar
from anabranch.topology.windows import (
    Session,
    Window,
    cumulative,
    hopping,
    session,
    sliding,
    tumbling,
)

_S, _M = SECOND_US, MINUTE_US
_SHAPES = (
    ("tumbling", 20 * _S, 20 * _S, 0),
    ("tumbling", _M, _M, 0),
    ("tumbling", _M, _M, 17 * _S),
    ("tumbling", 3 * _M, 3 * _M, 45 * _S),
    ("tumbling", HOUR_US, HOUR_US, 0),
    ("sliding", 2 * _M, 30 * _S, 0),
    ("sliding", 5 * _M, _M, 0),
    ("sliding", 5 * _M, _M, 10 * _S),
    ("sliding", 10 * _M, 2 * _M, 0),
    ("hopping", 40 * _S, _M, 10 * _S),
    ("hopping", 50 * _S, 70 * _S, 0),
    ("hopping", 3 * _M, 2 * _M, 30 * _S),
    ("cumulative", 6 * _M, 2 * _M, 0),
)
_CALENDARS = (
    ("day", "Europe/Berlin"),
    ("month", "Europe/Berlin"),
    ("week", "Asia/Kathmandu"),
    ("month", "Asia/Kathmandu"),
    ("day", "Australia/Lord_Howe"),
    ("day", "America/Sao_Paulo"),
    ("quarter", "UTC"),
)
# A few minutes before days of these zones begin, so that windows close while steps run: a month in
# Berlin, a month in Kathmandu, the day in Lord Howe on which clocks are put back by half an hour,
# and a day in Sao Paulo that has no midnight.
_BEFORE_MIDNIGHTS = tuple(
    us * _S - 4 * _M for us in (1_709_247_600, 1_711_908_900, 1_712_408_400, 1_541_300_400)
)
_AGGREGATES = {
    "count": ("*", "v", "s"),
    "sum": ("v", "x", "d", "v * 2 + 1"),
    "avg": ("v", "x", "d"),
    "min": ("v", "x", "s"),
    "max": ("v", "d", "v % 7"),
    "variance": ("v", "x"),
    "var_pop": ("v", "x"),
    "stddev": ("v", "x"),
    "stddev_pop": ("v", "x"),
    "first": ("v", "s", "d"),
    "last": ("v", "x", "s"),
    "bool_or": ("v > 900", "s = 'ash'"),
    "collect_set": ("v % 7", "s"),
    "count_distinct": ("v % 7", "s", "d"),
}
WHOLE = ("v", "v * 2 + 1", "v % 7")  # expressions that are whole numbers
_FILTERS = ("v > 0", "x < 0", "v % 2 = 0", "s = 'ash'")
_KEY_KINDS: tuple[KeyKind, ...] = (
    "int",
    "string",
    "float",
    "several",
    "none",
    "int",
    "string",
    "several",
)


AggregateSpec: TypeAlias = tuple[str, str, str, str | None]
"""Name, kind, expression, filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOperator:
    """Reads the results of the first by some of its keys, fused with it or not."""

    keys: tuple[str, ...]
    length_us: int
    planner: str

    @property
    def window(self) -> Window:
        return tumbling(timedelta(microseconds=self.length_us))

    def query(self) -> WindowQuery:
        """The same for the reference, which reads rows with the time at which they happened."""
        shape = (self.window.name, self.length_us, self.length_us, 0)
        aggregates = (("rows", "count", "*"), ("names", "max", "window_name"))
        return WindowQuery(
            keys=self.keys, event_time=HAPPENED, windows=[shape], aggregates=aggregates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpec:
    """A topology of windows as plain values."""

    keys: tuple[str, ...]
    windows: tuple[tuple[str, int, int, int], ...]  # kind, length, every, start; microseconds
    aggregates: tuple[AggregateSpec, ...]
    delay_us: int
    shards: int
    chain: int  # deltas before a snapshot: few, so that snapshots are made, undone and restored
    lift: str
    late_sink: bool
    spark_sink: bool  # results written by Spark's writer, not linked
    gaps: tuple[int, ...] = ()  # of sessions
    share: bool | None = None
    then: SecondOperator | None = None
    restless: bool = False  # other routes and slots before every step
    process: bool = False  # a user's class with timers reads the source too
    grouping: str | None = None  # of a user's function that reads the source too
    gathered: bool = False  # windows with sketches, users' aggregates, early results read it too
    # Other aggregates of the windows, from the start of a portion of the input on.
    changes: tuple[tuple[int, tuple[AggregateSpec, ...]], ...] = ()
    calendars: tuple[tuple[str, str], ...] = ()  # units and time zones

    def at(self, portion: int) -> TopologySpec:
        """The topology that a portion of the input runs with."""
        known = [each for first, each in self.changes if first <= portion]
        return replace(self, aggregates=known[-1], changes=()) if known else self

    def sessions(self) -> list[Session]:
        return [session(timedelta(microseconds=gap)) for gap in self.gaps]

    def built_windows(self) -> list[Window]:
        return [window for shape in self.windows for window in _windows(*shape)]

    def built_calendars(self) -> list[CalendarWindow]:
        return [calendar(unit, timezone=zone) for unit, zone in self.calendars]

    def query(self) -> WindowQuery:
        """The same for the reference."""
        built = [(w.name, w.length_us, w.every_us, w.offset_us) for w in self.built_windows()]
        calendars = [(w.name, w.unit, w.timezone) for w in self.built_calendars()]
        return WindowQuery(
            keys=self.keys,
            event_time="at",
            windows=[*built, *calendars],
            aggregates=self.aggregates,
            delay_us=self.delay_us,
            sessions=[(each.name, each.gap_us) for each in self.sessions()],
            limit_us=FAR_US - 1,
        )

    def __str__(self) -> str:
        names = [each.name for each in self.built_windows()]
        names += [each.name for each in self.built_calendars()]
        names += [each.name for each in self.sessions()]
        parts = [
            f"by {_listed(self.keys)}: {', '.join(dict.fromkeys(names))}",
            ", ".join(kind for _, kind, _, _ in self.aggregates),
        ]
        if self.then is not None:
            parts.append(f"then by {_listed(self.then.keys)} ({self.then.planner})")
        if self.process:
            parts.append("a process")
        if self.grouping:
            parts.append(f"an apply by {self.grouping}")
        if self.gathered:
            parts.append("sketches with early results")
        if self.changes:
            parts.append(f"other aggregates at {len(self.changes)} restarts")
        if self.restless:
            parts.append("other routes before every step")
        return "; ".join(parts)


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "nothing"


def _windows(kind: str, length_us: int, every_us: int, start_us: int) -> tuple[Window, ...]:
    length, every, start = (timedelta(microseconds=us) for us in (length_us, every_us, start_us))
    if kind == "cumulative":
        return cumulative(length, every=every, start=start)
    if kind == "tumbling":
        return (tumbling(length, start=start),)
    return ((sliding if kind == "sliding" else hopping)(length, every=every, start=start),)


def draw_events(rng: random.Random, batches: int) -> EventPlan:
    """Random events: keys of some type, with disorder, late rows and some of the year 9999."""
    seed = rng.randrange(1 << 30)
    return EventPlan(
        seed=seed,
        batches=batches,
        rows=rng.randint(150, 400),
        key_kind=rng.choice(_KEY_KINDS),
        keys=rng.choice((3, 20, 60, 200)),
        skew=rng.choice((0.0, 1.1)),
        churn=rng.choice((0.0, 0.1)),
        null_share=rng.choice((0.0, 0.03)),
        start_us=rng.choice((0, -7 * _M, 1_700_000_000 * _S, *_BEFORE_MIDNIGHTS)),
        span_us=_M,
        disorder_us=rng.choice((0, 10 * _S, 90 * _S)),
        late_share=rng.choice((0.02, 0.1)),
        late_us=15 * _M,
        ahead_share=0.02 if seed % 2 else 0.0,
    )


def draw_topology(rng: random.Random, keys: tuple[str, ...]) -> TopologySpec:
    """A random topology over events with these keys."""
    return TopologySpec(
        keys=keys,
        windows=tuple(rng.sample(_SHAPES, rng.randint(1, 3))),
        aggregates=_draw_aggregates(rng),
        delay_us=rng.choice((0, 10 * _S, _M)),
        shards=rng.choice((5, 8, 16)),
        chain=rng.choice((2, 4, 16)),
        lift=rng.choice((LIFT_FIRST, ROUTE_FIRST)),
        late_sink=rng.random() < 0.8,
        spark_sink=rng.random() < 0.25,
        gaps=tuple(rng.sample((2 * _S, 20 * _S, _M), rng.choice((0, 0, 1, 2)))),
        share=rng.choice((None, True, False)),
        then=None if rng.random() < 0.4 else draw_second(rng, keys),
        restless=rng.random() < 0.3,
        process=rng.random() < 0.5,
        grouping=rng.choice((None, None, ROUND_ROBIN, HASH, OSG)),
        gathered=rng.random() < 0.5,
        calendars=tuple(rng.sample(_CALENDARS, rng.choice((0, 1, 2)))),
    )


def draw_second(
    rng: random.Random, keys: tuple[str, ...], *, shares_a_key: bool = False
) -> SecondOperator:
    """A random operator over the results of the first."""
    some = tuple(key for key in keys if rng.random() < 0.7)
    return SecondOperator(
        keys=some or (keys[:1] if shares_a_key else ()),
        length_us=rng.choice((_M, 3 * _M, 5 * _M)),
        planner=rng.choice((AUTO, UNFUSED)),
    )


def draw_changes(
    rng: random.Random, topology: TopologySpec, portions: Sequence[int]
) -> TopologySpec:
    """The topology with other aggregates from the start of some portions on.

    Some go, some have another filter, some are new, and some that went come back.
    """
    now, gone, changes = list(topology.aggregates), list[AggregateSpec](), []
    for portion in sorted(portions):
        back = [each for each in gone if rng.random() < 0.5]
        stay = [each for each in now if rng.random() < 0.75]
        gone = [each for each in [*gone, *now] if each not in stay and each not in back]
        now = [*(_refiltered(rng, each) for each in stay), *back]
        kind = rng.choice(sorted(_AGGREGATES))
        where = rng.choice((None, *_FILTERS))
        now.append((f"{kind}_at_{portion}", kind, rng.choice(_AGGREGATES[kind]), where))
        rng.shuffle(now)
        changes.append((portion, tuple(now)))
    return replace(topology, changes=tuple(changes))


def _refiltered(rng: random.Random, given: AggregateSpec) -> AggregateSpec:
    name, kind, expression, where = given
    others = [each for each in (None, *_FILTERS) if each != where]
    return given if rng.random() < 0.6 else (name, kind, expression, rng.choice(others))


def _draw_aggregates(rng: random.Random) -> tuple[AggregateSpec, ...]:
    kinds = rng.sample(sorted(_AGGREGATES), rng.randint(1, 4))
    kinds.append(rng.choice(("first", "last", "stddev")))
    drawn = []
    for i, kind in enumerate(kinds):
        where = rng.choice((None, None, *_FILTERS))
        drawn.append((f"{kind}_{i}", kind, rng.choice(_AGGREGATES[kind]), where))
    return tuple(drawn)
