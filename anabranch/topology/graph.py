"""The topology as an immutable graph of named operators, validated while it is built.

Nodes know columns by name and Spark type; functions and expressions are opaque. The fluent face that builds it from
DataFrames is `anabranch.spark.api.topology`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

from anabranch.aggregates.specs import Aggregate
from anabranch.errors import TopologyError, unknown
from anabranch.topology.apply import ERROR_COLUMN, ApplySpec
from anabranch.topology.durations import duration_us
from anabranch.topology.windows import Session, Window

RESULT_COLUMNS = ("window", "window_name")
EARLY_COLUMN = "early"
_RESERVED = (": ", " + ")
APPLIES = "all applies"  # in the place of a component's name: what has the slots of all applies


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its name and the name of its Spark type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from, and which column says when they happened."""

    name: str
    fields: tuple[Field, ...]
    event_time: str
    unit_us: int | None  # of a numeric event time: the length of one unit; 0 stands for nanoseconds
    delay_us: int
    idle_us: int | None = (
        None  # a source that is silent for this long no longer holds the watermark back
    )


@dataclass(frozen=True, slots=True)
class Clock:
    """How the rows of a stream tell their event time: by a column, or by `window`, whose rows happened just before its end."""

    column: str
    type: str
    unit_us: int | None = None  # of a number: the length of one unit; 0 stands for nanoseconds

    @property
    def moment(self) -> str:
        """The type of times in results."""
        return (
            "timestamp_ntz" if "timestamp_ntz" in self.type or self.type == "date" else "timestamp"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """A stateless function of a DataFrame."""

    name: str
    input: str
    fn: Callable[[Any], Any]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """A stateless Python function of rows; what follows reads it as it would read a source."""

    name: str
    input: str
    work: ApplySpec
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An aggregate with the name of its result column and the type of its input."""

    name: str
    aggregate: Aggregate
    input_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Mergeable aggregates per key: the partials that a consolidate turns into windows."""

    name: str
    input: str
    by: tuple[Field, ...]
    aggregates: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class Early:
    """How often windows that are still open are written as they are: every so many steps, or microseconds of the clock."""

    steps: int | None = None
    us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidate:
    """The windows that are formed from the partials of a compute."""

    name: str
    input: str
    windows: tuple[Window, ...]
    sessions: tuple[Session, ...] = ()
    early: Early | None = None
    share: bool | None = None  # whether all windows share their panes; None: by cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the results of an operator go to, or the rows that came too late for it, or failed in it."""

    name: str
    input: str
    late: bool
    target: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Rows of two streams with equal keys in the same window."""

    name: str
    input: str  # the left one
    right: str
    by: tuple[Field, ...]
    windows: tuple[Window, ...]
    how: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A user's class with state per key."""

    name: str
    input: str
    by: tuple[Field, ...]
    logic: Any  # anabranch.topology.process.Logic
    fields: tuple[Field, ...]  # of results
    combined: tuple[
        Named, ...
    ] = ()  # what it reads of the rows of a key, where that is aggregates of them


Operator: TypeAlias = Source | Map | Apply | Compute | Consolidate | Join | Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """All operators in the order in which they were added; inputs come before their users, so there is no cycle."""

    name: str
    operators: tuple[Operator, ...] = ()
    sinks: tuple[Sink, ...] = ()
    fuse: tuple[frozenset[str], ...] = ()  # operators that the user wants in one component
    apart: tuple[frozenset[str], ...] = ()  # and in different ones

    def operator(self, name: str) -> Operator:
        for each in self.operators:
            if each.name == name:
                return each
        raise TopologyError(
            f"topology {self.name!r}: {unknown('operator', name, [o.name for o in self.operators])}"
        )

    def users_of(self, name: str) -> tuple[Operator, ...]:
        return tuple(each for each in self.operators if name in inputs_of(each))

    def stream_of(
        self, name: str
    ) -> tuple[Source | Apply | Consolidate | Join | Process, tuple[Map, ...]]:
        """Where the rows of a stream come from, a source or an operator with results, and the maps that they pass, in order."""
        maps: list[Map] = []
        node = self.operator(name)
        while isinstance(node, Map):
            maps.insert(0, node)
            node = self.operator(node.input)
        if isinstance(node, Compute):
            raise TopologyError(
                f"compute {node.name!r} is not consolidated: add .consolidate(ab.tumbling(...))"
            )
        return node, tuple(maps)

    def root_of(self, name: str) -> Source | Consolidate | Join | Process:
        """Where the rows of a stream come from, behind all maps and applies."""
        node, _ = self.stream_of(name)
        return self.root_of(node.input) if isinstance(node, Apply) else node

    def fields_of(self, name: str) -> tuple[Field, ...]:
        """The columns of a stream: of a source, of a map, or of windowed results (of these all that are never early)."""
        node = self.operator(name)
        if isinstance(node, Source | Map | Apply | Join | Process):
            return node.fields
        compute = self.compute_of(name)
        moment = self.clock_of(compute.input).moment
        return (
            *compute.by,
            Field("window", f"struct<start:{moment},end:{moment}>"),
            Field("window_name", "string"),
            *(
                Field(named.name, named.aggregate.result_type(named.input_type))
                for named in compute.aggregates
            ),
        )

    def clock_of(self, name: str) -> Clock:
        """How the rows of a stream tell their event time."""
        node, _ = self.stream_of(name)
        if isinstance(node, Apply):
            kept = self.clock_or_none(name)
            if kept is None:
                lost, have = (
                    self.clock_of(self.root_of(name).name),
                    ", ".join(f"{f.name}: {f.type}" for f in node.fields),
                )
                raise TopologyError(
                    f"windows behind apply {node.name!r} need the event time, column {lost.column!r} of type {lost.type}; its "
                    f"schema has {have}"
                )
            return kept
        if isinstance(node, Source):
            kind = next(each.type for each in node.fields if each.name == node.event_time)
            return Clock(node.event_time, kind, node.unit_us)
        if isinstance(node, Process):
            if node.logic.clock is None:
                raise TopologyError(
                    f"results of process {node.name!r} have no event time: name the column of output that tells it, "
                    f'event_time = "at", in {node.logic.name}'
                )
            clock: Clock = node.logic.clock
            return clock
        return Clock(
            "window", next(each.type for each in self.fields_of(node.name) if each.name == "window")
        )

    def clock_or_none(self, name: str) -> Clock | None:
        """How the rows of a stream tell their event time; None where they do not: behind an apply that has dropped it, say."""
        node, _ = self.stream_of(name)
        if isinstance(node, Process) and node.logic.clock is None:
            return None
        if not isinstance(node, Apply):
            return self.clock_of(name)
        clock = self.clock_or_none(node.input)
        return (
            None if clock is None or Field(clock.column, clock.type) not in node.fields else clock
        )

    def compute_of(self, name: str) -> Compute:
        """The compute whose partials a consolidate forms windows from."""
        node = self.operator(name)
        found = self.operator(node.input) if isinstance(node, Consolidate) else node
        if not isinstance(found, Compute):
            raise TopologyError(
                f"consolidate {name!r} reads {found.name!r}; it must follow a compute"
            )
        return found

    def hinted(self, names: Iterable[str], *, fuse: bool) -> Graph:
        """With the wish that some operators share a component, or that they do not."""
        group = frozenset(names)
        for name in group:
            if not isinstance(self.operator(name), Consolidate | Join | Process):
                valid = [
                    each.name
                    for each in self.operators
                    if isinstance(each, Consolidate | Join | Process)
                ]
                raise TopologyError(unknown("operator with state", name, valid))
        if len(group) < 2:
            raise TopologyError(
                f"{'fuse' if fuse else 'keep_apart'}() needs two operators or more; it has {', '.join(group)}"
            )
        return (
            replace(self, fuse=(*self.fuse, group))
            if fuse
            else replace(self, apart=(*self.apart, group))
        )

    def free_name(self, wish: str) -> str:
        """A name that no operator has yet, derived from a wish."""
        taken = {each.name for each in self.operators}
        return next(
            n for n in (wish, *(f"{wish}_{i}" for i in range(2, len(taken) + 3))) if n not in taken
        )

    def add(self, operator: Operator) -> Graph:
        if not isinstance(operator.name, str) or not operator.name.strip():
            raise TopologyError(f"operator name {operator.name!r} is not a text")
        if isinstance(operator, Consolidate | Join | Process) and (
            wrong := [each for each in _RESERVED if each in operator.name]
        ):
            raise TopologyError(
                f"operator name {operator.name!r} has {wrong[0]!r} in it, which names of parts and components need"
            )
        if operator.name == APPLIES:
            raise TopologyError(
                f"operator name {operator.name!r} is what all applies are called together; choose another"
            )
        if any(each.name == operator.name for each in self.operators):
            raise TopologyError(
                f"topology {self.name!r} has an operator named {operator.name!r} already"
            )
        for each in inputs_of(operator):
            self.operator(each)
        return replace(self, operators=(*self.operators, operator))

    def add_sink(self, sink: Sink) -> Graph:
        self.operator(sink.input)
        if any(each.name == sink.name for each in self.sinks):
            raise TopologyError(f"topology {self.name!r} has a sink named {sink.name!r} already")
        return replace(self, sinks=(*self.sinks, sink))


def inputs_of(operator: Operator) -> tuple[str, ...]:
    """The streams that an operator reads."""
    if isinstance(operator, Source):
        return ()
    return (operator.input, operator.right) if isinstance(operator, Join) else (operator.input,)


def failed_fields(fields: Sequence[Field]) -> tuple[Field, ...]:
    """The columns of rows that failed in an apply: those that it was given, and the error."""
    return (*fields, Field(ERROR_COLUMN, "string"))


def key_fields(by: object, fields: Sequence[Field]) -> tuple[Field, ...]:
    """The partition attributes as fields; refuses unknown columns and types that cannot be a key."""
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"by={by!r} is not a list of column names")
    if len(set(names)) != len(names):
        raise TopologyError(f"by={names!r} names a column twice")
    known = {each.name: each for each in fields}
    for name in names:
        if name not in known:
            raise TopologyError(unknown("key column", name, known))
        kind = known[name].type
        if "map<" in kind or "collate" in kind or "variant" in kind:
            raise TopologyError(
                f"column {name!r} of type {kind} cannot be a key; maps and collated strings cannot"
            )
    return tuple(known[name] for name in names)


