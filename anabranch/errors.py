"""All errors of Anabranch: one hierarchy. A message names the bad value and the valid ones."""

from __future__ import annotations

from collections.abc import Iterable


class AnabranchError(Exception):
    """The base of all errors that Anabranch raises itself."""


class TopologyError(AnabranchError, ValueError):
    """The topology, or an argument given with it, is not valid."""


class NotYetError(TopologyError):
    """The topology is valid, but this version cannot run it."""


class CheckpointError(AnabranchError):
    """The checkpoint does not fit.

    It is of another topology, has another driver, expects another batch, or lacks a file.
    """


class StateError(AnabranchError):
    """A shard's state cannot be read or written."""


class StateFullError(StateError):
    """The place of shards or files is full; the step was not committed and nothing is lost."""


class ShardHeldError(StateError):
    """Another process holds the shard and did not let go in time."""


class FencedError(StateError):
    """A newer attempt has taken this shard; this attempt must stop."""


class StepError(AnabranchError):
    """A step failed in all of its attempts."""


class ApplyError(AnabranchError):
    """The function of an apply failed on a row, or returned what its schema does not say."""


def unknown(what: str, value: object, valid: Iterable[object]) -> str:
    """The sentence for a value that is not among the valid ones."""
    return f"unknown {what} {value!r}; valid: {', '.join(str(each) for each in valid) or 'none'}"
