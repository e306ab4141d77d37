"""Mistakes in a topology: refused while it is built, before any row is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import anabranch as ab
from tests.mistakes.mistake import Desk, Mistake


class Fine:
    """A class for `process` without mistakes; others change one thing."""

    state: int
    output = "n bigint"

    def process(self, key, rows, state, ctx):
        return [{"n": 1}]


def changed(**parts: object) -> type:
    """`Fine` with other parts; None takes a part away."""
    kept = {"state": int, "output": "n bigint", "process": Fine.process, **parts}
    return type("Mine", (), {name: each for name, each in kept.items() if each is not None})


def only_rows(self, rows):
    return None


def of_columns(self, rows, state, ctx):
    return None


def at_a_time(self, key, state, ctx):
    return None


class NeedsArguments:
    def __init__(self, limit: int) -> None:
        self.limit = limit


@dataclass
class NoDefault:
    total: int


def fails(rows):
    return rows.select("nothing")


def _two_names(desk: Desk) -> object:
    clicks = desk.clicks()
    one = {"by": "page", "windows": [ab.tumbling("1 hour")], "n": ab.count(), "name": "pages"}
    clicks.aggregate(**one)
    return clicks.aggregate(**one)


def _two_sinks(desk: Desk) -> object:
    path = desk.directory / "out"
    return desk.pages().to(ab.parquet(path)).to(ab.parquet(path))


def _join(desk: Desk, **changes: object) -> object:
    app = desk.app()
    left = app.source(desk.rows().select("at", "page", "ms"), event_time="at", name="left")
    right = app.source(
        desk.rows().selectExpr("at as then", "page", "price", "ms as page_ms"),
        event_time="then",
        name="right",
    )
    given = {"by": "page", "window": ab.tumbling("5 minutes"), **changes}
    return ab.join(left, right, **given)


WINDOWS = [
    Mistake("no unit", lambda _: ab.tumbling("10"), ("'10'", "10 minutes")),
    Mistake("unknown unit", lambda _: ab.tumbling("3 parsecs"), ("parsecs", "minutes")),
    Mistake("months", lambda _: ab.tumbling("1 month"), ("month", "weeks")),
    Mistake("zero", lambda _: ab.tumbling("0 seconds"), ("0 seconds", "zero")),
    Mistake("negative", lambda _: ab.tumbling("-5 minutes"), ("-5 minutes", "negative")),
    Mistake("a number", lambda _: ab.tumbling(600), ("600", "timedelta")),
    Mistake("empty", lambda _: ab.tumbling(""), ("''", "10 minutes")),
    Mistake("nothing", lambda _: ab.tumbling(None), ("None", "10 minutes")),
    Mistake("too long", lambda _: ab.tumbling("200000 days"), ("200000 days", "100 years")),
    Mistake("fractions", lambda _: ab.tumbling("0.5 microseconds"), ("0.5 micro", "whole")),
    Mistake("a long timedelta", lambda _: ab.tumbling(timedelta(days=99999)), ("100 years",)),
    Mistake(
        "a slide beyond the length",
        lambda _: ab.sliding("1 minute", every="1 hour"),
        ("1 hour", "1 minute", "hopping"),
    ),
    Mistake(
        "steps that do not divide the period",
        lambda _: ab.cumulative("1 hour", every="7 minutes"),
        ("1 hour", "7 minutes", "multiple"),
    ),
    Mistake(
        "too many steps",
        lambda _: ab.cumulative("1 day", every="1 second"),
        ("86,400", "300", "every="),
    ),
    Mistake("no gap", lambda _: ab.session("0 seconds"), ("0 seconds", "zero")),
    Mistake("no name", lambda _: ab.tumbling("1 hour", name=""), ("''", "non-empty string")),
    Mistake("a number as name", lambda _: ab.tumbling("1 hour", name=7), ("7", "string")),
    Mistake(
        "a calendar of hours",
        lambda _: ab.calendar("hour", timezone="UTC"),
        ("'hour'", "month"),
    ),
    Mistake(
        "an unknown zone",
        lambda _: ab.calendar("day", timezone="Europe/Berln"),
        ("Europe/Berln", "Europe/Berlin"),
    ),
    Mistake("no windows", lambda d: d.pages(windows=[]), ("window", "ab.tumbling")),
    Mistake("a text as window", lambda d: d.pages(windows=["1 hour"]), ("'1 hour'", "ab.tumbling")),
    Mistake("not a window", lambda d: d.pages(windows=5), ("5", "ab.tumbling")),
    Mistake(
        "two windows of one name",
        lambda d: d.pages(windows=[ab.tumbling("1 hour", name="x"), ab.tumbling("1d", name="x")]),
        ("'x'", "name="),
    ),
    Mistake(
        "a window that is not there",
        lambda d: d.pages()["1 hour"],
        ("'1 hour'", "10 minutes"),
    ),
    Mistake("early never", lambda d: d.pages(early=0), ("early=0", "1 step")),
    Mistake("early words", lambda d: d.pages(early="soon"), ("'soon'", "10 minutes")),
    Mistake("early fractions", lambda d: d.pages(early=1.5), ("1.5", "10 seconds")),
]

SOURCES = [
    Mistake(
        "not a DataFrame",
        lambda d: d.app().source([1, 2], event_time="at"),
        ("[1, 2]", "DataFrame"),
    ),
    Mistake("no event time", lambda d: d.app().source(d.rows()), ("event_time", "withWatermark")),
    Mistake(
        "an unknown event time",
        lambda d: d.app().source(d.rows(), event_time="when"),
        ("'when'", "at, page"),
    ),
    Mistake(
        "a text as event time",
        lambda d: d.app().source(d.rows(), event_time="page"),
        ("'page'", "string", "timestamp"),
    ),
    Mistake(
        "a number without unit",
        lambda d: d.app().source(d.rows(), event_time="seconds"),
        ("'seconds'", 'unit="seconds"'),
    ),
    Mistake(
        "minutes as unit",
        lambda d: d.app().source(d.rows(), event_time="seconds", unit="minutes"),
        ("minutes", "milliseconds", "nanoseconds"),
    ),
    Mistake(
        "a unit for a timestamp",
        lambda d: d.app().source(d.rows(), event_time="at", unit="seconds"),
        ("unit='seconds'", "timestamp"),
    ),
    Mistake(
        "a delay in words",
        lambda d: d.app().source(d.rows(), event_time="at", delay="a while"),
        ("'a while'", "10 minutes"),
    ),
    Mistake(
        "a negative delay",
        lambda d: d.app().source(d.rows(), event_time="at", delay="-1 minute"),
        ("-1 minute", "negative"),
    ),
    Mistake(
        "ahead in words",
        lambda d: d.app().source(d.rows(), event_time="at", ahead="never"),
        ("'never'", "24h"),
    ),
    Mistake(
        "idle for no time",
        lambda d: d.app().source(d.rows(), event_time="at", idle_after="0 seconds"),
        ("idle_after", "zero"),
    ),
    Mistake("a topology without name", lambda _: ab.Topology(""), ("''", "non-empty string")),
    Mistake("a number as topology", lambda _: ab.Topology(3), ("3", "non-empty string")),
]

NAMES = [
    Mistake("an unknown key", lambda d: d.pages(by="pgae"), ("'pgae'", "page")),
    Mistake("a number as key", lambda d: d.pages(by=3), ("by=3", "column")),
    Mistake("a key twice", lambda d: d.pages(by=["page", "page"]), ("page", "duplicate")),
    Mistake("a map as key", lambda d: d.pages(by="tags"), ("'tags'", "map")),
    Mistake("no aggregate", lambda d: d.clicks().compute("page"), ("aggregate", "ab.count()")),
    Mistake(
        "an aggregate named as a key",
        lambda d: d.pages(page=ab.count()),
        ("'page'", "key"),
    ),
    Mistake(
        "an aggregate named window",
        lambda d: d.pages(window=ab.count()),
        ("'window'", "another name"),
    ),
    Mistake("two operators of one name", _two_names, ("'pages'", "already")),
    Mistake("a long name", lambda d: d.pages(name="x" * 300), ("300", "character")),
    Mistake("a blank name", lambda d: d.pages(name="  "), ("'  '", "non-empty string")),
    Mistake("fuse one", lambda d: (p := d.pages()).app.fuse(p), ("fuse()", "two operators")),
    Mistake(
        "fuse a source",
        lambda d: (p := d.pages()).app.fuse(p, d.clicks()),
        ("'clicks'", "clicks_by_page"),
    ),
]

AGGREGATES = [
    Mistake("a text as aggregate", lambda d: d.pages(n="count"), ("'count'", "ab.")),
    Mistake("an unknown column", lambda d: d.pages(n=ab.sum("mss")), ("mss", "ms, price")),
    Mistake("no SQL", lambda d: d.pages(n=ab.sum("ms +")), ("ms +",)),
    Mistake("a number as expression", lambda d: d.pages(n=ab.sum(5)), ("5", "expression")),
    Mistake("the sum of texts", lambda d: d.pages(n=ab.sum("page")), ("page", "string", "valid")),
    Mistake("the largest map", lambda d: d.pages(n=ab.max("tags")), ("tags", "map")),
    Mistake("all of numbers", lambda d: d.pages(n=ab.bool_and("ms")), ("ms", "boolean")),
    Mistake(
        "a filter that is a number",
        lambda d: d.pages(n=ab.count(where="ms")),
        ("int", "boolean"),
    ),
    Mistake("a filter of nothing", lambda d: d.pages(n=ab.count(where="x > 1")), ("x > 1",)),
    Mistake("random sums", lambda d: d.pages(n=ab.sum("rand()")), ("rand()", "deterministic")),
    Mistake(
        "a random filter",
        lambda d: d.pages(n=ab.count(where="rand() < 0.5")),
        ("rand() < 0.5", "deterministic"),
    ),
    Mistake("random texts", lambda d: d.pages(n=ab.max("uuid()")), ("uuid()", "deterministic")),
    Mistake(
        "the time of day",
        lambda d: d.pages(n=ab.max("current_timestamp()")),
        ("current_timestamp()", "current time"),
    ),
    Mistake("an aggregate in one", lambda d: d.pages(n=ab.sum("max(ms)")), ("max(ms)",)),
    Mistake(
        "a window function",
        lambda d: d.pages(n=ab.sum("row_number() over (order by ms)")),
        ("row_number()",),
    ),
    Mistake("rows from one", lambda d: d.pages(n=ab.sum("explode(list)")), ("explode(list)",)),
    Mistake("a quantile of 3", lambda _: ab.quantile("ms", 3), ("3", "0 to 1")),
    Mistake("no quantiles", lambda _: ab.quantile("ms", []), ("0 to 1",)),
    Mistake("the top none", lambda _: ab.top_k("page", 0), ("k=0", "1 to")),
    Mistake("a tiny sketch", lambda _: ab.approx_count_distinct("page", 1), ("lg_k=1", "valid")),
    Mistake("a list of none", lambda _: ab.collect_list("ms", 0), ("limit=0", "1 to")),
    Mistake("a udaf of nothing", lambda _: ab.udaf(object()), ("udaf", "needs")),
    Mistake(
        "a udaf with arguments",
        lambda _: ab.udaf(NeedsArguments),
        ("udaf(NeedsArguments)", "without arguments"),
    ),
]

FUNCTIONS = [
    Mistake("not a function", lambda d: d.clicks().map(5), ("5", "function")),
    Mistake("a map that fails", lambda d: d.clicks().map(fails), ("nothing", "page")),
    Mistake("a map to nothing", lambda d: d.clicks().map(lambda _: None), ("None", "DataFrame")),
    Mistake(
        "a map without event time",
        lambda d: d.clicks().map(lambda rows: rows.drop("at")),
        ("'at'", "page"),
    ),
    Mistake(
        "a random map",
        lambda d: d.clicks().map(lambda rows: rows.selectExpr("*", "rand() as r")),
        ("deterministic", "rand"),
    ),
    Mistake(
        "an apply of 5",
        lambda d: d.clicks().apply(5, schema="n int"),
        ("5", "function"),
    ),
    Mistake(
        "an apply without schema",
        lambda d: d.clicks().apply(fails, schema=""),
        ("schema=''", "score double"),
    ),
    Mistake(
        "a schema of unknown types",
        lambda d: d.clicks().apply(fails, schema="n number"),
        ("n number",),
    ),
    Mistake(
        "a column twice",
        lambda d: d.clicks().apply(fails, schema="*, ms int"),
        ("'ms'", "duplicate"),
    ),
    Mistake(
        "an unknown form",
        lambda d: d.clicks().apply(fails, schema="*", form="polars"),
        ("'polars'", "arrow, pandas, rows"),
    ),
    Mistake(
        "an unknown grouping",
        lambda d: d.clicks().apply(fails, schema="*", grouping="random"),
        ("'random'", "round robin"),
    ),
    Mistake(
        "an unknown way to fail",
        lambda d: d.clicks().apply(fails, schema="*", on_error="ignore"),
        ("'ignore'", "dead letter"),
    ),
    Mistake(
        "no rows per call",
        lambda d: d.clicks().apply(fails, schema="*", batch_rows=0),
        ("batch_rows=0", "1 row"),
    ),
    Mistake(
        "the cost of nothing",
        lambda d: d.clicks().apply(fails, schema="*", cost_by="x"),
        ("'x'", "page"),
    ),
    Mistake(
        "dead letters that are not",
        lambda d: d.clicks().apply(fails, schema="*").failed,
        ("dead letter", "on_error"),
    ),
]

CLASSES = [
    Mistake(
        "no process()",
        lambda d: d.clicks().process("page", changed(process=None)),
        ("Mine", "process()"),
    ),
    Mistake(
        "no state",
        lambda d: d.clicks().process("page", changed(state=None)),
        ("Mine", "state"),
    ),
    Mistake(
        "no output",
        lambda d: d.clicks().process("page", changed(output=None)),
        ("Mine", "n bigint"),
    ),
    Mistake(
        "output without types",
        lambda d: d.clicks().process("page", changed(output="n")),
        ("'n'", "n bigint"),
    ),
    Mistake(
        "output of an unknown type",
        lambda d: d.clicks().process("page", changed(output="n number")),
        ("'n'", "number"),
    ),
    Mistake(
        "the key in output",
        lambda d: d.clicks().process("page", changed(output="page string")),
        ("'page'", "key column"),
    ),
    Mistake(
        "a column twice in output",
        lambda d: d.clicks().process("page", changed(output="n int, n int")),
        ("'n'", "duplicate"),
    ),
    Mistake(
        "arguments that do not fit",
        lambda d: d.clicks().process("page", changed(process=only_rows)),
        ("key, rows, state, ctx",),
    ),
    Mistake(
        "an unknown order",
        lambda d: d.clicks().process("page", Fine, order="random"),
        ("'random'", "arrival"),
    ),
    Mistake(
        "an event time that is a number",
        lambda d: d.clicks().process("page", changed(event_time="n")),
        ("event_time='n'", "timestamp"),
    ),
    Mistake(
        "a ttl in words",
        lambda d: d.clicks().process("page", changed(ttl="long")),
        ("'long'", "10 minutes"),
    ),
    Mistake(
        "columns that are not there",
        lambda d: d.clicks().process("page", changed(columns=("ms", "x"))),
        ("'x'", "ms"),
    ),
    Mistake(
        "aggregates in order of event time",
        lambda d: d.clicks().process("page", changed(columns={"n": ab.count()})),
        ("order='arrival'",),
    ),
    Mistake(
        "a state that cannot begin",
        lambda d: d.clicks().process("page", changed(state=NoDefault)),
        ("NoDefault", "default"),
    ),
    Mistake(
        "a state that cannot be stored",
        lambda d: d.clicks().process("page", changed(state=object)),
        ("object", "dataclass"),
    ),
    Mistake(
        "vectorised timers",
        lambda d: d.clicks().process(
            "page",
            changed(
                state={"n": "bigint"},
                process=of_columns,
                on_timer=at_a_time,
            ),
        ),
        ("timers", "per key"),
    ),
    Mistake(
        "a vectorised state of texts",
        lambda d: d.clicks().process(
            "page",
            changed(state={"n": "string"}, process=of_columns),
        ),
        ("'string'", "bigint"),
    ),
    Mistake("not a class", lambda d: d.clicks().process("page", 5), ("int", "process()")),
]

JOINS = [
    Mistake(
        "join with 5", lambda d: ab.join(d.clicks(), 5, by="page", window=None), ("5", "stream")
    ),
    Mistake(
        "streams of two topologies",
        lambda d: ab.join(d.clicks(), d.clicks(), by="page", window=ab.tumbling("1h")),
        ("'clicks'", "another topology"),
    ),
    Mistake("an unknown join", lambda d: _join(d, how="cross"), ("'cross'", "inner")),
    Mistake("join by nothing", lambda d: _join(d, by=[]), ("key column", "by=")),
    Mistake("join by what is not there", lambda d: _join(d, by="ms"), ("'ms'", "right")),
    Mistake("join without window", lambda d: _join(d, window=[]), ("window", "ab.tumbling")),
    Mistake(
        "join in sessions",
        lambda d: _join(d, window=ab.session("1 minute")),
        ("session", "ab.tumbling"),
    ),
]

SINKS = [
    Mistake("a path as sink", lambda d: d.pages().to("out"), ("'out'", "ab.parquet")),
    Mistake("two sinks in one place", _two_sinks, ("out", "directory of its own")),
    Mistake(
        "lists in csv",
        lambda d: d.pages(n=ab.collect_list("ms")).to(ab.csv(d.directory / "out")),
        ("'n'", "csv", "ab.parquet"),
    ),
    Mistake("an unknown Spark writer", lambda _: ab.writer(""), ("''", "jdbc")),
    Mistake("print -3 rows", lambda _: ab.console(-3), ("-3", "1")),
    Mistake("a directory that is None", lambda _: ab.parquet(None), ("None", "directory")),
]

BUILT = WINDOWS + SOURCES + NAMES + AGGREGATES + FUNCTIONS + CLASSES + JOINS + SINKS
