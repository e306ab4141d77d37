"""What all kinds of operators have in common, and the methods in which they differ.

A kind has two halves. `OperatorPlan` is what a slot task needs to know: plain values that can be
sent to it. `Node` is the rest, which stays with the driver: where rows come from, expressions, and
what explain and a checkpoint say about it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import pyarrow as pa

from anabranch.aggregates.partials import Partial, PartialColumn
from anabranch.aggregates.specs import text_of
from anabranch.plan.ids import PartId
from anabranch.plan.panes import Panes
from anabranch.topology.graph import Clock, Early, Field, Map, Named
from anabranch.types import Array, column_type

if TYPE_CHECKING:
    from anabranch.plan.notes import OperatorNote

# The key of a global aggregate, which has no key columns. It is the same for every row, and not
# part of the results.
EVERYTHING = Field("", "int")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Where the rows of a node come from: a source or another operator, and the maps after it."""

    stream: str
    maps: tuple[Map, ...]
    clock: Clock
    fields: tuple[Field, ...]  # after the maps

    @property
    def window(self) -> str | None:
        """The only window whose results it reads; None if it reads all of its stream."""
        return self.maps[0].window if self.maps else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialInput:
    """An expression over the rows, restricted by a condition, that partials are lifted from."""

    expression: object | None  # several in a tuple are lifted together, as a struct of a0, a1, ...
    where: object | None
    type: str = "int"

    def __str__(self) -> str:
        return text_of(self.expression) + (f" where {self.where}" if self.where is not None else "")

    @property
    def is_text(self) -> bool:
        """Whether its text says everything. A Spark Column may hold any function."""
        given = self.expression if isinstance(self.expression, tuple) else (self.expression,)
        return all(each is None or isinstance(each, str) for each in (*given, self.where))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPartial:
    """A partial that is stored per key and pane, and the input that it is lifted from."""

    partial: Partial
    input: int
    columns: slice  # of all partial columns of the operator
    id: str = ""  # the name of its columns in state

    @property
    def lifted(self) -> list[str]:
        """The names of the columns of its lift."""
        return [f"c{self.columns.start + i}" for i in range(len(self.partial.lift))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    """A result column: its aggregate, and which of the kept partials it is finished from."""

    named: Named
    kept: tuple[int, ...]
    # Its aggregate began later: in windows that start before this time it is null.
    complete_from: int | None = None

    @property
    def type(self) -> str:
        return self.named.aggregate.result_type(self.named.input_type)


class Travel(Enum):
    """The form in which rows go to their slots."""

    PER_PANE = "combined per key and pane"
    PER_KEY = "combined per key"
    ROW_BY_ROW = "row by row"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan(ABC):
    """What a slot task needs to know about an operator, or a part of one: plain values."""

    kind: ClassVar[str]  # selects its state and its work in the registries

    part: PartId
    keys: tuple[Field, ...]
    panes: Panes
    kept: tuple[KeptPartial, ...]
    results: tuple[ResultColumn, ...]
    columns: tuple[PartialColumn, ...]  # of all kept partials, one after another
    time_type: str
    # Windows that were added later, by number: those that start before this time are incomplete.
    complete_from: Mapping[int, int] = field(default_factory=dict)
    # Panes before this were dropped when windows were added, even if the log still has rows.
    forgotten_us: int | None = None

    # Whether the parts of its operator read the same rows. Rows that none of them takes are late.
    shares_rows: ClassVar[bool] = True
    # Whether late rows for a sink must be sent whole, besides what the operator needs.
    sends_late_rows: ClassVar[bool] = True
    # Whether a row's pane does not show if it is late, so that the query must mark it.
    marks_late: ClassVar[bool] = False
    # Whether state is a chain of deltas, which grows until a snapshot is written.
    needs_snapshots: ClassVar[bool] = True

    @property
    def holds_state(self) -> bool:
        """Whether it holds state and results itself, and not another part."""
        return True

    @property
    def travel(self) -> Travel:
        """How its rows travel to their slots."""
        return Travel.PER_PANE

    @property
    def payload(self) -> tuple[Field, ...]:
        """The columns of rows that are sent whole, besides keys; none if partials are sent."""
        return ()

    @property
    @abstractmethod
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of complete results, as other operators read them."""

    @property
    def written_fields(self) -> tuple[Field, ...]:
        """The columns of results as sinks get them."""
        return self.result_fields

    @property
    def stored_columns(self) -> dict[str, PartialColumn]:
        """The columns of all kept partials, by their names in state."""
        return {
            f"{kept.id or number}.{i}": column
            for number, kept in enumerate(self.kept)
            for i, column in enumerate(self.columns[kept.columns])
        }

    def pane_sql(self) -> str:
        """The pane of a row by its event time t, or a mark if it has none."""
        return self.panes.pane_sql()

    def outside_sql(self) -> str:
        """Whether no window contains a row by its event time t, whatever the watermark."""
        return self.panes.outside_sql()

    def late_sql(self, watermark_us: int | None) -> str:
        """Whether no open window contains a row."""
        return self.panes.late_sql(watermark_us)

    def finished(self, columns: Sequence[Array]) -> list[pa.Array]:
        """The results of some merged partials."""
        found = []
        for result in self.results:
            merged: tuple[Array, ...] = tuple(
                column for number in result.kept for column in columns[self.kept[number].columns]
            )
            found.append(result.named.aggregate.finish(result.named.input_type, merged))
        return found


class Contents(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What state of a kind consists of, so that it can be shown without the topology."""

    keys: tuple[tuple[str, str], ...]  # names and types

    @property
    def kind(self) -> str:
        """The kind of the plan to which the state belongs."""
        return str(self.__struct_config__.tag)

    @property
    def longest_us(self) -> int | None:
        """The length of the longest window; None if windows may have any length."""
        return 0

    def has_layout_of(self, other: Contents) -> bool:  # noqa: ARG002
        """Whether its state has the same columns as that of another with the same fingerprint."""
        return True

    def settled(self, watermark_us: int | None) -> Self:  # noqa: ARG002
        """The same without times of completeness that have passed."""
        return self

    def shares_panes(self, part: PartId) -> bool | None:  # noqa: ARG002
        """Whether all windows of its operator share panes; None if it has no such windows."""
        return None

    def key_fields(self) -> tuple[Field, ...]:
        """The keys as fields."""
        return tuple(Field(*each) for each in self.keys) or (EVERYTHING,)

    def plan(self, part: PartId, note: OperatorNote) -> OperatorPlan:
        """The part of the plan that is needed to merge its state."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far an operator had come in the last committed step of a checkpoint."""

    step: int
    watermark_us: int | None
    newest_us: int | None  # the largest event time of its rows, or of all rows of sources
    # The columns of its stream that are incomplete, and until which event time; None: unknown.
    incomplete: Mapping[str, int | None] = field(default_factory=dict)
    # The columns of its stream whose meaning has changed.
    changed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolved:
    """The new note of an operator, with what has changed and what is refused, as text."""

    note: OperatorNote
    changed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()  # result columns whose meaning has changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(ABC):
    """A stateful operator as it runs, or a part of one. Its name is that of its state."""

    plan: OperatorPlan
    feed: Feed
    inputs: tuple[PartialInput, ...]
    # The operator of the graph that takes its rows, and through which of its inputs.
    entry: tuple[str, int]
    early: Early | None = None  # how often results of open windows are written

    @property
    def name(self) -> PartId:
        return self.plan.part

    @property
    def operator(self) -> str:
        """The operator to which the results belong."""
        return self.plan.part.operator

    @property
    def by(self) -> tuple[Field, ...]:
        """The keys that the user named."""
        return tuple(each for each in self.plan.keys if each != EVERYTHING)

    @property
    def attributes(self) -> frozenset[str]:
        """The partition attributes with their types: int and bigint have different hashes."""
        return frozenset(
            f"{each.name}: {each.type}" if each.name else "" for each in self.plan.keys
        )

    @property
    def late_fields(self) -> tuple[Field, ...]:
        """The columns of late rows: those of the stream, and the reason."""
        return (*self.feed.fields, Field("reason", "string"))

    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """What must stay the same while its state lives, as readable text.

        Key types are part of it because they decide the hash.
        """

    def _read(self) -> dict[str, str]:
        """The part of a fingerprint that all kinds have."""
        clock = self.feed.clock
        unit = f" in units of {clock.unit_us} us" if clock.unit_us is not None else ""
        return {
            "stream": self.feed.stream,
            "keys": ", ".join(f"{each.name}: {each.type}" for each in self.by) or "none",
            "event time": f"{clock.column}: {clock.type}{unit}",
        }

    @abstractmethod
    def contents(self) -> Contents:
        """What its state consists of, for a checkpoint."""

    def _noted_keys(self) -> tuple[tuple[str, str], ...]:
        return tuple((each.name, each.type) for each in self.by)

    @abstractmethod
    def continued(self, note: OperatorNote, keys_in: Mapping[int, float]) -> Node:
        """The node over the state of a checkpoint, planned with its measured keys."""

    @abstractmethod
    def evolved(self, note: OperatorNote, fresh: OperatorNote, at: Reached | None) -> Evolved:
        """The note of a checkpoint after a change of the fingerprint; says what is not possible."""

    def incomplete(self, note: OperatorNote) -> dict[str, int]:  # noqa: ARG002
        """The result columns that are unknown for windows that start before a time."""
        return {}

    @property
    def complete_after(self) -> dict[str, int]:
        """How long after the newest earlier row each new window is complete."""
        return {}

    added: ClassVar[str] = "windows with rows from before are incomplete"

    @abstractmethod
    def describe(self, inflow: str) -> dict[str, Any]:
        """What explain says about it, as plain data. `inflow` is how its rows arrive."""

    @abstractmethod
    def lines(self, facts: Mapping[str, Any]) -> list[str]:
        """The same as lines of text."""

    def _chain(self, *last: str) -> list[str]:
        """The names of the operators that its rows pass through."""
        return [self.feed.stream, *(each.name for each in self.feed.maps), *last]

    @property
    @abstractmethod
    def boxes(self) -> dict[str, str]:
        """The operators of the graph that it runs, with the text of their boxes in a picture."""

    @property
    def partitioned(self) -> tuple[str, ...]:
        """How the reason of its component names it."""
        return (self.operator,)

    def partials_text(self, numbers: Sequence[int]) -> str:
        """Some of its partials, as text."""
        kept = [self.plan.kept[number] for number in numbers]
        return ", ".join(
            f"{type(each.partial).__name__.lower()}({self.inputs[each.input]})" for each in kept
        )


def key_schema(plan: OperatorPlan) -> pa.Schema:
    """The key columns of a slot as an Arrow schema."""
    return pa.schema([(f"k{i}", column_type(each.type)) for i, each in enumerate(plan.keys)])


def result_schema(plan: OperatorPlan) -> pa.Schema:
    """The columns of results as an Arrow schema."""
    return pa.schema(
        [(each.name, column_type(each.type, maps=True)) for each in plan.written_fields]
    )
