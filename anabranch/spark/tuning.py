"""Session settings of a run: one job per step, as many partitions as cores, quick checkpoints.

A streaming query clones its session when it starts. So what is set on the user's session for that
moment stays with the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_STEP = {
    "spark.sql.adaptive.enabled": "false",
    # With a limit in bytes the JVM adds up the sizes of all columns for each row: more than half of
    # the way to Python. So many rows stay below what a batch can hold, 2 GB, unless a row has a
    # quarter of a megabyte.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # One pass instead of two for rows in one place; but Spark has its fast hash map only for the
    # first of two.
    "spark.sql.execution.combineAdjacentAggregation": "false",
}
# What users may have reasons to set themselves is left alone where they did.
LOCAL_QUERY = {
    # The default one starts a `chmod` process for each file: four per batch, a tenth of a second.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


def tune(session: SparkSession) -> None:
    """Sets what the plan of a step needs, in a session that is ours."""
    for name, value in _step_settings(session).items():
        session.conf.set(name, value)


@contextmanager
def step_settings_on(session: SparkSession, *, local_query: bool = False) -> Iterator[None]:
    """Sets what a run needs on a user's session, and sets back what was there."""
    own = session.conf.getAll
    wished = {name: value for name, value in LOCAL_QUERY.items() if local_query and name not in own}
    settings = {**_step_settings(session), **wished}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name in settings:
            if name in own:
                session.conf.set(name, own[name])
            else:
                session.conf.unset(name)


def _step_settings(session: SparkSession) -> dict[str, str]:
    return {"spark.sql.shuffle.partitions": str(session.sparkContext.defaultParallelism), **_STEP}
