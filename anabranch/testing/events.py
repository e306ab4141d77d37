"""Generated events: seeded, in batches, with the problems that real events have.

Keys are uniform or Zipf distributed, of several types, some of them null, and drift from batch to
batch. Event times advance at an even rate, out of order by some amount, and a few rows come very
late or without a time. One seed gives one stream, whatever its consumer does.

Columns: the key columns, `at` (timestamp, microseconds, UTC), `v` (long), `x` (double), `s`
(string), `d` (decimal). Values of `x` are whole eighths, so that their sums are exact in whichever
order they are added.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KeyKind: TypeAlias = Literal["int", "string", "float", "several", "none"]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
FAR_US = 253_383_811_200 * SECOND_US
"""The year 9999, in June."""
FIRST_FILE_TIME = 1_600_000_000
"""Modification time, in seconds, of the first batch file; each later file is one second younger."""

WORDS = (
    "ash",
    "Ångström",
    "βeta",
    "слово",
    "鍵",
    "キー",
    "𝄞",
    "🦦 otter",
    "",
    " ",
    "a'b\"c",
    "line\nbreak",
    "e\u0301",
    "é",
)
ODD_FLOATS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 0.1, 1e300, -5e-324)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlan:
    """What the events look like. Shares are between 0 and 1, times in microseconds."""

    seed: int = 0
    batches: int = 4
    rows: int = 1_000
    """Rows per batch."""
    key_kind: KeyKind = "int"
    keys: int = 100
    skew: float = 0.0
    """Exponent of the Zipf distribution of keys; 0 is uniform."""
    churn: float = 0.0
    """Share of the keys that each batch replaces with new ones."""
    null_share: float = 0.0
    """Share of nulls, in each key and value column and in the event time."""
    start_us: int = 0
    span_us: int = MINUTE_US
    """Event time that a batch covers."""
    disorder_us: int = 0
    """How much earlier than its place in the stream a row's event time may be."""
    late_share: float = 0.0
    late_us: int = HOUR_US
    """How much earlier than its place in the stream a late row's event time may be."""
    ahead_share: float = 0.0
    """Share of rows whose event time is in the year 9999."""

    def __post_init__(self) -> None:
        if self.key_kind not in get_args(KeyKind):
            raise ValueError(
                f"unknown key kind {self.key_kind!r}; valid: {', '.join(get_args(KeyKind))}"
            )
        for share in ("churn", "null_share", "late_share", "ahead_share"):
            if not 0 <= getattr(self, share) <= 1:
                raise ValueError(f"{share} is {getattr(self, share)}; it must be between 0 and 1")
        if self.keys < 1 or self.rows < 0 or self.batches < 0 or self.skew < 0:
            raise ValueError(
                "an event plan needs at least one key, and no negative rows, batches or skew"
            )

    @property
    def key_columns(self) -> list[str]:
        return _KEY_COLUMNS[self.key_kind]


_KEY_COLUMNS: dict[KeyKind, list[str]] = {
    "int": ["k"],
    "string": ["k"],
    "float": ["k"],
    "several": ["k", "name", "on"],
    "none": [],
}


def event_batches(plan: EventPlan) -> Iterator[pa.Table]:
    """The plan's batches, one after the other; each depends on the seed and its number only."""
    weights = np.arange(1, plan.keys + 1, dtype=np.float64) ** -plan.skew
    cumulative = np.cumsum(weights) / weights.sum()
    for number in range(plan.batches):
        random = np.random.default_rng((plan.seed, number))
        ranks = np.searchsorted(cumulative, random.random(plan.rows), side="right").clip(
            0, plan.keys - 1
        )
        # Keys are a sliding window of numbers: new ones replace the oldest.
        identities = (ranks + round(number * plan.churn * plan.keys)).astype(np.int64)
        columns = _key_arrays(plan, random, identities)
        columns["at"] = _time_array(plan, random, number)
        columns |= _value_arrays(plan, random)
        yield pa.table(columns)


def without_far(rows: pa.Table) -> pa.Table:
    """The rows of a batch without those of the year 9999."""
    return rows.filter(pc.fill_null(pc.less(rows["at"].cast(pa.int64()), FAR_US), True))


