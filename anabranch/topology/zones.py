"""Time zones as values: the rules of a zone are one line of text in plans and checkpoints.

The text is made once, when the topology is built, from the same files that Python's `zoneinfo`
reads. No other code uses a time zone database, because the JVM, workers on other hosts and a later
run may have other versions of it. Everything else here is arithmetic on that text.

A line of rules has the offset before all changes, then each change as TIME:OFFSET, then the yearly
rule as POSIX writes it (RFC 8536, 3.3). Times and offsets are seconds. The yearly rule depends on
the calendar, which repeats after 400 years. So there is no last year.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import struct
import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np

from anabranch.types import Array

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
PERIOD_US = 146_097 * DAY_US  # 400 years, after which the calendar repeats; whole weeks
_EPOCH = date(1970, 1, 1).toordinal()
_LEAST, _GREATEST = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
_NAME = r"(?:<[^>]+>|[A-Za-z]+)"
_OFFSET = r"[+-]?\d+(?::\d+){0,2}"
_YEARLY = re.compile(rf"{_NAME}({_OFFSET})(?:{_NAME}({_OFFSET})?,([^,]+),([^,]+))?")

Change = tuple[int, int]  # a time, and the offset from then on; in seconds


def zone_names() -> frozenset[str]:
    """The names of all time zones."""
    return frozenset(zoneinfo.available_timezones())


@functools.cache
def zone_rules(name: str) -> str:
    """The rules of a zone in this machine's database.

    The text is the same whether the file lists future years or leaves them to its yearly rule.
    """
    first, changes, yearly = _read(_file_of(name))
    found: list[Change] = []
    for at, offset in changes:
        if offset != (found[-1][1] if found else first):
            found.append((at, offset))
    while len(found) > 1 and _repeats(found, yearly):
        found.pop()
    return " ".join([str(first), *(f"{at}:{offset}" for at, offset in found), yearly])


def splice_rules(old: str, new: str, at_us: int) -> str:
    """Rules that are the old ones up to a time, and the new ones after it."""
    if old == new:
        return new
    before, after = zone_of(old), zone_of(new)
    seam = at_us // SECOND_US + 1
    times = before.begins[1:] // SECOND_US
    kept = [
        f"{time}:{offset // SECOND_US}"
        for time, offset in zip(times.tolist(), before.offsets[1:].tolist(), strict=True)
        if time < seam
    ]
    at_seam = int(after.offset_at(np.array([seam * SECOND_US]))[0]) // SECOND_US
    _, changes, yearly = _parsed(new)
    later = [f"{time}:{offset}" for time, offset in changes if time > seam]
    return " ".join([old.partition(" ")[0], *kept, f"{seam}:{at_seam}", *later, yearly])


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """The rules of a zone as arrays, in microseconds: from `begins[i]` the offset is `offsets[i]`.

    Local time may go back. A day begins when local time first reaches or passes its midnight. So
    days follow each other without overlap, and so do longer units, which consist of days.
    """

    begins: Array
    offsets: Array
    tops: Array  # the latest local time before each change
    tops_after: Array  # the local time that is reached before the next change
    far_us: int  # from here on everything repeats

    def offset_at(self, times: Array) -> Array:
        """How far local time is ahead of UTC."""
        near, _ = self._near(times)
        found: Array = self.offsets[self._number(near)]
        return found

    def reached(self, times: Array) -> Array:
        """The latest local time so far, which never goes back."""
        near, far = self._near(times)
        number = self._number(near)
        found: Array = np.maximum(near + self.offsets[number], self.tops[number]) + far
        return found

    def first_at(self, local: Array) -> Array:
        """When local time first reaches or passes some local times."""
        near, far = self._near(local)
        number = np.searchsorted(self.tops_after, near, side="right")
        found: Array = np.maximum(self.begins[number], near - self.offsets[number]) + far
        return found

    def _near(self, times: Array) -> tuple[Array, Array]:
        """Times moved back by whole periods into the range of the arrays, and by how much."""
        far = np.maximum((times - self.far_us) // PERIOD_US + 1, 0) * PERIOD_US
        return times - far, far

    def _number(self, times: Array) -> Array:
        found: Array = np.searchsorted(self.begins, times, side="right") - 1
        return found


@functools.lru_cache(maxsize=64)
def zone_of(rules: str) -> Zone:
    """The rules of a line as arrays."""
    first, changes, yearly = _parsed(rules)
    last = changes[-1][0] if changes else None
    year = 1970 if last is None else _year(last)
    far = max(2100, year + 3) + 400
    repeated = (
        change
        for each in range(year - 1, far + 2)
        for change in _changes_in(each, yearly)
        if last is None or change[0] > last
    )
    every = [*changes, *repeated]
    begins = np.array([_LEAST, *(at * SECOND_US for at, _ in every)], dtype=np.int64)
    offsets = np.array([first, *(offset for _, offset in every)], dtype=np.int64) * SECOND_US
    after = np.maximum.accumulate(np.append(begins[1:] + offsets[:-1], _GREATEST))
    return Zone(begins, offsets, np.append(_LEAST, after[:-1] - 1), after, _day(far, 1, 1) * DAY_US)


def _parsed(rules: str) -> tuple[int, list[Change], str]:
    first, *changes, yearly = rules.split(" ")
    pairs = (each.split(":") for each in changes)
    return int(first), [(int(at), int(offset)) for at, offset in pairs], yearly


def _year(seconds: int) -> int:
    return datetime.fromtimestamp(seconds, UTC).year


def _day(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - _EPOCH


def _repeats(changes: list[Change], yearly: str) -> bool:
    """Whether the last change is the one that the yearly rule gives after the change before it."""
    (before, _), last = changes[-2:]
    years = range(_year(before) - 1, _year(last[0]) + 2)
    following = (each for year in years for each in _changes_in(year, yearly) if each[0] > before)
    return next(following, None) == last


@functools.lru_cache(maxsize=4096)
def _changes_in(year: int, yearly: str) -> tuple[Change, ...]:
    """The changes in a year by the yearly rule; none if the offset stays the same."""
    match = _YEARLY.fullmatch(yearly)
    if match is None or match[3] is None:
        return ()
    standard = -_seconds(match[1])
    summer = standard + 3600 if match[2] is None else -_seconds(match[2])
    begin, end = (_local(year, rule) for rule in (match[3], match[4]))
    return tuple(sorted([(begin - standard, summer), (end - summer, standard)]))


def _local(year: int, rule: str) -> int:
    """When a POSIX rule applies in a year, in local time."""
    day, _, time = rule.partition("/")
    seconds = _seconds(time) if time else 7200
    if day.startswith("M"):  # month, week (5: the last), day of the week from Sunday
        month, week, weekday = map(int, day[1:].split("."))
        first = _day(year, month, 1)
        found = first + (weekday - first - 4) % 7 + 7 * (week - 1)
        following = _day(year + month // 12, month % 12 + 1, 1)
        found -= 7 if found >= following else 0
    elif day.startswith("J"):  # 1 to 365; 29 February is never counted
        found = _day(2023, 1, 1) + int(day[1:]) - 1
        same = date.fromordinal(found + _EPOCH)
        found = _day(year, same.month, same.day)
    else:
        found = _day(year, 1, 1) + int(day)
    return found * 86_400 + seconds


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(each) for each in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def _file_of(name: str) -> bytes:
    """The file of a zone, found in the same way as by `zoneinfo`."""
    for place in zoneinfo.TZPATH:
        path = Path(place, name)
        if path.is_file():
            return path.read_bytes()
    return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def _read(data: bytes) -> tuple[int, Iterable[Change], str]:
    """The offset before all changes, the changes, and the yearly rule of a TZif file (RFC 8536)."""

    def counts(at: int) -> tuple[int, ...]:
        return struct.unpack_from(">6l", data, at + 20)

    is_utc, is_standard, leaps, times, types, chars = counts(0)
    at = 44 + times * 5 + types * 6 + chars + leaps * 8 + is_standard + is_utc
    is_utc, is_standard, leaps, times, types, chars = counts(at)
    at += 44
    when = struct.unpack_from(f">{times}q", data, at)
    which = struct.unpack_from(f">{times}B", data, at + times * 8)
    at += times * 9
    offsets = [struct.unpack_from(">l", data, at + 6 * i)[0] for i in range(types)]
    at += types * 6 + chars + leaps * 12 + is_standard + is_utc
    yearly = data[at:].strip(b"\n").decode("ascii")
    return offsets[0], [(time, offsets[i]) for time, i in zip(when, which, strict=True)], yearly
