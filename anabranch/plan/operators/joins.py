"""Joins: by which columns two streams are joined, what a slot task stores, and the results.

Rows of both sides wait in the same panes. A window joins the rows of its panes when it closes. Keys
are equal as in Spark's own join: null equals nothing, NaN equals NaN and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec
import pyarrow as pa

from anabranch.aggregates.partials import Count
from anabranch.errors import TopologyError, unknown
from anabranch.plan.evolution import incomplete_windows
from anabranch.plan.ids import PartId
from anabranch.plan.operators.base import (
    Contents,
    Evolved,
    Feed,
    KeptPartial,
    Node,
    OperatorPlan,
    PartialInput,
    Reached,
)
from anabranch.plan.operators.fingerprint import differences
from anabranch.plan.operators.noted_windows import Noted, noted, spliced
from anabranch.plan.panes import Panes, panes_of
from anabranch.topology.graph import (
    LATE_COLUMNS,
    RESULT_COLUMNS,
    Clock,
    Field,
    Graph,
    Join,
    check_windows,
    key_fields,
    window_fields,
)
from anabranch.topology.windows import AlignedWindow
from anabranch.types import column_type

if TYPE_CHECKING:
    from anabranch.plan.notes import OperatorNote

Side: TypeAlias = Literal["left", "right"]
How: TypeAlias = Literal["inner", "left", "right", "full"]

SIDES: tuple[Side, Side] = ("left", "right")
HOWS: tuple[How, ...] = get_args(How)
_RENAME = "rename in a map, such as .map(lambda df: df.withColumnRenamed(old, new))"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinInput:
    """One of the two streams: its columns after the maps, and where its rows have their time."""

    stream: str
    fields: tuple[Field, ...]
    clock: Clock


def join_input(stream: str, fields: Sequence[Field], clock: Clock) -> JoinInput:
    """A stream as a side of a join.

    The event time of results is in their windows. These columns are left out, because the join has
    windows of its own.
    """
    kept = tuple(
        each for each in fields if clock.column != "window" or each.name not in RESULT_COLUMNS
    )
    return JoinInput(stream=stream, fields=kept, clock=clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPlan:
    """What a slot task needs to know about a join: plain values that can be sent to it."""

    operator: str
    keys: tuple[Field, ...]
    panes: Panes
    left: tuple[Field, ...]  # columns that are not keys
    right: tuple[Field, ...]
    how: How
    time_type: str
    # Windows that were added later, by number: those that start before this time are incomplete.
    complete_from: Mapping[int, int] = field(default_factory=dict)

    def payload(self, side: Side) -> tuple[Field, ...]:
        """The columns of a side that are not keys."""
        return self.left if side == "left" else self.right

    def outer(self, side: Side) -> bool:
        """Whether rows of a side are in the results even without a partner on the other side."""
        return self.how in {side, "full"}

    @property
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of results."""
        return (*self.keys, *window_fields(self.time_type), *self.left, *self.right)

    @property
    def late_fields(self) -> tuple[Field, ...]:
        """The columns of rows that no window contains: those of both streams, side and reason.

        The columns of the other stream are null.
        """
        return (
            *self.keys,
            *self.left,
            *self.right,
            *(Field(name, "string") for name in LATE_COLUMNS),
        )

    def key_schema(self) -> pa.Schema:
        """The keys as an Arrow schema, named by position."""
        return pa.schema([(f"k{i}", column_type(each.type)) for i, each in enumerate(self.keys)])

    def payload_schema(self, side: Side) -> pa.Schema:
        """The other columns of a side as an Arrow schema, named by position."""
        return pa.schema(
            [
                (f"p{i}", column_type(each.type, maps=True))
                for i, each in enumerate(self.payload(side))
            ]
        )

    def result_schema(self) -> pa.Schema:
        """The columns of results as an Arrow schema."""
        return pa.schema(
            [(each.name, column_type(each.type, maps=True)) for each in self.result_fields]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSide(OperatorPlan):
    """One side of a join as a node. Its rows wait in the state of the left side."""

    kind = "join"
    shares_rows = False

    join: JoinPlan
    side: Side

    @property
    def holds_state(self) -> bool:
        return self.side == "left"

    @property
    def payload(self) -> tuple[Field, ...]:
        return self.join.payload(self.side)

    @property
    def result_fields(self) -> tuple[Field, ...]:
        return self.join.result_fields


def join_side(plan: JoinPlan, side: Side) -> JoinSide:
    """What a slot task needs to know about one side."""
    count = Count("bigint")
    return JoinSide(
        part=PartId(plan.operator, "" if side == "left" else side),
        keys=plan.keys,
        panes=plan.panes,
        kept=(KeptPartial(partial=count, input=0, columns=slice(0, 1)),),
        results=(),
        columns=count.columns,
        time_type=plan.time_type,
        complete_from=plan.complete_from,
        join=plan,
        side=side,
    )


class JoinContents(Contents, frozen=True, kw_only=True, tag="join"):
    """What a join stores: rows of both sides, with the columns that are not keys."""

    windows: tuple[Noted, ...]
    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...]

    def side(self, side: Side) -> tuple[tuple[str, str], ...]:
        """The columns of a side that are not keys."""
        return self.left if side == "left" else self.right

    def has_layout_of(self, other: Contents) -> bool:
        """Whether both sides have the same columns: the left one has the state of both."""
        return isinstance(other, JoinContents) and all(
            self.side(side) == other.side(side) for side in SIDES
        )

    @property
    def defined(self) -> tuple[AlignedWindow, ...]:
        """The windows themselves."""
        return tuple(each.window() for each in self.windows)

    @property
    def longest_us(self) -> int | None:
        return max(window.longest_us for window in self.defined)

    def panes(self, note: OperatorNote) -> Panes:
        """The panes of a checkpoint."""
        return Panes(width_us=note.pane_us, offset_us=note.pane_offset_us, windows=self.defined)

    def plan(self, part: PartId, note: OperatorNote) -> JoinSide:
        panes = self.panes(note)
        left, right = (tuple(Field(*each) for each in side) for side in (self.left, self.right))
        join = JoinPlan(
            operator=part.operator,
            keys=self.key_fields(),
            panes=panes,
            left=left,
            right=right,
            how="full",
            time_type="timestamp",
        )
        return join_side(join, "left")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinNode(Node):
    """One side of a join as it runs."""

    plan: JoinSide

    @property
    def windows(self) -> tuple[AlignedWindow, ...]:
        return self.plan.panes.windows

    @property
    def late_fields(self) -> tuple[Field, ...]:
        return self.plan.join.late_fields

    def fingerprint(self) -> dict[str, str]:
        columns = ", ".join(f"{each.name}: {each.type}" for each in self.plan.payload)
        return {
            **self._read(),
            "windows": "; ".join(each.described for each in self.windows),
            "join": f"{self.plan.join.how}, {self.plan.side}",
            "columns": columns or "none",
        }

    def contents(self) -> JoinContents:
        left, right = (
            tuple((each.name, each.type) for each in self.plan.join.payload(side)) for side in SIDES
        )
        return JoinContents(
            keys=self._noted_keys(), windows=noted(self.windows), left=left, right=right
        )

    def continued(
        self,
        note: OperatorNote,
        keys_in: Mapping[int, float],  # noqa: ARG002
    ) -> JoinNode:
        """The node over the state of a checkpoint, with its rules of time zones.

        Windows that began before the join was added are incomplete.
        """
        complete = incomplete_windows(self.windows, note.complete_from)
        assert isinstance(note.contents, JoinContents)
        panes = note.contents.panes(note)
        join = replace(self.plan.join, panes=panes, complete_from=complete)
        plan = replace(self.plan, join=join, panes=panes, complete_from=complete)
        return replace(self, plan=plan)

    def evolved(
        self,
        note: OperatorNote,
        fresh: OperatorNote,
        at: Reached | None,
    ) -> Evolved:
        """Columns may be added and removed, windows renamed, and rules of time zones updated.

        Waiting rows have null in a new column. Nothing else may change, because rows that other
        windows need were never stored.
        """
        before, wanted = note.contents, fresh.contents
        assert isinstance(before, JoinContents)
        assert isinstance(wanted, JoinContents)
        keys = [[window.key for window in each.defined] for each in (before, wanted)]
        may = {"columns", "windows"} if keys[0] == keys[1] else {"columns"}
        fixed = [
            {part: text for part, text in each.fingerprint.items() if part not in may}
            for each in (note, fresh)
        ]
        if fixed[0] != fixed[1]:
            return Evolved(note=note, refused=tuple(differences(*fixed)))
        old, new = (dict(each.side(self.plan.side)) for each in (before, wanted))
        refused = [
            f"column {name!r} was {old[name]} and is {new[name]}, and rows of the old type wait: "
            "cast it back in a map(), or give it another name"
            for name in old
            if name in new and old[name] != new[name]
        ]
        changed = differences(*({"windows": each.fingerprint["windows"]} for each in (note, fresh)))
        changed += [
            f"column {name!r} is new: null in rows that already wait"
            for name in new
            if name not in old
        ]
        changed += [f"column {name!r} is gone" for name in old if name not in new]
        windows = spliced(self.windows, before.defined, None if at is None else at.newest_us)
        contents = msgspec.structs.replace(wanted, windows=noted(windows))
        note = replace(note, fingerprint=fresh.fingerprint, contents=contents)
        return Evolved(note=note, changed=tuple(changed), refused=tuple(refused))

    @property
    def complete_after(self) -> dict[str, int]:
        return dict.fromkeys((window.key for window in self.windows), 1)

    def describe(self, inflow: str) -> dict[str, Any]:
        """Rows wait unchanged, so there are neither partials nor merges."""
        plan = self.plan
        names = dict.fromkeys(window.name for window in self.windows)
        return {
            "name": str(self.name),
            "chain": self._chain(f"{self.operator} ({plan.side})"),
            "keys": [each.name for each in plan.keys],
            "rows": inflow,
            "join": plan.join.how,
            "side": plan.side,
            "pane": str(plan.panes),
            "windows": dict.fromkeys(names, "rows of its panes"),
            "kept": [each.name for each in plan.payload],
        }

    def lines(self, facts: Mapping[str, Any]) -> list[str]:
        inflow = f" ({facts['rows']})" if facts["rows"] != "through the exchange" else ""
        lines = [f"    operators: {' -> '.join(facts['chain'])}{inflow}"]
        if self.plan.holds_state:
            keys, windows = ", ".join(facts["keys"]), ", ".join(facts["windows"])
            lines.append(
                f"    join:      {facts['join']}, by {keys}, in {windows}; pane {facts['pane']}"
            )
        kept = ", ".join(facts["kept"]) or "keys alone"
        return [*lines, f"    kept:      {kept}, with how often each row came"]

    @property
    def boxes(self) -> dict[str, str]:
        names = dict.fromkeys(window.name for window in self.windows)
        return {self.operator: f"join {self.operator}<br/>{'<br/>'.join(names)}"}


