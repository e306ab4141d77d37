"""The streams of the API: rows, windowed results, late rows. Each call adds an operator."""

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
    """Rows with an event time: a source, the results of an operator, or what a map returns."""

    def __init__(self, app: Topology, name: str, frame: DataFrame) -> None:
        self._app, self.name, self._frame = app, name, frame

    @property
    def app(self) -> Topology:
        return self._app

    def own_names(self, names: Any) -> Any:
        """The same names, spelled as the columns are, where Spark ignores upper and lower case."""
        any_case = ignores_case(self._frame.sparkSession)
        return own_names(names, self._frame.columns, any_case=any_case)

    def map(self, fn: Callable[[DataFrame], DataFrame], *, name: str | None = None) -> Stream:
        """Adds a stateless function of a DataFrame, in Spark SQL. Returns its result as a stream.

        The function must be deterministic and keep the event-time column. Windowed results have
        their event time in the column `window`: it is just before the end of the window.

        - fn: takes a DataFrame and returns one.
        - name: of the operator; by default the name of the function.
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
        """Adds a stateless Python function of rows, for work that Spark SQL cannot do.

        Returns the rows of the function as a stream.

        - schema: the columns that the function returns, as in Spark: "at timestamp, score double".
          "*, score double" stands for the columns of this stream and one more.
        - form: what the function takes and returns. "arrow": a RecordBatch. "pandas": a pandas
          DataFrame. "rows": it takes a dict, and returns a dict, a list of dicts, or None.
        - cost_by: the columns whose values decide how long a row takes; by default all except the
          event time.
        - grouping: how rows are given to slots. "round robin", "hash", "osg" (by cost), or "auto":
          by cost if the measured cost varies.
        - on_error: "fail" makes the step fail, "dead letter" sends rows that fail to the stream
          `.failed`.
        - osg: settings of grouping by cost.
        - batch_rows: the most rows per call.
        - name: of the operator; by default made from the name of the function.

        Raises a `TopologyError` if an argument is not valid.
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
                f"{ERROR_COLUMN!r} is the column that failed rows get for their error; rename "
                "yours in a map()"
            )
        if dead_letters and self._app.graph.root_of(self.name).stateful:
            raise NotYetError(
                "an apply on results of windows has no dead letters yet; valid: on_error='fail'"
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
        """Adds aggregates per key. Call `.consolidate(windows)` on what it returns.

        - by: the key columns, one name or several.
        - name: of the operator; by default made from the keys.
        - aggregates: the result columns by name, such as `n=ab.count(), paid=ab.sum("price")`.

        Raises a `TopologyError` if a column or an aggregate is not valid.
        """
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
        """Adds aggregates per key and window. Returns the results as a stream.

        It is `compute` and `consolidate` in one call.

        - by: the key columns, one name or several.
        - windows: one window or several, such as `ab.tumbling("10 minutes")`.
        - early: how often current results of open windows are written, a number of steps or a time
          such as "10 seconds"; by default never. See `consolidate`.
        - share: whether windows share panes; by default what costs less.
        - name: of the operator; by default made from the input and the keys.
        - aggregates: the result columns by name, such as `n=ab.count(), paid=ab.sum("price")`.

        Raises a `TopologyError` if a column, a window or an aggregate is not valid.
        """
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
        """Adds a class of yours that keeps state per key, with event-time timers.

        Returns the rows of the class, with the key columns before them, as a stream.

        - by: the key columns, one name or several.
        - cls: the class, or an object of it. What it may have is listed below.
        - order: the order of a key's rows in a step. "event_time": rows before the watermark are
          left out. "arrival": it gets all rows.
        - name: of the operator; by default made from the name of the class.

        The class has these attributes and methods:

        - `state`: the type of a key's state; or a dict of columns, for the vectorised form.
        - `output`: the columns of results besides the keys, as in Spark: "n bigint, at timestamp".
        - `process(self, key, rows, state, ctx)`: gets the rows of a key; returns rows or None. The
          vectorised form has no `key`.
        - `on_timer(self, key, state, ctx)`: is called when a timer is due; returns the same.
        - `event_time`: the column of `output` that is the event time of a result. Windows, joins
          and other classes on these results need it.
        - `ttl`: how long a key is kept without rows; by default for ever.
        - `columns`: the columns of the stream that it reads; by default all. Or a dict of
          aggregates: then it gets one row per key and step, made in the JVM.

        Raises a `TopologyError` if the class or an argument is not valid.
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
        """Sends the rows to a sink, and returns this stream.

        - target: `ab.parquet(...)`, `ab.memory()` or another sink, or a function of (DataFrame,
          step).
        - name: of the sink; by default "sink_1", "sink_2" and so on.
        """
        chosen = as_target(target)
        self._app.check_results(self.name, chosen)
        stream = self.name
        # Only tasks write files for sinks, so rows of a source pass through an apply.
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
        """An expression as planners read it: a Column that is just a column becomes its name."""
        if isinstance(value, tuple):
            return tuple(map(self._plain, value))
        if not isinstance(value, Column):
            return value
        name = str(value).removeprefix("Column<'").removesuffix("'>")
        return name if name in self._frame.columns and "." not in name else value


def name_of(fn: object, otherwise: str) -> str:
    """The name of a function, or `otherwise` if it has none, such as a lambda."""
    name = getattr(fn, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else otherwise


def _of_window(results: DataFrame, window: str) -> DataFrame:
    return results.filter(F.col(g.RESULT_COLUMNS[1]).isin(*names_of(window)))


def _schema(schema: object, given: StructType) -> StructType:
    """The declared schema. A star in front stands for the columns of the input."""
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
    except Exception as error:  # noqa: BLE001 - Spark may raise anything
        raise TopologyError(
            f"schema={schema!r} is not a schema: {str(error).strip().splitlines()[0]}"
        ) from None
    if not isinstance(added, StructType):
        raise TopologyError(
            f"schema={schema!r} is a single type; valid: columns, such as 'at timestamp, score "
            "double'"
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
    """Joins two streams: pairs of rows with equal keys in the same window, when the window closes.

    Returns the pairs as a stream. Outer joins also have rows without a partner. A null in a key
    equals nothing, as in Spark's own join.

    - by: the key columns, one name or several, which both streams have.
    - window: one window or several, such as `ab.tumbling("10 minutes")`.
    - how: "inner", "left", "right" or "full".
    - name: of the operator; by default made from the names of both streams.

    Raises a `TopologyError` if a column or a window is not valid, or if the streams belong to two
    topologies.
    """
    given: tuple[object, object] = (left, right)
    for each in given:
        if not isinstance(each, Stream):
            raise TopologyError(f"join() needs two streams, got {each!r}")
    return left.app.joined(left, right, by, g.listed_windows(window), how, name)


class Computed:
    """Aggregates per key, before `consolidate` puts them into windows."""

    def __init__(self, app: Topology, name: str) -> None:
        self._app, self.name = app, name

    def consolidate(
        self,
        *windows: WindowDefinition | tuple[Window, ...],
        early: int | Duration | None = None,
        share: bool | None = None,
        name: str | None = None,
    ) -> Windowed:
        """Adds windows. Returns their results as a stream.

        - windows: one or several, such as `ab.tumbling("10 minutes")`.
        - early: how often current results of open windows are written, a number of steps or a time
          such as "10 seconds"; by default never. All results then have a column `early`. It is true
          for open windows and false for complete ones.
        - share: True makes all windows from panes that they share, False makes each window from
          panes of its own; by default what costs less.
        - name: of the operator; by default made from the input and the keys.

        Raises a `TopologyError` if a window or an argument is not valid.
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
    """The rows that the function of an apply returned. It is a stream like others."""

    @property
    def failed(self) -> Failed:
        """The rows on which the function failed, each with its error.

        Raises a `TopologyError` unless the apply has `on_error="dead letter"`.
        """
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
    """Results per key and window. It is a stream like others, of complete windows.

    `results["1 day"]` is the stream of one window.
    """

    def __getitem__(self, window: str) -> Stream:
        """The results of one window, by its name, as a stream with the same columns.

        A window that was added later also has results that lack earlier rows. In the column
        `window_name` these are called "1 day (incomplete)".

        Raises a `TopologyError` if there is no such window.
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
        """The rows that no window took, each with the reason.

        They were too late for every window, too far ahead of the clock, without event time, or in
        no window.
        """
        return Late(self._app, self.name)


class Processed(Stream):
    """The rows that a user's class returned, with the key columns.

    If the class declares `event_time`, it is a stream like others.
    """

    @property
    def late(self) -> Late:
        """The rows that the class did not get, each with the reason.

        They were before the watermark, too far ahead of the clock, or without event time.
        """
        return Late(self._app, self.name)


class Joined(Windowed):
    """Joined rows per key and window. It is a stream like others.

    `joined["1 day"]` is the stream of one window.
    """

    @property
    def late(self) -> Late:
        """The rows of both sides that no window took, each with its side and the reason."""
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
