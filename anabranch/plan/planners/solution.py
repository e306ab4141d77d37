"""The result of a planner: groups of operators to fuse, the cost, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.plan.planners.cost import Costs
from anabranch.plan.planners.problem import ANY, Space, StreamEdge


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedGroup:
    """Operators that share a slot task, partitioned by the attributes they have in common."""

    operators: tuple[str, ...]
    attributes: frozenset[str] | None  # None: any partitioning is possible
    saved: float  # the rate on its inner streams
    adaptation: float  # psi


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionReason:
    """Why the operators at both ends of a stream are in one component, or why not."""

    stream: StreamEdge
    fused: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionPlan:
    """The groups, in the order of their first operators, and their cost.

    cost = communication + adaptation (CBP, equation 1).
    """

    planner: str
    components: tuple[FusedGroup, ...]
    communication: float
    adaptation: float
    reasons: tuple[FusionReason, ...]
    communication_unfused: float  # with every operator by itself, except those that hints fuse
    adaptation_unfused: float
    above_bound: tuple[
        tuple[str, ...], ...
    ] = ()  # components that cannot be adapted within the bound, however they are planned

    @property
    def cost(self) -> float:
        return self.communication + self.adaptation

    @property
    def partition(self) -> frozenset[frozenset[str]]:
        return frozenset(frozenset(component.operators) for component in self.components)


def fusion_plan(costs: Costs, components: Iterable[int], planner: str) -> FusionPlan:
    """The plan of a partition of the units."""
    space = costs.space
    ordered = sorted(components, key=lambda c: c & -c)
    fused = tuple(
        FusedGroup(
            operators=space.names(c),
            attributes=space.attributes_named(c),
            saved=_saved(space, c),
            adaptation=costs.adaptation(c),
        )
        for c in ordered
    )
    reasons = _reasons(costs, ordered)
    return FusionPlan(
        planner=planner,
        components=fused,
        communication=sum(reason.stream.rate for reason in reasons if not reason.fused),
        adaptation=sum(component.adaptation for component in fused),
        reasons=reasons,
        communication_unfused=space.streams.rate
        - sum(_saved(space, 1 << i) for i in range(len(space.units))),
        adaptation_unfused=sum(costs.adaptation(1 << i) for i in range(len(space.units))),
        above_bound=tuple(space.names(c) for c in ordered if not costs.is_within_bound(c)),
    )


def _saved(space: Space, component: int) -> float:
    names = set(space.names(component))
    return sum(s.rate for s in space.streams.streams if s.source in names and s.target in names)


def _reasons(costs: Costs, components: list[int]) -> tuple[FusionReason, ...]:
    space = costs.space
    of = {name: c for c in components for name in space.names(c)}
    known: dict[tuple[int, int], str] = {}
    found = []
    for stream in space.streams.streams:
        a, b = of[stream.source], of[stream.target]
        if a == b:
            found.append(FusionReason(stream=stream, fused=True, text=_fused(space, stream, a)))
            continue
        pair = (min(a, b), max(a, b))
        if pair not in known:
            known[pair] = _refused(costs, a, b, components)
        found.append(FusionReason(stream=stream, fused=False, text=known[pair]))
    return tuple(found)


def _fused(space: Space, stream: StreamEdge, component: int) -> str:
    by = _attributes(space, component)
    if space.unit_of[stream.source] == space.unit_of[stream.target]:
        return f"fused by a hint, partitioned by {by}"
    return f"both may be partitioned by {by}; that saves a rate of {stream.rate:,.6g}"


def _refused(costs: Costs, a: int, b: int, components: list[int]) -> str:
    """Why two components are not one: the first rule that forbids it, or the cost."""
    space = costs.space
    both = a | b
    if not space.attributes(both):
        return f"no attribute in common: {_attributes(space, a)} and {_attributes(space, b)}"
    if space.are_apart(both):
        return "kept apart by a hint"
    if not space.is_ordered([both, *(c for c in components if c not in (a, b))]):
        return "one component would wait for others that wait for it"
    more = costs.adaptation(both) - costs.adaptation(a) - costs.adaptation(b)
    if not costs.is_within_bound(both):
        return (
            f"adaptation would cost {costs.adaptation(both):,.6g}, above the bound of "
            f"{costs.rules.bound:,.6g}"
        )
    saves = sum(space.between(i, b) for i in range(len(space.units)) if a >> i & 1)
    if more >= saves:
        return f"fusing saves a rate of {saves:,.6g} and adds {more:,.6g} of adaptation"
    return (
        f"fusing these two would pay ({saves:,.6g} saved, {more:,.6g} of adaptation added); "
        "the planner did not consider it"
    )


def _attributes(space: Space, component: int) -> str:
    if space.attributes(component) == ANY:
        return "anything"
    return f"({', '.join(sorted(space.attributes_named(component) or ()))})"
