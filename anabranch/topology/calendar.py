"""Windows of the calendar in a time zone: days, weeks, months, quarters and years.

A day begins when local time first reaches its midnight. If clocks skip midnight, it begins at the
skip. Weeks and longer units begin with their first day. So a day may have 23, 24 or 25 hours, and
windows follow each other without gap or overlap.
"""

from __future__ import annotations

import difflib
import functools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from anabranch.errors import TopologyError, unknown
from anabranch.topology.windows import AlignedWindow, Grid, check_name
from anabranch.topology.zones import (
    DAY_US,
    Zone,
    splice_rules,
    zone_names,
    zone_of,
    zone_rules,
)
from anabranch.types import Array

_RECENT_US = 0  # most rows are from 1970 or later
_YEAR_DAYS = 365.2425


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarUnit:
    """A unit of the calendar: a number of months, or a number of days counted from a Monday."""

    name: str
    months: int = 0
    days: int = 0
    longest_days: int  # one day more than the calendar has, because clocks change
    parts: tuple[str, ...] = ()  # the shorter units that it consists of

    @property
    def mean_days(self) -> float:
        return self.days or self.months * _YEAR_DAYS / 12

    def first(self, day: Array, ahead: int = 0) -> Array:
        """The first day of the unit that contains a day, or of one `ahead`; in days since 1970."""
        found: Array
        if self.months:
            month = day.astype("M8[D]").astype("M8[M]").astype(np.int64)
            month = month - month % self.months + ahead * self.months
            found = month.astype("M8[M]").astype("M8[D]").astype(np.int64)
            return found
        found = day - (day + 3) % self.days + ahead * self.days  # 1970-01-01 was a Thursday
        return found

    def first_sql(self, local: str) -> str:
        """The local midnight at which the unit of a local time begins, in microseconds."""
        if self.months:
            day = f"cast(({local} - pmod({local}, {DAY_US}L)) div {DAY_US}L as int)"
            first = f"trunc(date_from_unix_date({day}), '{self.name}')"
            return f"unix_date({first}) * {DAY_US}L"
        return f"({local}) - pmod({local} + {3 * DAY_US}L, {self.days * DAY_US}L)"


