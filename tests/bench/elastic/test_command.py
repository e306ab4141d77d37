"""The benchmark of slots that adapt: its figures on runs made by hand, and a small run of it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from anabranch.bench.elastic.command import ElasticOptions, elastic, forecast_figures, show_elastic
from anabranch.bench.elastic.latencies import TimedStep, latencies, needless_reversals
from anabranch.elastic.forecast import StepForecast
from anabranch.errors import TopologyError
from anabranch.workloads import Workload, constant, stepped, uniform

LOAD = Workload(rate=constant(10), keys=uniform(3), lasting="10 seconds")


def steps(*slots: int, each_s: float = 1.0) -> list[TimedStep]:
    return [
        TimedStep(rows=10, ended_s=(i + 1) * each_s, slots=count) for i, count in enumerate(slots)
    ]


def test_latency_is_from_when_a_row_is_due_to_the_end_of_its_step() -> None:
    found = latencies(LOAD, steps(*[2] * 10), target_s=0.75)
    assert found.rows == 100
    assert found.mean_s == pytest.approx(0.55)  # 1.0, 0.9 ... 0.1 s in each step
    assert found.late == 30  # 1.0, 0.9 and 0.8 s
    assert found.slot_seconds == pytest.approx(20)
    assert (found.resizes, found.needless_reversals) == (0, 0)


def test_waiting_at_the_source_counts() -> None:
    found = latencies(LOAD, [TimedStep(rows=100, ended_s=12.0, slots=1)], target_s=2.0)
    assert found.mean_s == pytest.approx(12 - 4.95)
    assert found.late == 100 - sum(12 - row / 10 <= 2 for row in range(100))


def test_a_compressed_workload_is_due_sooner() -> None:
    found = latencies(LOAD, [TimedStep(rows=100, ended_s=5.0, slots=1)], target_s=2.0, speed=2.0)
    assert found.mean_s == pytest.approx(5 - 4.95 / 2)


def test_a_reversal_is_needless_when_it_comes_soon_and_the_input_stayed() -> None:
    assert needless_reversals(LOAD, steps(2, 4, 4, 2, 2)) == 1
    assert needless_reversals(LOAD, steps(2, 4, 2, 4, 2)) == 3
    assert needless_reversals(LOAD, steps(2, 4, 6, 8)) == 0
    assert needless_reversals(LOAD, steps(2, 4, 4, 4, 4, 4, 4, 2)) == 0  # six steps later
    surge = Workload(rate=stepped(10, ("3 seconds", 20)), keys=uniform(3), lasting="10 seconds")
    assert needless_reversals(surge, [*steps(4, 2), *steps(2, 2, 4)[2:]]) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profiles": "wild"}, "wild"),
        ({"policies": "magic"}, "magic"),
        ({"small": 9, "large": 4}, "--small 9"),
        ({"cost_ms": 0}, "--cost-ms 0"),
    ],
)
def test_mistakes_in_options_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        ElasticOptions(**given)


def test_the_figures_of_forecasts() -> None:
    few = [
        StepForecast(step=i, expected_s=expected, took_s=1.0)
        for i, expected in enumerate((0.9, 1.1, 1.5))
    ]
    assert forecast_figures(few) == {
        "steps_foretold": 3,
        "step_s": 1.0,
        "step_s_foretold": 1.1,
        "foretold_error": 0.1,
        "foretold_within_25_percent": 0.667,
    }
    assert forecast_figures([]) == {"steps_foretold": 0}


def test_a_small_benchmark_runs_every_policy_and_verifies_it(spark: SparkSession) -> None:
    options = ElasticOptions(
        profiles="progressive",
        policies="static-small,default",
        seconds=2,
        low=20,
        high=60,
        cost_ms=1,
        keys=20,
        large=4,
    )
    output = io.StringIO()
    figures = elastic(options, output)
    [case] = figures["cases"]
    assert case["verified"], case["differences"]
    assert {*case["policies"]} == {"static-small", "default"}
    assert all(
        each["rows"] == options.load("progressive").total for each in case["policies"].values()
    )
    assert case["policies"]["static-small"]["resizes"] == 0
    assert all("steps_foretold" in each for each in case["policies"].values())
    assert "no differences" in output.getvalue()
    shown = io.StringIO()
    show_elastic(figures, Console(file=shown, width=120))
    assert "static-small" in shown.getvalue()
