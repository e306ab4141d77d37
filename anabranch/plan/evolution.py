"""How windows and aggregates may change while their checkpoint lives.

State is panes. So windows may be added if every start and end is an edge of the existing panes. A
new window lacks rows that were dropped before. Its first intervals are incomplete, and their
results are named so. A new aggregate lacks all earlier rows. Its column is null in windows that
have already started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from anabranch.plan.panes import Panes
from anabranch.topology.windows import INCOMPLETE, AlignedWindow, Grid, WindowDefinition


def names_of(window: str) -> tuple[str, str]:
    """The two names that results of a window may have: its own, and the one for missing rows."""
    return window, f"{window}{INCOMPLETE}"


def incomplete_windows(
    windows: Sequence[WindowDefinition], since: Mapping[str, int]
) -> dict[int, int]:
    """From when windows are complete, by number. Only windows that were added later are listed."""
    return {i: since[each.key] for i, each in enumerate(windows) if each.key in since}


def misfits(windows: Iterable[AlignedWindow], panes: Panes) -> list[str]:
    """The windows that do not fit these panes, and for which panes cannot be cut, as text."""
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
    """From when all rows are in the panes that windows have kept up to a watermark.

    None if nothing was dropped. Rows before the start of every open window are dropped. If all
    windows have gaps, rows in the gaps are dropped too.
    """
    if not any(window.gapless for window in old):
        return newest_us if newest_us is None else newest_us + 1
    if watermark_us is None:
        return None
    return min(_first_open(window, watermark_us) for window in old if window.gapless)


def complete_after_cut(
    window: AlignedWindow, panes: Panes, since_us: int | None, newest_us: int | None
) -> int | None:
    """From when a new window is complete, if all rows are in the panes from `since_us` on.

    Panes that were not cut at its edges mix rows of two of its windows. Windows that have such
    panes are incomplete.
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
    """The start of the first window that is open at a watermark. No window needs earlier panes."""
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
    """The changes of aggregates, as text. Aggregates are given as text, by name.

    `begun` has those that start empty, and from when they are complete.
    """
    found = []
    for name, text in new.items():
        if name not in old:
            what = f"aggregate {name!r} is new"
        elif old[name] != text:
            what = f"aggregate {name!r} was {old[name]} and is {text}"
        elif name in begun:
            what = f"aggregate {name!r} reads a column that has changed"
        else:
            continue
        since = begun.get(name)
        if name not in begun:
            found.append(f"{what}, and complete: other aggregates already keep its partials")
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
