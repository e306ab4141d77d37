"""Times as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from anabranch.errors import TopologyError
from anabranch.topology import duration_us, format_duration


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 minutes", 600_000_000),
        ("24h", 86_400_000_000),
        ("1h 30m", 5_400_000_000),
        ("1 hour, 30 minutes", 5_400_000_000),
        ("1.5 seconds", 1_500_000),
        ("250 ms", 250_000),
        ("2 weeks", 1_209_600_000_000),
        ("interval 10 minutes", 600_000_000),
        (" INTERVAL -2 hours ", -7_200_000_000),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
    ],
)
def test_times_are_written_as_people_write_them(text: str | timedelta, us: int) -> None:
    assert duration_us(text, negative=True) == us


@pytest.mark.parametrize(
    "bad",
    ["ten minutes", "", "5", "5 parsecs", "0 s", "-5 s", 7, None, "0.1 us", "200 years 1 day"],
)
def test_a_bad_time_is_refused_with_its_value(bad: object) -> None:
    with pytest.raises(TopologyError) as error:
        duration_us(bad, "window length")  # type: ignore[arg-type]
    assert "window length" in str(error.value)
    assert repr(bad) in str(error.value)


@pytest.mark.parametrize(
    "text", ["1 second", "90 seconds", "10 minutes", "1 hour", "1 day", "7 days", "1 microsecond"]
)
def test_a_time_is_shown_as_it_would_be_written(text: str) -> None:
    assert format_duration(duration_us(text)) == text
