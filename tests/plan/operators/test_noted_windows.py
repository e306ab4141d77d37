"""Windows in the notes of a checkpoint: they come back as they were, with the rules of their zones."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from anabranch.plan.operators.noted_windows import Noted, noted, spliced
from anabranch.topology.calendar import CalendarWindow, calendar
from anabranch.topology.windows import sliding


def test_windows_come_back_as_they_were() -> None:
    windows = [sliding("10m", every="5m", name="ten"), calendar("month", timezone="Asia/Kathmandu")]
    encoded = msgspec.json.encode(noted(windows))
    again = msgspec.json.decode(encoded, type=tuple[Noted, ...])
    assert [each.window() for each in again] == windows
    assert b'"form":"calendar"' in encoded


def test_rows_that_were_seen_stay_under_the_rules_that_they_were_cut_by() -> None:
    new = calendar("day", timezone="Europe/Moscow")
    old = replace(new, rules=calendar("day", timezone="Europe/Berlin").rules)
    ten, at = sliding("10m", every="5m"), 1_699_960_000_000_000
    [both, same] = spliced([new, ten], [old, ten], at)
    assert isinstance(both, CalendarWindow)
    assert both.first_end(at - 10**12) == old.first_end(at - 10**12)
    assert both.first_end(at) == new.first_end(at)
    assert same == ten
    assert spliced([new], [old], None) == (new,)
    assert spliced([new], [ten], at) == (new,)
