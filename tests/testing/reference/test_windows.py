"""The reference against a third computation: a plain loop over rows, in exact arithmetic."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing import (
    WindowQuery,
    bag_differences,
    differences,
    expected_late,
    expected_results,
)
from anabranch.testing.strategies import RandomCase, cases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.testing.reference.aggregates import Aggregate
    from anabranch.testing.reference.windows import FinalWatermark

EXPRESSIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "*": lambda _: 1,
    "v * 2 + 1": lambda row: None if row["v"] is None else row["v"] * 2 + 1,
    "coalesce(v, 0)": lambda row: row["v"] or 0,
    "x + v": lambda row: None if row["x"] is None or row["v"] is None else row["x"] + row["v"],
    "abs(x)": lambda row: None if row["x"] is None else abs(row["x"]),
    "v % 7": lambda row: None if row["v"] is None else int(math.fmod(row["v"], 7)),
    "v > 900": lambda row: None if row["v"] is None else row["v"] > 900,
    "x < 500": lambda row: None if row["x"] is None else row["x"] < 500,
    "x < -900": lambda row: None if row["x"] is None else row["x"] < -900,
    "v > 0": lambda row: None if row["v"] is None else row["v"] > 0,
    "s = 'ash'": lambda row: None if row["s"] is None else row["s"] == "ash",
    **{name: lambda row, name=name: row[name] for name in "vxsd"},  # type: ignore[misc]
}


def above(value: float | None, bound: float) -> bool:
    """Greater: NaN is greater than all numbers, null is greater than none."""
    return value is not None and (math.isnan(value) or value > bound)


FILTERS: dict[str | None, Callable[[dict[str, Any]], bool]] = {
    None: lambda _: True,
    "v > 0": lambda row: above(row["v"], 0),
    "x < 0": lambda row: row["x"] is not None and row["x"] < 0,
    "s = 'ash'": lambda row: row["s"] == "ash",
    "v % 2 = 0": lambda row: row["v"] is not None and row["v"] % 2 == 0,
    "d >= 0": lambda row: row["d"] is not None and row["d"] >= 0,
    "v IS NULL": lambda row: row["v"] is None,
    "x > 0 OR v > 500": lambda row: above(row["x"], 0) or above(row["v"], 500),
}


def order(value: Any) -> tuple[bool, Any]:
    """Sorts NaN above all numbers, and text by its UTF-8 bytes."""
    if isinstance(value, str):
        return False, value.encode()
    odd = isinstance(value, float) and math.isnan(value)
    return odd, 0 if odd else value


def total(values: Sequence[Any]) -> Any:
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return sum(values)
    if isinstance(values[0], float):
        return float(sum(map(Fraction, values)))
    return sum(values)


def mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Decimal):
        exact = Fraction(sum(map(Fraction, values))) / len(values) * 10**6
        sign = -1 if exact < 0 else 1
        return Decimal(sign * math.floor(abs(exact) + Fraction(1, 2))).scaleb(-6)
    if any(not math.isfinite(value) for value in values):
        return sum(values) / len(values)
    return float(sum(map(Fraction, values)) / len(values))


def variance(values: Sequence[Any], *, sample: bool) -> float | None:
    free = len(values) - sample
    if free <= 0:
        return None
    if any(not math.isfinite(value) for value in values):
        return math.nan
    middle = sum(map(Fraction, values)) / len(values)
    return float(sum((Fraction(value) - middle) ** 2 for value in values) / free)


def root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


FINISH: dict[str, Callable[[list[tuple[int, Any]]], Any]] = {
    "sum": lambda pairs: total([value for _, value in pairs]),
    "avg": lambda pairs: mean([value for _, value in pairs]),
    "min": lambda pairs: min((value for _, value in pairs), key=order),
    "max": lambda pairs: max((value for _, value in pairs), key=order),
    "variance": lambda pairs: variance([value for _, value in pairs], sample=True),
    "var_pop": lambda pairs: variance([value for _, value in pairs], sample=False),
    "stddev": lambda pairs: root(variance([value for _, value in pairs], sample=True)),
    "stddev_pop": lambda pairs: root(variance([value for _, value in pairs], sample=False)),
    "bool_and": lambda pairs: all(value for _, value in pairs),
    "bool_or": lambda pairs: any(value for _, value in pairs),
    "first": lambda pairs: min(pairs, key=lambda pair: (pair[0], order(pair[1])))[1],
    "last": lambda pairs: max(pairs, key=lambda pair: (pair[0], order(pair[1])))[1],
}


def distinct(pairs: Sequence[tuple[int, Any]]) -> list[Any]:
    return [
        next(group)[1]
        for _, group in groupby(
            sorted(((order(v), v) for _, v in pairs), key=itemgetter(0)), itemgetter(0)
        )
    ]


def quantiles(values: Sequence[Any], q: Any) -> Any:
    """The smallest value that at least a share q of the values do not exceed; NaN is no value."""
    numbers = sorted(float(value) for value in values if not math.isnan(value))
    if not numbers:
        return None
    found = [
        numbers[max(math.ceil(Fraction(rank) * len(numbers)), 1) - 1]
        for rank in (q if isinstance(q, list) else [q])
    ]
    return found if isinstance(q, list) else found[0]


def most(pairs: Sequence[tuple[int, Any]], k: int) -> list[dict[str, Any]]:
    counts = Counter(order(value) for _, value in pairs)
    ranked = sorted(distinct(pairs), key=lambda value: (-counts[order(value)], order(value)))
    return [{"value": value, "count": counts[order(value)]} for value in ranked[:k]]


# Aggregates that have a result without values, too, or that take parameters.
FINISH_ALL: dict[str, Callable[[list[tuple[int, Any]], dict[str, Any]], Any]] = {
    "count": lambda pairs, _: len(pairs),
    "count_distinct": lambda pairs, _: len(distinct(pairs)),
    "approx_count_distinct": lambda pairs, _: len(distinct(pairs)),
    "collect_set": lambda pairs, given: distinct(pairs)[: given["limit"]],
    "collect_list": lambda pairs, given: [
        value
        for _, value in sorted(pairs, key=lambda pair: (pair[0], order(pair[1])))[: given["limit"]]
    ],
    "quantile": lambda pairs, given: quantiles([value for _, value in pairs], given["q"]),
    "top_k": lambda pairs, given: most(pairs, given["k"]),
}


def finished(aggregate: Aggregate, rows: list[dict[str, Any]]) -> Any:
    _, kind, expression, *rest = aggregate
    kept = [row for row in rows if FILTERS[rest[0] if rest else None](row)]
    given = rest[1] if len(rest) > 1 else {}
    if "by" in given:
        by = EXPRESSIONS[given["by"]]
        found = [
            ((order(at), order(value)), value)
            for row in kept
            if (value := EXPRESSIONS[expression](row)) is not None and (at := by(row)) is not None
        ]
        return (max if kind == "max_by" else min)(found, key=itemgetter(0))[1] if found else None
    pairs = [
        (row["at"], value) for row in kept if (value := EXPRESSIONS[expression](row)) is not None
    ]
    if kind in FINISH_ALL:
        return FINISH_ALL[kind](pairs, given)
    return FINISH[kind](pairs) if pairs else None


def comparable(value: Any) -> Any:
    """A key as it groups: NaN with NaN, -0.0 with 0.0, and True not with 1."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