def write_batches(
    batches: Iterable[pa.Table], directory: str | Path, *, first: int = 0
) -> list[Path]:
    """Writes each batch as one parquet file, younger than the one before, numbered from `first`.

    Spark's file source takes the oldest files first: with maxFilesPerTrigger=1 each file is one
    batch. More batches are added to the same directory by continuing the numbers.
    """
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, batch in enumerate(batches, start=first):
        path = root / f"batch-{number:05d}.parquet"
        unfinished = root / f".{path.name}"
        pq.write_table(batch, unfinished, coerce_timestamps="us")
        os.utime(unfinished, (FIRST_FILE_TIME + number, FIRST_FILE_TIME + number))
        unfinished.rename(path)
        paths.append(path)
    return paths


def _some(plan: EventPlan, random: np.random.Generator) -> Flags | None:
    """Which values are null; None if none are."""
    return random.random(plan.rows) < plan.null_share if plan.null_share else None


def _key_arrays(
    plan: EventPlan, random: np.random.Generator, identities: Integers
) -> dict[str, pa.Array]:
    match plan.key_kind:
        case "none":
            return {}
        case "int":
            return {"k": pa.array(identities, mask=_some(plan, random))}
        case "string":
            return {"k": _strings(identities, _some(plan, random))}
        case "float":
            return {"k": _floats(identities, _some(plan, random))}
        case "several":
            return {
                "k": pa.array((identities // 6).astype(np.int32), mask=_some(plan, random)),
                "name": _strings(identities % 3, _some(plan, random)),
                "on": pa.array(identities % 2 == 0, mask=_some(plan, random)),
            }


def _looked_up(choices: Any, places: Integers, nulls: Flags | None) -> pa.Array:
    """The choice at each place (much faster than one Python value for each row)."""
    return pa.array(choices).take(pa.array(places, mask=nulls))


def _strings(identities: Integers, nulls: Flags | None) -> pa.Array:
    distinct, places = np.unique(identities, return_inverse=True)
    names = [
        WORDS[i] if i < len(WORDS) else f"{WORDS[i % len(WORDS)]}-{i}" for i in distinct.tolist()
    ]
    return _looked_up(names, places.astype(np.int64), nulls)


def _floats(identities: Integers, nulls: Flags | None) -> pa.Array:
    distinct, places = np.unique(identities, return_inverse=True)
    numbers = [ODD_FLOATS[i] if i < len(ODD_FLOATS) else i / 8 for i in distinct.tolist()]
    return _looked_up(np.array(numbers, dtype=np.float64), places.astype(np.int64), nulls)


def _time_array(plan: EventPlan, random: np.random.Generator, number: int) -> pa.Array:
    """Evenly spread over the batch's span, then moved back: for disorder, and for late rows."""
    spread = np.arange(plan.rows, dtype=np.int64) * plan.span_us // max(1, plan.rows)
    times = plan.start_us + number * plan.span_us + spread
    times -= random.integers(0, plan.disorder_us + 1, plan.rows)
    times -= np.where(
        random.random(plan.rows) < plan.late_share,
        random.integers(0, plan.late_us + 1, plan.rows),
        0,
    )
    if plan.ahead_share:
        times = np.where(random.random(plan.rows) < plan.ahead_share, FAR_US + spread, times)
    return pa.array(times, mask=_some(plan, random)).cast(pa.timestamp("us", tz="UTC"))


def _value_arrays(plan: EventPlan, random: np.random.Generator) -> dict[str, pa.Array]:
    cents = pa.array(random.integers(-100_000, 100_001, plan.rows), mask=_some(plan, random))
    return {
        "v": pa.array(random.integers(-1_000, 1_001, plan.rows), mask=_some(plan, random)),
        "x": pa.array(random.integers(-8_000, 8_001, plan.rows) / 8, mask=_some(plan, random)),
        "s": _looked_up(
            list(WORDS), random.integers(0, len(WORDS), plan.rows), _some(plan, random)
        ),
        "d": pc.multiply(cents.cast(pa.decimal128(19, 0)), pa.scalar(Decimal("0.01"))).cast(
            pa.decimal128(10, 2)
        ),
    }
