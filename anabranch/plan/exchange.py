"""The form in which rows travel to slots.

Rows for several operators go through one exchange and share its columns by type. Each row says
which node it is for (`to`), and what a column holds depends on that. Two nodes that each need two
strings and a double share two string columns and one double column. So a row is as wide as the
widest, and not as all of them together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.plan.ids import PartId
from anabranch.plan.model import Node, Plan
from anabranch.plan.operators.applies import ApplyPlan
from anabranch.topology.graph import Field

EVENT_TIME, ARRIVAL, LATE_ROW = "t", "arrival", "row"


@dataclass(frozen=True, slots=True)
class Packed:
    """The shared columns, and for each kind of row the places of its own columns."""

    columns: tuple[Field, ...]
    places: Mapping[RowKind, Mapping[str, str]]

    def types(self) -> str:
        """The columns as DDL for Spark."""
        return ", ".join(f"{each.name} {each.type}" for each in self.columns)


def pack(kinds: Mapping[RowKind, Sequence[Field]]) -> Packed:
    """Shares columns: the n-th column of a type has the same place in every kind of row.

    Keys share with keys only, and whole rows with whole rows, because rows are grouped by them.
    """
    columns: dict[tuple[str, str, int], Field] = {}
    places: dict[RowKind, dict[str, str]] = {}
    for kind, fields in kinds.items():
        seen: Counter[tuple[str, str]] = Counter()
        for each in fields:
            role = (
                each.type,
                "key" if is_key(each.name) else LATE_ROW if each.name == LATE_ROW else "value",
            )
            shared = columns.setdefault((*role, seen[role]), Field(f"p{len(columns)}", each.type))
            seen[role] += 1
            places.setdefault(kind, {})[each.name] = shared.name
        places.setdefault(kind, {})
    return Packed(tuple(columns.values()), places)


def is_key(name: str) -> bool:
    """Whether rows are combined by a column: a key, or what a join keeps of its rows."""
    return re.fullmatch(r"[kr]\d+", name) is not None


def arriving(node: Node, *, late: bool = False) -> list[Field]:
    """What a node needs of each row besides its event time: keys, inputs, and kept columns.

    If late rows are wanted, the row itself too.
    """
    fields = [Field(f"k{i}", each.type) for i, each in enumerate(node.plan.keys)]
    fields += [Field(f"x{i}", each.type) for i, each in enumerate(node.inputs) if i]
    fields += [Field(f"r{i}", each.type) for i, each in enumerate(node.plan.payload)]
    if late:
        inner = ",".join(
            f"`{each.name.replace('`', '``')}`:{each.type}" for each in node.feed.fields
        )
        fields.append(Field(LATE_ROW, f"struct<{inner}>"))
    return fields


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows for a reader that are results of another operator, before its maps and expressions."""

    reader: PartId | str


# The kinds of rows: for a node, for an apply, or results before the maps of either.
RowKind: TypeAlias = PartId | str | RawRows


def raw(reader: PartId | str) -> RawRows:
    """Results of another operator for a node or an apply, before its maps and expressions."""
    return RawRows(reader)


def whole_rows(plan: Plan) -> dict[RowKind, Sequence[Field]]:
    """Whole rows: those that applies take, and those that they make, before each reader's maps."""
    kinds: dict[RowKind, Sequence[Field]] = {
        each.name: _numbered(each.feed.fields) for each in plan.applies
    }
    made = {each.name: each.fields for each in plan.applies}
    readers: list[Node | ApplyPlan] = [*plan.nodes, *plan.applies]
    for reader in readers:
        if reader.feed.stream in made:
            kinds[raw(reader.name)] = _numbered(made[reader.feed.stream])
    return kinds


def _numbered(fields: Sequence[Field]) -> list[Field]:
    return [Field(f"c{i}", each.type) for i, each in enumerate(fields)]


def later_rows(plan: Plan) -> Packed:
    """Rows that go from one level to a later one.

    They are results of the nodes that feed it, or what its nodes need of these results.
    """
    kinds: dict[RowKind, Sequence[Field]] = {}
    later = [node for each in plan.components if each.level > 1 for node in each.nodes]
    for node in later:
        if plan.is_fused(node) or fed_by_source(plan, node):
            continue
        upstream = plan.parts_of(node.feed.stream)[0]
        kinds[raw(node.name)] = upstream.plan.result_fields
        kinds[node.name] = [Field(EVENT_TIME, "bigint"), *arriving(node)]
    return pack(kinds)


def fed_by_source(plan: Plan, node: Node) -> bool:
    """Whether a node reads a source, or the results of an apply to one."""
    return node.feed.stream in plan.entries
