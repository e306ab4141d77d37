"""Why a job or a sink failed, in one line. Spark's own messages are stack traces of two languages.

A cause says what went wrong. If the user's code raised it, it also has the file and the line.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JNetworkError

from anabranch.errors import place_in, place_of

_OURS = re.compile(r"anabranch\.(?:errors|faults)\.(\w+): (.*)")
_PERMANENT = {"StateFullError", "StepError"}
_PYTHON = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning)\b")
_JAVA = re.compile(r"^(?:: |Caused by: )(?:[\w$]+\.)+([\w$]+)(?:: (.*))?$", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_TRACEBACK = "Traceback (most recent call last)"
_LONGEST = 700  # characters
_JVM = ("org.", "java.", "scala.", "py4j.")


def cause_of(error: BaseException) -> tuple[str, bool]:
    """What went wrong in a job, in one line; and True if trying again cannot help."""
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return f"Spark's JVM is gone ({_short(str(error))}): it crashed or ran out of memory", True
    text = _text(error)
    ours = _OURS.findall(text)
    if ours:
        name, cause = ours[-1]
        return _short(cause), name in _PERMANENT
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _TRACEBACK in text:
        raised = [line for line in lines if _PYTHON.match(line) and not line.startswith(_JVM)]
        return _short((raised or lines)[-1]) + _place_in(text), False
    java = [(name, message.strip()) for name, message in _JAVA.findall(text)]
    if java:
        return _of_java(java), False
    return _short((lines or [""])[0]) or type(error).__name__, False


def cause_of_call(error: BaseException) -> str:
    """What went wrong in a sink: in Spark, in the user's function or on a disk."""
    if hasattr(error, "java_exception") or type(error).__module__.startswith("pyspark."):
        return cause_of(error)[0]
    text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return _short(text) + place_of(error)


def _text(error: BaseException) -> str:
    """All that Spark says about an error. A translated exception has its causes in the trace."""
    text, trace = str(error), getattr(error, "_stackTrace", None)
    return text if not trace or _TRACEBACK in text else f": {trace}"


def _of_java(causes: list[tuple[str, str]]) -> str:
    """The first cause in a chain of Java causes, and the last one if it says more."""
    said = [_STATE.sub("", message) or name for name, message in causes]
    first, last = said[0], said[-1]
    if last in first:
        return _short(first)
    return f"{_short(first).rstrip('. ')}: {_short(last)}"


def _place_in(text: str) -> str:
    return place_in((file, int(line), name) for file, line, name in _FRAME.findall(text))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
