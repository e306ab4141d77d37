"""Aggregates as DuckDB computes them, with the results that Spark gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch.testing.reference.database import quote

if TYPE_CHECKING:
    import duckdb

Parameters: TypeAlias = Mapping[str, Any]

Aggregate: TypeAlias = (
    tuple[str, str, str]
    | tuple[str, str, str, str | None]
    | tuple[str, str, str, str | None, Parameters]
)
"""Result name, kind, SQL expression (`*` to count rows) and, where given, the SQL condition that
filters its rows and the aggregate's other parameters (`by` is an SQL expression too)."""


def argument_sql(aggregate: Aggregate) -> str:
    """What an aggregate reads of a row; null where its filter does not hold."""
    _, kind, expression, *rest = aggregate
    if expression == "*" and kind != "count":
        raise ValueError(f"{kind} needs an expression; only count takes *")
    value = "1" if expression == "*" else f"({expression})"
    condition = rest[0] if rest else None
    return value if condition is None else f"CASE WHEN {condition} THEN {value} END"


def by_sql(aggregate: Aggregate) -> str:
    """What decides which row an aggregate takes; a constant where nothing does."""
    return f"({_parameters(aggregate).get('by', 1)})"


def _parameters(aggregate: Aggregate) -> Parameters:
    return aggregate[4] if len(aggregate) > 4 else {}


FLOATS = {"FLOAT", "DOUBLE"}
_INTEGERS = {
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
}


def aggregate_sql(
    db: duckdb.DuckDBPyConnection, aggregate: Aggregate, arguments: dict[str, str]
) -> str:
    """The aggregate over the table `arguments`, under the name of its result."""
    name, kind = aggregate[0], aggregate[1]
    column = arguments[argument_sql(aggregate)]
    described = db.sql(f"DESCRIBE SELECT {column} FROM arguments").fetchall()
    if kind in _WITH_PARAMETERS:
        value = (
            f"CASE WHEN {column} = 0 THEN 0 ELSE {column} END"
            if described[0][1] in FLOATS
            else column
        )
        given = {**_parameters(aggregate), "by": arguments[by_sql(aggregate)]}
        return f"{_WITH_PARAMETERS[kind](value, given)} AS {quote(name)}"
    if kind not in _KINDS:
        raise ValueError(
            f"unknown aggregate {kind!r}; valid: {', '.join([*_KINDS, *_WITH_PARAMETERS])}"
        )
    return f"{_KINDS[kind](column, str(described[0][1]))} AS {quote(name)}"


