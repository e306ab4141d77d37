"""Event times are judged before anything is made of them: one too far ahead of the clock must not
move the watermark, and one near year 1 or year 9999 would have windows that Python cannot show.

Such a row has a mark in the place of its event time. A mark is less than every time, so it is never
the latest one.

The job of a step does it, not the streaming query: in that, Spark puts the clock into the code that
it compiles, and would compile it again for every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.plan.model import Plan
from anabranch.plan.panes import AHEAD, FIRST_US, LAST_US, OUT_OF_RANGE
from anabranch.spark.compile.columns import event_micros
from anabranch.spark.compile.rowwise import chosen_sql
from anabranch.topology.graph import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Finds the event times of a source that are too far away."""

    ahead_us: int | None  # of the clock
    reach_us: int  # how far windows reach from their rows

    def sql(self, clock_us: int) -> str:
        """The event time t, or a mark where it is too far away, as Spark SQL."""
        first, last = self._range
        beyond = f"when t < {first}L or t > {last}L then {OUT_OF_RANGE}L"
        if self.ahead_us is None:
            return f"case {beyond} else t end"
        # An element of an array, at a place that Spark cannot know, is data and not code: the query
        # is not compiled again for another clock.
        limit = f"get(array({clock_us + min(self.ahead_us, LAST_US)}L), if(t is null, 1, 0))"
        return f"case when t > {limit} then {AHEAD}L {beyond} else t end"

    def observed(self, rows: DataFrame, clock: Clock, name: str) -> DataFrame:
        """The same rows of a stream. Spark observes the latest time that is not too far away."""
        t = event_micros(clock)
        near = t.between(*self._range)
        if self.ahead_us is not None:
            # Spark puts the clock into code here, and compiles it for every batch: some 40 ms.
            limit = f"unix_micros(current_timestamp()) + {min(self.ahead_us, LAST_US)}L"
            near &= t <= F.expr(limit)
        return rows.observe(name, F.max(F.when(near, t)).alias("max_event"))

    @property
    def _range(self) -> tuple[int, int]:
        return FIRST_US + self.reach_us, LAST_US - self.reach_us


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


def judging_sql(judges: Mapping[int, Judge], clock_us: int) -> str:
    """The event time of a row, or a mark; `judges` are by the number of the operator it is for."""
    return chosen_sql("to", {number: each.sql(clock_us) for number, each in judges.items()})


def with_judged_times(rows: DataFrame, text: str) -> DataFrame:
    """Rows with another event time t; nothing else of them changes."""
    return rows.selectExpr(*(f"{text} as t" if name == "t" else name for name in rows.columns))


def observed_micros(metrics: Any, name: str) -> int | None:
    """The largest event time in an observation of a batch; None if it has none."""
    row = metrics.get(name)
    return None if row.isEmpty() or row.get().isNullAt(0) else int(row.get().getLong(0))