def join_nodes(graph: Graph, join: Join, *, shared: bool | None) -> list[Node]:  # noqa: ARG001
    """The nodes of a join, one for each stream. The state belongs to the left one."""
    inputs = [join_input(name, graph.fields_of(name), graph.clock_of(name)) for name in join.inputs]
    by = [each.name for each in join.by]
    plan = join_plan(join.name, inputs[0], inputs[1], by, join.windows, join.how)
    nodes: list[Node] = []
    for number, (side, given) in enumerate(zip(SIDES, inputs, strict=True)):
        stream, maps = graph.stream_of(given.stream)
        nodes.append(
            JoinNode(
                plan=join_side(plan, side),
                feed=Feed(stream=stream.name, maps=maps, clock=given.clock, fields=given.fields),
                inputs=(PartialInput(expression=None, where=None),),
                entry=(join.name, number),
            )
        )
    return nodes


def join_plan(
    operator: str,
    left: JoinInput,
    right: JoinInput,
    by: object,
    windows: Sequence[object],
    how: object,
) -> JoinPlan:
    """The plan of a join of two streams. What cannot be joined is refused, with the names."""
    chosen = _windows(windows)
    kind = next((each for each in HOWS if each == how), None)
    if kind is None:
        raise TopologyError(unknown("how", how, HOWS))
    keys = _keys(by, left, right)
    names = {each.name for each in keys}
    payloads = [
        tuple(each for each in side.fields if each.name not in names) for side in (left, right)
    ]
    _check_names(keys, payloads, (left, right))
    for side, payload in zip((left, right), payloads, strict=True):
        for each in payload:
            _check_type(each, side)
    if left.clock.moment != right.clock.moment:
        raise TopologyError(
            f"event time is a {left.clock.moment} in {left.stream!r} and a {right.clock.moment} "
            f"in {right.stream!r}; a join needs the same on both sides"
        )
    for window in chosen:
        window.check_moment(left.clock.moment)
    return JoinPlan(
        operator=operator,
        keys=keys,
        panes=panes_of(chosen),
        left=payloads[0],
        right=payloads[1],
        how=kind,
        time_type=left.clock.moment,
    )


