"""The operators of a topology, as values.

What differs between operators is a method here. So no other module has to ask which operator it
has. Operators know columns by name and Spark type; functions and expressions are opaque.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from anabranch.aggregates.specs import Aggregate
from anabranch.errors import NotYetError, TopologyError
from anabranch.topology.apply import ERROR_COLUMN, ApplySpec
from anabranch.topology.windows import AlignedWindow, WindowDefinition

if TYPE_CHECKING:
    from anabranch.topology.graph import Graph

RESULT_COLUMNS = ("window", "window_name")
EARLY_COLUMN = "early"
LATE_COLUMNS = ("side", "reason")  # what late rows of a join have besides their own columns


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its name and the name of its Spark type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Clock:
    """Where rows have their event time: a column.

    For the column `window`, the event time is just before the end of the window.
    """

    column: str
    type: str
    unit_us: int | None = None  # of a number: the length of one unit; 0 means nanoseconds

    @property
    def moment(self) -> str:
        """The type of times in results."""
        without_zone = "timestamp_ntz" in self.type or self.type == "date"
        return "timestamp_ntz" if without_zone else "timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator(ABC):
    """One named operator of a topology."""

    name: str

    stateful: ClassVar[bool] = False  # it has state per key, and slots of its own
    writes_results: ClassVar[bool] = True  # its tasks write its rows, for sinks
    left_out: ClassVar[str] = "late"  # the name of its stream of rows that were left out

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """The streams that it reads."""

    @abstractmethod
    def fields_in(self, graph: Graph) -> tuple[Field, ...]:
        """The columns of its results."""

    @abstractmethod
    def clock_in(self, graph: Graph) -> Clock:
        """Where its results have their event time. Refused if they have none."""

    def clock_or_none_in(self, graph: Graph) -> Clock | None:
        """Where its results have their event time; None if they have none."""
        return self.clock_in(graph)

    def origin(self, graph: Graph) -> tuple[Operator, tuple[Map, ...]]:  # noqa: ARG002
        """The operator that its rows come from, before all maps; and these maps in order."""
        return self, ()

    def root(self, graph: Graph) -> Operator:  # noqa: ARG002
        """The source or stateful operator that its rows come from, before all maps and applies."""
        return self

    def check_in(self, graph: Graph) -> None:  # noqa: B027
        """Refuses errors that can be found only in the finished topology."""

    def check_reader(self, graph: Graph, reader: str) -> None:  # noqa: B027
        """Refuses a stateful operator that reads its results, if that is impossible."""

    def check_late(self, graph: Graph) -> None:  # noqa: B027
        """Refuses late rows that Spark cannot group by. Equal late rows are counted as one."""

    def in_sinks(self, graph: Graph) -> Apply | None:  # noqa: ARG002
        """The apply itself, if it runs in the job that writes a sink; else None."""
        return None

    def compute_in(self, graph: Graph) -> Compute:  # noqa: ARG002
        """The compute itself, or the one whose partials it forms windows from."""
        raise TopologyError(f"{self.name!r} is neither a compute nor a consolidate")

    @property
    def window_names(self) -> tuple[str, ...]:
        """The names of the windows of its results."""
        return ()

    @property
    def first_keys(self) -> int | None:
        """How many first columns of a result are its key. None: all before the window."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Operator):
    """Where rows come from, and which column has their event time."""

    writes_results = False

    fields: tuple[Field, ...]
    event_time: str
    unit_us: int | None  # of a numeric event time: the length of one unit; 0 means nanoseconds
    delay_us: int
    idle_us: int | None = None  # after this time without rows, it does not hold the watermark back
    ahead_us: int | None = None  # rows that are further ahead of the clock than this are left out

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

    def fields_in(self, graph: Graph) -> tuple[Field, ...]:  # noqa: ARG002
        return self.fields

    def clock_in(self, graph: Graph) -> Clock:  # noqa: ARG002
        kind = next(each.type for each in self.fields if each.name == self.event_time)
        return Clock(self.event_time, kind, self.unit_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(Operator):
    """A stateless function of a DataFrame."""

    input: str
    fn: Callable[[Any], Any]
    fields: tuple[Field, ...]
    window: str | None = None  # if it is a filter for the results of one window: that window

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def fields_in(self, graph: Graph) -> tuple[Field, ...]:  # noqa: ARG002
        return self.fields

    def clock_in(self, graph: Graph) -> Clock:
        return graph.clock_of(self.input)

    def clock_or_none_in(self, graph: Graph) -> Clock | None:
        return graph.clock_or_none(self.input)

    def origin(self, graph: Graph) -> tuple[Operator, tuple[Map, ...]]:
        stream, maps = graph.stream_of(self.input)
        return stream, (*maps, self)

    def root(self, graph: Graph) -> Operator:
        return graph.root_of(self.input)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(Operator):
    """A stateless Python function of rows. Later operators read its results like a source."""

    left_out = "failed"

    input: str
    work: ApplySpec
    fields: tuple[Field, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def fields_in(self, graph: Graph) -> tuple[Field, ...]:  # noqa: ARG002
        return self.fields

    def clock_in(self, graph: Graph) -> Clock:
        clock = self.clock_or_none_in(graph)
        if clock is None:
            lost = self.root(graph).clock_in(graph)
            have = ", ".join(f"{each.name}: {each.type}" for each in self.fields)
            raise TopologyError(
                f"windows after apply {self.name!r} need the event time, column {lost.column!r} "
                f"of type {lost.type}; its schema has {have}"
            )
        return clock

    def clock_or_none_in(self, graph: Graph) -> Clock | None:
        clock = graph.clock_or_none(self.input)
        lost = clock is None or Field(clock.column, clock.type) not in self.fields
        return None if lost else clock

    def root(self, graph: Graph) -> Operator:
        return graph.root_of(self.input)

    def check_reader(self, graph: Graph, reader: str) -> None:
        if self.root(graph).stateful:
            raise NotYetError(
                f"operator {reader!r} reads apply {self.name!r}, which is applied to results of "
                "windows; so far, such an apply can only be written to sinks"
            )

    def in_sinks(self, graph: Graph) -> Apply | None:
        return self if self.root(graph).stateful else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An aggregate with the name of its result column and the type of its input."""

    name: str
    aggregate: Aggregate
    input_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Operator):
    """Mergeable aggregates per key: the partials from which a consolidate forms windows."""

    input: str
    by: tuple[Field, ...]
    aggregates: tuple[Named, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def fields_in(self, graph: Graph) -> tuple[Field, ...]:
        """The columns of the results of its windows, without the one that marks early results."""
        return (
            *self.by,
            *window_fields(graph.clock_of(self.input).moment),
            *(
                Field(each.name, each.aggregate.result_type(each.input_type))
                for each in self.aggregates
            ),
        )

    def clock_in(self, graph: Graph) -> Clock:
        return _window_clock(self.fields_in(graph))

    def origin(self, graph: Graph) -> tuple[Operator, tuple[Map, ...]]:  # noqa: ARG002
        raise self._unused()

    def compute_in(self, graph: Graph) -> Compute:  # noqa: ARG002
        return self

    def check_in(self, graph: Graph) -> None:
        _check_inputs(self, graph)
        if not graph.users_of(self.name):
            raise self._unused()

    def _unused(self) -> TopologyError:
        return TopologyError(
            f"compute {self.name!r} is not consolidated: add .consolidate(ab.tumbling(...))"
        )


@dataclass(frozen=True, slots=True)
class Early:
    """How often results of open windows are written: every so many steps, or microseconds."""

    steps: int | None = None
    us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidate(Operator):
    """The windows, of any kind, that are formed from the partials of a compute."""

    stateful = True

    input: str
    windows: tuple[WindowDefinition, ...]
    early: Early | None = None
    share: bool | None = None  # whether all windows share their panes; None: the planner decides

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def compute_in(self, graph: Graph) -> Compute:
        found = graph.operator(self.input)
        if not isinstance(found, Compute):
            raise TopologyError(
                f"consolidate {self.name!r} reads {found.name!r}; it must follow a compute"
            )
        return found

    def fields_in(self, graph: Graph) -> tuple[Field, ...]:
        return self.compute_in(graph).fields_in(graph)

    def clock_in(self, graph: Graph) -> Clock:
        return _window_clock(self.fields_in(graph))

    @property
    def window_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.name for each in self.windows))

    def check_late(self, graph: Graph) -> None:
        _check_late_rows(self.name, self.compute_in(graph).inputs, graph)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Operator):
    """Pairs of rows of two streams with equal keys in the same window."""

    stateful = True

    input: str  # the left stream
    right: str
    by: tuple[Field, ...]
    windows: tuple[AlignedWindow, ...]
    how: str
    fields: tuple[Field, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.input, self.right

    def fields_in(self, graph: Graph) -> tuple[Field, ...]:  # noqa: ARG002
        return self.fields

    def clock_in(self, graph: Graph) -> Clock:  # noqa: ARG002
        return _window_clock(self.fields)

    @property
    def window_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.name for each in self.windows))

    def check_in(self, graph: Graph) -> None:
        _check_inputs(self, graph)

    def check_late(self, graph: Graph) -> None:
        for field in _check_late_rows(self.name, self.inputs, graph):
            if field.name.lower() in LATE_COLUMNS:
                raise TopologyError(
                    "late rows of a join have columns side and reason; "
                    f"rename {field.name!r} in a map()"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Operator):
    """A user's class with state per key."""

    stateful = True

    input: str
    by: tuple[Field, ...]
    logic: Any  # anabranch.topology.process.Logic
    fields: tuple[Field, ...]  # of results
    combined: tuple[Named, ...] = ()  # aggregates that it reads instead of rows

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def fields_in(self, graph: Graph) -> tuple[Field, ...]:  # noqa: ARG002
        return self.fields

    def clock_in(self, graph: Graph) -> Clock:
        clock = self.clock_or_none_in(graph)
        if clock is None:
            raise TopologyError(
                f"results of process {self.name!r} have no event time: declare which column of "
                f'output has it, such as event_time = "at", in {self.logic.name}'
            )
        return clock

    def clock_or_none_in(self, graph: Graph) -> Clock | None:  # noqa: ARG002
        clock: Clock | None = self.logic.clock
        return clock

    def check_in(self, graph: Graph) -> None:
        _check_inputs(self, graph)

    @property
    def first_keys(self) -> int | None:
        return len(self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the results of an operator go, or the rows that it leaves out."""

    name: str
    input: str
    late: bool
    target: Any


def window_fields(moment: str) -> tuple[Field, Field]:
    """The columns that say to which window a result belongs."""
    window, name = RESULT_COLUMNS
    return Field(window, f"struct<start:{moment},end:{moment}>"), Field(name, "string")


def failed_fields(fields: Sequence[Field]) -> tuple[Field, ...]:
    """The columns of rows that failed in an apply: its input columns, and the error."""
    return (*fields, Field(ERROR_COLUMN, "string"))


def _window_clock(fields: Sequence[Field]) -> Clock:
    window = RESULT_COLUMNS[0]
    return Clock(window, next(each.type for each in fields if each.name == window))


def _check_inputs(reader: Operator, graph: Graph) -> None:
    for stream in reader.inputs:
        graph.stream_of(stream)[0].check_reader(graph, reader.name)


def _check_late_rows(name: str, inputs: Sequence[str], graph: Graph) -> list[Field]:
    """The columns of late rows. Refuses those that Spark cannot group by."""
    if all(graph.stream_of(each)[0].stateful for each in inputs):
        raise TopologyError(
            f"operator {name!r} reads windowed results, which are never late; it has no late rows"
        )
    fields = [field for each in inputs for field in graph.fields_of(each)]
    for field in fields:
        if "map<" in field.type or "variant" in field.type:
            raise TopologyError(
                f"late rows cannot carry column {field.name!r} of type {field.type}; "
                "drop it in a map()"
            )
    return fields
