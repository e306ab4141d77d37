"""Settings of elasticity: defaults that work, and bad values that are refused."""

from __future__ import annotations

import pytest

from anabranch.elastic import AutoScale, Elastic
from anabranch.elastic.policies.latency import (
    Stepwise,
)
from anabranch.errors import TopologyError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "magic"}, "policy 'magic' is unknown; valid: auto, autoscale, latency"),
        ({"mode": "maybe"}, "mode 'maybe' is unknown; valid: on, advise, off"),
        ({"balance": "x"}, "balance 'x' is unknown"),
        ({"min_slots": 0}, "min_slots 0"),
        ({"min_slots": 4, "max_slots": 3}, "max_slots 3 is below min_slots 4"),
        ({"latency": "soon"}, "latency 'soon' is not a time"),
        ({"theta": 0.9}, "theta 0.9"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Elastic(**arguments)  # type: ignore[arg-type]


def test_settings_have_defaults_that_work() -> None:
    assert isinstance(Elastic().chosen, AutoScale)
    assert isinstance(Elastic(latency="2 seconds").chosen, Stepwise)
    assert Elastic(latency="2 seconds").latency_s == 2.0
    assert (Elastic().most(8), Elastic(max_slots=3).most(8)) == (8, 3)
