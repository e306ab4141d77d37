"""Two `process` classes for chaos runs, and their expected results, computed by the tester.

One has timers, a time to live and state that it forgets. The other is vectorised, over rows that
are combined in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import anabranch as ab
from anabranch.runtime.process.handles import Context, Rows, SlotContext, SlotRows, SlotState
from anabranch.testing.process import ProcessTester
from anabranch.types import FLOATING, WHOLE

_NAMES = {
    **{kind: name for name, kind in (WHOLE | FLOATING).items()},
    pa.string(): "string",
    pa.date32(): "date",
    pa.bool_(): "boolean",
}


@dataclass
class Tally:
    """What is known of a key."""

    rows: int = 0
    total: int = 0


class Tallied:
    """Rows per key so far, again after 40 seconds of silence; state expires after a while."""

    state: Tally
    output = "what string, n bigint, total bigint, happened timestamp"
    event_time = "happened"
    ttl = "4 minutes"
    columns = ("v",)

    def process(
        self,
        key: Any,  # noqa: ARG002 - every class is given it
        rows: Rows,
        state: Tally,
        ctx: Context,
    ) -> Iterator[tuple[Any, ...]]:
        """Adds rows up, and sets the timer again."""
        state.rows += len(rows)
        state.total += sum(value or 0 for value in rows.v)
        ctx.timer(ctx.time_us + 40_000_000 if ctx.time_us is not None else 0)
        yield "rows", state.rows, state.total, ctx.time
        if state.rows > 30:
            ctx.forget()

    def on_timer(
        self,
        key: Any,  # noqa: ARG002 - every class is given it
        state: Tally,
        ctx: Context,
    ) -> Iterator[tuple[Any, ...]]:
        """Reports the silence, twice at most."""
        yield f"silent{ctx.name}", state.rows, state.total, ctx.time
        if ctx.name == "":
            assert ctx.time is not None
            ctx.timer(ctx.time + timedelta(minutes=1), name=" again")


class Added:
    """The number of rows of a key and their sum; Spark SQL combines the rows of a step."""

    state = {"n": "bigint", "total": "bigint"}  # noqa: RUF012 - it is read once
    output = "n bigint, total bigint"
    columns = {"rows": ab.count(), "sum": ab.sum("v")}  # noqa: RUF012

    def process(
        self,
        rows: SlotRows,
        state: SlotState,
        ctx: SlotContext,  # noqa: ARG002 - every class is given it
    ) -> dict[str, Any]:
        """Adds what has come; a sum of nothing but nulls is null."""
        state.n += rows["rows"]
        state.total += rows.table["sum"].fill_null(0).to_numpy()
        return {"n": state.n, "total": state.total}


PROCESSES: dict[str, tuple[type, str]] = {
    "tallied": (Tallied, "event_time"),
    "added": (Added, "arrival"),
}


def expected_of(
    name: str, steps: Sequence[pa.Table | None], keys: Sequence[str], delay_us: int, *, finish: bool
) -> pa.Table:
    """The results of all steps of a process; None is a closing step."""
    names = [*keys, "at", "v"]
    kinds = next(step for step in steps if step is not None).schema
    schema = ", ".join(
        f"{name} {_NAMES.get(kinds.field(name).type, 'timestamp')}" for name in names
    )
    cls, order = PROCESSES[name]
    tester = ProcessTester(cls, by=list(keys), schema=schema, event_time="at", order=order)
    newest: int | None = None
    found: list[dict[str, Any]] = []
    for step in steps:
        rows = [] if step is None else step.select(names).to_pylist()
        found += tester.step(rows, watermark=None if newest is None else newest - delay_us)
        seen = None if step is None else pc.max(step["at"]).cast(pa.int64()).as_py()
        newest = max((us for us in (newest, seen) if us is not None), default=None)
    if finish:
        found += tester.finish()
    return pa.Table.from_pylist(found, schema=tester.result_schema)
