"""Windows that are the same for all keys, of fixed length or of a calendar, formed from panes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.plan.consolidation import (
    PANE,
    Consolidation,
    Family,
    Tile,
    keys_from,
    plan_consolidation,
)
from anabranch.plan.evolution import (
    complete_after_cut,
    complete_from,
    forgotten_before,
    incomplete_windows,
    misfits,
)
from anabranch.plan.ids import PartId
from anabranch.plan.operators.aggregates import (
    AggregateNode,
    AggregatePlan,
    Consolidated,
)
from anabranch.plan.operators.base import Evolved, Reached
from anabranch.plan.operators.fingerprint import differences
from anabranch.plan.operators.noted import AggregateContents
from anabranch.plan.operators.noted_windows import Noted, noted, spliced
from anabranch.plan.panes import Panes, panes_of
from anabranch.topology.durations import format_duration
from anabranch.topology.windows import AlignedWindow

if TYPE_CHECKING:
    from anabranch.plan.notes import OperatorNote


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsPlan(AggregatePlan):
    """What a slot task needs to know about windows that share panes."""

    kind = "windows"

    consolidation: Consolidation

    @property
    def window_names(self) -> list[str]:
        return [window.name for window in self.panes.windows]


class WindowsContents(AggregateContents, frozen=True, kw_only=True, tag="windows"):
    """What windows store: panes of partials."""

    windows: tuple[Noted, ...]

    @property
    def defined(self) -> tuple[AlignedWindow, ...]:
        """The windows themselves."""
        return tuple(each.window() for each in self.windows)

    @property
    def longest_us(self) -> int | None:
        return max(window.longest_us for window in self.defined)

    def shares_panes(self, part: PartId) -> bool | None:
        return not part.part

    def panes(self, note: OperatorNote) -> Panes:
        """The panes of a checkpoint."""
        return Panes(width_us=note.pane_us, offset_us=note.pane_offset_us, windows=self.defined)

    def plan(self, part: PartId, note: OperatorNote) -> WindowsPlan:
        panes = self.panes(note)
        kept = self.kept()
        return WindowsPlan(
            part=part,
            keys=self.key_fields(),
            panes=panes,
            consolidation=plan_consolidation(panes),
            kept=kept,
            results=(),
            columns=tuple(column for each in kept for column in each.partial.columns),
            time_type="timestamp",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsNode(AggregateNode):
    """Windows that share panes, as they run."""

    plan: WindowsPlan

    @property
    def windows(self) -> tuple[AlignedWindow, ...]:
        return self.plan.panes.windows

    @property
    def windows_text(self) -> str:
        return "; ".join(each.described for each in self.windows)

    def contents(self) -> WindowsContents:
        return WindowsContents(**self._noted(), windows=noted(self.windows))

    def continued(self, note: OperatorNote, keys_in: Mapping[int, float]) -> WindowsNode:
        """The node over the panes of the checkpoint, with its rules of time zones.

        The panes may be narrower than the windows need.
        """
        plan = self.plan
        assert isinstance(note.contents, WindowsContents)
        panes = note.contents.panes(note)
        if panes != plan.panes or note.complete_from or keys_in:
            plan = replace(
                plan,
                panes=panes,
                consolidation=plan_consolidation(panes, keys_from(keys_in)),
                complete_from=incomplete_windows(self.windows, note.complete_from),
            )
        kept = self._over_partials(note.contents)
        return replace(self, plan=replace(plan, forgotten_us=note.forgotten_us, **kept))

    def evolved(self, note: OperatorNote, fresh: OperatorNote, at: Reached | None) -> Evolved:
        """Aggregates may be added and removed, and windows too if they fit the existing panes."""
        evolved = self._with_other_aggregates(note, fresh, at, besides=("windows",))
        before, wanted = note.contents, evolved.note.contents
        if (
            evolved.refused
            or not isinstance(before, WindowsContents)
            or not isinstance(wanted, WindowsContents)
        ):
            return evolved
        if note.fingerprint["windows"] == fresh.fingerprint["windows"]:
            contents = msgspec.structs.replace(wanted, windows=before.windows)
            return replace(evolved, note=replace(evolved.note, contents=contents))
        unlike = differences(*({"windows": each.fingerprint["windows"]} for each in (note, fresh)))
        held = before.panes(note)
        wrong = misfits(self.windows, held)
        if wrong:
            refused = f"{'; '.join(wrong)} ({'; '.join(unlike)})"
            return Evolved(note=note, refused=(refused,))
        newest = None if at is None else at.newest_us
        old, new = held.windows, spliced(self.windows, held.windows, newest)
        since = None if at is None else complete_from(old, at.watermark_us, newest)
        complete = {key: us for key, us in note.complete_from.items() if key in _keys(new)}
        for window in (each for each in new if each.key not in _keys(old)):
            whole_from = complete_after_cut(window, held, since, newest)
            if whole_from is not None:
                complete[window.key] = whole_from
        note = replace(
            evolved.note,
            contents=msgspec.structs.replace(wanted, windows=noted(new)),
            complete_from=complete,
            forgotten_us=None if at is None else forgotten_before(old, at.watermark_us),
        )
        return replace(evolved, note=note, changed=(*unlike, *evolved.changed))

    @property
    def complete_after(self) -> dict[str, int]:
        return dict.fromkeys((window.key for window in self.windows), 1)

    def formation(self) -> dict[str, Any]:
        return {**formation(self.plan.panes, self.plan.consolidation), "session": None}

    def window_lines(self, facts: Mapping[str, Any]) -> list[str]:
        return [
            *(f"    window:    {name} = {way}" for name, way in facts["windows"].items()),
            *(f"    helper:    {name} = {way}" for name, way in facts["helpers"].items()),
        ]


def _keys(windows: Sequence[AlignedWindow]) -> set[str]:
    return {window.key for window in windows}


def _part(group: Sequence[AlignedWindow]) -> str:
    """The name of the state of windows that have panes of their own."""
    steps = f" so far in {len(group)} steps" if len(group) > 1 else ""
    return f"{group[-1].key}{steps}"


def window_nodes(of: Consolidated, windows: Sequence[AlignedWindow]) -> list[WindowsNode]:
    """One node for all windows if they share panes, else one for each."""
    nodes = []
    for group in of.sharing.groups:
        panes = panes_of(group)
        plan = WindowsPlan(
            **of.planned(),
            part=of.part("" if of.sharing.shared else _part(group)),
            panes=panes,
            consolidation=plan_consolidation(panes),
            kept=of.kept,
            columns=tuple(column for each in of.kept for column in each.partial.columns),
        )
        nodes.append(WindowsNode(**of.run(), plan=plan))
    assert sum(len(node.windows) for node in nodes) == len(windows)
    return nodes


def formation(panes: Panes, plan: Consolidation) -> dict[str, Any]:
    """How each window is formed (Enorm 6.1), and what that costs."""
    by_name: dict[str, list[int]] = {}
    for i, window in enumerate(panes.windows):
        by_name.setdefault(window.name, []).append(i)
    windows = {}
    for name, group in by_name.items():
        steps = f" ({len(group)} steps, the last)" if len(group) > 1 else ""
        windows[f"{name}{steps}"] = _formed(plan.of_window[group[-1]], plan)
    helpers = {}
    for number, each in enumerate(plan.families):
        if not each.windows and plan.grid is not None:
            every = format_duration(each.every * plan.grid.width_us)
            helpers[f"{_length(each, plan)} every {every}"] = _formed(number, plan)
    for number, window in plan.formed_early:
        helpers[window.name] = _formed(number, plan)
    unmeasured = "number of merges, as nothing is measured yet"
    return {
        "windows": windows,
        "helpers": helpers,
        "merges": round(plan.merges_per_hour, 1),
        "naive_merges": round(plan.naive_per_hour, 1),
        "merges_chosen_by": "keys that were measured" if plan.measured else unmeasured,
    }


def _formed(number: int, plan: Consolidation) -> str:
    """What the intervals of a family are formed from."""
    if number >= len(plan.families):
        inside = plan.nested[number - len(plan.families)].inside
        return "its panes" if inside is None else f"{inside.name}, side by side, and panes around"
    family = plan.families[number]
    ways = dict.fromkeys(_formula(way, plan) for way in family.ways[:4])
    return " or ".join(ways) + (" or ..." if len(family.ways) > 4 else "")


def _formula(way: Sequence[Tile], plan: Consolidation) -> str:
    terms = [_term(tile, plan) for tile in way]
    counted = [(term, len(list(group))) for term, group in itertools.groupby(terms)]
    return " + ".join(f"{count} x {term}" if count > 1 else term for term, count in counted)


def _term(tile: Tile, plan: Consolidation) -> str:
    if tile.family == PANE:
        return f"{tile.count} pane{'s' if tile.count > 1 else ''}"
    return _length(plan.families[tile.family], plan)


def _length(family: Family, plan: Consolidation) -> str:
    assert plan.grid is not None
    return format_duration(family.length * plan.grid.width_us)
