"""Combines rows in the JVM: event time, lateness, pane, and the partials of each (key, pane).

What does not depend on the batch is part of the streaming query (`Lift.prepare`). So Spark reads
only the columns that are needed, and fixes the current time per batch. The rest is added to each
batch (`Lift.__call__`). If several operators read a source, each row is read once and becomes one
row per operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.plan.exchange import ARRIVAL, LATE_ROW, Packed, arriving, is_key, pack, whole_rows
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.lifting import LIFT_FIRST
from anabranch.plan.model import Node, Plan
from anabranch.plan.operators.applies import ApplyPlan
from anabranch.plan.operators.base import Travel
from anabranch.plan.panes import ELSEWHERE, LEFT_OUT, MARKED_SQL, OUT, TOO_LATE
from anabranch.plan.route import Route
from anabranch.runtime.passing import APPLY_REPORT, REPORT
from anabranch.runtime.tasks import Watermarks
from anabranch.spark.batches import JobForm, guarded_sql
from anabranch.spark.compile.ahead import (
    judges_of,
    judging_sql,
    with_judged_times,
)
from anabranch.spark.compile.columns import (
    Reader,
    mapped,
    needs,
    partition_sql,
    quoted,
    shard_sql,
)
from anabranch.spark.compile.packing import lift_aggregates, packed_rows
from anabranch.spark.compile.rowwise import chosen_sql
from anabranch.spark.compile.shared_columns import SharedColumns
from anabranch.spark.jvm import grouped, in_place, jseq, keeps_all, needed_columns, select
from anabranch.topology.graph import Clock

SEEN = "seen"
_PARTITION = "partition"  # the column with the row's partition, used if no key can be


class Lift:
    """Combines the rows of a step to one per node, key and pane, in the partition of its slot.

    Such a row has its partials and its shard. There is one exchange, to the slots. "Lift first"
    combines the rows in their partitions and then sends them. Slot tasks merge the rows that
    several partitions have of one key and pane. "Route first" sends the rows, then combines them.

    The slot task decides whether a pane is late. So the query is the same in every step, and the
    JVM keeps its compiled code. Only if a sink takes late rows must the query know the watermark,
    to keep these rows whole.
    """

    def __init__(self, plan: Plan, shards: int, late: frozenset[PartId]) -> None:
        self.nodes = tuple(node for node in plan.nodes if node.feed.stream in plan.entries)
        self.number: dict[PartId | str, int] = {
            node.name: i for i, node in enumerate(plan.nodes) if node in self.nodes
        }
        self.number.update({each.name: i for i, each in enumerate(plan.applies, len(plan.nodes))})
        self._plan, self._shards = plan, shards
        self._raw = [node for node in self.nodes if node.plan.travel is Travel.ROW_BY_ROW]
        self._all_raw = bool(self._raw) and len(self._raw) == len(self.nodes)
        self._late = [
            node for node in self.nodes if node.name in late and node.plan.sends_late_rows
        ]
        self._packed = pack(
            {**{n.name: arriving(n, late=n in self._late) for n in self.nodes}, **whole_rows(plan)}
        )
        self.readers: dict[str, list[Reader]] = {}
        reading: list[Node | ApplyPlan] = [*self.nodes, *plan.applies]
        for each in reading:
            self.readers.setdefault(each.feed.stream, []).append(self._reader(each))
        self._keys = sorted(
            {p for node in self.nodes for name, p in self._places(node).items() if is_key(name)}
        )
        self._rows = sorted({self._places(node)[LATE_ROW] for node in self._late})
        self.lifted, self._aggregates = lift_aggregates(self.nodes, self._packed, self.number)
        self._tagged = ["to"] if len(self.nodes) > 1 or plan.applies else []
        self._reports = [APPLY_REPORT] if plan.applies else []  # the column of applies' reports
        self._columns = SharedColumns()
        self._judges = judges_of(plan)
        # By source, the number of the node that sees all its rows and reports their latest time.
        self.watched: dict[str, int] = {}

    def adopt_prepared_rows(self, before: Lift) -> None:
        """Uses the rows that another lift has prepared. They fit: plans change, nodes do not."""
        assert (self._packed, self.number, self._keys) == (
            before._packed,
            before.number,
            before._keys,
        )
        self.watched = before.watched

    @property
    def packed(self) -> Packed:
        """The columns that rows share, and which of them each kind of row uses."""
        return self._packed

    def _reader(self, each: Node | ApplyPlan) -> Reader:
        number, places = self.number[each.name], self._packed.places[each.name]
        if isinstance(each, Node):
            late, node = each in self._late, each
            return Reader(
                each.name,
                number,
                each.feed.maps,
                {**places, "t": "t"},
                lambda rows: needs(rows, node, late=late),
            )
        named = {
            name: quoted(field.name) for field, name in zip(each.feed.fields, places, strict=True)
        }
        return Reader(
            each.name,
            number,
            each.feed.maps,
            places,
            lambda rows: rows.select(*(F.col(f).alias(n) for n, f in named.items())),
        )

    def _places(self, node: Node) -> Mapping[str, str]:
        return self._packed.places[node.name]

    def arrives(self, node: Node) -> dict[str, str]:
        """The names of a node's columns in combined rows: keys, partials, and the late row."""
        found = {
            name: place for name, place in self._places(node).items() if not name.startswith("x")
        }
        return {**found, **self.lifted[node.name]}

    def prepare(
        self, frames: Mapping[str, DataFrame], metrics: Mapping[str, str] | None = None
    ) -> DataFrame:
        """The rows of all sources after the maps, with only the columns that a step needs.

        A node that sees all rows of a source reports their latest event time. Where maps leave
        rows out for each of them, Spark observes it at the source, row by row and outside of
        compiled code: a third of the time that combining the rows takes.
        """
        prepared: DataFrame | None = None
        for source in self._plan.sources:
            frame = frames[source.name]
            readers, judge = self.readers[source.name], self._judges[source.name]
            clock = Clock(source.event_time, dict(frame.dtypes)[source.event_time], source.unit_us)
            if (
                metrics is not None
                and (watching := self._watching(frame, source.event_time, readers)) is not None
            ):
                self.watched[source.name] = watching
            if metrics is None or source.name in self.watched:
                rows = self._pack(frame, readers)
            else:
                observed = partial(judge.observed, clock=clock, name=metrics[source.name])
                names = {
                    *needed_columns(frame, self._pack(frame, readers)),
                    source.event_time,
                }
                narrow = frame.select(
                    *(F.col(quoted(name)) for name in frame.columns if name in names)
                )
                try:
                    rows = self._pack(observed(narrow), readers)
                except Exception:  # noqa: BLE001 - a map that names all columns itself
                    rows = self._pack(observed(frame), readers)
            prepared = rows if prepared is None else prepared.unionAll(rows)
        assert prepared is not None, "a plan has a source"
        return prepared

    def _watching(self, frame: DataFrame, time: str, readers: Sequence[Reader]) -> int | None:
        """The number of a node that gets all rows of a source with its event time; None if there
        is no such node.
        """
        nodes = {node.name for node in self.nodes} if not self._plan.applies else set()
        return next(
            (
                r.number
                for r in readers
                if r.name in nodes and keeps_all(frame, mapped(frame, r.maps), time)
            ),
            None,
        )

    def seen_in(self, node: Node) -> str | None:
        """The column with the latest event time, if this node reports it for its source."""
        if self.number[node.name] not in self.watched.values():
            return None
        return "pane" if self._all_raw else self._seen

    @property
    def is_reusable(self) -> bool:
        """Whether the query is the same in all steps, because it does not use the watermark."""
        return not self._judged(None)

    @property
    def _seen(self) -> str:
        """The column of combined rows with their latest event time. A `process` has it anyway."""
        latest = "max(t) as "
        return next(
            (text.removeprefix(latest) for text in self._aggregates if text.startswith(latest)),
            SEEN,
        )

    def _arrival_sql(self) -> str:
        """The order of arrival, for rows that must not be combined. It is unique, so that grouping
        keeps them apart.
        """
        if self._all_raw:
            return "monotonically_increasing_id()"
        numbers = ", ".join(str(self.number[node.name]) for node in self._raw)
        return f"if(to in ({numbers}), monotonically_increasing_id(), null)"

    def _pack(self, frame: DataFrame, readers: Sequence[Reader]) -> DataFrame:
        return packed_rows(frame, readers, self._packed, tagged=bool(self._tagged))

    def judging(self, marks: Watermarks) -> str:
        """What becomes of the event time t of a row in a step, as Spark SQL."""
        assert marks.clock_us is not None, "a step with rows has a clock"
        by_number = {self.number[node.name]: self._judges[node.feed.stream] for node in self.nodes}
        return judging_sql(by_number, marks.clock_us)

    def __call__(
        self,
        rows: DataFrame,
        marks: Watermarks,
        routes: Mapping[ComponentId, Route],
        form: JobForm,
    ) -> DataFrame:
        """The combined rows in the partitions of their slots."""
        watermark_us = marks.late_before_us
        components = self._plan.at(1)
        slots = sum(routes[component.name].slots for component in components)
        later = {
            self.number[node.name]: f"pmod(shard, {slots})"
            for node in self.nodes
            if self._plan.passes(node)
        }
        reports = {REPORT: "0"} if self._reports else {}
        slot_of = {**partition_sql(components, routes, self.number), **later, **reports}
        slot = chosen_sql("to", slot_of)
        shard = f"{self._shard_sql()} as shard"
        judged = self.judging(marks)
        if form.way == LIFT_FIRST and not self._all_raw:
            rows = self._in_place(rows)
        rows = with_judged_times(rows, judged)
        if self._all_raw:
            numbered = [f"{self._pane()} as pane", f"{self._arrival_sql()} as {ARRIVAL}"]
            rows = self._select(rows, [*(name for name in rows.columns if name != "t"), *numbered])
            rows = self._select(rows, ["*", shard])
            return self._sent(slots, slot, rows, form)
        if form.way == LIFT_FIRST:
            lifted = self._combined(self._timed(rows, watermark_us), [])
            lifted = self._select(lifted, ["*", shard, "spark_partition_id() as part"])
            return self._sent(slots, slot, lifted, form)
        routed = self._select(self._timed(rows, watermark_us), ["*", shard])
        routed = self._select(routed, ["*", f"{slot} as slot"])
        combined = self._combined(routed.repartitionById(slots, "slot"), ["slot", "shard"])
        names = self._columns.once(("names", form), lambda: combined.columns)
        shard = f"{self._guarded('shard', combined, form)} as shard"
        return self._select(combined, [shard if name == "shard" else name for name in names])

    def _sent(self, slots: int, slot: str, rows: DataFrame, form: JobForm) -> DataFrame:
        """Rows in the partitions of their slots."""
        text = self._guarded(slot, rows, form)
        return rows.repartitionById(slots, self._columns.once(text, lambda: F.expr(text)))

    def _guarded(self, text: str, rows: DataFrame, form: JobForm) -> str:
        """The expression, made to fail for a row that is too large for a batch."""

        def made() -> str:
            sizes = {name: kind for name, kind in rows.dtypes if name != APPLY_REPORT}
            return guarded_sql(text, sizes, form.limit)

        guarded: str = self._columns.once(("guarded", text, form), made)
        return guarded

    def _in_place(self, rows: DataFrame) -> DataFrame:
        """Rows that Spark takes to be partitioned by a key, so that it combines them without an
        exchange.

        Any key will do, as slot tasks merge the rows that several partitions have of one key. But
        it must not be a float: Spark changes floats before it groups by them.
        """
        kinds = {each.name: each.type for each in self._packed.columns}
        plain = [
            name
            for name in self._keys
            if "float" not in kinds[name] and "double" not in kinds[name]
        ]
        if plain:
            return in_place(rows, plain[0])
        return in_place(
            self._select(rows, ["*", f"spark_partition_id() as {_PARTITION}"]), _PARTITION
        )

    def _timed(self, rows: DataFrame, watermark_us: int | None) -> DataFrame:
        """Rows with their pane, and with what else depends on their time."""
        rows = self._select(rows, ["*", f"{self._pane()} as pane"])
        judged = self._judged(watermark_us)
        if judged:
            columns = [name for name in rows.columns if name not in judged]
            rows = rows.selectExpr(
                *columns, *(f"{text} as {name}" for name, text in judged.items())
            )
            others = [
                str(self.number[node.name])
                for node in self.nodes
                if not self._plan.is_first_part(node)
            ]
            rows = (
                rows.filter(f"not (pane = {ELSEWHERE}L and to in ({', '.join(others)}))")
                if others
                else rows
            )
        return (
            self._select(rows, ["*", f"{self._arrival_sql()} as {ARRIVAL}"]) if self._raw else rows
        )

    def _pane(self) -> str:
        return chosen_sql(
            "to", {self.number[node.name]: node.plan.pane_sql() for node in self.nodes}
        )

    def _select(self, rows: DataFrame, expressions: Sequence[str]) -> DataFrame:
        columns = self._columns.once(tuple(expressions), lambda: jseq(rows, expressions))
        return select(rows, columns)

    def _judged(self, watermark_us: int | None) -> dict[str, str]:
        """The columns that depend on the watermark: late rows for sinks, and panes that mark a row
        as not taken.

        Parts of one operator take different rows. Only the first part reports rows that no part
        takes.
        """
        texts: dict[str, dict[int, str]] = {}
        parted = {node.name: self._plan.sibling_parts(node) for node in self.nodes}
        for node in self._late:
            place = self._places(node)[LATE_ROW]
            late = " and ".join(part.plan.late_sql(watermark_us) for part in parted[node.name])
            texts.setdefault(place, {})[self.number[node.name]] = f"if({late}, {place}, null)"
        if any(
            len(parts) > 1 or node.plan.marks_late
            for node, parts in zip(self.nodes, parted.values(), strict=True)
        ):
            texts["pane"] = {
                self.number[node.name]: self._judged_pane(node, watermark_us) for node in self.nodes
            }
        return {name: chosen_sql("to", text) for name, text in texts.items()}

    def _judged_pane(self, node: Node, watermark_us: int | None) -> str:
        parts = self._plan.sibling_parts(node)
        if len(parts) == 1 and not node.plan.marks_late:
            return "pane"
        late = node.plan.late_sql(watermark_us)
        if not self._plan.is_first_part(node):
            return f"if({late}, {ELSEWHERE}L, pane)"
        by_all = " and ".join(part.plan.late_sql(watermark_us) for part in parts)
        outside = " and ".join(part.plan.outside_sql() for part in parts)
        left_out = (
            f"case when t is null then {LEFT_OUT}L when {MARKED_SQL} then t "
            f"when {outside} then {OUT}L else {TOO_LATE}L end"
        )
        return f"if({by_all}, {left_out}, if({late}, {ELSEWHERE}L, pane))"

    def _shard_sql(self) -> str:
        of = {
            node.name: component for component in self._plan.components for node in component.nodes
        }
        texts = {
            self.number[n.name]: shard_sql(of[n.name], n, self._places(n), self._shards)
            for n in self.nodes
        }
        return chosen_sql("to", texts)

    def _combined(self, rows: DataFrame, where: list[str]) -> DataFrame:
        """One row per key and pane in each partition. Spark takes the rows to be partitioned that
        way already, so it needs no exchange.
        """

        def columns() -> tuple[Any, Any, Any]:
            placed = [_PARTITION] if _PARTITION in rows.columns and not where else []
            by = [
                *where,
                *placed,
                *self._tagged,
                *self._keys,
                "pane",
                *([ARRIVAL] if self._raw else []),
                *self._rows,
                *self._reports,
            ]
            aggregates = [
                *self._aggregates,
                *([f"max(t) as {SEEN}"] if self.watched and self._seen == SEEN else []),
            ]
            return jseq(rows, by), jseq(rows, aggregates[:1]).head(), jseq(rows, aggregates[1:])

        by, first, rest = self._columns.once(("by", *where), columns)
        return grouped(rows, by, first, rest)
