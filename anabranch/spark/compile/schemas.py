"""Schemas: Spark's as the graph knows them, and those of results and late rows."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    DataType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.plan.model import Node
from anabranch.plan.operators.base import EVERYTHING, key_schema
from anabranch.plan.operators.joins import JoinSide
from anabranch.plan.operators.process import ProcessPlan
from anabranch.runtime.results import result_schema
from anabranch.topology.graph import EARLY_COLUMN, Field


def fields_of(schema: StructType) -> tuple[Field, ...]:
    """The columns of a DataFrame, by name and type."""
    return tuple(Field(field.name, field.dataType.simpleString()) for field in schema.fields)


def spark_schema(node: Node) -> tuple[StructType, pa.Schema]:
    """The columns of results, for Spark and for Arrow."""
    plan = node.slotted
    if isinstance(plan, JoinSide):
        columns = [
            StructField(each.name, DataType.fromDDL(each.type)) for each in plan.join.result_fields
        ]
        return StructType(columns), plan.join.result_schema()
    if isinstance(plan, ProcessPlan):
        columns = [
            StructField(each.name, DataType.fromDDL(each.type)) for each in plan.result_fields
        ]
        return StructType(columns), plan.result_schema()
    moment = TimestampNTZType() if plan.time_type == "timestamp_ntz" else TimestampType()
    fields = [
        StructField(key.name, DataType.fromDDL(key.type)) for key in plan.keys if key != EVERYTHING
    ]
    fields.append(
        StructField(
            "window", StructType([StructField("start", moment), StructField("end", moment)])
        )
    )
    fields.append(StructField("window_name", StringType()))
    fields += [StructField(EARLY_COLUMN, BooleanType())] if plan.early else []
    fields += [StructField(each.named.name, DataType.fromDDL(each.type)) for each in plan.results]
    return StructType(fields), result_schema(plan, key_schema(plan))


def late_schema(node: Node) -> tuple[StructType, pa.Schema]:
    """The columns of late rows: those of the stream, or of both that are joined, and why they were left out."""
    slotted = node.slotted
    seen = node.feed.fields if node.process is None else node.process.fields
    columns = (
        slotted.join.late_fields
        if isinstance(slotted, JoinSide)
        else (*seen, Field("reason", "string"))
    )
    schema = StructType([StructField(each.name, DataType.fromDDL(each.type)) for each in columns])
    return schema, to_arrow_schema(schema, timezone="UTC")
