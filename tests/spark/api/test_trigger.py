"""The keywords of Spark's trigger, as `start()` takes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from anabranch.errors import TopologyError
from anabranch.spark.api.trigger import Trigger, trigger_of

VALID = 'valid: processingTime="10 seconds", availableNow=True or once=True'


@pytest.mark.parametrize(
    ("given", "arguments", "interval_s"),
    [
        ({}, {}, 0.0),
        ({"processingTime": "10 seconds"}, {"processingTime": "10000 milliseconds"}, 10.0),
        ({"processingTime": "interval 1 minute"}, {"processingTime": "60000 milliseconds"}, 60.0),
        ({"processingTime": timedelta(hours=1)}, {"processingTime": "3600000 milliseconds"}, 3600),
        ({"processingTime": "0 seconds"}, {"processingTime": "0 milliseconds"}, 0.0),
        ({"processingTime": "1 us"}, {"processingTime": "1 milliseconds"}, 0.001),
        ({"availableNow": True}, {"availableNow": True}, 0.0),
        ({"once": True, "processingTime": None}, {"once": True}, 0.0),
    ],
)
def test_a_trigger_is_written_as_in_spark(
    given: dict[str, Any], arguments: dict[str, Any], interval_s: float
) -> None:
    found = trigger_of(given, ())
    assert found == Trigger(arguments, interval_s)
    assert found.ends_by_itself == ("once" in arguments or "availableNow" in arguments)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trigger": "10 seconds"}, f"it takes the keywords of Spark's trigger: {VALID}"),
        ({"continuous": "1 second"}, f"continuous processing has no batches; {VALID}"),
        ({"realTime": "5 minutes"}, f"rows leave a batch before it ends; {VALID}"),
        ({"availableNow": False}, f"availableNow=False; {VALID}"),
        ({"once": 1}, f"once=1; {VALID}"),
        (
            {"availableNow": True, "processingTime": "1s"},
            f"availableNow=True, processingTime='1s': only one trigger can be set; {VALID}",
        ),
        ({"processingTime": "soon"}, "processingTime 'soon' is not a time"),
        ({"processingTime": "-1 second"}, "processingTime '-1 second' is negative"),
        (
            {"processing_time": "1s"},
            "'processing_time'; valid: slots, processingTime, availableNow, once",
        ),
    ],
)
def test_another_trigger_is_refused_with_the_valid_ones(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(TopologyError) as refused:
        trigger_of(given, ["slots"])
    assert message in str(refused.value)
