"""Outlets: which results go to which sink. They decide what tasks must write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.plan.ids import PartId
from anabranch.plan.model import Plan
from anabranch.spark.sinks import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """A sink for an operator's results, or for its late or failed rows."""

    name: str
    operator: str
    late: bool
    target: Target
    window: str | None = None  # the window whose results it takes; None: all windows


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Which rows of an operator sinks take: results, and rows that are late or failed."""

    results: bool
    late: bool
    windows: tuple[str, ...] = ()  # windows whose results go to a sink of their own


def written_rows(outlets: Sequence[Outlet], operator: str) -> WrittenRows:
    """Which rows of an operator some sink takes."""
    mine = [each for each in outlets if each.operator == operator]
    windows = [each.window for each in mine if each.window is not None]
    return WrittenRows(
        results=any(not each.late and each.window is None for each in mine),
        late=any(each.late for each in mine),
        windows=tuple(dict.fromkeys(windows)),
    )


def late_nodes(plan: Plan, outlets: Sequence[Outlet]) -> frozenset[PartId]:
    """The nodes whose late rows some sink takes."""
    return frozenset(
        node.name for each in outlets if each.late for node in plan.late_nodes(each.operator)
    )
