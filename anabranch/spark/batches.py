"""How many rows go to Python in one Arrow batch: large rows must not fill the JVM's memory.

The JVM builds a batch in memory before it sends it. Spark can add up the bytes of a batch, column
by column after each row. For small rows that is more than half of the cost of the way to Python.

So Spark counts rows instead, and a guard limits the size of each row. The guard only looks at the
length of values. A row that is too large ends the job before it reaches a batch. The job then runs
again with smaller batches. For the largest rows it runs with Spark's own sum, whose cost is then
negligible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.types import element_of, split_fields, struct_fields

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_LARGE_ROW = re.compile(r"anabranch: a row has (\d+) bytes")
_NO_SUM = (1 << 31) - 1  # Spark does not look at bytes


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """The most rows of a batch, and the most bytes of a row.

    `row_bytes` is None where Spark adds up bytes itself.
    """

    rows: int
    row_bytes: int | None
    bytes: int = _NO_SUM

    @property
    def settings(self) -> dict[str, str]:
        return {_ROWS: str(self.rows), _BYTES: str(self.bytes)}


# With either of the first two, a batch has at most 128 MB.
LIMITS = (
    BatchLimit(8192, 16 << 10),
    BatchLimit(1024, 128 << 10),
    BatchLimit(8192, None, 32 << 20),
)
SUMMED = LIMITS[-1]
# For rows that a task only passes on. They are packed, one value per shard, so there are few.
PASSING = BatchLimit(128, 1 << 20)
_PATIENCE = 32  # steps before larger batches are tried again


@dataclass(slots=True)
class Batches:
    """The current limit of a run's batches.

    Batches become smaller when a row is too large, and larger again after many steps.
    """

    _at: int = 0
    _patience: int = _PATIENCE
    _left: int = 0

    @property
    def limit(self) -> BatchLimit:
        return LIMITS[self._at]

    def lower(self, row_bytes: int) -> bool:
        """Chooses a limit that allows a row of this size. False if the last limit allowed it."""
        before = self._at
        while self.limit.row_bytes is not None and self.limit.row_bytes < row_bytes:
            self._at += 1
        self._patience *= 2
        self._left = self._patience
        return self._at > before

    def step_done(self) -> None:
        """Goes back to larger batches if no row was too large for many steps."""
        if self._at:
            self._left -= 1
            if self._left <= 0:
                self._at, self._left = self._at - 1, self._patience


@dataclass(frozen=True, slots=True)
class JobForm:
    """What may differ between jobs of one plan: where rows are combined, and their batches."""

    way: str
    limit: BatchLimit


def large_row(error: BaseException) -> int | None:
    """The size of the row that ended a job; None if something else ended it."""
    found = _LARGE_ROW.search(f"{error}\n{getattr(error, '_stackTrace', '')}")
    return int(found[1]) if found else None


def guarded_sql(text: str, columns: Mapping[str, str], limit: BatchLimit) -> str:
    """The expression, made to fail for rows that are too large. `columns`: types by name."""
    most = limit.row_bytes
    if most is None:
        return text
    sizes = [size for name, kind in columns.items() for size in _sizes(f"`{name}`", kind)]
    if not sizes:
        return text
    total = " + ".join(["0L", *(f"coalesce({size}, 0)" for size in sizes)])
    message = f"concat('anabranch: a row has ', {total}, ' bytes')"
    return f"if({total} > {most}, raise_error({message}), {text})"


def _sizes(value: str, kind: str) -> list[str]:
    """The sizes in bytes of the parts of a value, as Spark SQL; none for parts of fixed size."""
    if kind.startswith("string") or kind == "binary":
        return [f"octet_length({value})"]
    if (fields := struct_fields(kind)) is not None:
        if not all(re.fullmatch(r"\w+", name) for name in fields):  # the type cannot be parsed
            return [f"octet_length(to_json(struct({value})))"]
        return [
            size for name, inner in fields.items() for size in _sizes(f"{value}.`{name}`", inner)
        ]
    if (element := element_of(kind)) is not None:
        return [_size_of_elements(value, element)]
    if kind.startswith("map<"):
        key, item = split_fields(kind.removeprefix("map<").removesuffix(">"))
        return [
            _size_of_elements(f"map_keys({value})", key),
            _size_of_elements(f"map_values({value})", item),
        ]
    return [f"octet_length(to_json({value}))"] if kind == "variant" else []


def _size_of_elements(array: str, kind: str) -> str:
    """The bytes of an array, as Spark SQL. Elements of fixed size count as 16 bytes each."""
    if kind.startswith("string"):
        return f"octet_length(concat_ws('', {array}))"
    inner = _sizes("e", kind)
    if not inner:
        return f"size({array}) * 16"
    total = " + ".join(f"coalesce({size}, 0)" for size in inner)
    return f"aggregate({array}, 0L, (n, e) -> n + coalesce({total}, 0))"
