"""Small random graphs for planners, and all their partitions, to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from anabranch.plan.planners.cost import Adaptation, Costs
from anabranch.plan.planners.problem import Hints, PlannerOperator, Space, StreamEdge, StreamGraph
from anabranch.plan.planners.solution import FusionPlan

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn


def operator(
    name: str,
    attributes: str | None,
    load: Sequence[Sequence[float]] | None = None,
    state: float = 0,
) -> PlannerOperator:
    """An operator; attributes are letters."""
    loads = None if load is None else np.array(load, dtype=float)
    return PlannerOperator(
        name=name,
        attributes=None if attributes is None else frozenset(attributes),
        state=state,
        loads=loads,
    )


def streams(attributes: dict[str, str | None], *edges: tuple[str, str, float]) -> StreamGraph:
    return StreamGraph(
        tuple(operator(n, a) for n, a in attributes.items()),
        tuple(StreamEdge(*edge) for edge in edges),
    )


@st.composite
def graphs(draw: DrawFn, most: int = 7) -> StreamGraph:
    """Up to seven operators over three attributes, measured over four windows of three shards."""
    count = draw(st.integers(1, most))
    sets = st.none() | st.frozensets(st.sampled_from("abc"), min_size=0, max_size=3)
    loads = st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=4, max_size=4)
    operators = tuple(
        PlannerOperator(
            name=f"o{i}",
            attributes=draw(sets),
            state=draw(st.integers(0, 50)),
            loads=np.array(draw(loads), dtype=float),
        )
        for i in range(count)
    )
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=12, unique=True)) if pairs else []
    return StreamGraph(
        operators,
        tuple(StreamEdge(f"o{a}", f"o{b}", float(draw(st.integers(0, 60)))) for a, b in edges),
    )


adaptations = st.builds(
    Adaptation,
    capacity=st.sampled_from([20.0, 50.0, 200.0]),
    threshold=st.sampled_from([1.0, 1.2]),
    bound=st.sampled_from([0.0, 30.0, 100.0, float("inf")]),
    every=st.sampled_from([1, 2]),
)


def partitions(items: Sequence[int]) -> Iterator[list[int]]:
    """All partitions of single bits into sets of bits."""
    if not items:
        yield []
        return
    first, *rest = items
    for others in partitions(rest):
        yield [1 << first, *others]
        for i, part in enumerate(others):
            yield [*others[:i], part | 1 << first, *others[i + 1 :]]


def feasible_plans(costs: Costs) -> Iterator[list[int]]:
    """Brute force: every partition into feasible components that can run level by level."""
    space = costs.space
    for plan in partitions(range(len(space.units))):
        if all(costs.is_feasible(c) for c in plan) and space.is_ordered(plan):
            yield plan


def cheapest(streams: StreamGraph, adaptation: Adaptation, hints: Hints, *, ordered: bool) -> float:
    """The least cost of all partitions."""
    costs = Costs(Space(streams, hints, ordered=ordered), adaptation)
    together = sum(
        s.rate
        for s in streams.streams
        if costs.space.unit_of[s.source] == costs.space.unit_of[s.target]
    )
    return (
        streams.rate
        - together
        + min(sum(map(costs.weight, plan)) for plan in feasible_plans(costs))
    )


def check(
    plan: FusionPlan, streams: StreamGraph, *, ordered: bool, bound: float = float("inf")
) -> None:
    """What every plan must be, computed again from names."""
    names = [name for component in plan.components for name in component.operators]
    assert sorted(names) == sorted(o.name for o in streams.operators), "covers every operator once"
    by_name = {o.name: o for o in streams.operators}
    of = {name: i for i, component in enumerate(plan.components) for name in component.operators}
    for component in plan.components:
        sets = [a for name in component.operators if (a := by_name[name].attributes) is not None]
        common = frozenset.intersection(*sets) if sets else None
        assert component.attributes == common
        if len(component.operators) > 1:
            assert common is None or common
            assert component.adaptation <= bound or component.operators in plan.above_bound
        reached, before = {component.operators[0]}, 0
        while len(reached) > before:
            before = len(reached)
            for s in streams.streams:
                if of[s.source] == of[s.target] and {s.source, s.target} & reached:
                    reached |= {s.source, s.target}
        assert reached == set(component.operators), "connected"
    between = [s for s in streams.streams if of[s.source] != of[s.target]]
    assert plan.communication == sum(s.rate for s in between)
    assert plan.communication + sum(c.saved for c in plan.components) == streams.rate
    assert plan.adaptation == sum(c.adaptation for c in plan.components)
    assert [(r.stream, r.fused) for r in plan.reasons] == [
        (s, of[s.source] == of[s.target]) for s in streams.streams
    ]
    assert all(reason.text for reason in plan.reasons)
    if ordered:
        needs = {
            i: {of[s.source] for s in between if of[s.target] == i}
            for i in range(len(plan.components))
        }
        while ready := {i for i, others in needs.items() if not others & needs.keys()}:
            needs = {i: others for i, others in needs.items() if i not in ready}
        assert not needs, "components that wait for each other"


def large(operators: int, seed: int, degree: float = 1.5) -> StreamGraph:
    """A random graph with two hours of histograms."""
    chance = np.random.default_rng(seed)
    edges: dict[tuple[int, int], float] = {}
    while len(edges) < operators * degree:
        a, b = sorted(chance.choice(operators, 2, replace=False).tolist())
        edges[a, b] = float(chance.integers(1, 10_000)) * 120
    rates = chance.integers(100, 20_000, operators).tolist()
    return StreamGraph(
        tuple(
            PlannerOperator(
                name=f"o{i}",
                attributes=frozenset(f"a{j}" for j in chance.choice(4, 2, replace=False)),
                state=float(rate),
                loads=chance.poisson(rate / 64, (120, 64)).astype(float),
            )
            for i, rate in enumerate(rates)
        ),
        tuple(StreamEdge(f"o{a}", f"o{b}", rate) for (a, b), rate in edges.items()),
    )
