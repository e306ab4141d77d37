"""All errors of Anabranch: one hierarchy. A message names the bad value and the valid ones."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path


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


def place_of(error: BaseException) -> str:
    """Where in a user's code an error was raised, to be added to a message; else empty.

    A worker reports messages and not tracebacks of causes, so the place is part of the message.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return place_in([(each.filename, each.lineno or 0, each.name) for each in frames])


def place_in(frames: Iterable[tuple[str, int, str]]) -> str:
    """The same from the file, the line and the function of each frame, the innermost last."""
    users = [each for each in frames if _is_the_users(each[0])]
    return " (at {}:{} in {})".format(*users[-1]) if users else ""


# Frames of these files are not the user's: what is installed, Python itself, Spark.
_INSTALLED = ("/site-packages/", "/dist-packages/", "/lib/python3", "/pyspark/", "/pyspark.zip/")
_PACKAGE = Path(__file__).parent


def _is_the_users(file: str) -> bool:
    if file.startswith("<frozen") or any(each in file for each in _INSTALLED):
        return False
    _, package, below = file.rpartition("/anabranch/")
    return not package or not (_PACKAGE / below).exists()
