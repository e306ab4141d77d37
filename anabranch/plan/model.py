"""The component plan: which operators run fused in one slot task, level by level.

A node is a stateful operator as it runs. Nodes whose keys have attributes in common may share a
component. Then rows go from one to the next inside the slot task, shard by shard. A component is
one level after the last one that feeds it. There is one exchange before each level. Rows of a
source for a later level pass through the levels before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.plan.ids import APPLIES, ComponentId, PartId
from anabranch.plan.operators.applies import ApplyPlan
from anabranch.plan.operators.base import Node
from anabranch.plan.planners.solution import FusionPlan
from anabranch.topology.graph import Field, Source

__all__ = ["Component", "Node", "Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Operators that run in one task, partitioned by the attributes they have in common.

    Each comes after those that feed it.
    """

    name: ComponentId
    attributes: tuple[Field, ...]
    nodes: tuple[Node, ...]
    level: int  # 1: no other component feeds it

    def by(self, node: Node) -> tuple[int, ...]:
        """Which of a node's keys are hashed to find the shard."""
        return tuple(node.plan.keys.index(each) for each in self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The topology cut into components, in the order of their levels."""

    topology: str
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]  # in the order of the topology, which numbers them
    components: tuple[Component, ...]
    fusion: FusionPlan
    # Between sources and the first level, in the order of the topology.
    applies: tuple[ApplyPlan, ...] = ()

    @property
    def levels(self) -> int:
        """The number of levels of components; 0 if no operator has state."""
        return max((component.level for component in self.components), default=0)

    @property
    def entries(self) -> frozenset[str]:
        """The streams that the first level reads: sources, and results of applies to them."""
        return frozenset(
            {*(each.name for each in self.sources), *(each.name for each in self.applies)}
        )

    @property
    def routed(self) -> tuple[ComponentId, ...]:
        """Everything that has slots: each component, and all applies together."""
        return (*(each.name for each in self.components), *((APPLIES,) if self.applies else ()))

    def applied(self, name: str) -> ApplyPlan | None:
        """The apply with this name, or None."""
        return next((each for each in self.applies if each.name == name), None)

    def at(self, level: int) -> tuple[Component, ...]:
        return tuple(component for component in self.components if component.level == level)

    def node(self, name: PartId) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def component_of(self, name: PartId) -> Component:
        return next(
            component
            for component in self.components
            if any(node.name == name for node in component.nodes)
        )

    def passes(self, node: Node) -> bool:
        """Whether rows of a source pass other levels on their way to a node."""
        return self.component_of(node.name).level > 1 and node.feed.stream in self.entries

    def is_fused(self, node: Node) -> bool:
        """Whether a node gets its rows from another one in the same slot task."""
        return any(
            other.operator == node.feed.stream for other in self.component_of(node.name).nodes
        )

    def parts_of(self, operator: str) -> tuple[Node, ...]:
        """The nodes that an operator runs as."""
        return tuple(node for node in self.nodes if node.operator == operator)

    def sibling_parts(self, node: Node) -> tuple[Node, ...]:
        """The parts of an operator that read the same rows. Rows taken by none of them are late."""
        return self.parts_of(node.operator) if node.plan.shares_rows else (node,)

    def is_first_part(self, node: Node) -> bool:
        """Whether a node reports for all parts that read the same rows."""
        return self.sibling_parts(node)[0].name == node.name

    def late_nodes(self, operator: str) -> tuple[Node, ...]:
        """The nodes that report which rows of sources an operator leaves out."""
        return tuple(
            node
            for node in self.parts_of(operator)
            if self.is_first_part(node) and node.feed.stream in self.entries
        )

    def with_nodes(self, nodes: Sequence[Node]) -> Plan:
        """The same plan with other nodes of the same names."""
        new = {node.name: node for node in nodes}
        parts = tuple(
            replace(each, nodes=tuple(new[node.name] for node in each.nodes))
            for each in self.components
        )
        return replace(self, nodes=tuple(new[node.name] for node in self.nodes), components=parts)
