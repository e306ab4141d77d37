"""Event times are judged where rows are read: one too far ahead of the clock must not move the
watermark, and one near year 1 or year 9999 would have windows that Python cannot show.

Such a row has a mark in the place of its event time. A mark is less than every time, so it is never
the latest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.plan.model import Plan
from anabranch.plan.panes import AHEAD, FARTHEST_US, FIRST_US, LAST_US, OUT_OF_RANGE
from anabranch.spark.compile.columns import event_micros
from anabranch.topology.graph import Clock

# In a streaming query Spark puts the time of the batch here.
BATCH_CLOCK = "unix_micros(current_timestamp())"
_TIME = "__event_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Which event times of a source are too far away."""

    ahead_us: int | None  # of the clock
    reach_us: int  # how far windows reach from their rows

    def sql(self, now: str, t: str = "t") -> str:
        """An event time, or a mark where it is too far away. `now` is the clock as Spark SQL."""
        first, last = FIRST_US + self.reach_us, LAST_US - self.reach_us
        beyond = f"when {t} < {first}L or {t} > {last}L then {OUT_OF_RANGE}L"
        if self.ahead_us is None:
            return f"case {beyond} else {t} end"
        # An element of an array, at a place that Spark cannot know, is data and not code: the query
        # is not compiled again for another clock.
        limit = f"get(array({now} + {min(self.ahead_us, LAST_US)}L), if({t} is null, 1, 0))"
        return f"case when {t} > {limit} then {AHEAD}L {beyond} else {t} end"

    def observed(self, rows: DataFrame, clock: Clock, now: str, name: str) -> DataFrame:
        """The same rows. Spark observes the latest of their times under a name, marks excepted."""
        timed = rows.select("*", event_micros(clock).alias(_TIME))
        judged = timed.withColumn(_TIME, F.expr(self.sql(now, _TIME)))
        counted = F.when(F.col(_TIME) >= -FARTHEST_US, F.col(_TIME))
        return judged.observe(name, F.max(counted).alias("max_event")).drop(_TIME)


def judges_of(plan: Plan) -> dict[str, Judge]:
    """What judges the event times of each source, and of what applies make of it."""
    # One margin for all: a row is judged once, whichever operators take it. Those that read results
    # judge these themselves.
    reading = [node for node in plan.nodes if node.feed.stream in plan.entries]
    reaches = [node.plan.panes.reach_us for node in reading]
    reach_us = max([*reaches, *(each.delay_us for each in plan.sources)])
    found = {each.name: Judge(ahead_us=each.ahead_us, reach_us=reach_us) for each in plan.sources}
    for each in plan.applies:
        found[each.name] = found[each.feed.stream]
    return found


def judged_after_applies(
    rows: DataFrame, judges: Mapping[int, Judge], clock_us: int | None
) -> DataFrame:
    """Rows with judged event times where applies have made them, by the operator they are for."""
    if not judges:
        return rows
    texts = " ".join(f"when {to} then {each.sql(f'{clock_us}L')}" for to, each in judges.items())
    t = f"case to {texts} else t end"
    return rows.selectExpr(*(f"{t} as t" if name == "t" else name for name in rows.columns))


def observed_micros(metrics: Any, name: str) -> int | None:
    """The largest event time in an observation of a batch, None where it had none."""
    row = metrics.get(name)
    return None if row.isEmpty() or row.get().isNullAt(0) else int(row.get().getLong(0))
