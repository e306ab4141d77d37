"""Errors of a run are reported once, by us: what libraries would print about them is left out.

py4j logs the whole traceback of what a batch raises, and pyspark logs failed expressions as JSON
with Java's stack trace, at every attempt. The cause is in our own message (`driver/causes.py`).
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
    """Raised into Spark to end its query; the run knows the reason itself."""


def quiet_callbacks() -> None:
    """Keeps py4j from logging how a run ended its query; other records are logged as before."""
    for name in _CALLBACKS:
        logger = logging.getLogger(name)
        if _is_not_ours not in logger.filters:
            logger.addFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], EndsQueryError))


@contextmanager
def quiet_expressions() -> Iterator[None]:
    """Keeps pyspark from logging what fails in this thread meanwhile."""
    thread = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    # Spark's own kind of logger: one of another kind under its name would not do for Spark.
    loggers = [PySparkLogger.getLogger(name) for name in _EXPRESSIONS]
    for each in loggers:
        each.addFilter(elsewhere)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(elsewhere)
