"""The rules of time zones against Python's zoneinfo: every change, and times in all years."""

from __future__ import annotations

import random
import zoneinfo
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from anabranch.topology.zones import (
    PERIOD_US,
    SECOND_US,
    splice_rules,
    zone_names,
    zone_of,
    zone_rules,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = -62_135_500_000, 253_402_200_000  # years 1 to 9999, with a margin for offsets
ODD = [
    "Africa/Casablanca",
    "Africa/Monrovia",
    "America/Nuuk",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
    "UTC",
]


@pytest.mark.parametrize("name", [*ODD, *sorted(zone_names())[::29]])
def test_offsets_are_those_of_zoneinfo(name: str) -> None:
    zone, known, rng = zone_of(zone_rules(name)), zoneinfo.ZoneInfo(name), random.Random(7)
    changes = [int(each) // SECOND_US for each in zone.begins[1:400]]
    times = [at + d for at in changes for d in (-1, 0)]
    times += [rng.randrange(FIRST, LAST) for _ in range(300)]
    found = zone.offset_at(np.array(times) * SECOND_US)
    wanted = [
        (EPOCH + timedelta(seconds=at)).astimezone(known).utcoffset() // timedelta(microseconds=1)  # type: ignore[operator]
        for at in times
    ]
    assert found.tolist() == wanted


def test_a_line_of_rules_is_short_and_ends_with_what_repeats() -> None:
    rules = zone_rules("Europe/Berlin")
    assert rules.startswith("3208 -2422054408:3600 ")
    assert rules.endswith(" 828234000:7200 CET-1CEST,M3.5.0,M10.5.0/3")
    assert zone_rules("UTC") == "0 UTC0"


def test_far_times_repeat_after_400_years() -> None:
    zone = zone_of(zone_rules("Europe/Berlin"))
    times = np.arange(0, 10**16, 10**13) + 2 * PERIOD_US
    assert (zone.offset_at(times) == zone.offset_at(times + 3 * PERIOD_US)).all()
    assert len(np.unique(zone.offset_at(times))) == 2


def test_days_do_not_overlap_where_local_time_goes_back_over_midnight() -> None:
    """St. John's, 2006-10-29: at 00:01 clocks were put back to 23:01 of the day before."""
    zone = zone_of(zone_rules("America/St_Johns"))
    midnight = 13_450 * 86_400 * SECOND_US  # 2006-10-29 00:00, as local time
    first = zone.first_at(np.array([midnight]))
    assert first[0] == midnight + 9000 * SECOND_US  # the first of two midnights
    hours = first + np.arange(0, 120, 10) * 60 * SECOND_US
    assert (np.diff(zone.reached(hours)) >= 0).all()
    assert (zone.reached(hours) >= midnight).all()


def test_spliced_rules_are_the_old_ones_up_to_a_time() -> None:
    old, new = zone_rules("Europe/Moscow"), zone_rules("Europe/Berlin")
    at = 1_600_000_000 * SECOND_US + 5
    both = zone_of(splice_rules(old, new, at))
    before = np.linspace(-5e15, at, 2000).astype(np.int64)
    after = np.linspace(at + SECOND_US, 9e15, 2000).astype(np.int64)
    assert (both.offset_at(before) == zone_of(old).offset_at(before)).all()
    assert (both.offset_at(after) == zone_of(new).offset_at(after)).all()
    assert splice_rules(new, new, at) == new
    again = splice_rules(splice_rules(old, new, at), new, at + 10**15)
    assert (zone_of(again).offset_at(before) == zone_of(old).offset_at(before)).all()
    assert (zone_of(again).offset_at(after) == zone_of(new).offset_at(after)).all()
