"""What of windows and aggregates may change while a checkpoint lives.

State is panes, so windows may come and go as long as every start and end is an edge of the panes
that are there. A window that comes later lacks rows that were forgotten before: its first
intervals are incomplete, and their results are named so. An aggregate that comes later lacks all
rows before: its column is null in windows that have started already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from anabranch.plan.panes import Panes
from anabranch.topology.windows import INCOMPLETE, AlignedWindow, Grid, WindowDefinition


def names_of(window: str) -> tuple[str, str]:
    """The names that results of a window have: its own, and that of those which lack rows."""
    return window, f"{window}{INCOMPLETE}"


def incomplete_windows(
    windows: Sequence[WindowDefinition], since: Mapping[str, int]
) -> dict[int, int]:
    """From when on windows are complete, by number, of those that were added at some time."""
    return {i: since[each.key] for i, each in enumerate(windows) if each.key in since}


def misfits(windows: Iterable[AlignedWindow], panes: Panes) -> list[str]:
    """The windows that are not made of these panes, and for which they cannot be cut."""
    return [
        f"{window.name!r} is not made of the checkpoint's panes of {panes}"
        for window in windows
        if not _fits(window.grid, panes.grid)
    ]


def _fits(wanted: Grid | None, held: Grid | None) -> bool:
    return wanted is None or (held is not None and held.meet(wanted) == held)


def complete_from(
    old: Sequence[AlignedWindow], watermark_us: int | None, newest_us: int | None
) -> int | None:
    """From when on all rows are in the panes that windows have kept up to a watermark.

    None where nothing was forgotten. Rows before the start of every window that is open are
    forgotten, and where windows have gaps, rows of the gaps.
    """
    if not any(window.gapless for window in old):
        return newest_us if newest_us is None else newest_us + 1
    if watermark_us is None:
        return None
    return min(_first_open(window, watermark_us) for window in old if window.gapless)


def complete_after_cut(
    window: AlignedWindow, panes: Panes, since_us: int | None, newest_us: int | None
) -> int | None:
    """From when on a window that comes later is complete, given from when on all rows are there.

    Panes that were not cut at its edges mix rows of two of its windows. Those with rows from
    before are incomplete then.
    """
    if newest_us is None or window.grid is not None:
        return since_us
    if any(each.refines(window) for each in panes.cuts):
        return since_us
    edge = None if since_us is None else window.first_end(since_us - 1)
    while edge is not None and edge <= newest_us:
        edge = window.first_end(edge) if panes.start_of(edge) == edge else None
    return newest_us + 1 if edge is None else since_us


def forgotten_before(old: Sequence[AlignedWindow], watermark_us: int | None) -> int | None:
    """The start of the first window that is open at a watermark: none needs a pane before it."""
    return (
        None if watermark_us is None else min(_first_open(window, watermark_us) for window in old)
    )


def _first_open(window: AlignedWindow, watermark_us: int) -> int:
    return window.start_of(window.first_end(watermark_us))


def changed_aggregates(
    old: Mapping[str, str],
    new: Mapping[str, str],
    begun: Mapping[str, int | None],
    started: str,
) -> tuple[str, ...]:
    """What has changed about aggregates, given as text by name, for people.

    `begun` are those that start empty, and from when on they are complete.
    """
    found = []
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
            found.append(f"{what}, and complete: its partials are kept for others already")
        elif since is None:
            found.append(f"{what} and starts empty")
        else:
            when = f"null in {started} before {instant_text(since)}"
            found.append(f"{what} and starts empty: {when}")
    found += [
        f"aggregate {name!r} is gone, its state is forgotten" for name in old if name not in new
    ]
    return tuple(found)


def instant_text(us: int) -> str:
    """An event time as a time in UTC."""
    try:
        at = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    except (OverflowError, ValueError, OSError):
        return f"{us} us"
    return f"{at.replace(tzinfo=None)} UTC"
