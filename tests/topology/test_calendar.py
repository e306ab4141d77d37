"""Windows of the calendar: their edges against DuckDB's time zones, and against zoneinfo.

zoneinfo is the reference for clocks that are changed over midnight.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from anabranch.errors import TopologyError
from anabranch.testing.reference.database import connect
from anabranch.topology.calendar import UNITS, calendar
from anabranch.topology.zones import SECOND_US, zone_of

ZONES = ["Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo", "UTC"]
HOUR_US = 3600 * SECOND_US


def units_of(times: np.ndarray, unit: str, zone: str) -> list[date]:  # type: ignore[type-arg]
    """The first local day of the unit that each instant is in, as DuckDB has it."""
    listed = ", ".join(f"({i}, {at})" for i, at in enumerate(times.tolist()))
    with connect() as db:
        rows = db.sql(f"""
            SELECT CAST(date_trunc('{unit}', timezone('{zone}', timezone('UTC', make_timestamp(us)))) AS DATE)
            FROM (VALUES {listed}) AS given(i, us) ORDER BY i
        """).fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", UNITS)
def test_edges_are_those_of_duckdb(zone: str, unit: str) -> None:
    """Also before 1970, and in the years of local mean time."""
    window = calendar(unit, timezone=zone)
    rng = np.random.default_rng(5)
    changes = zone_of(window.rules).begins[1:]
    times = rng.integers(-5 * 10**15, 2 * 10**15, 300)
    if len(changes):
        known = changes[changes < 2 * 10**15]
        times = np.append(times, rng.choice(known, 300) + rng.integers(-(10**11), 10**11, 300))
    starts, ends = window.starts(times), window.last_ends(times)
    assert (starts <= times).all()
    assert (times < ends).all()
    mine = units_of(times, unit, zone)
    assert units_of(starts, unit, zone) == units_of(ends - 1, unit, zone) == mine
    before, after = units_of(starts - 1, unit, zone), units_of(ends, unit, zone)
    assert all(a < b < c for a, b, c in zip(before, mine, after, strict=True))
    assert [window.start_of(end) for end in ends.tolist()[:50]] == starts.tolist()[:50]
    assert [window.first_end(at) for at in times.tolist()[:50]] == ends.tolist()[:50]


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("America/Toronto", "1919-03-31"),  # 23:30 became 00:30
        ("America/St_Johns", "2006-10-29"),  # 00:01 became 23:01 of the day before
        ("America/Sao_Paulo", "2018-11-04"),  # 00:00 became 01:00
        ("America/Sao_Paulo", "2018-02-18"),  # 00:00 became 23:00 of the day before
        ("Pacific/Apia", "2011-12-31"),  # the day before did not exist
        ("Africa/Monrovia", "1972-01-07"),  # 00:44:30 behind
        ("Australia/Lord_Howe", "2024-10-06"),  # half an hour
    ],
)
def test_a_day_begins_when_local_time_first_reaches_it(zone: str, day: str) -> None:
    """By trying the instants around, half a minute apart, with zoneinfo."""
    wanted, known = date.fromisoformat(day), zoneinfo.ZoneInfo(zone)
    middle = int(datetime(wanted.year, wanted.month, wanted.day, tzinfo=UTC).timestamp())
    instants = range(middle - 40 * 3600, middle + 40 * 3600, 30)
    first = next(
        at for at in instants if datetime.fromtimestamp(at, UTC).astimezone(known).date() >= wanted
    )
    window = calendar("day", timezone=zone)
    noon = np.array([(first + 12 * 3600) * SECOND_US])
    assert window.starts(noon).tolist() == [first * SECOND_US]


def test_months_and_days_have_their_own_lengths() -> None:
    month, day = (calendar(unit, timezone="Europe/Berlin") for unit in ("month", "day"))
    february = int(datetime(2024, 2, 10, tzinfo=UTC).timestamp()) * SECOND_US
    assert (
        month.first_end(february) - month.start_of(month.first_end(february)) == 29 * 24 * HOUR_US
    )
    lengths = set()
    end = day.first_end(february)
    for _ in range(366):
        following = day.first_end(end)
        lengths.add((following - end) // HOUR_US)
        end = following
    assert lengths == {23, 24, 25}
    year = calendar("year", timezone="Europe/Berlin")
    far = year.first_end(int(datetime(9999, 6, 1, tzinfo=UTC).timestamp()) * SECOND_US)
    assert far == 253_402_297_200 * SECOND_US  # 10000-01-01 00:00 in Berlin


def test_unknown_units_and_zones_are_refused_with_valid_ones() -> None:
    with pytest.raises(TopologyError, match=r"'hour'; valid: day, week, month, quarter, year"):
        calendar("hour")
    with pytest.raises(TopologyError, match=r"unknown time zone 'Europe/Berln'; .*Europe/Berlin"):
        calendar("day", timezone="Europe/Berln")
    with pytest.raises(TopologyError, match="unknown time zone 5; valid: such as Europe/Berlin"):
        calendar("day", timezone=5)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="must be a non-empty string"):
        calendar("day", name="")


def test_a_window_is_known_by_its_unit_and_zone_and_its_fingerprint_has_the_rules() -> None:
    window = calendar("month", timezone="Europe/Berlin", name="bill")
    assert (window.name, window.key) == ("bill", "month in Europe/Berlin")
    assert calendar("month", timezone="Europe/Berlin").name == "month in Europe/Berlin"
    other = replace(window, rules=calendar("month", timezone="Europe/Paris").rules)
    assert other.described != window.described
    assert window.described.startswith("bill (month in Europe/Berlin) by rules ")


def test_days_refine_what_consists_of_days() -> None:
    by = {unit: calendar(unit, timezone="Europe/Berlin") for unit in UNITS}
    assert [unit for unit in UNITS if by["day"].refines(by[unit])] == list(UNITS)
    assert [unit for unit in UNITS if by["month"].refines(by[unit])] == ["month", "quarter", "year"]
    assert not by["week"].refines(by["month"])
    assert not by["day"].refines(calendar("month", timezone="Europe/Paris"))
    assert by["day"].helper is None
    assert by["year"].helper == by["day"]


def test_an_older_definition_holds_up_to_the_newest_row() -> None:
    new = calendar("day", timezone="Europe/Moscow")
    old = replace(new, rules=calendar("day", timezone="Europe/Berlin").rules)
    at = 1_700_000_000 * SECOND_US
    both = new.since(old, at)
    assert both.start_of(both.first_end(at - HOUR_US * 48)) == old.start_of(
        old.first_end(at - HOUR_US * 48)
    )
    assert both.first_end(at + HOUR_US) == new.first_end(at + HOUR_US)


def test_times_without_a_zone_take_none() -> None:
    calendar("day").check_moment("timestamp_ntz")
    calendar("day", timezone="Europe/Berlin").check_moment("timestamp")
    with pytest.raises(TopologyError, match="local already"):
        calendar("day", timezone="Europe/Berlin").check_moment("timestamp_ntz")
    assert timedelta(microseconds=calendar("day").longest_us) == timedelta(days=2)
