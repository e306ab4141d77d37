"""The form in which rows travel to slots: rows for several operators go through one exchange and share its columns by type.

Each row says which node it is for (`to`); what a column holds depends on that. Nodes that need, say, two texts and a double each
share two columns of text and one of doubles, so that a row is as wide as the widest and not as all of them together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.plan.model import Node, Plan
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.operators.process import ProcessPlan
from anabranch.topology.graph import EARLY_COLUMN, Field

EVENT_TIME, ARRIVAL, LATE_ROW = "t", "arrival", "row"


@dataclass(frozen=True, slots=True)
class Packed:
    """The shared columns, and for each kind of row where its own are."""

    columns: tuple[Field, ...]
    places: Mapping[str, Mapping[str, str]]

    def types(self) -> str:
        """The columns as Spark's DDL has them."""
        return ", ".join(f"{each.name} {each.type}" for each in self.columns)


def pack(kinds: Mapping[str, Sequence[Field]]) -> Packed:
    """The n-th column of a type of each kind of row shares a place; keys share with keys only, and whole
    rows with whole rows, because rows are grouped by them.
    """
    columns: dict[tuple[str, str, int], Field] = {}
    places: dict[str, dict[str, str]] = {}
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
    """Whether rows that arrive are combined by a column: a key, or what a join keeps of its rows."""
    return re.fullmatch(r"[kr]\d+", name) is not None


def arriving(node: Node, *, late: bool = False) -> list[Field]:
    """What a node needs of each row besides its event time: keys and inputs; and the row itself where late ones are wanted."""
    fields = [Field(f"k{i}", each.type) for i, each in enumerate(node.slotted.keys)]
    fields += [Field(f"x{i}", each.type) for i, each in enumerate(node.inputs) if i]
    if isinstance(node.slotted, JoinSide | ProcessPlan):
        fields += [Field(f"r{i}", each.type) for i, each in enumerate(node.slotted.payload)]
    if late:
        inner = ",".join(
            f"`{each.name.replace('`', '``')}`:{each.type}" for each in node.feed.fields
        )
        fields.append(Field(LATE_ROW, f"struct<{inner}>"))
    return fields


def raw(name: str) -> str:
    """The kind of rows for a node that are results of another, as they are before maps and expressions."""
    return f"{name} (raw)"


def whole_rows(plan: Plan) -> dict[str, list[Field]]:
    """Rows that applies take, whole; and what they make, for each of those who read it, before maps and expressions."""
    kinds = {each.name: _numbered(each.feed.fields) for each in plan.applies}
    made = {each.name: each.fields for each in plan.applies}
    feeds = {
        **{node.name: node.feed for node in plan.nodes},
        **{each.name: each.feed for each in plan.applies},
    }
    kinds.update(
        {
            raw(name): _numbered(made[feed.stream])
            for name, feed in feeds.items()
            if feed.stream in made
        }
    )
    return kinds


def _numbered(fields: Sequence[Field]) -> list[Field]:
    return [Field(f"c{i}", each.type) for i, each in enumerate(fields)]


def later_rows(plan: Plan) -> Packed:
    """Rows that go from one level to a later one: results of the nodes that feed it, and what its nodes need of them."""
    kinds: dict[str, Sequence[Field]] = {}
    for node in (
        n
        for c in plan.components
        if c.level > 1
        for n in c.nodes
        if not plan.is_fused(n) and not fed_by_source(plan, n)
    ):
        upstream = plan.parts_of(node.feed.stream)[0]
        kinds[raw(node.name)] = results_of(upstream)
        kinds[node.name] = [Field(EVENT_TIME, "bigint"), *arriving(node)]
    return pack(kinds)


def results_of(node: Node) -> list[Field]:
    """The columns of a node's results as others read them."""
    moment = node.slotted.time_type
    if isinstance(node.slotted, JoinSide):
        return list(node.slotted.join.result_fields)
    if isinstance(node.slotted, ProcessPlan):
        return list(node.slotted.result_fields)
    return [
        *node.compute.by,
        Field("window", f"struct<start:{moment},end:{moment}>"),
        Field("window_name", "string"),
        *(
            Field(each.named.name, each.type)
            for each in node.slotted.results
            if each.named.name != EARLY_COLUMN
        ),
    ]


def fed_by_source(plan: Plan, node: Node) -> bool:
    """Whether a node reads a source, or what an apply makes of one."""
    return node.feed.stream in plan.entries
