"""The lift over Arrow, against plain Python over the same rows.

Every aggregate over every type that it takes.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch.topology as ab
from anabranch.aggregates.gathered import Frequent, Hll, Kll
from anabranch.aggregates.lift_rows import lift_rows
from anabranch.aggregates.partials import Moments, Partial, Total
from anabranch.errors import StepError, TopologyError
from anabranch.topology import Aggregate, udaf
from anabranch.types import Array, arrow_type, column_type, objects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


FLOATS = [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5, -2.5, 0.125]


TIMES = [
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 1, tzinfo=UTC),
]


VALUES: dict[str, list[Any]] = {
    "tinyint": [-128, -1, 0, 127],
    "int": [-(2**31), -3, 7, 2**31 - 1],
    "bigint": [-5, 0, 3, 2**53 + 1],
    "float": FLOATS,
    "double": [*FLOATS, 0.1, 1e300, -5e-324],
    "decimal(10,2)": [Decimal(cents).scaleb(-2) for cents in (-250, 0, 7, 10**9)],
    "decimal(38,10)": [EXACT.scaleb(Decimal(each), -10) for each in (-1, 0, 1, 10**32, 7 * 10**9)],
    "string": ["", "a", "é", "𝄞", "b", "ab"],
    "binary": [b"", b"\x00", b"\xff", b"a"],
    "boolean": [True, False],
    "date": [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)],
    "timestamp": TIMES,
    "timestamp_ntz": [each.replace(tzinfo=None) for each in TIMES],
}


NUMBERS = [
    kind
    for kind in VALUES
    if kind.endswith("int") or kind in {"float", "double"} or kind.startswith("decimal")
]


GROUPS = 4


Row = tuple[int, int, Any]  # group, event time, value


Of = tuple[int, Any]  # event time, value that is not null


@dataclass(frozen=True)
class One:
    """A partial as a plan keeps it."""

    partial: Partial
    input: int = 0


def key(value: Any) -> Any:
    """A value as Spark compares it: NaN is above all numbers, and -0.0 is 0.0."""
    if isinstance(value, tuple):
        return tuple(map(key, value))
    return (
        (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
        if isinstance(value, float)
        else value
    )


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[each], right[each]) for each in left)
    if isinstance(left, float) and isinstance(right, float):
        return key(left) == key(right) or math.isclose(left, right, rel_tol=1e-9)
    return type(left) is type(right) and bool(left == right)


def values_of(rows: Sequence[Of]) -> list[Any]:
    return [value for _, value in rows]


def mean(rows: Sequence[Of]) -> Any:
    values = values_of(rows)
    if not values:
        return None
    if isinstance(values[0], Decimal):
        places = max(int(values[0].as_tuple().exponent) - 4, -38)
        exact = sum(map(Fraction, values), Fraction()) / len(values)
        divided = EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
        return divided.quantize(Decimal(1).scaleb(places), context=EXACT)
    return sum(map(float, values)) / len(values)


def spread(rows: Sequence[Of], *, sample: bool) -> float | None:
    values = [float(value) for value in values_of(rows)]
    if len(values) < 1 + sample:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(value) for value in values]
    middle = sum(exact, Fraction()) / len(exact)
    try:
        return float(
            sum(((each - middle) ** 2 for each in exact), Fraction()) / (len(exact) - sample)
        )
    except OverflowError:
        return math.inf


def rooted(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def ranked(rows: Sequence[Of], rank: float) -> float | None:
    values = sorted(float(value) for value in values_of(rows) if not math.isnan(value))
    return values[max(math.ceil(rank * len(values)), 1) - 1] if values else None


def chosen(rows: Sequence[Any], pick: Callable[..., Any]) -> Any:
    return pick(rows, key=key)[-1] if rows else None


def total(rows: Sequence[Of]) -> Any:
    values = values_of(rows)
    if values and isinstance(values[0], Decimal):
        return functools.reduce(EXACT.add, values)
    return sum(values[1:], values[0]) if values else None


def distinct(rows: Sequence[Of]) -> dict[Any, Any]:
    return {key(value): value for value in values_of(rows)}


def top(rows: Sequence[Of]) -> list[dict[str, Any]]:
    counts = Counter(key(value) for value in values_of(rows))
    return [
        {"value": distinct(rows)[each], "count": count}
        for each, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
    ]


# For each aggregate: how it is written, and its result for the rows of one group in plain Python.
EXPECTED: dict[str, tuple[Callable[[], Aggregate], Callable[[list[Of]], Any]]] = {
    "count": (lambda: ab.count("x"), len),
    "sum": (lambda: ab.sum("x"), total),
    "avg": (lambda: ab.avg("x"), mean),
    "min": (lambda: ab.min("x"), lambda rows: chosen([(v,) for _, v in rows], min)),
    "max": (lambda: ab.max("x"), lambda rows: chosen([(v,) for _, v in rows], max)),
    "variance": (lambda: ab.variance("x"), lambda rows: spread(rows, sample=True)),
    "var_pop": (lambda: ab.var_pop("x"), lambda rows: spread(rows, sample=False)),
    "stddev": (lambda: ab.stddev("x"), lambda rows: rooted(spread(rows, sample=True))),
    "stddev_pop": (lambda: ab.stddev_pop("x"), lambda rows: rooted(spread(rows, sample=False))),
    "first": (lambda: ab.first("x"), lambda rows: chosen(rows, min)),
    "last": (lambda: ab.last("x"), lambda rows: chosen(rows, max)),
    "bool_and": (lambda: ab.bool_and("x"), lambda rows: all(values_of(rows)) if rows else None),
    "bool_or": (lambda: ab.bool_or("x"), lambda rows: any(values_of(rows)) if rows else None),
    "count_distinct": (lambda: ab.count_distinct("x"), lambda rows: len(distinct(rows))),
    "approx_count_distinct": (
        lambda: ab.approx_count_distinct("x"),
        lambda rows: len(distinct(rows)),
    ),
    "quantile": (lambda: ab.quantile("x", 0.5), lambda rows: ranked(rows, 0.5)),
    "top_k": (lambda: ab.top_k("x", 2), top),
    "collect_list": (
        lambda: ab.collect_list("x", 3),
        lambda rows: values_of(sorted(rows, key=key)[:3]),
    ),
    "collect_set": (
        lambda: ab.collect_set("x", 2),
        lambda rows: [v for _, v in sorted(distinct(rows).items())][:2],
    ),
}


@st.composite
def drawn(draw: st.DrawFn) -> tuple[str, list[Row]]:
    kind = draw(st.sampled_from(sorted(VALUES)))
    value = st.none() | st.sampled_from(VALUES[kind])
    return kind, draw(
        st.lists(st.tuples(st.integers(0, GROUPS - 2), st.integers(-2, 2), value), max_size=14)
    )


def lifted(partials: Sequence[Partial], kind: str, rows: Sequence[Row]) -> tuple[Array, ...]:
    """The lift of rows in groups 0 to 3, of which the last has none."""
    group, t = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    values = pa.array([row[2] for row in rows], column_type(kind))
    return lift_rows([One(each) for each in partials], [values], t, group, GROUPS)


def merged(partials: Sequence[Partial], parts: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    into = tuple(column for each in partials for column in each.empty(GROUPS))
    for part in parts:
        start = 0
        for each in partials:
            mine = slice(start, start + len(each.columns))
            each.merge(into[mine], slice(0, GROUPS), part[mine])
            start = mine.stop
    return into


@given(drawn(), st.integers(0, 14))
def test_every_aggregate_of_every_type_is_what_plain_python_makes_of_the_rows(
    case: tuple[str, list[Row]], cut: int
) -> None:
    kind, rows = case
    of = [
        [(t, value) for group, t, value in rows if group == each and value is not None]
        for each in range(GROUPS)
    ]
    tried = 0
    for name, (make, expected) in EXPECTED.items():
        aggregate = make()
        try:
            partials = aggregate.partials(kind)
        except TopologyError:
            continue
        tried += 1
        whole = lifted(partials, kind, rows)
        halves = merged(
            partials, [lifted(partials, kind, rows[:cut]), lifted(partials, kind, rows[cut:])]
        )
        for columns in (whole, halves):
            assert all(len(column) == GROUPS for column in columns)
            found = aggregate.finish(kind, columns).to_pylist()
            assert same(found, [expected(each) for each in of]), (name, kind, found)
    assert tried >= (17 if kind in NUMBERS else 9)


@given(drawn())
def test_single_rows_are_lifted_as_groups_of_one_and_null_as_the_neutral_partial(
    case: tuple[str, list[Row]],
) -> None:
    kind, rows = case
    values, t = (
        pa.array([value for _, _, value in rows], column_type(kind)),
        np.array([t for _, t, _ in rows], dtype=np.int64),
    )
    for make, _ in EXPECTED.values():
        try:
            partials = make().partials(kind)
        except TopologyError:
            continue
        for partial in partials:
            alone = partial.of_rows(values, t)
            groups = lift_rows([One(partial)], [values], t, np.arange(len(rows)), len(rows))
            for column, one, group in zip(partial.columns, alone, groups, strict=True):
                assert one.dtype == group.dtype == column.dtype
                nothing = column.empty(1).tolist()[0]
                for (_, _, value), left, right in zip(
                    rows, one.tolist(), group.tolist(), strict=True
                ):
                    assert key(left) == key(right) if isinstance(left, float) else left == right
                    assert value is not None or same(left, nothing)


PAIRS = ("bigint", "double", "string", "decimal(10,2)", "timestamp", "boolean", "binary", "date")


@given(st.sampled_from(PAIRS), st.sampled_from(PAIRS), st.data())
def test_the_value_at_the_extreme_is_that_of_rows_that_have_both(
    value: str, by: str, data: st.DataObject
) -> None:
    one = st.tuples(
        *(st.none() | st.sampled_from(VALUES[kind]) for kind in (value, by)),
        st.integers(0, GROUPS - 2),
        st.booleans(),
    )
    rows = data.draw(st.lists(one, max_size=12))
    kind = f"struct<a0:{value},a1:{by}>"
    # A row for which the condition does not hold is null as a whole.
    pairs = [None if out else {"a0": a, "a1": b} for a, b, _, out in rows]
    for aggregate, pick in ((ab.max_by("v", "o"), max), (ab.min_by("v", "o"), min)):
        partials = aggregate.partials(kind)
        given_rows = [(group, 0, pair) for (_, _, group, _), pair in zip(rows, pairs, strict=True)]
        expected = [
            chosen(
                [
                    (b, a)
                    for a, b, g, out in rows
                    if g == group and not out and a is not None and b is not None
                ],
                pick,
            )
            for group in range(GROUPS)
        ]
        columns = lifted(partials, kind, given_rows)
        assert same(aggregate.finish(kind, columns).to_pylist(), expected)
        halves = merged(
            partials,
            [lifted(partials, kind, given_rows[::2]), lifted(partials, kind, given_rows[1::2])],
        )
        assert same(aggregate.finish(kind, halves).to_pylist(), expected)


class Weighted:
    """Texts with their weights, sorted."""

    state_type = list[tuple[str, float]]
    result_type = "string"

    def init(self) -> list[tuple[str, float]]:
        return []

    def add(
        self, state: list[tuple[str, float]], text: str, weight: float
    ) -> list[tuple[str, float]]:
        return [*state, (text, weight)]

    def merge(
        self, left: list[tuple[str, float]], right: list[tuple[str, float]]
    ) -> list[tuple[str, float]]:
        return left + right

    def finish(self, state: list[tuple[str, float]]) -> str:
        return ",".join(f"{text}:{weight}" for text, weight in sorted(state))


class Longest:
    """The largest weight of a text that is not empty."""

    state_types = ("double",)
    identities = (-1.0,)
    result_type = "double"

    def lift(self, group: Array, size: int, text: Array, weight: Array) -> tuple[Array]:
        best = np.full(size, -1.0)
        some = np.array([each != "" for each in text], dtype=bool)
        np.maximum.at(best, group[some], weight[some])
        return (best,)

    def merge(self, into: Sequence[Array], at: Any, given: Sequence[Array]) -> None:
        into[0][at] = np.maximum(into[0][at], given[0])

    def finish(self, best: Array) -> Array:
        return best


@given(
    st.lists(
        st.tuples(
            st.integers(0, GROUPS - 2),
            st.none() | st.sampled_from(VALUES["string"]),
            st.none() | st.integers(0, 9),
        ),
        max_size=12,
    )
)
def test_aggregates_of_users_see_the_rows_that_have_all_inputs(
    rows: list[tuple[int, str | None, int | None]],
) -> None:
    kind = "struct<a0:string,a1:double>"
    given_rows = [(group, 0, {"a0": text, "a1": weight}) for group, text, weight in rows]
    given_rows.append((0, 0, None))
    whole = [
        [
            (text, float(weight))
            for g, text, weight in rows
            if g == group and text is not None and weight is not None
        ]
        for group in range(GROUPS)
    ]
    texts = [",".join(f"{text}:{weight}" for text, weight in sorted(each)) for each in whole]
    largest = [max((weight for text, weight in each if text), default=-1.0) for each in whole]
    for aggregate, expected in (
        (udaf(Weighted)("s", "w"), texts),
        (udaf(Longest)("s", "w"), largest),
    ):
        partials = aggregate.partials(kind)
        halves = [lifted(partials, kind, given_rows[:5]), lifted(partials, kind, given_rows[5:])]
        for columns in (lifted(partials, kind, given_rows), merged(partials, halves)):
            assert aggregate.finish(kind, columns).to_pylist() == expected


def test_no_rows_and_no_groups_are_fine() -> None:
    for make, _ in EXPECTED.values():
        aggregate = make()
        kind = "boolean" if aggregate.kind.startswith("bool") else "double"
        partials = aggregate.partials(kind)
        nothing = lift_rows(
            [One(each) for each in partials],
            [pa.array([], arrow_type(kind))],
            *[np.empty(0, np.int64)] * 2,
            0,
        )
        assert len(aggregate.finish(kind, nothing)) == 0


def test_a_sum_of_whole_numbers_that_overflows_is_an_error_in_the_group_that_has_it() -> None:
    most = 2**63 - 1
    total = One(Total("bigint"))
    t = np.zeros(4, dtype=np.int64)
    [fits] = lift_rows([total], [pa.array([most, most, -most, -5])], t, np.array([0, 1, 1, 0]), 2)
    assert fits.tolist() == [most - 5, 0]
    with pytest.raises(StepError, match="exceeds bigint"):
        lift_rows([total], [pa.array([most, 1, 1, 1])], t, np.array([0, 1, 0, 1]), 2)
    with pytest.raises(StepError, match="exceeds bigint"):
        lift_rows([total], [pa.array([-(2**63), -1, 0, 0])], t, np.zeros(4, dtype=np.int64), 1)


def test_the_mean_of_large_numbers_does_not_overflow_with_their_sum() -> None:
    t, group = np.zeros(3, dtype=np.int64), np.array([0, 0, 1])
    n, mean, squares = lift_rows(
        [One(Moments("double"))], [pa.array([1.5e308, 1.5e308, 2.0])], t, group, 2
    )
    assert (n.tolist(), mean.tolist(), squares.tolist()) == ([2, 1], [1.5e308, 2.0], [0.0, 0.0])


def test_equal_values_have_no_variance() -> None:
    rows: list[Row] = [(each % 3, 0, (0.7, None, 0.1)[each % 3]) for each in range(100)]
    n, mean, squares = lifted([Moments("double")], "double", rows)
    assert (n.tolist(), mean.tolist(), squares.tolist()) == (
        [34, 0, 33, 0],
        [0.7, 0.0, 0.1, 0.0],
        [0.0] * 4,
    )


def test_numbers_become_floats_as_spark_casts_them() -> None:
    cents = [Decimal(each).scaleb(-2) for each in range(2_000)]
    t, group = np.zeros(2_000, dtype=np.int64), np.arange(2_000)
    _, mean, _ = lift_rows(
        [One(Moments("double"))], [pa.array(cents, pa.decimal128(10, 2))], t, group, 2_000
    )
    assert mean.tolist() == [float(each) for each in cents]
    [sums] = lift_rows(
        [One(Total("double"))], [pa.array([2**53 + 1, 2**63 - 1])], t[:2], group[:2], 2
    )
    assert sums.tolist() == [float(2**53 + 1), float(2**63 - 1)]


@pytest.mark.parametrize("kind", ["bigint", "double", "string", "decimal(38,10)"])
def test_an_estimate_of_distinct_values_counts_those_of_two_lifts_once(kind: str) -> None:
    numbers = [each % 20_000 for each in range(30_000)]
    makers: dict[str, Callable[[int], Any]] = {
        "bigint": int,
        "double": lambda each: each / 7,
        "string": str,
        "decimal(38,10)": lambda each: Decimal(each).scaleb(-10),
    }
    rows: list[Row] = [(0, 0, makers[kind](each)) for each in numbers]
    partial = Hll(kind, 12)
    whole, left, right = (
        lifted([partial], kind, each) for each in (rows, rows[:20_000], rows[10_000:])
    )
    estimate = partial.estimate(whole[0][0])
    assert abs(estimate - 20_000) <= 3 * 1.04 / math.sqrt(2**12) * 20_000
    assert partial.estimate(merged([partial], [left, right])[0][0]) == estimate


def test_quantiles_and_frequent_values_of_many_rows_are_within_their_error() -> None:
    random = np.random.default_rng(5)
    n = 50_000
    numbers, ranks = random.permutation(n).astype(float), [each / 20 for each in range(1, 20)]
    kll, error = Kll("double", 200), ds.kll_doubles_sketch.get_normalized_rank_error(200, False)
    [sketches] = lift_rows(
        [One(kll)], [pa.array(numbers)], np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), 1
    )
    found = kll.quantiles(sketches[0], ranks)
    assert found is not None
    assert (
        max(abs(value / n - rank) for value, rank in zip(found, ranks, strict=True)) < 2.5 * error
    )
    words = random.zipf(1.3, n) % 10**6
    true, keep = Counter(words.tolist()), 50
    for size, group in ((1, np.zeros(n, dtype=np.int64)), (3, np.arange(n) % 3)):
        frequent = Frequent("bigint", keep)
        [counts] = lift_rows(
            [One(frequent)], [pa.array(words)], np.zeros(n, dtype=np.int64), group, size
        )
        into = [objects([None])]
        for each in counts:
            frequent.merge(into, slice(0, 1), [objects([each])])
        assert len(into[0][0]) <= keep
        assert all(
            true[word] - 2 * n / keep <= count <= true[word] for word, count in into[0][0].items()
        )
        assert {word for word, count in true.items() if count > 2 * n / keep} <= set(into[0][0])
