"""Keeps libraries from logging errors of a run, which Anabranch reports once itself.

py4j logs the whole traceback of what a batch raises. pyspark logs failed expressions as JSON with
Java's stack trace, at every attempt. The cause is in our own message (`driver/causes.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.logger import PySparkLogger

_CALLBACKS = ("py4j.clientserver", "py4j.java_gateway")
_EXPRESSIONS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class EndsQueryError(Exception):
    """Raised inside a batch to end Spark's query. The run keeps the reason itself."""


def quiet_callbacks() -> None:
    """Keeps py4j from logging `EndsQueryError`. Other records are logged as before."""
    for name in _CALLBACKS:
        logger = logging.getLogger(name)
        if _is_not_ours not in logger.filters:
            logger.addFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], EndsQueryError))


@contextmanager
def quiet_expressions() -> Iterator[None]:
    """Keeps pyspark from logging what fails in this thread, inside the `with` block."""
    thread = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    # They must be of Spark's own logger class: Spark gets its loggers by these names.
    loggers = [PySparkLogger.getLogger(name) for name in _EXPRESSIONS]
    for each in loggers:
        each.addFilter(elsewhere)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(elsewhere)
