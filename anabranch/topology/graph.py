"""The topology as an immutable graph of named operators, validated while it is built.

The API that builds it from DataFrames is `anabranch.spark.api.topology`. Operators and checks are
imported from here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from anabranch.errors import TopologyError, unknown
from anabranch.topology.checks import (
    check_early,
    check_result_names,
    check_windows,
    key_fields,
    listed_windows,
)
from anabranch.topology.operators import (
    EARLY_COLUMN,
    LATE_COLUMNS,
    RESULT_COLUMNS,
    Apply,
    Clock,
    Compute,
    Consolidate,
    Early,
    Field,
    Join,
    Map,
    Named,
    Operator,
    Process,
    Sink,
    Source,
    failed_fields,
    window_fields,
)

__all__ = [
    "ALL_APPLIES",
    "EARLY_COLUMN",
    "LATE_COLUMNS",
    "RESULT_COLUMNS",
    "Apply",
    "Clock",
    "Compute",
    "Consolidate",
    "Early",
    "Field",
    "Graph",
    "Join",
    "Map",
    "Named",
    "Operator",
    "Process",
    "Sink",
    "Source",
    "check_early",
    "check_result_names",
    "check_windows",
    "failed_fields",
    "key_fields",
    "listed_windows",
    "window_fields",
]

_LONGEST_DERIVED = 64
_RESERVED = (": ", " + ")
_LONGEST_NAME = 128  # characters of an operator's name
ALL_APPLIES = "all applies"  # the name in messages of what is set for all applies together


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """All operators in the order in which they were added.

    An operator comes after its inputs, so there is no cycle.
    """

    name: str
    operators: tuple[Operator, ...] = ()
    sinks: tuple[Sink, ...] = ()
    fuse: tuple[frozenset[str], ...] = ()  # operators that the user wants in one component
    apart: tuple[frozenset[str], ...] = ()  # operators that must be in different components

    def operator(self, name: str) -> Operator:
        for each in self.operators:
            if each.name == name:
                return each
        raise TopologyError(
            f"topology {self.name!r}: {unknown('operator', name, [o.name for o in self.operators])}"
        )

    def users_of(self, name: str) -> tuple[Operator, ...]:
        return tuple(each for each in self.operators if name in each.inputs)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(each for each in self.operators if isinstance(each, Source))

    @property
    def maps(self) -> tuple[Map, ...]:
        return tuple(each for each in self.operators if isinstance(each, Map))

    def stream_of(self, name: str) -> tuple[Operator, tuple[Map, ...]]:
        """The operator that a stream comes from, before all maps; and these maps in order."""
        return self.operator(name).origin(self)

    def root_of(self, name: str) -> Operator:
        """The operator that a stream comes from, before all maps and applies."""
        return self.stream_of(name)[0].root(self)

    def fields_of(self, name: str) -> tuple[Field, ...]:
        """The columns of a stream. For windowed results, those of complete windows."""
        return self.operator(name).fields_in(self)

    def clock_of(self, name: str) -> Clock:
        """Where the rows of a stream have their event time."""
        return self.stream_of(name)[0].clock_in(self)

    def clock_or_none(self, name: str) -> Clock | None:
        """Where the rows of a stream have their event time; None if they have none.

        For example, an apply may have dropped it.
        """
        return self.stream_of(name)[0].clock_or_none_in(self)

    def compute_of(self, name: str) -> Compute:
        """The compute with this name, or the one that a consolidate with this name reads."""
        return self.operator(name).compute_in(self)

    def check(self) -> None:
        """Refuses errors that can be found only in the finished topology."""
        for each in self.operators:
            each.check_in(self)

    def hinted(self, names: Iterable[str], *, fuse: bool) -> Graph:
        """The graph with a hint: some operators must share a component, or must not."""
        group = frozenset(names)
        for name in group:
            if not self.operator(name).stateful:
                valid = [each.name for each in self.operators if each.stateful]
                raise TopologyError(unknown("operator with state", name, valid))
        if len(group) < 2:
            raise TopologyError(
                f"{'fuse' if fuse else 'keep_apart'}() needs at least two operators, "
                f"got {', '.join(group)}"
            )
        return (
            replace(self, fuse=(*self.fuse, group))
            if fuse
            else replace(self, apart=(*self.apart, group))
        )

    def derived_name(self, *parts: str) -> str:
        """A default name for an operator with state, made from what it does.

        It must stay the same after a restart, whatever other operators are added. So there is no
        counter, and a name that is already used is refused.
        """
        name = "_".join(parts)
        if len(name) > _LONGEST_DERIVED:
            mark = f"{zlib.crc32(name.encode()):08x}"
            name = f"{name[: _LONGEST_DERIVED - len(mark) - 1]}_{mark}"
        if any(each.name == name for each in self.operators):
            raise TopologyError(
                f"topology {self.name!r}: two operators would be named {name!r}, and state belongs "
                "to names; give one of them another name with name=. If a checkpoint has state of "
                f"one of them, that one must keep {name!r}"
            )
        return name

    def free_name(self, wish: str) -> str:
        """A free name like `wish`, for an operator that no state depends on."""
        taken = {each.name for each in self.operators}
        return next(
            n for n in (wish, *(f"{wish}_{i}" for i in range(2, len(taken) + 3))) if n not in taken
        )

    def add(self, operator: Operator) -> Graph:
        if not isinstance(operator.name, str) or not operator.name.strip():
            raise TopologyError(
                f"operator name {operator.name!r}; valid: a non-empty string, such as 'by_page'"
            )
        if len(operator.name) > _LONGEST_NAME or not operator.name.isprintable():
            shown = operator.name if len(operator.name) <= 40 else f"{operator.name[:40]}..."
            raise TopologyError(
                f"operator name {shown!r} has {len(operator.name)} characters; valid: at most "
                f"{_LONGEST_NAME} printable ones, given with name="
            )
        wrong = [each for each in _RESERVED if each in operator.name]
        if operator.stateful and wrong:
            raise TopologyError(
                f"operator name {operator.name!r} contains {wrong[0]!r}, "
                "which is reserved for names of parts and components"
            )
        if operator.name == ALL_APPLIES:
            raise TopologyError(
                f"operator name {operator.name!r} is reserved for all applies together; "
                "choose another"
            )
        if any(each.name == operator.name for each in self.operators):
            raise TopologyError(
                f"topology {self.name!r} has an operator named {operator.name!r} already"
            )
        for each in operator.inputs:
            self.operator(each)
        return replace(self, operators=(*self.operators, operator))

    def add_sink(self, sink: Sink) -> Graph:
        self.operator(sink.input)
        if any(each.name == sink.name for each in self.sinks):
            raise TopologyError(f"topology {self.name!r} has a sink named {sink.name!r} already")
        return replace(self, sinks=(*self.sinks, sink))
