"""What of windows and aggregates may change while a checkpoint lives.

State is panes, so windows may come and go as long as every start and end is an edge of the panes
that are there. A window that comes later lacks rows that were forgotten before: its first
intervals are incomplete, and their results are named so. An aggregate that comes later lacks all
rows before: its column is null in windows that have started already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from anabranch.plan.panes import first_end
from anabranch.topology.durations import format_duration
from anabranch.topology.windows import INCOMPLETE, Window, WindowDefinition


def names_of(window: str) -> tuple[str, str]:
    """The names that results of a window have: its own, and that of those which lack rows."""
    return window, f"{window}{INCOMPLETE}"


def incomplete_windows(
    windows: Sequence[WindowDefinition], since: Mapping[str, int]
) -> dict[int, int]:
    """From when on windows are complete, by number, of those that were added at some time."""
    return {i: since[each.key] for i, each in enumerate(windows) if each.key in since}


def misfits(windows: Iterable[Window], width_us: int, offset_us: int) -> list[str]:
    """The windows that are not made of these panes."""
    return [
        f"{window.name!r} is not made of the checkpoint's panes of {format_duration(width_us)}"
        for window in windows
        if any(
            part % width_us
            for part in (window.length_us, window.every_us, window.offset_us - offset_us)
        )
    ]


def complete_from(
    old: Sequence[Window], watermark_us: int | None, newest_us: int | None
) -> int | None:
    """From when on all rows are in the panes that windows have kept up to a watermark.

    None where nothing was forgotten. Rows before the start of every window that is open are
    forgotten, and where windows have gaps, rows of the gaps.
    """
    if not any(window.gapless for window in old):
        return newest_us if newest_us is None else newest_us + 1
    if watermark_us is None:
        return None
    return min(
        first_end(window, watermark_us) - window.length_us for window in old if window.gapless
    )


def forgotten_before(old: Sequence[Window], watermark_us: int | None) -> int | None:
    """The start of the first window that is open at a watermark: none needs a pane before it."""
    return (
        None
        if watermark_us is None
        else min(first_end(window, watermark_us) - window.length_us for window in old)
    )


def changed_aggregates(
    old: Mapping[str, str],
    new: Mapping[str, str],
    begun: Mapping[str, int | None],
    started: str,
) -> tuple[str, ...]:
    """What has changed about aggregates, given as text by name, for people.

    `begun` are those that start empty, and from when on they are complete.
    """
    told = []
    for name, text in new.items():
        if name not in old:
            what = f"aggregate {name!r} is new"
        elif old[name] != text:
            what = f"aggregate {name!r} was {old[name]} and is {text}"
        elif name in begun:
            what = f"aggregate {name!r} reads what has changed"
        else:
            continue
        since = begun.get(name)
        if name not in begun:
            told.append(f"{what}, and complete: its partials are kept for others already")
        elif since is None:
            told.append(f"{what} and starts empty")
        else:
            when = f"null in {started} before {instant_text(since)}"
            told.append(f"{what} and starts empty: {when}")
    told += [
        f"aggregate {name!r} is gone, its state is forgotten" for name in old if name not in new
    ]
    return tuple(told)


def instant_text(us: int) -> str:
    """An event time as a time in UTC."""
    try:
        at = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    except (OverflowError, ValueError, OSError):
        return f"{us} us"
    return f"{at.replace(tzinfo=None)} UTC"
