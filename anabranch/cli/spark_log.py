"""Settings of Spark for this process, and a log file for what Spark prints.

The JVM inherits the standard error of the process that starts it, and prints there before its log
settings apply. So standard error is a file while Spark starts, and this process keeps the terminal
for itself.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STDERR = 2
_SETTINGS = "--conf spark.ui.showConsoleProgress=false --conf spark.log.level=WARN"


@dataclass(frozen=True, slots=True)
class SparkLog:
    """The file of Spark's log. A temporary one is kept only if there is a reason to read it."""

    path: Path
    temporary: bool

    def reason(self) -> str:
        """Why Spark did not start: the first line about Java, else the last one."""
        lines = (
            self.path.read_text(errors="replace").strip().splitlines() if self.path.exists() else []
        )
        return next(
            (line.strip() for line in lines if "java" in line.lower()),
            lines[-1].strip() if lines else "",
        )

    def drop(self) -> None:
        if self.temporary:
            self.path.unlink(missing_ok=True)


def prepare_environment(directory: Path) -> None:
    """Sets what must be set before a session starts.

    Workers use this Python, and have the file's directory on their path.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    if _SETTINGS not in given:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{_SETTINGS} {given}"
    known = os.environ.get("PYTHONPATH", "")
    if str(directory) not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{known}{os.pathsep}{directory}" if known else str(directory)


@contextmanager
def spark_log(path: Path | None) -> Iterator[SparkLog]:
    """Sends what Spark prints to a file; without a path, to a temporary one."""
    if path is None:
        handle, name = tempfile.mkstemp(prefix="anabranch-spark-", suffix=".log")
    else:
        handle, name = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), str(path)
    log = SparkLog(Path(name), temporary=path is None)
    before, kept = sys.stderr, os.dup(_STDERR)
    own = os.fdopen(os.dup(kept), "w", buffering=1) if _is_standard_error(before) else None
    bridge = logging.getLogger(
        "py4j"
    )  # it logs tracebacks of callbacks, which are reported as errors anyway
    handler, propagated = logging.FileHandler(log.path), bridge.propagate
    try:
        before.flush()
        os.dup2(handle, _STDERR)
        os.close(handle)
        sys.stderr = own or before
        bridge.addHandler(handler)
        bridge.propagate = False
        yield log
    finally:
        bridge.removeHandler(handler)
        bridge.propagate = propagated
        handler.close()
        sys.stderr = before
        os.dup2(kept, _STDERR)
        os.close(kept)
        if own is not None:
            own.close()


def _is_standard_error(stream: object) -> bool:
    try:
        return bool(stream.fileno() == _STDERR)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
