"""Packs rows of several operators into shared columns, and makes the aggregates over these.

A row of a source becomes one row for each of its readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.plan.exchange import Packed
from anabranch.plan.ids import PartId
from anabranch.plan.model import Node
from anabranch.spark.compile.columns import Reader, mapped
from anabranch.spark.compile.rowwise import RowWise, Taken, chosen

# The column with the operator that a row is for. The source may have a column `to` itself.
_TO = "__to"


def packed_rows(
    frame: DataFrame, readers: Sequence[Reader], packed: Packed, *, tagged: bool
) -> DataFrame:
    """The rows of one source for each of its readers, in the columns that all share."""
    stays: dict[int, Column] = {}
    columns: dict[int, dict[str, Column]] = {}
    if len(readers) == 1:
        rows = readers[0].ready(mapped(frame, readers[0].maps))
        columns[readers[0].number] = {name: F.col(name) for name in rows.columns}
        tags = [F.lit(readers[0].number).alias("to")]
    else:
        every: dict[int, Taken] = {}
        common = _common_maps(readers)
        base = mapped(frame, readers[0].maps[:common])
        rowwise = RowWise(frame.sparkSession, base.schema)
        for each in readers:
            rest = replace(each, maps=each.maps[common:])
            every[each.number] = rowwise.take(rest.mapped, rest.what)
        columns = {number: dict(taken.columns) for number, taken in every.items()}
        stays = {number: taken.stays for number, taken in every.items() if taken.stays is not None}
        rows = rowwise.bind(base).select(
            "*", F.explode(F.array(*(F.lit(each.number) for each in readers))).alias(_TO)
        )
        rows = rowwise.stepped(rows, every, _TO)
        tags = [F.col(_TO).alias("to")]
    if stays:
        rows = rows.filter(chosen(_TO, stays, F.lit(True)))
    filled: dict[str, dict[int, Column]] = {}
    for each in readers:
        for name, place in each.places.items():
            filled.setdefault(place, {})[each.number] = columns[each.number][name]
    made = [
        _of_place(filled.get(place, {}), kind, alone=len(readers) == 1).alias(place)
        for place, kind in [
            ("t", "bigint"),
            *((each.name, each.type) for each in packed.columns),
        ]
    ]
    return rows.select(*(tags if tagged else []), *made)


def lift_aggregates(
    nodes: Sequence[Node], packed: Packed, number: Mapping[PartId | str, int]
) -> tuple[dict[PartId, dict[str, str]], list[str]]:
    """For each node, the column of each of its lifted values; and the expressions of all columns.

    Nodes share an expression where they can. A shared column holds other values in rows of other
    nodes. These must not be aggregated: their sums may overflow.
    """
    users: dict[tuple[str, str], list[Node]] = {}
    filled: dict[str, list[Node]] = {}
    lifts = [
        (node, name, sql, packed.places[node.name][f"x{kept.input}"] if kept.input else "1")
        for node in nodes
        for kept in node.plan.kept
        for name, sql in zip(kept.lifted, kept.partial.lift, strict=True)
    ]
    for node, _, sql, place in lifts:
        if node not in users.setdefault((sql, place), []):
            users[sql, place].append(node)
    for node in nodes:
        for place in packed.places[node.name].values():
            filled.setdefault(place, []).append(node)
    columns = {key: f"a{i}" for i, key in enumerate(users)}
    texts = []
    for (sql, place), mine in users.items():
        alone = place == "1" or len(mine) == len(filled[place])
        of = ", ".join(str(number[node.name]) for node in mine)
        mine_only = place if alone else f"(if(to in ({of}), {place}, null))"
        texts.append(f"{sql.format(x=mine_only, t='t')} as {columns[sql, place]}")
    lifted: dict[PartId, dict[str, str]] = {node.name: {} for node in nodes}
    for node, name, sql, place in lifts:
        lifted[node.name][name] = columns[sql, place]
    return lifted, texts


def _of_place(columns: Mapping[int, Column], kind: str, *, alone: bool) -> Column:
    """The value of a shared column: that of the row's own node, or null if the node has none."""
    if not columns:
        return F.lit(None).cast(kind)
    return next(iter(columns.values())) if alone else chosen(_TO, columns)


def _common_maps(readers: Sequence[Reader]) -> int:
    """How many maps the readers have in common."""
    shortest = min(len(each.maps) for each in readers)
    return next(
        (i for i in range(shortest) if len({each.maps[i].name for each in readers}) > 1), shortest
    )
