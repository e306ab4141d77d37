"""The benchmark of Python state per key: its options, and one small run of all sides."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from anabranch.bench.keyed.command import keyed
from anabranch.bench.options import KEYED_CASES, KeyedOptions
from anabranch.bench.report import show_keyed
from anabranch.errors import TopologyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"case": "some"}, "--case"),
        ({"keys": "0"}, "--keys"),
        ({"keys": "many"}, "--keys"),
        ({"skews": "-1"}, "--skew"),
        ({"stored": "10"}, "--stored"),
        ({"touched": 0}, "--touched"),
        ({"rows": 0}, "--rows"),
        ({"many_batch_rows": 0}, "--many-batch-rows"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(wrong: dict[str, object], name: str) -> None:
    with pytest.raises(TopologyError, match=name):
        KeyedOptions(**wrong)  # type: ignore[arg-type]


def test_many_keys_have_as_many_batches_of_fewer_rows() -> None:
    options = KeyedOptions(rows=1_000, batch_rows=200, many_batch_rows=50)
    few, many = options.data_of(10_000), options.data_of(1_000_000)
    assert (few.rows, few.batch_rows, many.rows, many.batch_rows) == (1_000, 200, 250, 50)
    assert few.batches == many.batches == 5


def test_a_small_benchmark_measures_all_sides_and_verifies_them(spark: SparkSession) -> None:
    output = io.StringIO()
    options = KeyedOptions(
        rows=1_000,
        batch_rows=500,
        keys="50",
        skews="1",
        rounds=1,
        stored="200,600",
        touched=50,
        steps=2,
        minutes=4.0,
    )
    figures = json.loads(json.dumps(keyed(options, output)))
    assert [case["case"] for case in figures["cases"]] == list(KEYED_CASES)
    for case in figures["cases"][:-1]:
        assert case["verified"], case["differences"]
        assert set(case["rivals"]) == {
            "transformWithState",
            "transformWithStateInPandas",
            "applyInPandasWithState",
        }
        assert set(case["rows_compared"]) == {*KEYED_CASES[:-1], *case["rivals"]}
        assert min(case["rows_compared"].values()) > 40
        best = max(each["rows_per_s"] for each in case["rivals"].values())
        assert case["ratio"] == pytest.approx(case["anabranch_rows_per_s"] / best, rel=0.02)
        limit = case["limit"]["rows_per_s"]
        assert (case["of_limit"], case["limit_ratio"]) == pytest.approx(
            (case["anabranch_rows_per_s"] / limit, limit / best), rel=0.02
        )
    flat = figures["cases"][-1]
    assert [
        (level["stored"], level["keys_held"], len(level["each_s"])) for level in flat["levels"]
    ] == [
        (200, 200, 2),
        (600, 600, 2),
    ]
    assert flat["verified"]
    shown = io.StringIO()
    show_keyed(figures, Console(file=shown, width=140))
    assert "vectorised" in shown.getvalue()
    assert "bare limit" in shown.getvalue()
    assert "most over least" in shown.getvalue()
