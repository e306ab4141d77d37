"""From rows to combined rows, in the JVM: event time, lateness, pane, and the partials of each (key, pane).

What can be decided before a batch comes is part of the streaming query (`prepare`), so that Spark reads only the columns that are
needed and fixes the current time per batch. The rest is added to each batch (`Lift`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.plan.component import EVERYTHING, Component
from anabranch.plan.lifting import LIFT_FIRST
from anabranch.plan.panes import NEVER, Panes
from anabranch.plan.route import Route
from anabranch.spark.inspect import in_place, jseq
from anabranch.topology.graph import Source
from anabranch.topology.types import WHOLE, Array, micros_sql
from anabranch.topology.windows import Window

# Instead of a pane, rows that are in no window have one of these numbers; no event time comes near them.
_LEFT_OUT = -9_000_000_000_000_000_000
NO_TIME, OUTSIDE, LATE = "no event time", "outside", "late"
_FARTHEST_US = 8_000_000_000_000_000_000
_FEW_PANES = 1 << 12


def all_taken(pane: Array, panes: Panes, watermark_us: int | None) -> bool:
    """True when open windows take all of these panes: by far the most common case, and told without looking at each."""
    first, last = int(pane.min(initial=_FARTHEST_US)), int(pane.max(initial=-_FARTHEST_US))
    if first < -_FARTHEST_US or last - first > _FEW_PANES * panes.width_us:
        return False
    ends = panes.last_ends(np.arange(first, last + 1, panes.width_us))
    return bool((ends > (NEVER if watermark_us is None else watermark_us)).all())


def reasons(pane: Array, panes: Panes, watermark_us: int | None) -> Array:
    """Why no open window takes the rows of each of these panes; None where one does."""
    told, at = np.unique(pane, return_inverse=True)
    why = [
        NO_TIME
        if each == _LEFT_OUT
        else OUTSIDE
        if each < -_FARTHEST_US
        else LATE
        if panes.is_over(each, watermark_us)
        else None
        for each in told.tolist()
    ]
    return np.array([*why, None], dtype=object)[at]


def expression(value: object, columns: list[str]) -> Column:
    """A Column, the column of that name, or a Spark SQL expression; of several, in a tuple, a struct of a0, a1, ..."""
    if isinstance(value, tuple):
        return F.struct(*(expression(each, columns).alias(f"a{i}") for i, each in enumerate(value)))
    if isinstance(value, Column):
        return value
    return F.col(quoted(value)) if value in columns else F.expr(str(value))


def quoted(name: object) -> str:
    """A column name that Spark SQL takes as it is."""
    return "`{}`".format(str(name).replace("`", "``"))


def event_micros(source: Source) -> Column:
    """The event time in microseconds since 1970 UTC (of a time without zone: as if it were UTC); null where there is none."""
    kind = next(field.type for field in source.fields if field.name == source.event_time)
    t = quoted(source.event_time)
    if kind == "timestamp":
        text = f"unix_micros({t})"
    elif kind == "timestamp_ntz":
        text = micros_sql(t)
    elif kind == "date":
        text = f"unix_date({t}) * 86400000000L"
    elif source.unit_us == 0:
        whole = f"cast({t} as bigint)" if kind in WHOLE else f"try_cast(floor({t}) as bigint)"
        text = f"({whole} - pmod({whole}, 1000L)) div 1000L"
    elif kind in WHOLE:
        text = f"try_multiply(cast({t} as bigint), {source.unit_us}L)"
    else:
        text = f"try_cast(round({t} * {source.unit_us}) as bigint)"
    micros = F.expr(text)
    return micros if kind in {"timestamp", "date"} else F.when(micros.between(-_FARTHEST_US, _FARTHEST_US), micros)


def prepare(rows: DataFrame, component: Component, *, late: bool) -> DataFrame:
    """What a step needs of the mapped rows: keys, inputs, event time, pane, partition; and all of them where late rows are wanted."""
    columns = rows.columns
    keys = [field for field in component.slotted.keys if field != EVERYTHING]
    chosen = [F.col(quoted(field.name)).alias(f"k{i}") for i, field in enumerate(keys)] or [F.lit(0).alias("k0")]
    chosen.append(event_micros(component.source).alias("t"))
    for i, given in enumerate(component.inputs[1:], 1):
        value = F.lit(1) if given.expression is None else expression(given.expression, columns)
        chosen.append((value if given.where is None else F.when(expression(given.where, columns), value)).alias(f"x{i}"))
    if late:
        chosen.append(F.struct(*(F.col(quoted(name)) for name in columns)).alias("row"))
    return rows.select(*chosen).selectExpr("*", f"{_pane_sql(component.slotted.panes)} as pane", "spark_partition_id() as part")


class Lift:
    """Combines the rows of a step to one per key and pane, with its partials and its shard, in the partition of its slot.

    There is one exchange, to the slots. To lift first is to combine the rows where they are and send what is left; the slot task
    merges what several partitions have of one key and pane. To route first is to send the rows and combine them there.

    Whether a pane is late is left to the slot task: then the query is the same in every step, and the JVM keeps the code that
    it has compiled for it. Only where late rows are wanted must the query know the watermark, to keep these rows whole.
    """

    def __init__(self, component: Component) -> None:
        self._slotted = component.slotted
        self._keys = [f"k{i}" for i in range(len(component.slotted.keys))]
        self._cached: dict[object, Any] = {}

    def __call__(
        self,
        rows: DataFrame,
        watermark_us: int | None,
        route: Route,
        way: str = LIFT_FIRST,
        only: Iterable[int] | None = None,
    ) -> DataFrame:
        """The combined rows in the partitions of their slots; of some shards only, where told."""
        late = "row" in rows.columns
        if late:
            columns = [name for name in rows.columns if name != "row"]
            rows = rows.selectExpr(*columns, f"{_late_row_sql(self._slotted.panes, watermark_us)} as row")
        shard = f"pmod(hash({', '.join(self._keys)}), {len(route.slot_of)})"
        sharded = self._once(shard, lambda: jseq(rows, ["*", f"{shard} as shard"]))
        slot_sql = f"get(array({', '.join(map(str, route.slot_of))}), shard)"
        slot = self._once(slot_sql, lambda: F.expr(slot_sql))
        if way == LIFT_FIRST:
            lifted = self._combined(in_place(rows, "part"), ["part"], late=late)
            lifted = DataFrame(lifted._jdf.select(sharded), rows.sparkSession)
            return _only(lifted, only).repartitionById(route.slots, slot)
        routed = _only(DataFrame(rows._jdf.select(sharded), rows.sparkSession), only).withColumn("slot", slot)
        return self._combined(routed.repartitionById(route.slots, "slot"), ["slot", "shard"], late=late)

    def _combined(self, rows: DataFrame, where: list[str], *, late: bool) -> DataFrame:
        """One row for each key and pane in each place; Spark knows already that the rows lie there, and needs no exchange."""

        def columns() -> tuple[Any, Any, Any]:
            partials = [
                f"{sql.format(x=f'x{kept.input}' if kept.input else '1', t='t')} as {name}"
                for kept in self._slotted.kept
                for name, sql in zip(kept.lifted, kept.partial.lift, strict=True)
            ]
            by = [*where, *self._keys, "pane", *(["row"] if late else [])]
            return jseq(rows, by), jseq(rows, partials[:1]).head(), jseq(rows, partials[1:])

        by, first, rest = self._once((*where, late), columns)
        return DataFrame(rows._jdf.groupBy(by).agg(first, rest), rows.sparkSession)

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        """Columns in the JVM, made once: each is a few calls into it, which together took a tenth of a step."""
        if key not in self._cached:
            self._cached[key] = make()
        return self._cached[key]


def _only(rows: DataFrame, shards: Iterable[int] | None) -> DataFrame:
    return rows if shards is None else rows.filter(F.col("shard").isin(list(shards)))


def _pane_sql(panes: Panes) -> str:
    pane = f"t - pmod(t - {panes.offset_us}L, {panes.width_us}L)"
    if not any(window.gapless for window in panes.windows):
        pane = f"if({_greatest(panes)} is null, {_LEFT_OUT + 1}L, {pane})"
    return f"if(t is null, {_LEFT_OUT}L, {pane})"


def _late_row_sql(panes: Panes, watermark_us: int | None) -> str:
    """The whole row where no open window takes it."""
    end = _greatest(panes)
    late = "" if watermark_us is None else f" or {end} <= {watermark_us}L"
    return f"if(t is null or {end} is null{late}, row, null)"


def _greatest(panes: Panes) -> str:
    """The end of the last window that contains t, null where none does."""
    longest = {(w.every_us, w.offset_us): w for w in sorted(panes.windows, key=lambda w: w.length_us)}
    ends = [_last_end(window) for window in longest.values()]
    return ends[0] if len(ends) == 1 else f"greatest({', '.join(ends)})"


def _last_end(window: Window) -> str:
    into = f"pmod(t - {window.offset_us}L, {window.every_us}L)"
    end = f"t - {into} + {window.length_us}L"
    return f"({end})" if window.gapless else f"if({into} < {window.length_us}L, {end}, null)"


def observed_micros(metrics: Any, name: str) -> int | None:
    """The largest event time in an observation of a batch, None where it had none."""
    row = metrics.get(name)
    return None if row.isEmpty() or row.get().isNullAt(0) else int(row.get().getLong(0))
