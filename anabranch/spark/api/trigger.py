"""When Spark takes a batch. `start()` takes the keywords of `DataStreamWriter.trigger`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from anabranch.errors import TopologyError, unknown
from anabranch.topology.durations import Duration, duration_us

_VALID = 'valid: processingTime="10 seconds", availableNow=True or once=True'
_REFUSED = {
    "continuous": "a step is a batch, and continuous processing has no batches",
    "realTime": "a step commits a whole batch, and in real-time mode rows leave a batch before it"
    " ends",
}


class TriggerOptions(TypedDict, total=False):
    """The keywords of Spark's own `trigger`; at most one is given."""

    processingTime: Duration
    availableNow: bool
    once: bool
    continuous: Duration
    realTime: Duration


@dataclass(frozen=True, slots=True)
class Trigger:
    """The arguments for Spark's own trigger. Without any, the next batch follows at once."""

    arguments: Mapping[str, Any]
    interval_s: float = 0.0  # between two batches

    @property
    def ends_by_itself(self) -> bool:
        return bool(self.arguments.get("availableNow") or self.arguments.get("once"))


def trigger_of(given: Mapping[str, object], options: Iterable[str]) -> Trigger:
    """The trigger for the keywords given to `start()`. `options` are its other keywords."""
    for name in given:
        if name == "trigger":
            raise TopologyError(
                f"start() has no trigger=; it takes the keywords of Spark's trigger: {_VALID}"
            )
        if name not in TriggerOptions.__annotations__:
            valid = [*options, *(n for n in TriggerOptions.__annotations__ if n not in _REFUSED)]
            raise TopologyError(unknown("option of start()", name, valid))
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in _REFUSED.keys() & chosen:
        raise TopologyError(f"{name}={chosen[name]!r}: {_REFUSED[name]}; {_VALID}")
    if len(chosen) > 1:
        both = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
        raise TopologyError(f"{both}: only one trigger can be set; {_VALID}")
    for name, value in chosen.items():
        if name == "processingTime":
            return _interval(value)
        if value is not True:
            raise TopologyError(f"{name}={value!r}; {_VALID}")
    return Trigger(chosen)


def _interval(value: Any) -> Trigger:
    """Batches at an interval. Spark gets milliseconds, as it reads fewer notations than we do."""
    millis = -(-duration_us(value, "processingTime", zero=True) // 1000)
    return Trigger({"processingTime": f"{millis} milliseconds"}, millis / 1000)
