"""What libraries log about errors: ours are left out, all others are logged."""

from __future__ import annotations

import logging
import threading

import pytest
from pyspark.logger import PySparkLogger

from anabranch.spark.quiet import EndsQueryError, quiet_callbacks, quiet_expressions


def log_of(name: str, error: Exception) -> None:
    try:
        raise error
    except type(error):
        logging.getLogger(name).exception("There was an exception")


def test_py4j_logs_errors_of_others_only(caplog: pytest.LogCaptureFixture) -> None:
    quiet_callbacks()
    quiet_callbacks()
    log_of("py4j.clientserver", EndsQueryError("the run ends"))
    log_of("py4j.clientserver", ValueError("of somebody else"))
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "of somebody else"
    ]
    assert len(logging.getLogger("py4j.clientserver").filters) == 1


def test_failed_expressions_are_logged_outside_of_our_jobs() -> None:
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        with quiet_expressions():
            logger.error("in our job", errorClass="A")
            other = threading.Thread(target=logger.error, args=("in another thread",))
            other.start()
            other.join()
        logger.error("afterwards", errorClass="B")
    finally:
        logger.removeHandler(handler)
    assert [each.getMessage() for each in records] == ["in another thread", "afterwards"]
