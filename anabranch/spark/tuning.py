"""Session settings of a run: one job per step, as many partitions as cores, quick checkpoints.

A streaming query clones its session when it starts. So the query keeps settings that the user's
session has only at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from anabranch.spark.batches import SUMMED
from anabranch.spark.local_files import local_files_class
from anabranch.spark.settings import EXCLUDED_RULES, FILES_CLASS, Scope, settings_in

_STEP = settings_in(Scope.RUN)
LOCAL_QUERY = settings_in(Scope.LOCAL_RUN)


def tune(session: SparkSession) -> None:
    """Sets what the plan of a step needs, in our own session.

    That session runs closing steps and the maps before sinks. There, nothing guards against large
    rows, so Spark limits the bytes of a batch.
    """
    for name, value in {**_step_settings(session), **SUMMED.settings}.items():
        session.conf.set(name, value)


@contextmanager
def step_settings_on(session: SparkSession, *, local_query: bool = False) -> Iterator[None]:
    """Sets what a run needs on a user's session, and restores the old values at the end."""
    own = session.conf.getAll
    wished: dict[str, str] = {}
    if local_query and FILES_CLASS not in own:
        wished = {FILES_CLASS: local_files_class(session, LOCAL_QUERY[FILES_CLASS])}
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
    partitions = str(session.sparkContext.defaultParallelism)
    users = str(session.conf.get(EXCLUDED_RULES, "") or "")
    excluded = ",".join(each for each in (users, _STEP[EXCLUDED_RULES]) if each)
    return {"spark.sql.shuffle.partitions": partitions, **_STEP, EXCLUDED_RULES: excluded}
