"""Outlets: which results go to which sink, and so what tasks must write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.plan.ids import PartId
from anabranch.plan.model import Plan
from anabranch.spark.sinks import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """A sink: where the results of an operator go to, or its late rows, or the rows that failed in it."""

    name: str
    operator: str
    late: bool
    target: Target


@dataclass(frozen=True, slots=True)
class Wanted:
    """What sinks want of an operator: what it makes, and the rows that are late for it or fail in it."""

    results: bool
    late: bool


def wanted_of(outlets: Sequence[Outlet], operator: str) -> Wanted:
    """What sinks want of an operator."""
    return Wanted(
        *(
            any(each.operator == operator and each.late == late for each in outlets)
            for late in (False, True)
        )
    )


def late_nodes(plan: Plan, outlets: Sequence[Outlet]) -> frozenset[PartId]:
    """The nodes whose late rows sinks want."""
    return frozenset(
        node.name for each in outlets if each.late for node in plan.late_nodes(each.operator)
    )
