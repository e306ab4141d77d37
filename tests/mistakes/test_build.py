"""Every mistake in a topology gives a message that helps, before any row is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mistakes.build import BUILT
from tests.mistakes.mistake import Desk, Mistake, check_message, message_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("mistake", BUILT, ids=lambda each: each.what)
def test_a_mistake_in_a_topology_is_named(
    spark: SparkSession, tmp_path: Path, mistake: Mistake
) -> None:
    check_message(message_of(mistake, Desk(spark, tmp_path)), mistake.says)


def test_no_mistake_is_listed_twice() -> None:
    names = [each.what for each in BUILT]
    assert len(set(names)) == len(names)
