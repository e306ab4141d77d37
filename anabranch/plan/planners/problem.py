"""The problem that planners solve: operators, the streams between them, and the user's hints.

A component is connected, and its operators have a partition attribute in common (Enorm 4.4, CBP
3.1). Spark runs the components of a step level by level, so a plan must be ordered as well: no two
components wait for each other. The papers' system runs all operators at once and does not need
that; their experiments are planned without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, or_

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import TopologyError, unknown

ANY = -1  # attributes as bits: all of them, for an operator with any partitioning


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannerOperator:
    """An operator as planners see it: its partition attributes, and what was measured."""

    name: str
    attributes: frozenset[str] | None  # None: any partitioning is possible
    state: float = 0.0  # rows (or bytes) of state, spread over the shards like the load
    # By statistics window (row) and shard (column).
    loads: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class StreamEdge:
    """Rows from one operator to another.

    The rate is over the whole history, or over any time that all streams have in common.
    """

    source: str
    target: str
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What the user decides: sets of operators to fuse, pairs of operators to keep apart."""

    fuse: tuple[frozenset[str], ...] = ()
    apart: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, eq=False)
class StreamGraph:
    """A DAG of operators and the streams between them."""

    operators: tuple[PlannerOperator, ...]
    streams: tuple[StreamEdge, ...]

    def __post_init__(self) -> None:
        names = [operator.name for operator in self.operators]
        if len(set(names)) < len(names):
            raise TopologyError(
                f"duplicate operator {next(n for n in names if names.count(n) > 1)!r}"
            )
        for stream in self.streams:
            for end in (stream.source, stream.target):
                if end not in set(names):
                    raise TopologyError(unknown("operator", end, names))
            if stream.source == stream.target:
                raise TopologyError(f"operator {stream.source!r} takes a stream of its own")
            if not stream.rate >= 0:
                raise TopologyError(
                    f"stream {stream.source} -> {stream.target}: rate {stream.rate}; valid: "
                    "0 or more"
                )
        shapes = {operator.loads.shape for operator in self.operators if operator.loads is not None}
        if len(shapes) > 1 or any(len(shape) != 2 for shape in shapes):
            raise TopologyError(
                f"loads of shapes {sorted(shapes)}; valid: one shape, (statistics windows, shards)"
            )

    @cached_property
    def rate(self) -> float:
        """The rate of all streams together, which is communicated if nothing is fused."""
        return sum(stream.rate for stream in self.streams)


