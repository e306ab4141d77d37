"""The component plan: which operators run fused in one slot task, level by level, and what each of them keeps and emits.

A node is a stateful operator as it runs: a compute with its consolidate, the stream that feeds it and the maps on the way. Nodes
whose keys have attributes in common may share a component: then rows go from one to the next inside the slot task, shard by shard.
A component is one level further than the furthest one that feeds it; there is one exchange before each level. Rows of a source for
a later level pass the levels before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.plan.operators.applies import Applied
from anabranch.plan.operators.base import Feed, Input, OperatorPlan
from anabranch.plan.operators.joins import JoinSide, Side
from anabranch.plan.operators.process import ProcessPlan
from anabranch.plan.operators.sessions import SessionPlan
from anabranch.plan.planners.solution import FusionPlan
from anabranch.plan.sharing import Sharing
from anabranch.topology.graph import APPLIES, Compute, Consolidate, Field, Source
from anabranch.topology.windows import Session, Window

JOINED = " + "  # between the names of operators in the name of their component


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A stateful operator as it runs, or a part of one: some of its windows, or a session. Its name is that of its state."""

    compute: Compute
    consolidate: Consolidate
    feed: Feed
    inputs: tuple[Input, ...]
    slotted: OperatorPlan
    sharing: Sharing

    @property
    def name(self) -> str:
        return self.slotted.operator

    @property
    def operator(self) -> str:
        """The operator whose results these are."""
        return self.consolidate.name

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.slotted.panes.windows

    @property
    def side(self) -> Side | None:
        """Which side of a join it is."""
        return self.slotted.side if isinstance(self.slotted, JoinSide) else None

    @property
    def session(self) -> Session | None:
        return self.slotted.session if isinstance(self.slotted, SessionPlan) else None

    @property
    def process(self) -> ProcessPlan | None:
        """What it is as a user's class with state per key."""
        return self.slotted if isinstance(self.slotted, ProcessPlan) else None

    @property
    def row_by_row(self) -> bool:
        """Whether its rows go to slots as they are; those of others are combined on the way."""
        return self.process is not None and not self.process.kept

    @property
    def attributes(self) -> frozenset[str]:
        """The partition attributes, each with its type: an int and a bigint are hashed differently."""
        return frozenset(
            f"{each.name}: {each.type}" if each.name else "" for each in self.slotted.keys
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Operators that run in one task, partitioned by the attributes they have in common; each after those that feed it."""

    name: str
    attributes: tuple[Field, ...]
    nodes: tuple[Node, ...]
    level: int  # 1: no other component feeds it

    def by(self, node: Node) -> tuple[int, ...]:
        """Which of a node's keys are hashed to find the shard."""
        return tuple(node.slotted.keys.index(each) for each in self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The topology cut into components, in the order of their levels."""

    topology: str
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]  # in the order of the topology, which numbers them
    components: tuple[Component, ...]
    fusion: FusionPlan
    applies: tuple[
        Applied, ...
    ] = ()  # between sources and the first level, in the order of the topology

    @property
    def levels(self) -> int:
        """How many levels of components there are; 0 where no operator has state."""
        return max((component.level for component in self.components), default=0)

    @property
    def entries(self) -> frozenset[str]:
        """The streams that the first level reads: sources, and what applies make of them."""
        return frozenset(
            {*(each.name for each in self.sources), *(each.name for each in self.applies)}
        )

    @property
    def routed(self) -> tuple[str, ...]:
        """What has slots: each component, and all applies together."""
        return (*(each.name for each in self.components), *((APPLIES,) if self.applies else ()))

    def applied(self, name: str) -> Applied | None:
        """The apply of a name, None where there is none."""
        return next((each for each in self.applies if each.name == name), None)

    def at(self, level: int) -> tuple[Component, ...]:
        return tuple(component for component in self.components if component.level == level)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def component_of(self, name: str) -> Component:
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

    def together(self, node: Node) -> tuple[Node, ...]:
        """The parts of an operator that read the same rows: what none of them takes is late. Sides of a join read different ones."""
        return (node,) if node.side else self.parts_of(node.operator)

    def late_nodes(self, operator: str) -> tuple[Node, ...]:
        """The nodes that tell what rows of sources an operator leaves out: its first part, or the sides of a join."""
        parts = self.parts_of(operator)
        first = parts if parts and parts[0].side else parts[:1]
        return tuple(node for node in first if node.feed.stream in self.entries)

    def with_nodes(self, nodes: Sequence[Node]) -> Plan:
        """The same plan with other nodes of the same names."""
        new = {node.name: node for node in nodes}
        parts = tuple(
            replace(each, nodes=tuple(new[node.name] for node in each.nodes))
            for each in self.components
        )
        return replace(self, nodes=tuple(new[node.name] for node in self.nodes), components=parts)
