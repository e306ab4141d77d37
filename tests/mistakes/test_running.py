"""A mistake that shows only when rows come ends the run with a message, and loses nothing.

The same checkpoint goes on without the mistake, and its results are complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mistakes.job import EXPECTED, Job
from tests.mistakes.mistake import Desk, Mistake, check_message, message_of
from tests.mistakes.running import RUNNING, RunningMistake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("mistake", RUNNING, ids=lambda each: each.what)
def test_a_mistake_in_a_run_is_named_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, mistake: RunningMistake
) -> None:
    job = Job(Desk(spark, tmp_path))
    repair = mistake.spoil(job) if mistake.spoil else lambda: None
    app = job.topology(before=mistake.before, sink=mistake.sink)
    done = Mistake(mistake.what, lambda _: job.run_to_end(app, **mistake.options(job)), ())
    check_message(message_of(done, job.desk), mistake.says)
    repair()
    job.finish()
    assert job.counted() == EXPECTED
