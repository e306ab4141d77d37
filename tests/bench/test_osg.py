"""`anabranch bench osg`: a short run is verified and has all figures.

Invalid options are refused.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from anabranch.bench.osg import OsgOptions, batches_of, osg, steps_to_adapt, times_of
from anabranch.errors import TopologyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_short_run_is_verified_and_compares_the_groupings(spark: SparkSession) -> None:
    options = OsgOptions(
        slots=2, steps=4, rows=40, values=16, least_ms=1.0, most_ms=4.0, window=4, mu=5.0, warm=1
    )
    output = io.StringIO()
    figures = json.loads(json.dumps(osg(options, output)))
    assert [case["case"] for case in figures["cases"]] == ["osg", "round robin", "hash"]
    for case in figures["cases"]:
        assert case["verified"], case["differences"]
        assert case["rows_compared"] == 160
        assert len(case["steps"]) == 4
        for step in case["steps"]:
            assert 0 < step["mean_s"] <= step["p95_s"] <= step["makespan_s"]
            assert step["makespan_s"] >= step["ideal_s"]
            assert step["imbalance"] >= 1
    ours = figures["cases"][0]
    assert ours["steps"][0]["grouping"] == "round robin"
    assert ours["steps"][-1]["grouping"] == "osg"
    assert 0 < ours["steps_before_first_estimate"] < 4
    assert "step 3: osg" in output.getvalue()


def test_times_change_halfway_and_rows_are_skewed() -> None:
    options = OsgOptions(steps=4, warm=1, rows=500)
    before, after = times_of(options).seconds
    assert sorted(before) == sorted(after)
    assert before != after
    assert min(before) >= 4e-3
    assert max(before) <= 256e-3
    batches = batches_of(options)
    assert [batch["phase"].unique().to_pylist() for batch in batches] == [[0], [0], [1], [1]]
    assert [number for batch in batches for number in batch["id"].to_pylist()] == list(range(2000))
    assert batches[0]["value"].to_pylist().count(0) > 130


def test_adapted_is_when_slots_are_as_level_as_before() -> None:
    assert steps_to_adapt([2.0, 1.1, 1.1, 1.6, 1.5, 1.3, 1.1, 1.1, 1.1], 1, 3) == 3
    assert steps_to_adapt([1.1, 1.1, 1.1, 1.1, 1.1], 1, 2) == 0
    assert steps_to_adapt([1.1, 1.1, 2.0, 2.0, 2.0], 1, 2) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"slots": 0}, "--slots 0; valid: 1 or more"),
        ({"warm": 30}, "--warm 30; valid: 1 to 11"),
        ({"spread": "even"}, "unknown --spread 'even'; valid: log, linear"),
        ({"least_ms": 9.0, "most_ms": 3.0}, "--least-ms 9.0 and --most-ms 3.0"),
        ({"skew": -1.0}, "--skew -1.0"),
        ({"mu": -1.0}, "mu=-1.0"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        OsgOptions(**wrong)  # type: ignore[arg-type]