class Space:
    """The sets of operators that may be components, each as a set of bits.

    A bit is a unit: one operator, or several that a hint fuses.
    """

    def __init__(
        self, streams: StreamGraph, hints: Hints = Hints(), *, ordered: bool = True
    ) -> None:
        self.streams = streams
        self.hints = hints
        self.ordered = ordered
        by_name = {operator.name: operator for operator in streams.operators}
        for name in (name for group in (*hints.fuse, *hints.apart) for name in group):
            if name not in by_name:
                raise TopologyError(unknown("operator", name, by_name))
        self.attribute_names = sorted({a for o in streams.operators for a in o.attributes or ()})
        self.units: list[tuple[PlannerOperator, ...]] = [
            tuple(by_name[n] for n in unit) for unit in _units(streams, hints)
        ]
        self.unit_of = {operator.name: i for i, unit in enumerate(self.units) for operator in unit}
        self.every = (1 << len(self.units)) - 1
        self._attributes = [reduce(and_, map(self._bits, unit)) for unit in self.units]
        self.out, self.into, self.near = ([0] * len(self.units) for _ in range(3))
        self.rates: list[dict[int, float]] = [
            {} for _ in self.units
        ]  # of a unit to and from each of its neighbours
        for stream in streams.streams:
            a, b = self.unit_of[stream.source], self.unit_of[stream.target]
            if a != b:
                self.out[a] |= 1 << b
                self.into[b] |= 1 << a
                for one, other in ((a, b), (b, a)):
                    self.near[one] |= 1 << other
                    self.rates[one][other] = self.rates[one].get(other, 0.0) + stream.rate
        self._not_with = [0] * len(self.units)
        for pair in hints.apart:
            self._keep_apart([self.unit_of[name] for name in sorted(pair)], pair)
        self._common: dict[int, int] = {}
        self._connected: dict[int, bool] = {}
        self._needs: dict[int, int] = {}
        self._check_units()

    def _bits(self, operator: PlannerOperator) -> int:
        if operator.attributes is None:
            return ANY
        return sum(1 << self.attribute_names.index(name) for name in operator.attributes)

    def _keep_apart(self, units: Sequence[int], names: Iterable[str]) -> None:
        if len(set(units)) < len(units):
            raise TopologyError(
                f"operators {', '.join(sorted(names))} are to be fused and to be kept apart"
            )
        for a in units:
            self._not_with[a] |= sum(1 << b for b in units if b != a)

    def _check_units(self) -> None:
        """Hints to fuse must be components themselves."""
        for i, unit in enumerate(self.units):
            names = {operator.name for operator in unit}
            if len(unit) > 1 and not self._attributes[i]:
                raise TopologyError(
                    f"operators {', '.join(sorted(names))} are to be fused, but have no attribute "
                    "in common"
                )
            if len(unit) > 1 and not _is_connected(names, self.streams):
                raise TopologyError(
                    f"operators {', '.join(sorted(names))} are to be fused, but no stream "
                    "connects them all"
                )
        if self.waiting(1 << i for i in range(len(self.units))):
            raise TopologyError(
                "the streams form a cycle"
                if not self.hints.fuse
                else "operators to be fused would wait for others between them"
            )

    def attributes(self, units: int) -> int:
        """The attributes that all have in common, as bits; ANY: any partitioning is possible."""
        known = self._common.get(units)
        if known is None:
            known = self._common[units] = reduce(
                and_, (self._attributes[i] for i in bits(units)), ANY
            )
        return known

    def attributes_named(self, units: int) -> frozenset[str] | None:
        common = self.attributes(units)
        return None if common == ANY else frozenset(self.attribute_names[i] for i in bits(common))

    def are_apart(self, units: int) -> bool:
        """True if a hint keeps some of them apart."""
        return bool(self.hints.apart) and any(self._not_with[i] & units for i in bits(units))

    def is_connected(self, units: int) -> bool:
        known = self._connected.get(units)
        if known is None:
            reached = frontier = units & -units
            while frontier:
                frontier = self.neighbours(frontier) & units & ~reached
                reached |= frontier
            known = self._connected[units] = reached == units
        return known

    def is_component(self, units: int) -> bool:
        """Whether units are connected, share an attribute, and no hint forbids it. One unit is."""
        alone = not units & (units - 1)
        return alone or (
            self.attributes(units) != 0 and not self.are_apart(units) and self.is_connected(units)
        )

    def neighbours(self, units: int) -> int:
        """The units that streams connect with these, and these too if they are connected."""
        return reduce(or_, (self.near[i] for i in bits(units)), 0)

    def is_convex(self, units: int) -> bool:
        """True if no path leaves the set and comes back.

        Otherwise the set would wait for others that wait for it.
        """
        outside = frontier = reduce(or_, (self.out[i] for i in bits(units)), 0) & ~units
        while frontier:
            found = reduce(or_, (self.out[i] for i in bits(frontier)), 0)
            if found & units:
                return False
            frontier = found & ~outside
            outside |= found
        return True

    def is_ordered(self, components: Iterable[int]) -> bool:
        """True if the components can run one after another, or if that is not required."""
        return not self.ordered or not self.waiting(components)

    def waiting(self, components: Iterable[int]) -> list[int]:
        """The components that wait for each other, or for such components. Other units are done."""
        every = set(components)
        among = reduce(or_, every, 0)
        left = {c: self.needs(c) & among for c in every}
        done, before = 0, -1
        while done != before:
            before = done
            waits = {}
            for c, needs in left.items():
                if needs & ~done:
                    waits[c] = needs
                else:
                    done |= c
            left = waits
        return list(left)

    def needs(self, units: int) -> int:
        """The units outside a set whose streams go into it."""
        known = self._needs.get(units)
        if known is None:
            known = self._needs[units] = (
                reduce(or_, (self.into[i] for i in bits(units)), 0) & ~units
            )
        return known

    def between(self, unit: int, units: int) -> float:
        """The rate between a unit and others, in both directions."""
        return sum(rate for other, rate in self.rates[unit].items() if units >> other & 1)

    def inside(self, units: int) -> float:
        """The rate on streams inside a set of units, which is not communicated."""
        return sum(self.between(i, units) for i in bits(units)) / 2

    def names(self, units: int) -> tuple[str, ...]:
        return tuple(operator.name for i in bits(units) for operator in self.units[i])


def bits(units: int) -> Iterator[int]:
    """The positions of the set bits."""
    while units:
        lowest = units & -units
        yield lowest.bit_length() - 1
        units ^= lowest


def _units(streams: StreamGraph, hints: Hints) -> list[list[str]]:
    """Operators that hints fuse, united if hints overlap; every other operator by itself.

    They are in the order of the operators.
    """
    of: dict[str, set[str]] = {operator.name: {operator.name} for operator in streams.operators}
    for group in hints.fuse:
        united = set().union(*(of[name] for name in group))
        of.update(dict.fromkeys(united, united))
    order = [operator.name for operator in streams.operators]
    return [
        [n for n in order if n in of[name]]
        for name in order
        if name == next(n for n in order if n in of[name])
    ]


def _is_connected(names: set[str], streams: StreamGraph) -> bool:
    near: Mapping[str, set[str]] = {name: set() for name in names}
    for stream in streams.streams:
        if stream.source in names and stream.target in names:
            near[stream.source].add(stream.target)
            near[stream.target].add(stream.source)
    reached, frontier = set[str](), {min(names)}
    while frontier:
        reached |= frontier
        frontier = set().union(*(near[name] for name in frontier)) - reached
    return reached == names
