"""What was measured, as values, and what follows from it: which batches count, medians, ratios.

Both streaming sides are measured by Spark's own clock: the time of a whole trigger
(`triggerExecution`). It includes reading, all state, results, commits and the overheads of
Structured Streaming. The first batches do not count, because code is still being compiled and the
longest window is not full yet. Both sides are measured over the same batches of the same files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

MIN_WARM = 2
MIN_COUNTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRun:
    """One run of one side over the input, from an empty state."""

    side: str
    batch_s: tuple[float, ...]  # the trigger of each batch with input, in order
    watermark_us: int  # the watermark up to which the side had closed windows
    files: tuple[Path, ...]  # results
    left_out: int = 0  # rows that no window took
    lasted_s: float = 0.0  # of a run that was cut short
    queries: tuple[
        str, ...
    ] = ()  # Spark's ids of the runs of its queries; their jobs have these as group
    inner_s: tuple[float, ...] = ()  # the part inside the step (Anabranch only)
    slot_s: tuple[
        float, ...
        # Of all slots: merging, forming windows, writing state; without waiting for rows and
        # without writing results.
    ] = ()
    state_bytes: int = 0  # the maximum over all shards together (Anabranch only)
    peak_mb: Mapping[str, int] = field(
        default_factory=dict
    )  # by kind of process, since they started (Anabranch only)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A side's speed over the batches that count."""

    batch_s: float  # median
    rows_per_s: float  # median
    each_s: tuple[tuple[float, ...], ...]  # one list per run, of all its batches


def warm_batches(longest_us: int, batch_span_us: float, batches: int) -> int:
    """How many batches at the start do not count.

    The longest window must be full, but some batches must remain.
    """
    wanted = max(MIN_WARM, math.ceil(longest_us / batch_span_us))
    return max(0, min(wanted, batches - MIN_COUNTED))


def counted(runs: Sequence[SideRun], warm: int) -> range:
    """The batches that count: after the warm ones, up to the last that every run has."""
    return range(warm, min(len(run.batch_s) for run in runs))


def speed(runs: Sequence[SideRun], batches: range, rows: Sequence[int]) -> Speed:
    """The median over all runs and all batches that count."""
    pairs = [(run.batch_s[batch], rows[batch]) for run in runs for batch in batches]
    return Speed(
        batch_s=median(seconds for seconds, _ in pairs),
        rows_per_s=median(count / seconds for seconds, count in pairs),
        each_s=tuple(run.batch_s for run in runs),
    )
