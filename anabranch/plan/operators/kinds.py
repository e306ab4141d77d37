"""The registry of kinds: the nodes of each operator, and what a checkpoint may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from anabranch.plan.operators.aggregates import Consolidated, consolidated
from anabranch.plan.operators.base import Node
from anabranch.plan.operators.joins import JoinContents, join_nodes
from anabranch.plan.operators.process import ProcessContents, process_nodes
from anabranch.plan.operators.sessions import SessionContents, session_nodes
from anabranch.plan.operators.windows import WindowsContents, window_nodes
from anabranch.plan.sharing import share_or_not
from anabranch.topology.graph import Consolidate, Graph, Join, Operator, Process
from anabranch.topology.windows import Session, Window

AnyContents: TypeAlias = WindowsContents | SessionContents | JoinContents | ProcessContents

# The function that makes the nodes of each kind of window in a consolidate, in this order.
_WINDOW_NODES: Mapping[str, Callable[[Consolidated, Sequence[Any]], Sequence[Node]]] = {
    Window.kind: window_nodes,
    Session.kind: session_nodes,
}


def consolidate_nodes(graph: Graph, consolidate: Consolidate, *, shared: bool | None) -> list[Node]:
    """The nodes of a consolidate: each kind of window has its own."""
    by_kind: dict[str, list[Any]] = {kind: [] for kind in _WINDOW_NODES}
    for window in consolidate.windows:
        by_kind[window.kind].append(window)
    wanted = consolidate.share if shared is None else shared
    sharing = share_or_not(by_kind[Window.kind], wanted=wanted)
    alone = len(consolidate.windows) - sum(map(len, sharing.groups))
    of = consolidated(graph, consolidate, sharing, len(sharing.groups) + alone)
    return [node for kind, build in _WINDOW_NODES.items() for node in build(of, by_kind[kind])]


_NODES: Mapping[type[Operator], Callable[..., list[Node]]] = {
    Consolidate: consolidate_nodes,
    Join: join_nodes,
    Process: process_nodes,
}


def nodes_for(graph: Graph, operator: Operator, *, shared: bool | None) -> list[Node]:
    """The nodes of a stateful operator. `shared`: whether its windows already share panes."""
    return _NODES[type(operator)](graph, operator, shared=shared)
