"""Checks of keys, results and windows as the user gives them, while the topology is built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from anabranch.errors import TopologyError, unknown
from anabranch.topology.durations import duration_us
from anabranch.topology.operators import EARLY_COLUMN, RESULT_COLUMNS, Early, Field
from anabranch.topology.windows import WindowDefinition


def key_fields(by: object, fields: Sequence[Field]) -> tuple[Field, ...]:
    """The key columns as fields. Refuses unknown columns, and types that cannot be keys."""
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"by={by!r} is not a list of column names")
    if len(set(names)) != len(names):
        raise TopologyError(f"by={names!r} has a duplicate column")
    known = {each.name: each for each in fields}
    for name in names:
        if name not in known:
            raise TopologyError(unknown("key column", name, known))
        kind = known[name].type
        if "map<" in kind or "collate" in kind or "variant" in kind:
            raise TopologyError(
                f"column {name!r} of type {kind} cannot be a key; valid: types without maps, "
                "variants and collated strings"
            )
    return tuple(known[name] for name in names)


def check_result_names(by: Sequence[Field], names: Iterable[str]) -> None:
    """Refuses result columns with the name of a key or of a window column."""
    names = list(names)
    if not names:
        raise TopologyError("compute() needs at least one aggregate, such as n=ab.count()")
    for name in (*(each.name for each in by), *names):
        if name in RESULT_COLUMNS:
            raise TopologyError(f"{name!r} is a column of every result; choose another name")
    for name in names:
        if name in {each.name for each in by}:
            raise TopologyError(
                f"aggregate {name!r} has the name of a key column; choose another name"
            )


def check_early(every: object, names: Iterable[str]) -> Early | None:
    """How often early results are wanted: never (None), every so many steps, or at an interval."""
    if every is None:
        return None
    if EARLY_COLUMN in names:
        raise TopologyError(
            f"{EARLY_COLUMN!r} is a column of results with early=; choose another name"
        )
    if isinstance(every, int) and not isinstance(every, bool):
        if every < 1:
            raise TopologyError(
                f"early={every}; valid: 1 step or more, or a time such as '10 seconds'"
            )
        return Early(steps=every)
    if not isinstance(every, str | timedelta):
        raise TopologyError(
            f"early={every!r}; valid: a number of steps, or a time such as '10 seconds'"
        )
    return Early(us=duration_us(every, "early"))


def listed_windows(windows: object) -> list[object]:
    """The windows that the user gave, as a list. Wrong types are refused later, with a message."""
    if isinstance(windows, WindowDefinition | str) or not isinstance(windows, Iterable):
        return [windows]
    return list(windows)


def check_windows(windows: Sequence[object]) -> tuple[WindowDefinition, ...]:
    """The windows of a consolidate: at least one, and no duplicates.

    Only the steps of one cumulative window may have the same name.
    """
    if not windows:
        raise TopologyError(
            'consolidate() needs at least one window, such as ab.tumbling("10 minutes")'
        )
    checked: list[WindowDefinition] = []
    listed = [given if isinstance(given, tuple | list) else (given,) for given in windows]
    for window in (each for group in listed for each in group):
        if not isinstance(window, WindowDefinition):
            raise TopologyError(
                f"{window!r} is not a window; write ab.tumbling, ab.sliding, ab.hopping, "
                "ab.cumulative, ab.calendar or ab.session"
            )
        if any(each.name == window.name and not each.shares_name(window) for each in checked):
            raise TopologyError(
                f"two windows are named {window.name!r}; give one of them another name="
            )
        checked.append(window)
    names: dict[tuple[str, ...], str] = {}
    for name in dict.fromkeys(each.name for each in checked):
        keys = tuple(each.key for each in checked if each.name == name)
        if keys in names:
            raise TopologyError(
                f"windows {names[keys]!r} and {name!r} are the same ({keys[-1]}); remove one"
            )
        names[keys] = name
    return tuple(checked)
