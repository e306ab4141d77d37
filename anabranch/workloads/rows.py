"""The rows of a workload: row n has a due time and a key, which depend on nothing else.

A second has as many rows as the integral of the rate grows by in whole numbers. They are spread
evenly over the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from anabranch.errors import TopologyError
from anabranch.topology.durations import Duration, duration_us, format_duration
from anabranch.workloads.draws import Floats, Integers, words
from anabranch.workloads.keys import Keys
from anabranch.workloads.rates import Rate

_SECOND_US = 1_000_000
_PAYLOAD = 9  # a salt
MOST_PAYLOAD, MOST_SECONDS = 1 << 20, 31 * 24 * 3600
START_US = 1_769_889_600 * _SECOND_US
"""2026-01-31 20:00 UTC, the default start of event times."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Rows at a rate, with certain keys, for `lasting`, which must be whole seconds up to 31 days.

    The same `seed` gives the same rows. `start_us` is the event time of the first second.
    """

    rate: Rate
    keys: Keys
    lasting: Duration
    seed: int = 0
    payload: int = 0
    """Bytes per row in a column `payload`, which do not compress; 0: no such column."""
    start_us: int = START_US

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise TopologyError(f"seed {self.seed} is negative; valid: 0 or more")
        if not 0 <= self.payload <= MOST_PAYLOAD:
            raise TopologyError(f"a payload of {self.payload} bytes; valid: 0 to {MOST_PAYLOAD}")
        if duration_us(self.lasting, "lasting") % _SECOND_US or self.seconds > MOST_SECONDS:
            raise TopologyError(f"lasting {self.lasting!r}; valid: whole seconds, up to 31 days")

    @cached_property
    def seconds(self) -> int:
        return duration_us(self.lasting, "lasting") // _SECOND_US

    @property
    def total(self) -> int:
        """The number of all rows."""
        return int(self.before[-1])

    @cached_property
    def before(self) -> Integers:
        """The number of rows that are due before each second. The last entry counts all rows."""
        rows = self.rate.rows_until(np.arange(self.seconds + 1, dtype=np.float64))
        return np.floor(rows + 1e-6).astype(
            np.int64
        )  # rounding may have made a whole number a little smaller

    def counts(self) -> Integers:
        """The number of rows in each second."""
        return np.diff(self.before)

    def due(self, seconds: float) -> int:
        """The number of rows that are due at a time, up to and including that microsecond."""
        after_us = int(seconds * _SECOND_US)
        if after_us < 0:
            return 0
        second, into_us = divmod(after_us, _SECOND_US)
        if second >= self.seconds:
            return self.total
        first, count = int(self.before[second]), int(self.before[second + 1] - self.before[second])
        return first + min(count, ((into_us + 1) * count - 1) // _SECOND_US + 1)

    def due_us(self, numbers: Integers) -> Integers:
        """When rows are due, in microseconds after the start."""
        second = np.searchsorted(self.before, numbers, side="right") - 1
        first = self.before[second]
        return second * _SECOND_US + (numbers - first) * _SECOND_US // (
            self.before[second + 1] - first
        )

    def key_shares(self, second: float) -> Floats:
        """The probability of each key at a time."""
        return self.keys.shares_at(self.seed, second)

    @cached_property
    def schema(self) -> pa.Schema:
        """`at` (the event time), `value` (the row's number), `key`, and the payload if any."""
        fields = [("at", pa.timestamp("us", tz="UTC")), ("value", pa.int64()), ("key", pa.int64())]
        return pa.schema([*fields, ("payload", pa.binary())] if self.payload else fields)

    def batch(self, start: int, end: int) -> pa.RecordBatch:
        """Rows start to end - 1."""
        if not 0 <= start <= end <= self.total:
            raise ValueError(f"rows {start} to {end} of {self.total}")
        numbers = np.arange(start, end, dtype=np.int64)
        due_us = self.due_us(numbers)
        at = pa.array(due_us + self.start_us).cast(self.schema.field("at").type)
        columns = [
            at,
            pa.array(numbers),
            pa.array(self.keys.drawn(self.seed, numbers, due_us / _SECOND_US)),
        ]
        return pa.record_batch([*columns, *self._payloads(numbers)], schema=self.schema)

    def table(self, start: int = 0, end: int | None = None) -> pa.Table:
        """All rows, or rows start to end - 1, for reference results."""
        return pa.Table.from_batches([self.batch(start, self.total if end is None else end)])

    def __str__(self) -> str:
        return (
            f"{self.total} rows with {self.keys.count} keys in "
            f"{format_duration(self.seconds * _SECOND_US)}, seed {self.seed}"
        )

    def _payloads(self, numbers: Integers) -> list[pa.Array]:
        """Bytes that do not compress, always the same for a row."""
        if not self.payload:
            return []
        each = -(-self.payload // 8)
        places = numbers[:, None] * each + np.arange(each)
        content = (
            words(self.seed, _PAYLOAD, places.ravel())
            .view(np.uint8)
            .reshape(len(numbers), each * 8)
        )
        offsets = np.arange(len(numbers) + 1, dtype=np.int32) * self.payload
        data = np.ascontiguousarray(content[:, : self.payload])
        return [
            pa.Array.from_buffers(
                pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            )
        ]
