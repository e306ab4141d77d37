"""Streams as users see them: rows, windowed results, late rows. Each call adds an operator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.aggregates.specs import Aggregate, text_of
from anabranch.errors import NotYetError, TopologyError, unknown
from anabranch.plan.evolution import names_of
from anabranch.plan.operators.process import process_plan
from anabranch.spark.compile.expressions import type_of
from anabranch.spark.compile.schemas import fields_of
from anabranch.spark.jvm import check_map, ignores_case
from anabranch.spark.sinks import as_target
from anabranch.topology import graph as g
from anabranch.topology.apply import (
    ARROW,
    AUTO,
    ERROR_COLUMN,
    FAIL,
    ROUND_ROBIN,
    ApplySpec,
    Osg,
    check_work,
    cost_columns,
)
from anabranch.topology.columns import own_names
from anabranch.topology.durations import Duration
from anabranch.topology.process import aggregates_of, logic_of
from anabranch.topology.windows import AlignedWindow, Window, WindowDefinition

if TYPE_CHECKING:
    from anabranch.spark.api.topology import Topology


class Stream:
    """Rows with an event time: a source, the results of windows, or what a map made of them."""

    def __init__(self, app: Topology, name: str, frame: DataFrame) -> None:
        self._app, self.name, self._frame = app, name, frame

    @property
    def app(self) -> Topology:
        return self._app

    def own_names(self, names: Any) -> Any:
        """Names of columns as the columns themselves are called, where Spark takes any case."""
        any_case = ignores_case(self._frame.sparkSession)
        return own_names(names, self._frame.columns, any_case=any_case)

    def map(self, fn: Callable[[DataFrame], DataFrame], *, name: str | None = None) -> Stream:
        """A stateless function of a DataFrame, in Spark SQL; it must be deterministic and keep the
        event-time column.

        The event time of windowed results is their column `window`: they happened just before its
        end.
        """
        frame = check_map(fn, self._frame, self._app.graph.clock_or_none(self.name))
        node = g.Map(
            name=self._app.graph.free_name(name_of(fn, "map")) if name is None else name,
            input=self.name,
            fn=fn,
            fields=fields_of(frame.schema),
        )
        self._app.add(node)
        return Stream(self._app, node.name, frame)

    def apply(  # noqa: PLR0913 - all but two have defaults that work
        self,
        fn: Callable[[Any], Any],
        *,
        schema: str | StructType,
        form: str = ARROW,
        cost_by: str | Iterable[str] | None = None,
        grouping: str = AUTO,
        on_error: str = FAIL,
        osg: Osg = Osg(),  # noqa: B008 - it is frozen
        batch_rows: int = 1024,
        name: str | None = None,
    ) -> Applied:
        """A stateless Python function of rows, for work that Spark SQL cannot do; `schema` says
        what it returns.

        schema: as in Spark, such as "at timestamp, score double"; "*, score double" keeps the
        columns that there are. form: what the function takes and returns: "arrow" a RecordBatch,
        "pandas" a DataFrame, "rows" a dict (and a dict, a list of dicts, or None). cost_by: the
        columns whose values decide what a row costs; all but the event time where it is not said.
        grouping: how rows are given to slots: "round robin", "hash", "osg" (by what they cost), or
        "auto": by cost where the measured cost varies. on_error: "fail" ends the step, "dead
        letter" sends rows that fail to the stream `.failed`. osg: settings of grouping by cost.
        batch_rows: most rows of one call.
        """
        checked, dead_letters = check_work(fn, form, grouping, on_error, batch_rows, osg)
        fields = fields_of(self._frame.schema)
        given = _schema(schema, self._frame.schema)
        clock = self._app.graph.clock_or_none(self._app.graph.root_of(self.name).name)
        work = ApplySpec(
            fn=checked,
            form=form,
            cost_by=cost_columns(
                self.own_names(cost_by),
                [(each.name, each.type) for each in fields],
                clock.column if clock else None,
            ),
            grouping=grouping,
            osg=osg,
            dead_letters=dead_letters,
            batch_rows=batch_rows,
        )
        if dead_letters and any(each.name == ERROR_COLUMN for each in fields):
            raise TopologyError(
                f"{ERROR_COLUMN!r} is a column of rows that failed; rename it in a map()"
            )
        if dead_letters and self._app.graph.root_of(self.name).stateful:
            raise NotYetError(
                "an apply on results of windows has no dead letters so far; valid: on_error='fail'"
            )
        node = g.Apply(
            name=self._app.name_for(name, name_of(fn, "apply")),
            input=self.name,
            work=work,
            fields=fields_of(given),
        )
        self._app.add(node)
        return Applied(self._app, node.name, self._app.empty(node.name))

    def compute(
        self, by: str | Iterable[str], *, name: str | None = None, **aggregates: Aggregate
    ) -> Computed:
        """Mergeable aggregates per key; follow it with `.consolidate(windows)`."""
        keys = g.key_fields(self.own_names(by), fields_of(self._frame.schema))
        g.check_result_names(keys, aggregates)
        self._app.graph.clock_of(self.name)  # refuses a stream that has lost its event time
        named = tuple(self._named(each, aggregate) for each, aggregate in aggregates.items())
        wish = f"by_{'_'.join(field.name for field in keys)}" if keys else "total"
        node = g.Compute(
            name=self._app.graph.free_name(wish) if name is None else name,
            input=self.name,
            by=keys,
            aggregates=named,
        )
        self._app.add(node)
        return Computed(self._app, node.name)

    def aggregate(
        self,
        *,
        by: str | Iterable[str],
        windows: WindowDefinition | Iterable[WindowDefinition | tuple[Window, ...]],
        early: int | Duration | None = None,
        share: bool | None = None,
        name: str | None = None,
        **aggregates: Aggregate,
    ) -> Windowed:
        """`compute` and `consolidate` in one call."""
        listed: list[Any] = g.listed_windows(windows)
        for each in g.check_windows(listed):
            each.check_moment(self._app.graph.clock_of(self.name).moment)
        before = self._app.graph
        try:
            return self.compute(by, name=None, **aggregates).consolidate(
                *listed, early=early, share=share, name=name
            )
        except TopologyError:
            self._app.graph = before
            raise

    def process(
        self,
        by: str | Iterable[str],
        cls: Any,
        *,
        order: str = "event_time",
        name: str | None = None,
    ) -> Processed:
        """State of your own per key in Python, with event-time timers: docs/reference/process.md.

        The class declares `state` (a type, or a dict of columns for the vectorised form) and
        `output` (columns of its results besides the keys, as in Spark: "n bigint, at timestamp"),
        and has the method process(self, key, rows, state, ctx), which returns rows or None; for
        timers also on_timer(self, key, state, ctx). `event_time` names the column of output that
        says when a result happened, `ttl` how long a key is kept without rows, `columns` what it
        reads of the stream: names of columns, or a dict of aggregates, which are made of the rows
        of a key in the JVM. order: rows of a key in a step by "event_time" (those before the
        watermark are left out) or by "arrival" (all are given).
        """
        fields = fields_of(self._frame.schema)
        keys = g.key_fields(self.own_names(by), fields)
        any_case = ignores_case(self._frame.sparkSession)
        logic = logic_of(cls, order, keys, fields, any_case=any_case)
        chosen = self._app.name_for(name, logic.name.rpartition(".")[2].lower())
        combined = tuple(
            self._named(each, aggregate) for each, aggregate in aggregates_of(cls).items()
        )
        plan = process_plan(
            chosen, keys, logic, fields, self._app.graph.clock_of(self.name), combined
        )
        self._app.add(
            g.Process(
                name=chosen,
                input=self.name,
                by=keys,
                logic=logic,
                fields=plan.result_fields,
                combined=combined,
            )
        )
        return Processed(self._app, chosen, self._app.empty(chosen))

    def to(self, target: object, *, name: str | None = None) -> Stream:
        """Sends rows to a sink: ab.parquet(...), ab.memory(), a function of (DataFrame, step)."""
        chosen = as_target(target)
        self._app.check_results(self.name, chosen)
        stream = self.name
        # What writes files is a task: rows of a source pass through one.
        if not self._app.graph.stream_of(stream)[0].writes_results:
            fields = fields_of(self._frame.schema)
            work = ApplySpec(fn=None, grouping=ROUND_ROBIN)
            node = g.Apply(
                name=self._app.graph.free_name(f"{stream}_rows"),
                input=stream,
                work=work,
                fields=fields,
            )
            self._app.add(node)
            stream = node.name
        self._app.add_sink(stream, chosen, late=False, name=name)
        return self

    def _named(self, name: str, aggregate: object) -> g.Named:
        if not isinstance(aggregate, Aggregate):
            raise TopologyError(
                f"{name}={aggregate!r} is not an aggregate; write {name}=ab.avg(...) or another one"
            )
        if aggregate.where is not None:
            kind = type_of(self._frame, aggregate.where, f"the filter of {name!r}")
            if kind != "boolean":
                raise TopologyError(
                    f"the filter of {name!r} ({aggregate.where}) has type {kind}; valid: boolean"
                )
        input_type = (
            "int"
            if aggregate.expression is None
            else type_of(self._frame, aggregate.expression, f"aggregate {name!r}")
        )
        try:
            aggregate.partials(input_type)
        except TopologyError as error:
            raise TopologyError(
                f"aggregate {name!r} of {text_of(aggregate.expression)}: {error}"
            ) from None
        plain = replace(aggregate, expression=self._plain(aggregate.expression))
        return g.Named(name=name, aggregate=plain, input_type=input_type)

    def _plain(self, value: Any) -> Any:
        """An expression as planners read it: a Column that is a column as it is, by its name."""
        if isinstance(value, tuple):
            return tuple(map(self._plain, value))
        if not isinstance(value, Column):
            return value
        name = str(value).removeprefix("Column<'").removesuffix("'>")
        return name if name in self._frame.columns and "." not in name else value


def name_of(fn: object, otherwise: str) -> str:
    """The name of a function; that of all others where it has none, as a lambda has not."""
    name = getattr(fn, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else otherwise


def _of_window(results: DataFrame, window: str) -> DataFrame:
    return results.filter(F.col(g.RESULT_COLUMNS[1]).isin(*names_of(window)))


def _schema(schema: object, given: StructType) -> StructType:
    """A schema as it is declared; a star in front stands for the columns that there are."""
    if isinstance(schema, StructType):
        return schema
    if not isinstance(schema, str) or not schema.strip():
        raise TopologyError(
            f"schema={schema!r}; valid: a string such as 'at timestamp, score double', or a "
            "StructType"
        )
    text = schema.strip()
    star = text.startswith("*")
    rest = text[1:].strip().removeprefix(",").strip() if star else text
    try:
        added = StructType.fromDDL(rest) if rest else StructType([])
    except Exception as error:  # noqa: BLE001 - whatever Spark says about it
        raise TopologyError(
            f"schema={schema!r} is not a schema: {str(error).strip().splitlines()[0]}"
        ) from None
    if not isinstance(added, StructType):
        raise TopologyError(
            f"schema={schema!r} is one type; valid: columns, such as 'at timestamp, score double'"
        )
    fields = [*(given.fields if star else []), *added.fields]
    names = [each.name for each in fields]
    for name in names:
        if names.count(name) > 1:
            raise TopologyError(f"schema={schema!r} has a duplicate column {name!r}")
    return StructType(fields)


def join(
    left: Stream,
    right: Stream,
    *,
    by: str | Iterable[str],
    window: AlignedWindow | Iterable[AlignedWindow | tuple[Window, ...]],
    how: str = "inner",
    name: str | None = None,
) -> Joined:
    """Pairs of rows of two streams with equal keys in the same window, when it closes; in outer
    joins also rows without a partner.

    how: "inner", "left", "right" or "full". A null in a key equals nothing, as in Spark's own join.
    """
    given: tuple[object, object] = (left, right)
    for each in given:
        if not isinstance(each, Stream):
            raise TopologyError(f"join() needs two streams, got {each!r}")
    return left.app.joined(left, right, by, g.listed_windows(window), how, name)


class Computed:
    """Partials per key, to be consolidated into windows."""

    def __init__(self, app: Topology, name: str) -> None:
        self._app, self.name = app, name

    def consolidate(
        self,
        *windows: WindowDefinition | tuple[Window, ...],
        early: int | Duration | None = None,
        share: bool | None = None,
        name: str | None = None,
    ) -> Windowed:
        """The windows that are formed from the partials; any number, sharing what they can.

        early: every so many steps (or "10 seconds"), windows that are still open are written as
        they are; then all results have a column `early`, true for these and false when a window is
        complete. share: whether all windows are formed from panes that they share, or each from its
        own; by cost where it is not said.
        """
        compute = self._app.graph.compute_of(self.name)
        names = [*(field.name for field in compute.by), *(each.name for each in compute.aggregates)]
        checked = g.check_windows(windows)
        keys = "_".join(field.name for field in compute.by)
        did = f"by_{keys}" if keys else "in_total"
        for window in checked:
            window.check_moment(self._app.graph.clock_of(compute.input).moment)
        node = g.Consolidate(
            name=self._app.name_for(name, self._app.graph.stream_of(compute.input)[0].name, did),
            input=self.name,
            windows=checked,
            early=g.check_early(early, names),
            share=share,
        )
        self._app.add(node)
        return Windowed(self._app, node.name, self._app.empty(node.name))


class Applied(Stream):
    """What a function made of rows, a stream like others."""

    @property
    def failed(self) -> Failed:
        """The rows on which the function failed, each with its error."""
        operator = self._app.graph.operator(self.name)
        if not isinstance(operator, g.Apply) or not operator.work.dead_letters:
            raise TopologyError(
                f"apply {self.name!r} has no dead letters: give it on_error='dead letter'"
            )
        return Failed(self._app, self.name)


class Failed:
    """The rows that failed in an apply."""

    def __init__(self, app: Topology, name: str) -> None:
        self._app, self.name = app, name

    def to(self, target: object, *, name: str | None = None) -> Failed:
        """Sends the rows to a sink."""
        self._app.add_sink(self.name, as_target(target), late=True, name=name)
        return self


class Windowed(Stream):
    """Results per key and window, a stream like others: what follows sees those of complete
    windows. `results["1 day"]` is the stream of one window.
    """

    def __getitem__(self, window: str) -> Stream:
        """The results of one window, by its name, as a stream of their own.

        They have the columns of all results. Where the window was added later, those that lack rows
        from before are among them, named "1 day (incomplete)" in the column `window_name`.
        """
        graph = self._app.graph
        names = graph.operator(self.name).window_names
        if window not in names:
            raise TopologyError(unknown(f"window of {self.name!r}", window, names))
        node = g.Map(
            name=f"{self.name}[{window}]",
            input=self.name,
            fn=functools.partial(_of_window, window=window),
            fields=graph.fields_of(self.name),
            window=window,
        )
        if not any(each.name == node.name for each in graph.operators):
            self._app.add(node)
        return Stream(self._app, node.name, self._frame)

    @property
    def late(self) -> Late:
        """The rows that were too late for every window, too far ahead of the clock, or had no event
        time or no window; with the reason.
        """
        return Late(self._app, self.name)


class Processed(Stream):
    """What a user's class returned, with the key columns; a stream like others if it has an event
    time.
    """

    @property
    def late(self) -> Late:
        """The rows that were before the watermark, too far ahead of the clock, or without event
        time; with the reason.
        """
        return Late(self._app, self.name)


class Joined(Windowed):
    """Joined rows per key and window, a stream like others. `joined["1 day"]` is the stream of one
    window.
    """

    @property
    def late(self) -> Late:
        """The rows of both sides that no window took, with side and reason."""
        return Late(self._app, self.name)


class Late:
    """The rows that an operator left out."""

    def __init__(self, app: Topology, name: str) -> None:
        self._app, self.name = app, name

    def to(self, target: object, *, name: str | None = None) -> Late:
        """Sends the rows to a sink."""
        chosen = as_target(target)
        self._app.graph.operator(self.name).check_late(self._app.graph)
        self._app.add_sink(self.name, chosen, late=True, name=name)
        return self