def check_result_names(by: Sequence[Field], names: Iterable[str]) -> None:
    """Refuses result columns that would have the name of a key or of the window columns."""
    names = list(names)
    if not names:
        raise TopologyError("compute() needs at least one aggregate, such as n=ab.count()")
    for name in (*(each.name for each in by), *names):
        if name in RESULT_COLUMNS:
            raise TopologyError(f"{name!r} is a column of every result; choose another name")
    for name in names:
        if name in {each.name for each in by}:
            raise TopologyError(
                f"aggregate {name!r} has the name of a key column; choose another name"
            )


def check_early(every: object, names: Iterable[str]) -> Early | None:
    """How often early results are wanted: None, a number of steps, or a time."""
    if every is None:
        return None
    if EARLY_COLUMN in names:
        raise TopologyError(
            f"{EARLY_COLUMN!r} is a column of results with early=; choose another name"
        )
    if isinstance(every, int) and not isinstance(every, bool):
        if every < 1:
            raise TopologyError(
                f"early={every}; valid: 1 step or more, or a time such as '10 seconds'"
            )
        return Early(steps=every)
    if not isinstance(every, str | timedelta):
        raise TopologyError(
            f"early={every!r}; valid: a number of steps, or a time such as '10 seconds'"
        )
    return Early(us=duration_us(every, "early"))


def check_windows(windows: Sequence[object]) -> tuple[Window | Session, ...]:
    """The windows and sessions of a consolidate: at least one, no name twice (but all of a cumulative one share theirs)."""
    if not windows:
        raise TopologyError(
            'consolidate() needs at least one window, such as ab.tumbling("10 minutes")'
        )
    checked: list[Window | Session] = []
    for window in (
        each
        for given in windows
        for each in (given if isinstance(given, tuple | list) else (given,))
    ):
        if not isinstance(window, Window | Session):
            raise TopologyError(
                f"{window!r} is not a window; write ab.tumbling, ab.sliding, ab.hopping, ab.cumulative or ab.session"
            )
        if any(each.name == window.name and not _cumulate(each, window) for each in checked):
            raise TopologyError(
                f"two windows are named {window.name!r}; give one of them another name="
            )
        checked.append(window)
    return tuple(checked)


def _cumulate(one: Window | Session, other: Window | Session) -> bool:
    """True when two windows can be steps of one cumulative window: only their lengths differ."""
    return (
        isinstance(one, Window)
        and isinstance(other, Window)
        and (one.every_us, one.offset_us) == (other.every_us, other.offset_us)
        and one.length_us != other.length_us
    )
