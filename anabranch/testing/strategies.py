"""Hypothesis strategies for whole cases: windows, aggregates, keys and batches of rows.

A case is plain values, as the reference takes them. Times are on and next to the edges of windows.
Some batches are empty, some windows have gaps, and a window of one minute may come with one of an
hour. Expressions mean the same in Spark SQL and in DuckDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from anabranch.testing.events import HOUR_US, MINUTE_US, ODD_FLOATS, SECOND_US, WORDS
from anabranch.testing.reference.aggregates import Aggregate
from anabranch.testing.reference.windows import Window, WindowQuery

Row: TypeAlias = dict[str, Any]

LENGTHS_US = (
    1,
    250_000,
    *(n * SECOND_US for n in (1, 2, 3, 5, 7, 10, 30, 60, 90, 120, 300, 600, 3600)),
)
SLIDES_AT_MOST = 60
"""How many windows of one kind a row may be in: more would take time and show nothing new."""

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "count": ("*", "v", "x", "s"),
    "sum": ("v", "x", "d", "v * 2 + 1", "coalesce(v, 0)", "x + v"),
    "avg": ("v", "x", "d"),
    "min": ("v", "x", "s", "d", "abs(x)"),
    "max": ("v", "x", "s", "d", "v % 7"),
    "variance": ("v", "x"),
    "var_pop": ("v", "x", "d"),
    "stddev": ("v", "x"),
    "stddev_pop": ("v", "x"),
    "first": ("v", "x", "s", "d"),
    "last": ("v", "x", "s", "d"),
    "bool_and": ("v > 0", "x < 500", "s = 'ash'"),
    "bool_or": ("v > 900", "x < -900", "s = 'ash'"),
    "max_by": ("v", "x", "s", "d"),
    "min_by": ("v", "x", "s", "d"),
    "count_distinct": ("v % 7", "x", "s", "d"),
    "approx_count_distinct": ("v % 7", "x", "s", "d"),
    "collect_list": ("v", "x", "s", "d"),
    "collect_set": ("v % 7", "x", "s", "d"),
    "quantile": ("v", "x", "d"),
    "top_k": ("v % 7", "x", "s", "d"),
}
PARAMETERS: dict[str, dict[str, Sequence[Any]]] = {
    "max_by": {"by": ("v % 7", "x", "s", "d")},
    "min_by": {"by": ("v % 7", "x", "s", "d")},
    "collect_list": {"limit": (1, 3, 1000)},
    "collect_set": {"limit": (1, 3, 1000)},
    "quantile": {"q": (0, 0.25, 0.5, 1, [0, 0.5, 0.75])},
    "top_k": {"k": (1, 2, 10)},
}
FILTERS = ("v > 0", "x < 0", "s = 'ash'", "v % 2 = 0", "d >= 0", "v IS NULL", "x > 0 OR v > 500")

KEY_TYPES: dict[str, dict[str, pa.DataType]] = {
    "int": {"k": pa.int64()},
    "string": {"k": pa.string()},
    "float": {"k": pa.float64()},
    "several": {"k": pa.int32(), "name": pa.string(), "on": pa.bool_()},
    "none": {},
}
_KEY_VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.int64(): (0, 1, 2, -5, 2**40, None),
    pa.int32(): (0, 1, -7, None),
    pa.string(): (*WORDS, None),
    pa.float64(): (*ODD_FLOATS, None),
    pa.bool_(): (True, False, None),
}
VALUE_TYPES = {"v": pa.int64(), "x": pa.float64(), "s": pa.string(), "d": pa.decimal128(10, 2)}
TIME_TYPE = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCase:
    """What to compute, and the rows of each step (None where a step has no table at all)."""

    query: WindowQuery
    steps: tuple[pa.Table, ...]


@st.composite
def window_lists(draw: st.DrawFn) -> list[Window]:
    """One to three windows; sometimes two such that a row is late for only one of them."""
    if draw(st.integers(0, 4)) == 0:
        return [("a minute", MINUTE_US, MINUTE_US, 0), ("an hour", HOUR_US, HOUR_US, 0)]
    shapes = draw(st.lists(window_shapes(), min_size=1, max_size=3, unique=True))
    return [(f"window {number}", *shape) for number, shape in enumerate(shapes)]


@st.composite
def window_shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    """Length, slide and offset: tumbling, sliding (evenly or not), or hopping with gaps."""
    length = draw(st.sampled_from(LENGTHS_US))
    slides = [each for each in LENGTHS_US if length <= each * SLIDES_AT_MOST]
    kinds = (
        [length],
        [each for each in slides if each < length],
        [each for each in slides if each > length],
    )
    every = draw(st.sampled_from(draw(st.sampled_from([kind for kind in kinds if kind]))))
    offsets = [each for each in (1, 250_000, SECOND_US, 17 * SECOND_US) if each < every]
    return length, every, draw(st.sampled_from([0] * max(1, len(offsets)) + offsets))


@st.composite
def aggregate_lists(draw: st.DrawFn) -> list[Aggregate]:
    """One to five aggregates, some of them filtered."""
    kinds = draw(st.lists(st.sampled_from(sorted(EXPRESSIONS)), min_size=1, max_size=5))
    aggregates: list[Aggregate] = []
    for number, kind in enumerate(kinds):
        expression = draw(st.sampled_from(EXPRESSIONS[kind]))
        given = {
            name: draw(st.sampled_from(values)) for name, values in PARAMETERS.get(kind, {}).items()
        }
        aggregates.append(
            (
                f"{kind}_{number}",
                kind,
                expression,
                draw(st.none() | st.sampled_from(FILTERS)),
                given,
            )
        )
    return aggregates


def value_rows() -> st.SearchStrategy[Row]:
    """The values of one row.

    Doubles are whole eighths, so that sums are exact in any order; some are special, as NaN is.
    """
    eighths = st.integers(-8_000, 8_000).map(lambda n: n / 8)
    odd = st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0])
    return st.fixed_dictionaries(
        {
            "v": st.none() | st.integers(-1_000, 1_000),
            "x": st.one_of(st.none(), eighths, eighths, eighths, odd),
            "s": st.none() | st.sampled_from(WORDS),
            "d": st.none()
            | st.integers(-99_999, 99_999).map(lambda cents: Decimal(cents).scaleb(-2)),
        }
    )


def key_rows(key_kind: str) -> st.SearchStrategy[Row]:
    """The key columns of one row, from few values, so that keys repeat."""
    return st.fixed_dictionaries(
        {name: st.sampled_from(_KEY_VALUES[t]) for name, t in KEY_TYPES[key_kind].items()}
    )


@st.composite
def times(draw: st.DrawFn, clock_us: int, reach_us: int) -> int | None:
    """An event time near the clock, on or beside an edge, or so early that windows have closed."""
    seconds = [back * SECOND_US for back in (0, 0, 0, 1, 3, 8, 61)]
    back = draw(
        st.sampled_from([*seconds, reach_us // 2, reach_us, reach_us + SECOND_US, 2 * reach_us])
    )
    beside = draw(st.sampled_from((0, 0, 1, -1, 250_000, 999_999)))
    return None if draw(st.integers(0, 31)) == 31 else clock_us - back + beside


@st.composite
def step_lists(
    draw: st.DrawFn, key_kind: str, reach_us: int, most_steps: int, most_rows: int
) -> tuple[pa.Table, ...]:
    """Batches of rows whose times move forward by random jumps; some are empty.

    A row can be late only from the third step on, after a jump at least as long as its windows.
    Both are made likely.
    """
    clock = draw(st.sampled_from((0, 0, -10 * MINUTE_US, -HOUR_US - 1, 1_700_000_000 * SECOND_US)))
    row = st.tuples(key_rows(key_kind), value_rows())
    steps = []
    for _ in range(max(draw(st.integers(1, most_steps)), draw(st.integers(1, most_steps)))):
        jumps = (
            0,
            SECOND_US,
            30 * SECOND_US,
            61 * SECOND_US,
            reach_us,
            reach_us,
            2 * reach_us + SECOND_US,
        )
        clock += draw(st.sampled_from(jumps))
        fewest = draw(st.sampled_from((0, min(2, most_rows), most_rows // 2)))
        drawn = draw(st.lists(row, min_size=fewest, max_size=most_rows if fewest else 1))
        rows = [{**key, "at": draw(times(clock, reach_us)), **values} for key, values in drawn]
        steps.append(rows_table(rows, key_kind))
    return tuple(steps)


def rows_table(rows: Sequence[Row], key_kind: str) -> pa.Table:
    """Rows with the columns of a key kind as a table; times are microseconds."""
    types = {**KEY_TYPES[key_kind], "at": pa.int64(), **VALUE_TYPES}
    columns = {
        name: pa.array([row[name] for row in rows], type=kind) for name, kind in types.items()
    }
    columns["at"] = columns["at"].cast(TIME_TYPE)
    return pa.table(columns)


@st.composite
def cases(draw: st.DrawFn, *, most_steps: int = 5, most_rows: int = 12) -> RandomCase:
    """A whole case: what to compute over which steps."""
    key_kind = draw(st.sampled_from(sorted(KEY_TYPES)))
    windows = draw(window_lists())
    query = WindowQuery(
        keys=tuple(KEY_TYPES[key_kind]),
        event_time="at",
        windows=windows,
        aggregates=draw(aggregate_lists()),
        delay_us=draw(st.sampled_from((0, 1, SECOND_US, 10 * SECOND_US, MINUTE_US))),
    )
    reach = query.delay_us + max(max(length, every) for _, length, every, _ in windows)
    return RandomCase(query=query, steps=draw(step_lists(key_kind, reach, most_steps, most_rows)))
