"""Every mistake in the arguments of a start, or in what it finds, gives a message that helps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mistakes.mistake import Desk, Mistake, check_message, message_of
from tests.mistakes.start import STARTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("mistake", STARTED, ids=lambda each: each.what)
def test_a_mistake_at_a_start_is_named(
    spark: SparkSession, tmp_path: Path, mistake: Mistake
) -> None:
    check_message(message_of(mistake, Desk(spark, tmp_path)), mistake.says)