def _decimal(kind: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    return (int(found[1]), int(found[2])) if found else None


def _sum(column: str, kind: str) -> str:
    """Integers sum to a long and decimals to ten digits more, as in Spark."""
    if kind in _INTEGERS:
        return f"CAST(sum({column}) AS BIGINT)"
    if decimal := _decimal(kind):
        return f"CAST(sum({column}) AS DECIMAL({min(38, decimal[0] + 10)},{decimal[1]}))"
    return f"CAST(sum({column}) AS DOUBLE)"


def _avg(column: str, kind: str) -> str:
    """Decimals average to four more digits, halves rounded away from zero, as in Spark."""
    decimal = _decimal(kind)
    if decimal is None:
        return f"CAST(avg({column}) AS DOUBLE)"
    precision, scale = decimal
    if precision + scale + 8 > 38:
        raise ValueError(f"the exact average of {kind} does not fit into 38 digits")
    unscaled = (
        f"sum(CAST({column} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS HUGEINT)) * 10000"
    )
    rounded = (
        f"sign({unscaled}) * ((2 * abs({unscaled}) + count({column})) // (2 * count({column})))"
    )
    unit = f"CAST('0.{'0' * (scale + 3)}1' AS DECIMAL({scale + 4},{scale + 4}))"
    digits = precision + 4
    return f"CAST(CAST({rounded} AS DECIMAL({digits},0)) * {unit} AS DECIMAL({digits},{scale + 4}))"


def _moment(function: str, smallest: int) -> Callable[[str, str], str]:
    """A central moment; NaN where a value is infinite (DuckDB: 0 for one infinity)."""

    def sql(column: str, _: str) -> str:
        value = f"CAST({column} AS DOUBLE)"
        odd = f"bool_or(NOT isfinite({value})) AND count({column}) >= {smallest}"
        finite = f"{function}(CASE WHEN isfinite({value}) THEN {value} END)"
        return f"CASE WHEN {odd} THEN CAST('nan' AS DOUBLE) ELSE {finite} END"

    return sql


def _by_time(function: str) -> Callable[[str, str], str]:
    """The value at the earliest or latest event time; at ties the smallest or largest."""

    def sql(column: str, _: str) -> str:
        return f"{function}({column}, row(__at, {column})) FILTER (WHERE {column} IS NOT NULL)"

    return sql


_KINDS: dict[str, Callable[[str, str], str]] = {
    "count": lambda column, _: f"count({column})",
    "sum": _sum,
    "avg": _avg,
    "min": lambda column, _: f"min({column})",
    "max": lambda column, _: f"max({column})",
    "variance": _moment("var_samp", 2),
    "var_samp": _moment("var_samp", 2),
    "var_pop": _moment("var_pop", 1),
    "stddev": _moment("stddev_samp", 2),
    "stddev_samp": _moment("stddev_samp", 2),
    "stddev_pop": _moment("stddev_pop", 1),
    "first": _by_time("arg_min"),
    "last": _by_time("arg_max"),
    "bool_and": lambda column, _: f"bool_and({column})",
    "bool_or": lambda column, _: f"bool_or({column})",
}


def _listed(sql: str, limit: int) -> str:
    """A list up to its limit; empty, and not null, where there is no value."""
    return f"COALESCE(({sql})[:{limit}], [])"


def _best(function: str) -> Callable[[str, Parameters], str]:
    """The value where another is smallest or largest; at ties the smallest or largest."""

    def sql(column: str, given: Parameters) -> str:
        by = given["by"]
        known = f"{column} IS NOT NULL AND {by} IS NOT NULL"
        return f"{function}({column}, row({by}, {column})) FILTER (WHERE {known})"

    return sql


def _quantile(column: str, given: Parameters) -> str:
    """The smallest value that at least a share q of the values do not exceed; no NaN."""
    value = f"CAST({column} AS DOUBLE)"
    return f"quantile_disc({value}, {given['q']}) FILTER (WHERE NOT isnan({value}))"


def _top_k(column: str, given: Parameters) -> str:
    """The most frequent values with their counts; at equal counts the smaller value first."""
    counted = f"map_entries(histogram({column}) FILTER (WHERE {column} IS NOT NULL))"
    pair = "{'n': -CAST(e.value AS BIGINT), 'v': e.key}"
    pairs = f"list_sort(list_transform({counted}, lambda e: {pair}))"
    first = f"({pairs})[:{given.get('k', 10)}]"
    return f"COALESCE(list_transform({first}, lambda e: {{'value': e.v, 'count': -e.n}}), [])"


# Before these, -0.0 becomes 0.0: it is undefined which of the two is kept.
_WITH_PARAMETERS: dict[str, Callable[[str, Parameters], str]] = {
    "count_distinct": lambda column, _: f"count(DISTINCT {column})",
    "approx_count_distinct": lambda column, _: f"count(DISTINCT {column})",
    "collect_set": lambda column, given: _listed(
        f"list_sort(list(DISTINCT {column}) FILTER (WHERE {column} IS NOT NULL))",
        given.get("limit", 1000),
    ),
    "collect_list": lambda column, given: _listed(
        f"list({column} ORDER BY __at, {column}) FILTER (WHERE {column} IS NOT NULL)",
        given.get("limit", 1000),
    ),
    "max_by": _best("arg_max"),
    "min_by": _best("arg_min"),
    "quantile": _quantile,
    "top_k": _top_k,
}
