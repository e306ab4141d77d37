"""The soak: a short one is flat and verified, and reports the bytes per key."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from anabranch.bench.soak import SoakOptions, soak
from anabranch.errors import TopologyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_short_soak_keeps_no_keys_that_are_gone(spark: SparkSession) -> None:
    output = io.StringIO()
    figures = soak(
        SoakOptions(steps=16, rows=400, keys=2_000, churn=0.5, span_s=60, sets="2m/1m"), output
    )
    [case] = json.loads(json.dumps(figures))["cases"]
    assert case["verified"], case["differences"]
    assert case["keys_seen"] > 3 * case["last_quarter"]["key_numbers"]
    assert case["bytes_per_key"] > 0
    assert "bytes of state per key" in output.getvalue()


def test_a_soak_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(TopologyError, match="--churn 2"):
        SoakOptions(churn=2)
    with pytest.raises(TopologyError, match="--steps"):
        SoakOptions(steps=2)
