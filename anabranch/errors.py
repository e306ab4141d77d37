"""All errors of Anabranch, in one hierarchy. A message names the bad value and the valid ones."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path


class AnabranchError(Exception):
    """The base of all errors that Anabranch raises itself."""


class TopologyError(AnabranchError, ValueError):
    """The topology, or an argument of one of its calls, is not valid."""


class NotYetError(TopologyError):
    """The topology is valid, but this version cannot run it."""


class CheckpointError(AnabranchError):
    """The checkpoint cannot be used.

    It belongs to another topology, another driver has taken it over, it expects another batch, or
    a file is missing.
    """


class StateError(AnabranchError):
    """A shard's state cannot be read or written."""


class StateFullError(StateError):
    """The disk for state or files is full. The step was not committed, and nothing is lost."""


class ShardHeldError(StateError):
    """Another process holds the shard and did not release it in time."""


class FencedError(StateError):
    """A newer attempt has taken this shard, so this attempt must stop."""


class StepError(AnabranchError):
    """A step failed, and trying again cannot help or has not helped."""


class ApplyError(AnabranchError):
    """The function of an apply failed on a row, or returned what does not fit its schema."""


def unknown(what: str, value: object, valid: Iterable[object]) -> str:
    """The message for a value that is not one of the valid ones."""
    return f"unknown {what} {value!r}; valid: {', '.join(str(each) for each in valid) or 'none'}"


def place_of(error: BaseException) -> str:
    """Where in the user's code an error was raised, to add to a message; empty if elsewhere.

    A worker reports messages without the tracebacks of causes, so the place is in the message.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return place_in([(each.filename, each.lineno or 0, each.name) for each in frames])


def place_in(frames: Iterable[tuple[str, int, str]]) -> str:
    """The same, from the file, line and function of each frame. The innermost frame is last."""
    users = [each for each in frames if _is_the_users(each[0])]
    return " (at {}:{} in {})".format(*users[-1]) if users else ""


# Frames of these files are not the user's: installed packages, Python itself, Spark.
_INSTALLED = ("/site-packages/", "/dist-packages/", "/lib/python3", "/pyspark/", "/pyspark.zip/")
_PACKAGE = Path(__file__).parent


def _is_the_users(file: str) -> bool:
    if file.startswith("<frozen") or any(each in file for each in _INSTALLED):
        return False
    _, package, below = file.rpartition("/anabranch/")
    return not package or not (_PACKAGE / below).exists()