class PlainStream:
    """The specification, one row and one step at a time; slow, and simple enough to trust."""

    def __init__(self, query: WindowQuery) -> None:
        self.query = query
        self.latest: int | None = None
        self.watermark: int | None = None
        self.open: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        self.emitted: list[dict[str, Any]] = []
        self.late: list[dict[str, Any]] = []

    def step(self, rows: Sequence[dict[str, Any]]) -> None:
        before = self.watermark
        if self.latest is not None:
            reached = self.latest - self.query.delay_us
            self.watermark = reached if before is None else max(before, reached)
        for row in rows:
            self.take(row, before)
        self.close(lambda end: self.watermark is not None and end <= self.watermark)

    def take(self, row: dict[str, Any], before: int | None) -> None:
        at = row["at"]
        if at is None:
            self.late.append({**row, "reason": "no event time"})
            return
        self.latest = at if self.latest is None else max(self.latest, at)
        inside = taken = False
        for name, length, every, offset in self.query.windows:
            first = offset + every * ((at - offset - length) // every)
            for start in range(first, at + 1, every):
                end = start + length
                if start <= at < end:
                    inside = True
                    if before is None or end > before:
                        taken = True
                        key = tuple(comparable(row[key]) for key in self.query.keys)
                        self.open[name, start, end, key].append(row)
        if not taken:
            self.late.append({**row, "reason": "late" if inside else "outside"})

    def close(self, closes: Callable[[int], bool]) -> None:
        for group in [group for group in self.open if closes(group[2])]:
            name, start, end, _ = group
            rows = self.open.pop(group)
            result = {key: rows[0][key] for key in self.query.keys}
            result |= {"window_start": start, "window_end": end, "window_name": name}
            self.emitted.append(
                result | {each[0]: finished(each, rows) for each in self.query.aggregates}
            )


def plain(case: RandomCase, final_watermark: FinalWatermark) -> PlainStream:
    stream = PlainStream(case.query)
    for table in case.steps:
        stream.step(
            table.set_column(
                table.column_names.index("at"), "at", table["at"].cast(pa.int64())
            ).to_pylist()
        )
    if final_watermark == "closing":
        stream.step([])
    elif final_watermark == "finish":
        stream.close(lambda _: True)
    else:
        stream.close(lambda end: end <= final_watermark)
    return stream


def as_table(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.table(
        {field.name: pa.array([row[field.name] for row in rows], field.type) for field in schema}
    )


@settings(max_examples=100)
@given(case=cases(), final_watermark=st.sampled_from(["closing", "finish"]))
def test_results_and_late_rows_equal_those_of_a_plain_loop(
    case: RandomCase, final_watermark: FinalWatermark
) -> None:
    stream = plain(case, final_watermark)
    results = expected_results(case.steps, case.query, final_watermark=final_watermark)
    identity = [*case.query.keys, "window_start", "window_end", "window_name"]
    assert results.column_names == identity + [each[0] for each in case.query.aggregates]
    assert differences(results, as_table(stream.emitted, results.schema), identity) == []
    late = expected_late(case.steps, case.query)
    flat = late.set_column(late.column_names.index("at"), "at", late["at"].cast(pa.int64()))
    assert bag_differences(flat, as_table(stream.late, flat.schema)) == []


@settings(max_examples=20)
@given(case=cases())
def test_a_table_with_a_step_column_equals_a_table_for_each_step(case: RandomCase) -> None:
    numbered = [
        table.append_column("step", pa.array([n] * len(table), pa.int32()))
        for n, table in enumerate(case.steps, 1)
    ]
    together = pa.concat_tables(numbered)
    identity = [*case.query.keys, "window_start", "window_end", "window_name"]
    assert (
        differences(
            expected_results(together, case.query),
            expected_results(case.steps, case.query),
            identity,
        )
        == []
    )
    assert (
        bag_differences(expected_late(together, case.query), expected_late(case.steps, case.query))
        == []
    )


MINUTE = 60_000_000
COUNT: list[Aggregate] = [("n", "count", "*")]
MINUTES = WindowQuery(
    keys=["k"], event_time="at", windows=[("1 minute", MINUTE, MINUTE, 0)], aggregates=COUNT
)


def at(*times: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table(
        {"k": pa.array([0] * len(times), pa.int64()), "at": pa.array(times, kind or pa.int64())}
    )


def spans(table: pa.Table) -> list[tuple[int, int, int]]:
    rows = table.select(["window_start", "window_end", "n"]).to_pylist()
    return sorted((row["window_start"], row["window_end"], row["n"]) for row in rows)


def test_a_watermark_judges_rows_two_steps_after_the_rows_that_raised_it() -> None:
    raised = at(10 * MINUTE)
    assert expected_late([raised, at(0)], MINUTES).num_rows == 0
    assert expected_late([raised, at(10 * MINUTE), at(0)], MINUTES)["reason"].to_pylist() == [
        "late"
    ]


def test_a_closing_step_counts_as_a_step() -> None:
    assert expected_late([at(10 * MINUTE), None, at(0)], MINUTES)["reason"].to_pylist() == ["late"]


def test_a_closing_step_closes_only_what_the_watermark_allows() -> None:
    steps = [at(0, MINUTE, 2 * MINUTE)]
    assert spans(expected_results(steps, MINUTES)) == [(0, MINUTE, 1), (MINUTE, 2 * MINUTE, 1)]
    assert len(spans(expected_results(steps, MINUTES, final_watermark="finish"))) == 3
    assert spans(expected_results(steps, MINUTES, final_watermark=MINUTE)) == [(0, MINUTE, 1)]
    assert spans(expected_results(steps, replace(MINUTES, delay_us=MINUTE))) == [(0, MINUTE, 1)]


def test_a_row_may_be_late_for_a_minute_and_in_time_for_its_hour() -> None:
    query = replace(
        MINUTES, windows=[("1 minute", MINUTE, MINUTE, 0), ("1 hour", 60 * MINUTE, 60 * MINUTE, 0)]
    )
    steps = [at(10 * MINUTE), at(10 * MINUTE), at(0)]
    assert expected_late(steps, query).num_rows == 0
    expected = [(0, 60 * MINUTE, 3), (10 * MINUTE, 11 * MINUTE, 2)]
    assert spans(expected_results(steps, query, final_watermark="finish")) == expected


def test_negative_times_are_in_windows_that_start_before_them() -> None:
    assert spans(expected_results([at(-1, -MINUTE)], MINUTES, final_watermark="finish")) == [
        (-MINUTE, 0, 2)
    ]


def test_a_row_in_a_gap_is_outside_even_when_it_comes_late() -> None:
    query = replace(MINUTES, windows=[("gaps", MINUTE, 2 * MINUTE, 0)])
    late = expected_late([at(10 * MINUTE), None, at(MINUTE), at(None)], query)
    assert late["reason"].to_pylist() == ["outside", "no event time"]


@pytest.mark.parametrize(
    ("kind", "value", "unit_us", "start"),
    [
        (pa.timestamp("us", tz="UTC"), datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC), 1, MINUTE),
        (pa.timestamp("ns"), datetime(1970, 1, 1, 0, 1, 30), 1, MINUTE),  # noqa: DTZ001
        (pa.date32(), date(1970, 1, 2), 1, 1440 * MINUTE),
        (pa.int32(), 90, 1_000_000, MINUTE),
        (pa.int64(), 90_000, 1_000, MINUTE),
        (pa.float64(), 90.25, 1_000_000, MINUTE),
    ],
    ids=str,
)
def test_event_times_may_have_any_type(
    kind: pa.DataType, value: Any, unit_us: int, start: int
) -> None:
    query = replace(MINUTES, unit_us=unit_us)
    assert spans(expected_results([at(value, kind=kind)], query, final_watermark="finish")) == [
        (start, start + MINUTE, 1)
    ]


def test_an_event_time_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="event time is string"):
        expected_results([at("noon", kind=pa.string())], MINUTES)


def test_an_unknown_aggregate_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'median'; valid: count, sum"):
        expected_results([at(0)], replace(MINUTES, aggregates=[("m", "median", "k")]))


def test_results_have_the_types_that_spark_gives_them() -> None:
    rows = pa.table(
        {
            "at": pa.array([0, 1], pa.int64()),
            "i": pa.array([1, 2], pa.int32()),
            "f": pa.array([0.5, 1.5], pa.float32()),
            "d": pa.array([Decimal("0.01"), Decimal("0.02")], pa.decimal128(10, 2)),
        }
    )
    wanted: list[tuple[Aggregate, pa.DataType, Any]] = [
        (("n", "count", "*"), pa.int64(), 2),
        (("si", "sum", "i"), pa.int64(), 3),
        (("sf", "sum", "f"), pa.float64(), 2.0),
        (("sd", "sum", "d"), pa.decimal128(20, 2), Decimal("0.03")),
        (("ai", "avg", "i"), pa.float64(), 1.5),
        (("ad", "avg", "d"), pa.decimal128(14, 6), Decimal("0.015000")),
        (("mi", "min", "i"), pa.int32(), 1),
        (("md", "max", "d"), pa.decimal128(10, 2), Decimal("0.02")),
        (("vi", "variance", "i"), pa.float64(), 0.5),
        (("ld", "last", "d"), pa.decimal128(10, 2), Decimal("0.02")),
    ]
    query = replace(MINUTES, keys=[], aggregates=[aggregate for aggregate, _, _ in wanted])
    results = expected_results([rows], query, final_watermark="finish")
    assert [results.schema.field(aggregate[0]).type for aggregate, _, _ in wanted] == [
        kind for _, kind, _ in wanted
    ]
    assert [results[aggregate[0]][0].as_py() for aggregate, _, _ in wanted] == [
        value for _, _, value in wanted
    ]


def test_decimal_averages_round_halves_away_from_zero() -> None:
    cents = [Decimal("0.01"), Decimal("0.01"), Decimal("0.00")] + [Decimal("0.00")] * 61
    rows = pa.table({"at": [0] * 64, "d": pa.array(cents, pa.decimal128(10, 2))})
    query = replace(MINUTES, keys=[], aggregates=[("up", "avg", "d"), ("down", "avg", "-d")])
    results = expected_results([rows], query, final_watermark="finish")
    exact = (Decimal("0.02") / 64).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    assert exact == Decimal("0.000313")
    assert (results["up"][0].as_py(), results["down"][0].as_py()) == (exact, -exact)


def test_no_rows_give_no_results_even_for_a_global_aggregate() -> None:
    assert expected_results([at()], replace(MINUTES, keys=[])).num_rows == 0
    assert expected_late([at()], MINUTES).num_rows == 0