def _windows(given: Sequence[object]) -> list[AlignedWindow]:
    """The windows of a join: at least one, each with a length, without duplicate names."""
    flat = [each for one in given for each in (one if isinstance(one, tuple | list) else (one,))]
    if not flat:
        raise TopologyError(
            'join() needs at least one window, such as window=ab.tumbling("5 minutes")'
        )
    if strange := [each for each in flat if not isinstance(each, AlignedWindow)]:
        raise TopologyError(
            f"{strange[0]!r} cannot be the window of a join; write ab.tumbling, ab.sliding, "
            "ab.hopping, ab.cumulative or ab.calendar"
        )
    check_windows(flat)
    return [each for each in flat if isinstance(each, AlignedWindow)]


def _keys(by: object, left: JoinInput, right: JoinInput) -> tuple[Field, ...]:
    """The columns by which both sides are joined. They have the same type on both sides."""
    found = []
    names = [*by] if isinstance(by, Iterable) and not isinstance(by, str) else by
    for side in (left, right):
        try:
            found.append(key_fields(names, side.fields))
            for each in found[-1]:
                column_type(each.type)
        except TopologyError as error:
            raise TopologyError(f"join with stream {side.stream!r}: {error}") from None
    if not found[0]:
        raise TopologyError('join() needs at least one key column, such as by=["k"]')
    for mine, other in zip(*found, strict=True):
        if mine.type != other.type:
            raise TopologyError(
                f"key column {mine.name!r} is {mine.type} in {left.stream!r} and {other.type} "
                f"in {right.stream!r}; cast one of them in a map"
            )
    return found[0]