UNITS: Mapping[str, CalendarUnit] = {
    unit.name: unit
    for unit in (
        CalendarUnit(name="day", days=1, longest_days=2),
        CalendarUnit(name="week", days=7, longest_days=8, parts=("day",)),
        CalendarUnit(name="month", months=1, longest_days=32, parts=("day",)),
        CalendarUnit(name="quarter", months=3, longest_days=93, parts=("month", "day")),
        CalendarUnit(name="year", months=12, longest_days=367, parts=("quarter", "month", "day")),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarWindow(AlignedWindow):
    """Windows that are a day, week, month, quarter or year in a time zone: see `calendar`."""

    unit: str
    timezone: str
    rules: str  # of the time zone; see anabranch.topology.zones

    @property
    def key(self) -> str:
        return f"{self.unit} in {self.timezone}"

    @property
    def described(self) -> str:
        version = f"{zlib.crc32(self.rules.encode()):08x}"
        text = self.name if self.name == self.key else f"{self.name} ({self.key})"
        return f"{text} by rules {version}"

    @property
    def copies(self) -> int:
        return 1

    @property
    def gapless(self) -> bool:
        return True

    @property
    def longest_us(self) -> int:
        return self._unit.longest_days * DAY_US

    @property
    def mean_us(self) -> float:
        return self._unit.mean_days * DAY_US

    @property
    def grid(self) -> None:
        return None

    @property
    def series(self) -> tuple[object, ...]:
        return self.unit, self.rules

    def in_panes(self, grid: Grid) -> None:  # noqa: ARG002
        return None

    def last_end_sql(self) -> None:
        return None

    def last_ends(self, times: Array) -> Array:
        return self._edges(times, 1)

    def starts(self, times: Array) -> Array:
        return self._edges(times, 0)

    def first_end(self, after_us: int) -> int:
        return int(self._edges(np.array([after_us], dtype=np.int64), 1)[0])

    def start_of(self, end_us: int) -> int:
        return int(self._edges(np.array([end_us - 1], dtype=np.int64), 0)[0])

    def _edges(self, times: Array, ahead: int) -> Array:
        zone = zone_of(self.rules)
        first = self._unit.first(zone.reached(times) // DAY_US, ahead)
        return zone.first_at(first * DAY_US)

    def cut_sql(self, pane: str | None, grid: Grid | None) -> str:
        """SQL that needs no time zone.

        Whatever the offset is, it is one of those with which units of this zone ever began. A pane
        may come out in a few pieces, which the slot task merges.
        """
        recent, all_times = phases(self.unit, self.rules)
        texts = [
            self._cut_at(tuple(each for each in given if not _on(grid, each)), pane)
            for given in (recent, all_times)
        ]
        if texts[0] == texts[1]:
            return texts[0]
        return f"if(t >= {_RECENT_US}L, {texts[0]}, {texts[1]})"

    def _cut_at(self, offsets: tuple[int, ...], pane: str | None) -> str:
        local = [(f"t + {each}L", each) for each in offsets]
        texts = [f"({self._unit.first_sql(text)} - {each}L)" for text, each in local]
        texts += [] if pane is None else [pane]
        return texts[0] if len(texts) == 1 else f"greatest({', '.join(texts)})"

    def refines(self, other: AlignedWindow) -> bool:
        return (
            isinstance(other, CalendarWindow)
            and other.rules == self.rules
            and (other.unit == self.unit or self.unit in UNITS[other.unit].parts)
        )

    def check_moment(self, moment: str) -> None:
        if moment == "timestamp_ntz" and self.timezone != "UTC":
            raise TopologyError(
                f"window {self.name!r} has timezone={self.timezone!r}, but the event time has no "
                "time zone (timestamp_ntz or date): its times are local already. Leave timezone= "
                "out, or make it a timestamp before app.source()"
            )

    @property
    def helper(self) -> CalendarWindow | None:
        days = replace(self, name=f"day in {self.timezone}", unit="day")
        return None if self.unit == "day" else days

    def since(self, old: AlignedWindow, at_us: int) -> CalendarWindow:
        """The window with the rules of an older definition up to a time."""
        assert isinstance(old, CalendarWindow)
        return replace(self, rules=splice_rules(old.rules, self.rules, at_us))

    @property
    def _unit(self) -> CalendarUnit:
        return UNITS[self.unit]


@functools.lru_cache(maxsize=256)
def phases(unit: str, rules: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The offsets from UTC with which units begin: since 1970, and ever."""
    zone: Zone = zone_of(rules)
    first, last = ((at // DAY_US) for at in (int(zone.begins[1:2].sum()), zone.far_us))
    days = np.arange(min(first, 0) - 800, last + 800)
    midnights = np.unique(UNITS[unit].first(days)) * DAY_US
    edges = zone.first_at(midnights)
    ahead = midnights - edges
    # A unit that began before 1970 may still have rows after 1970.
    recent = np.unique(ahead[edges >= _RECENT_US - 400 * DAY_US])
    return tuple(recent.tolist()), tuple(np.unique(ahead).tolist())


def _on(grid: Grid | None, ahead_us: int) -> bool:
    """Whether all midnights at an offset from UTC are on a grid."""
    return (
        grid is not None
        and DAY_US % grid.width_us == 0
        and (-ahead_us - grid.offset_us) % grid.width_us == 0
    )


def calendar(unit: str, *, timezone: str = "UTC", name: str | None = None) -> CalendarWindow:
    """Windows that are a day, week, month, quarter or year in a time zone.

    - `unit`: "day", "week" (from Monday), "month", "quarter" or "year".
    - `timezone`: a name such as "Europe/Berlin"; by default "UTC". Days have 23 or 25 hours when
      clocks change there.
    - `name`: what results have in column `window_name`; by default "day in Europe/Berlin".

    Event times without a zone (timestamp_ntz, date) are local already, so leave `timezone` out.
    An unknown unit or time zone is a TopologyError.
    """
    if not isinstance(unit, str) or unit not in UNITS:
        raise TopologyError(unknown("unit of calendar()", unit, UNITS))
    names = zone_names()
    if not isinstance(timezone, str) or timezone not in names:
        close = difflib.get_close_matches(str(timezone), sorted(names), n=4, cutoff=0.5)
        hint = f"similar: {', '.join(close)}" if close else "valid: such as Europe/Berlin or UTC"
        raise TopologyError(f"unknown time zone {timezone!r}; {hint}")
    return CalendarWindow(
        name=check_name(name, f"{unit} in {timezone}"),
        unit=unit,
        timezone=timezone,
        rules=zone_rules(timezone),
    )
