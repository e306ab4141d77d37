"""The watermark: the slowest source decides, unless it is silent for too long; it never falls."""

from __future__ import annotations

from anabranch.plan.watermark import watermark_after
from anabranch.topology import Field, Source

SECOND = 1_000_000


def source(name: str, delay_s: int = 0, idle_s: int | None = None) -> Source:
    fields = (Field("at", "timestamp"),)
    idle_us = None if idle_s is None else idle_s * SECOND
    return Source(
        name=name,
        fields=fields,
        event_time="at",
        unit_us=None,
        delay_us=delay_s * SECOND,
        idle_us=idle_us,
    )


def test_the_slowest_source_decides_each_with_its_own_delay() -> None:
    both = [source("a", delay_s=10), source("b")]
    calm = {"a": 0, "b": 0}
    assert watermark_after(both, {"a": 100 * SECOND, "b": 95 * SECOND}, calm, None) == 90 * SECOND
    assert watermark_after(both, {"a": 200 * SECOND, "b": 95 * SECOND}, calm, None) == 95 * SECOND


def test_a_source_that_was_never_seen_holds_the_watermark_until_it_is_silent_for_too_long() -> None:
    both = [source("a"), source("b", idle_s=60)]
    seen = {"a": 100 * SECOND}
    assert watermark_after(both, seen, {"a": 0, "b": 30 * SECOND}, 7) == 7
    assert watermark_after(both, seen, {"a": 0, "b": 61 * SECOND}, 7) == 100 * SECOND


def test_if_all_sources_are_silent_the_watermark_waits_for_all() -> None:
    both = [source("a", idle_s=1), source("b", idle_s=1)]
    seen = {"a": 100 * SECOND, "b": 50 * SECOND}
    assert watermark_after(both, seen, {"a": 9 * SECOND, "b": 9 * SECOND}, None) == 50 * SECOND


def test_a_watermark_never_goes_back() -> None:
    assert watermark_after([source("a")], {"a": 5}, {"a": 0}, 9) == 9
