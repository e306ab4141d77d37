"""Event times are checked where rows are read.

One that is too far ahead of the clock must not move the watermark. One near year 1 or year 9999
would have windows that Python cannot show. In such rows a mark replaces the event time. A mark is
less than every time, so it is never the latest one.
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
    """Finds the event times of a source that are too far away."""

    ahead_us: int | None  # of the clock
    reach_us: int  # how far windows reach from their rows

    def sql(self, now: str, t: str = "t") -> str:
        """SQL of an event time, or a mark if it is too far away. `now` is the clock as SQL."""
        first, last = FIRST_US + self.reach_us, LAST_US - self.reach_us
        beyond = f"when {t} < {first}L or {t} > {last}L then {OUT_OF_RANGE}L"
        if self.ahead_us is None:
            return f"case {beyond} else {t} end"
        # Spark does not know the index in advance, so the array is data and not code. The query is
        # not compiled again for another clock.
        limit = f"get(array({now} + {min(self.ahead_us, LAST_US)}L), if({t} is null, 1, 0))"
        return f"case when {t} > {limit} then {AHEAD}L {beyond} else {t} end"

    def observed(self, rows: DataFrame, clock: Clock, now: str, name: str) -> DataFrame:
        """The same rows. Spark observes their latest event time under a name, without marks."""
        timed = rows.select("*", event_micros(clock).alias(_TIME))
        judged = timed.withColumn(_TIME, F.expr(self.sql(now, _TIME)))
        counted = F.when(F.col(_TIME) >= -FARTHEST_US, F.col(_TIME))
        return judged.observe(name, F.max(counted).alias("max_event")).drop(_TIME)


def judges_of(plan: Plan) -> dict[str, Judge]:
    """The judge of each source, and of the applies that read it."""
    # One margin for all: a row is judged once for all operators. Operators that read results judge
    # these themselves.
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
    """Rows in which the event times that applies returned are judged too.

    `judges` are by the number of the operator that a row is for.
    """
    if not judges:
        return rows
    texts = " ".join(f"when {to} then {each.sql(f'{clock_us}L')}" for to, each in judges.items())
    t = f"case to {texts} else t end"
    return rows.selectExpr(*(f"{t} as t" if name == "t" else name for name in rows.columns))


def observed_micros(metrics: Any, name: str) -> int | None:
    """The largest event time in an observation of a batch; None if it has none."""
    row = metrics.get(name)
    return None if row.isEmpty() or row.get().isNullAt(0) else int(row.get().getLong(0))