def _check_names(
    keys: Sequence[Field], payloads: Sequence[Sequence[Field]], inputs: tuple[JoinInput, JoinInput]
) -> None:
    """Refuses columns that would have the same name in the results, in any case."""
    taken = {name: name for name in RESULT_COLUMNS}
    for each in keys:
        if each.name.lower() in taken:
            raise TopologyError(
                f"key column {each.name!r} has the name of a column of every result; {_RENAME}"
            )
    taken |= {each.name.lower(): each.name for each in keys}
    for side, payload in zip(inputs, payloads, strict=True):
        if wrong := [each.name for each in payload if each.name.lower() in taken]:
            raise TopologyError(
                f"join with stream {side.stream!r}: {_listed(wrong)} would be in the results "
                f"twice, which have {_listed(taken.values())} already; {_RENAME}"
            )
    theirs = {each.name.lower() for each in payloads[1]}
    if both := [each.name for each in payloads[0] if each.name.lower() in theirs]:
        clocks = [
            name for name in both if name.lower() in {side.clock.column.lower() for side in inputs}
        ]
        hint = (
            ". Event times are columns like others; maps keep them, so rename "
            f"{_listed(clocks)} before app.source()"
        )
        raise TopologyError(
            f"{inputs[0].stream!r} and {inputs[1].stream!r} both have {_listed(both)}; "
            f"{_RENAME}{hint if clocks else ''}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _check_type(column: Field, side: JoinInput) -> None:
    """Refuses a column that cannot be stored."""
    try:
        column_type(column.type, maps=True)
    except TopologyError:
        raise TopologyError(
            f"join with stream {side.stream!r}: column {column.name!r} has type {column.type}, "
            "which cannot be stored; drop or cast it in a map"
        ) from None
