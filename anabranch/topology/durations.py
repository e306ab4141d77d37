"""Durations as users write them: "10 minutes", "24h", "1h 30m" or a timedelta.

Inside, a duration is an integer number of microseconds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from anabranch.errors import TopologyError

Duration: TypeAlias = str | timedelta

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {"us": "microsecond", "ms": "millisecond", "sec": "second", "min": "minute", "hr": "hour"}
_SHORT |= {name[0]: name for name in ("second", "minute", "hour", "day", "week")}
_SHORT |= {f"{short}s": name for short, name in _SHORT.items() if short in {"sec", "min", "hr"}}
_TERM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµ]+)\s*,?")
LONGEST_US = 100 * 366 * _UNITS_US["day"]


def duration_us(
    value: Duration, what: str = "duration", *, zero: bool = False, negative: bool = False
) -> int:
    """A duration in microseconds. It must be positive, unless `zero` or `negative` allow others."""
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        us = _parse(value, what)
    else:
        raise TopologyError(
            f'{what} {value!r} is not a time; write "10 minutes", "24h" or a timedelta'
        )
    if us < 0 and not negative:
        raise TopologyError(f"{what} {value!r} is negative")
    if us == 0 and not zero:
        raise TopologyError(f"{what} {value!r} is zero; it must be longer")
    if abs(us) > LONGEST_US:
        raise TopologyError(f"{what} {value!r} is longer than 100 years")
    return us


def _parse(text: str, what: str) -> int:
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE).strip()  # as in Spark SQL
    sign, rest = (-1, rest[1:]) if rest.startswith("-") else (1, rest)
    total, position = Fraction(0), 0
    while match := _TERM.match(rest, position):
        total += Fraction(match[1]) * unit_us(match[2], f"{what} {text!r}")
        position = match.end()
    if position == 0 or rest[position:].strip():
        raise TopologyError(
            f'{what} {text!r} is not a time; write "10 minutes", "24h", "1h 30m" or a timedelta'
        )
    if total.denominator != 1:
        raise TopologyError(f"{what} {text!r} is not a whole number of microseconds")
    return sign * int(total)


def unit_us(unit: str, what: str) -> int:
    """The microseconds of one unit, given by name or abbreviation."""
    name = unit.strip() if unit == "M" else unit.strip().lower().replace("µ", "u")
    name = _SHORT.get(name, name.removesuffix("s"))
    if name not in _UNITS_US:
        raise TopologyError(
            f"{what}: unknown unit {unit!r}; valid: {', '.join(f'{each}s' for each in _UNITS_US)}"
        )
    return _UNITS_US[name]


def written_duration(value: Duration) -> str:
    """A duration as the user wrote it. A timedelta is formatted."""
    return (
        " ".join(value.split()) if isinstance(value, str) else format_duration(duration_us(value))
    )


def format_duration(us: int) -> str:
    """A duration in the largest unit that fits: 90 seconds, 10 minutes, 1 day."""
    if us == 0:
        return "0 seconds"
    name, size = next((n, s) for n, s in reversed(_UNITS_US.items()) if us % s == 0 and n != "week")
    amount = us // size
    return f"{amount} {name}{'' if abs(amount) == 1 else 's'}"
