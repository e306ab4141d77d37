"""The columns that operators need, as Spark SQL: time, keys, inputs, shard and slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.plan.exchange import LATE_ROW
from anabranch.plan.ids import ComponentId, PartId
from anabranch.plan.model import Component, Node
from anabranch.plan.operators.base import EVERYTHING
from anabranch.plan.panes import FARTHEST_US
from anabranch.plan.route import Route
from anabranch.topology.graph import Clock, Map
from anabranch.types import WHOLE, micros_sql


def expression(value: object, columns: list[str]) -> Column:
    """The Column for a value: a Column, the name of a column, or a Spark SQL expression.

    A tuple of values becomes a struct of a0, a1, ...
    """
    if isinstance(value, tuple):
        return F.struct(*(expression(each, columns).alias(f"a{i}") for i, each in enumerate(value)))
    if isinstance(value, Column):
        return value
    return F.col(quoted(value)) if value in columns else F.expr(str(value))


def quoted(name: object) -> str:
    """A column name in backticks, as Spark SQL needs it."""
    return "`{}`".format(str(name).replace("`", "``"))


def event_micros(clock: Clock) -> Column:
    """The event time in microseconds since 1970 UTC; null if a row has none.

    A time without zone counts as UTC.
    """
    kind, t = clock.type, quoted(clock.column)
    if kind.startswith("struct<"):  # a window: the event time is just before its end
        text = (
            micros_sql(f"{t}.end") if clock.moment == "timestamp_ntz" else f"unix_micros({t}.end)"
        )
        return F.expr(f"{text} - 1L")
    if kind == "timestamp":
        text = f"unix_micros({t})"
    elif kind == "timestamp_ntz":
        text = micros_sql(t)
    elif kind == "date":
        text = f"try_multiply(cast(unix_date({t}) as bigint), 86400000000L)"
    elif clock.unit_us == 0:
        whole = f"cast({t} as bigint)" if kind in WHOLE else f"try_cast(floor({t}) as bigint)"
        text = f"({whole} - pmod({whole}, 1000L)) div 1000L"
    elif kind in WHOLE:
        text = f"try_multiply(cast({t} as bigint), {clock.unit_us}L)"
    else:
        text = f"try_cast(round({t} * {clock.unit_us}) as bigint)"
    micros = F.expr(text)
    return (
        micros
        if kind in {"timestamp", "date"}
        else F.when(micros.between(-FARTHEST_US, FARTHEST_US), micros)
    )


def needs(rows: DataFrame, node: Node, *, late: bool = False) -> DataFrame:
    """The columns that a node needs: event time, keys, inputs and the columns that it keeps.

    With `late`, a struct of all columns too.
    """
    columns = rows.columns
    keys = [field for field in node.plan.keys if field != EVERYTHING]
    wanted = [F.col(quoted(field.name)).alias(f"k{i}") for i, field in enumerate(keys)] or [
        F.lit(0).alias("k0")
    ]
    wanted.append(event_micros(node.feed.clock).alias("t"))
    for i, given in enumerate(node.inputs[1:], 1):
        value = F.lit(1) if given.expression is None else expression(given.expression, columns)
        wanted.append(
            (
                value if given.where is None else F.when(expression(given.where, columns), value)
            ).alias(f"x{i}")
        )
    wanted += [F.col(quoted(each.name)).alias(f"r{i}") for i, each in enumerate(node.plan.payload)]
    if late:
        wanted.append(F.struct(*(F.col(quoted(name)) for name in columns)).alias(LATE_ROW))
    return rows.select(*wanted)


def mapped(rows: DataFrame, maps: Sequence[Map]) -> DataFrame:
    """The rows after some maps."""
    for each in maps:
        rows = each.fn(rows)
    return rows


def partition_sql(
    components: Sequence[Component],
    routes: Mapping[ComponentId, Route],
    number: Mapping[PartId | str, int],
) -> dict[int, str]:
    """For each node, the SQL of the partition: that of the slot to which the row's shard belongs.

    Partitions are the slots of the first component, then those of the second, and so on.
    """
    texts, first = {}, 0
    for component in components:
        route = routes[component.name]
        slots = ", ".join(str(first + slot) for slot in route.slot_of)
        texts.update(
            {
                number[node.name]: f"get(array({slots}), shard)"
                for node in component.nodes
                if node.name in number
            }
        )
        first += route.slots
    return texts


def shard_sql(component: Component, node: Node, places: Mapping[str, str], shards: int) -> str:
    """The shard of a row: a hash of the component's attributes."""
    keys = ", ".join(places[f"k{i}"] for i in component.by(node))
    return f"pmod(hash({keys}), {shards})"


@dataclass(frozen=True, slots=True)
class Reader:
    """A node or an apply that reads the rows of a source or of an apply.

    `ready` selects what it needs, `places` has the shared column for each of its own columns.
    """

    name: PartId | str
    number: int
    maps: tuple[Map, ...]
    places: Mapping[str, str]
    ready: Callable[[DataFrame], DataFrame]

    @property
    def what(self) -> str:
        """Its name in messages."""
        maps = ", ".join(each.name for each in self.maps)
        return f"operator {self.name!r} after {maps or 'its stream'}"

    def mapped(self, rows: DataFrame) -> DataFrame:
        """The columns that it needs, after its maps."""
        return self.ready(mapped(rows, self.maps))
