"""The time of a source: its event-time column, the unit, and how late a row may come.

Column and delay are given as arguments, or with the rows: `rows.withWatermark("at", "10 minutes")`.
That watermark is then removed from the rows, so that Spark does not track it as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from anabranch.errors import TopologyError, unknown
from anabranch.spark.jvm import Watermark, ignores_case, watermarks_of, without_watermark
from anabranch.topology.columns import own_name
from anabranch.topology.durations import Duration, duration_us, format_duration, unit_us
from anabranch.types import FLOATING, WHOLE, decimal_of

_UNITS = ("seconds", "milliseconds", "microseconds", "nanoseconds")
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRows:
    """The rows of a source and what is known about their time."""

    rows: DataFrame
    event_time: str
    unit_us: int | None  # of a numeric event time (0: nanoseconds); None for dates and timestamps
    delay_us: int | None  # None: not given


def timed_rows(
    rows: DataFrame, event_time: str | None, delay: Duration | None, unit: str | None
) -> TimedRows:
    """Event time and delay as given, or from the watermark of the rows; refuses contradictions."""
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    delay_us = None if delay is None else duration_us(delay, "delay", zero=True)
    if event_time is not None:
        event_time = _known(event_time, types, any_case=ignores_case(rows.sparkSession))
    watermark = _only(watermarks_of(rows))
    if watermark is not None:
        event_time = _watermark_column(watermark, event_time)
        delay_us = _watermark_delay(watermark, delay_us)
        rows = without_watermark(rows)
    if event_time is None:
        raise TopologyError(_no_event_time(rows, types))
    return TimedRows(
        rows=rows,
        event_time=event_time,
        unit_us=_unit_us(event_time, types[event_time], unit),
        delay_us=delay_us,
    )


def without_delay_text(source: str) -> str:
    """The warning for a source whose delay is not given."""
    return (
        f"source {source!r} has no delay: a row that arrives one batch after newer rows misses the "
        'windows that they have closed. Give delay="10 minutes", or delay="0 seconds" if that is '
        "what you want"
    )


def _known(event_time: object, types: Mapping[str, str], *, any_case: bool) -> str:
    if isinstance(event_time, str):
        event_time = own_name(event_time, list(types), any_case=any_case)
    if not isinstance(event_time, str) or event_time not in types:
        raise TopologyError(unknown("event-time column", event_time, types))
    return event_time


def _only(found: list[Watermark]) -> Watermark | None:
    """The watermark of the rows. Refuses several, because it is unclear which one counts."""
    if len(found) > 1:
        listed = ", ".join(
            f"{each.column!r} with {format_duration(each.delay_us)}" for each in found
        )
        raise TopologyError(
            f"the rows of the source have {len(found)} watermarks ({listed}); valid: one. Call "
            "withWatermark() once, after union() and join()"
        )
    return found[0] if found else None


def _watermark_column(watermark: Watermark, event_time: str | None) -> str:
    """The column that the watermark is on."""
    if event_time is not None and event_time not in watermark.now:
        raise TopologyError(
            f"event_time={event_time!r}, but the rows have a watermark on {watermark.column!r}; "
            f"give the same column in both, or remove withWatermark()"
        )
    if event_time is None and len(watermark.now) > 1:
        raise TopologyError(
            f"the watermark on {watermark.column!r} is now on several columns: "
            f"{', '.join(watermark.now)}; choose one with event_time="
        )
    if not watermark.now:
        raise TopologyError(
            f"the rows have a watermark on {watermark.column!r}, and that column is gone; keep it, "
            "or call withWatermark() after the last select()"
        )
    return event_time or watermark.now[0]


def _watermark_delay(watermark: Watermark, delay_us: int | None) -> int:
    if delay_us not in {None, watermark.delay_us}:
        raise TopologyError(
            f"delay is {format_duration(delay_us or 0)}, but withWatermark() says "
            f"{format_duration(watermark.delay_us)}; give the delay in one place"
        )
    return watermark.delay_us


def _no_event_time(rows: DataFrame, types: Mapping[str, str]) -> str:
    times = [name for name, kind in types.items() if kind in _TIMES]
    example = times[0] if times else "at"
    text = (
        f'a source needs an event time: give event_time="{example}", or a DataFrame with '
        f'withWatermark("{example}", "10 minutes")'
    )
    if not rows.isStreaming:
        text += " (Spark ignores withWatermark() on a DataFrame that is not streaming)"
    listed = f"columns with a time: {', '.join(times)}" if times else "no column has a time"
    return f"{text}; {listed}"


def _unit_us(event_time: str, kind: str, unit: object) -> int | None:
    """Microseconds of one unit of a numeric event time (0: nanoseconds)."""
    if kind in WHOLE or kind in FLOATING or decimal_of(kind) is not None:
        if unit is None:
            raise TopologyError(
                f"event time {event_time!r} is a number ({kind}): give its unit, such as "
                'unit="seconds"'
            )
        return _us_of(unit)
    if kind not in _TIMES:
        valid = f"{', '.join(_TIMES)}, or a number with unit="
        raise TopologyError(f"event time {event_time!r} has type {kind}; valid: {valid}")
    if unit is not None:
        raise TopologyError(
            f"event time {event_time!r} has type {kind}: unit={unit!r} is for numbers only"
        )
    return None


def _us_of(unit: object) -> int:
    if isinstance(unit, str):
        if unit.strip().lower() in {"nanoseconds", "nanosecond", "ns"}:
            return 0
        try:
            us = unit_us(unit, "unit")
        except TopologyError:
            us = None
        if us is not None and us <= unit_us("seconds", "unit"):
            return us
    raise TopologyError(unknown("unit", unit, _UNITS))
