"""Columns in the JVM that are made once.

Making a column takes a few calls to the JVM, hundreds per level. Together they took a tenth of a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.spark.compile.rowwise import Taken, chosen
from anabranch.spark.jvm import jcolumns


class SharedColumns:
    """A cache of columns. The key of a column contains all that it depends on."""

    def __init__(self) -> None:
        self._made: dict[object, Any] = {}

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """The value for a key. It is made if there is none yet."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def ready_columns(
    frame: DataFrame,
    names: Sequence[str],
    taken: Mapping[int, Taken],
    places: Mapping[int, Mapping[str, str]],
) -> tuple[Column | None, Any]:
    """The filter and the columns after the maps of the readers.

    `places` has, for each reader by number, the shared column that holds each of its own columns.
    Rows of other readers, and columns that a reader does not use, stay as they are.
    """
    stays = {number: each.stays for number, each in taken.items() if each.stays is not None}
    filled: dict[str, dict[int, Column]] = {name: {} for name in names}
    for number, own in places.items():
        for name, place in own.items():
            filled[place][number] = taken[number].columns[name]
    columns = [
        chosen("to", by_number, F.col(place)).alias(place) if by_number else F.col(place)
        for place, by_number in filled.items()
    ]
    return (chosen("to", stays, F.lit(True)) if stays else None), jcolumns(frame, columns)
