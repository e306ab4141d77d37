"""Streams as users build them: what operators are called, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab


class Visits:
    """Counts the rows of a key."""

    state = int
    output = "n bigint"

    def process(self, key: Any, rows: Any, state: Any, ctx: Any) -> None:
        """Is never called here."""


def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], "k bigint, area string, at timestamp, v double")


def doubled(df: DataFrame) -> DataFrame:
    return df.selectExpr("*", "2 * v as w")


def scored(batch: Any) -> Any:
    return batch


def test_operators_are_named_by_what_they_do(spark: SparkSession) -> None:
    app = ab.Topology("names")
    loans = app.source(frame(spark), event_time="at", name="loans")
    minute = ab.tumbling("1 minute")
    one = loans.map(doubled).aggregate(by=["area", "k"], windows=minute, n=ab.count())
    assert one.name == "loans_by_area_k"
    assert one.aggregate(by="k", windows=minute, n=ab.sum("n")).name == "loans_by_area_k_by_k"
    total = one["1 minute"].aggregate(by=[], windows=minute, n=ab.sum("n"))
    assert total.name == "loans_by_area_k_in_total"
    assert loans.process("k", Visits).name == "visits"
    assert loans.apply(scored, schema="*").name == "scored"
    assert loans.map(doubled).name == "doubled_2", "no state depends on the name of a map"
    left = one.map(lambda df: df.select("k", "window", "n"))
    assert ab.join(left, loans, by="k", window=minute).name == "loans_by_area_k_with_loans"
    again = ab.Topology("names").source(frame(spark), event_time="at", name="loans")
    other = again.aggregate(by=["area", "k"], windows=ab.session("5s"), most=ab.max("v"))
    assert other.name == one.name, "what a restart may change is not in the name"


def test_two_operators_of_one_derived_name_are_refused_and_none_is_counted(
    spark: SparkSession,
) -> None:
    app = ab.Topology("names")
    rows = app.source(frame(spark), event_time="at")
    rows.aggregate(by="k", windows=ab.tumbling("1 minute"), n=ab.count())
    with pytest.raises(ab.TopologyError, match="two operators would be named 'source_by_k'"):
        rows.map(doubled).aggregate(by="k", windows=ab.tumbling("1 hour"), s=ab.sum("w"))
    rows.aggregate(by="k", windows=ab.tumbling("1 hour"), s=ab.sum("v"), name="sums")
    app.explain()  # nothing of what was refused is left behind
    rows.process("k", Visits)
    with pytest.raises(ab.TopologyError, match="two operators would be named 'visits'"):
        rows.process("area", Visits)
    with pytest.raises(ab.TopologyError, match="two operators would be named 'source'"):
        app.source(frame(spark), event_time="at")


def test_a_window_has_one_stream_however_often_it_is_asked_for(spark: SparkSession) -> None:
    app = ab.Topology("names")
    rows = app.source(frame(spark), event_time="at")
    w = rows.aggregate(by="k", windows=ab.tumbling("24 hours", name="day"), n=ab.count(), name="w")
    assert w["day"].name == w["day"].name == "w[day]"
    for wrong in ("24 hours", "n", 0, None):
        with pytest.raises(ab.TopologyError, match=f"unknown window of 'w' {wrong!r}; valid: day"):
            w[wrong]
