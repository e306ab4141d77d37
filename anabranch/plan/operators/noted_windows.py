"""Windows as a checkpoint notes them: enough to show their state and to continue it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from anabranch.topology.calendar import CalendarWindow
from anabranch.topology.windows import AlignedWindow, Window


class NotedWindow(msgspec.Struct, frozen=True, kw_only=True, tag_field="form", tag="equal"):
    """Windows of one length."""

    name: str
    length_us: int
    every_us: int
    offset_us: int

    def window(self) -> Window:
        return Window(**msgspec.structs.asdict(self))


class NotedCalendar(msgspec.Struct, frozen=True, kw_only=True, tag_field="form", tag="calendar"):
    """Calendar windows, with the rules of the time zone by which panes were cut."""

    name: str
    unit: str
    timezone: str
    rules: str

    def window(self) -> CalendarWindow:
        return CalendarWindow(**msgspec.structs.asdict(self))


Noted: TypeAlias = NotedWindow | NotedCalendar
_NOTES: dict[type[AlignedWindow], type[Noted]] = {
    Window: NotedWindow,
    CalendarWindow: NotedCalendar,
}


def noted(windows: Iterable[AlignedWindow]) -> tuple[Noted, ...]:
    """The notes of some windows."""
    return tuple(
        msgspec.convert(each, _NOTES[type(each)], from_attributes=True) for each in windows
    )


def spliced(
    new: Sequence[AlignedWindow], old: Sequence[AlignedWindow], newest_us: int | None
) -> tuple[AlignedWindow, ...]:
    """Windows that a checkpoint knows, with its rules up to the newest row.

    The rules of a time zone may have changed since. The stored panes were cut by the old ones.
    """
    before = {each.key: each for each in old}
    return tuple(
        each if newest_us is None else each.since(before.get(each.key, each), newest_us)
        for each in new
    )
