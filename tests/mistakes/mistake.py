"""A mistake that a user can make, and what its message must say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.spark.api.streams import Windowed

# What a message must not contain: internals of Spark, of Java and of Python.
INSIDES = re.compile(
    r"Traceback|org\.apache|java\.|py4j|Py4J|calling o\d+|\bat 0x|site-packages|\.scala|"
    r"NoneType|object has no attribute"
)
LONGEST = 700


@dataclass(frozen=True)
class Desk:
    """The material of a mistake: rows, a topology and a directory of its own."""

    spark: SparkSession
    directory: Path

    def rows(self) -> DataFrame:
        """Static rows with columns of many types."""
        return self.spark.sql(
            "select timestamp '2026-01-01 10:00:00' as at, 'home' as page, 7 as ms, 2.5D as price, "
            "1767261600L as seconds, map('a', 'b') as tags, true as ok, array(1) as list"
        )

    def app(self) -> ab.Topology:
        return ab.Topology("t")

    def clicks(self) -> ab.Stream:
        """A stream of these rows, as the source of a topology."""
        return self.app().source(self.rows(), event_time="at", delay="0 seconds", name="clicks")

    def pages(self, **changes: object) -> Windowed:
        """An aggregate over them; its arguments may be replaced."""
        given = {"by": "page", "windows": [ab.tumbling("10 minutes")], "n": ab.count(), **changes}
        return self.clicks().aggregate(**given)


@dataclass(frozen=True)
class Mistake:
    """What is done, and parts of the message: the bad value, and what would be valid."""

    what: str
    act: Callable[[Desk], object]
    says: tuple[str, ...]


def message_of(mistake: Mistake, desk: Desk) -> str:
    """The message that a mistake gives; anything but one of ours fails the test."""
    with pytest.raises(ab.AnabranchError) as caught:
        mistake.act(desk)
    error = caught.value
    hidden = error.__suppress_context__ or error.__context__ is None
    assert error.__cause__ is None, f"a chained error would be printed too: {error.__cause__!r}"
    assert hidden, f"an error of the insides would be printed too: {error.__context__!r}"
    return str(error)


def check_message(text: str, says: tuple[str, ...]) -> None:
    """A message is one line of plain words that has the bad value and the valid ones."""
    assert "\n" not in text.strip(), text
    assert len(text) < LONGEST, text
    assert not INSIDES.search(text), text
    for each in says:
        assert each in text, f"{each!r} is not in: {text}"
