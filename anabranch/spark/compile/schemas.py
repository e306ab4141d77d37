"""Converts schemas between Spark, Arrow and the graph; schemas of results and late rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from anabranch.plan.model import Node
from anabranch.plan.operators.base import result_schema
from anabranch.spark.versions import arrow_schema
from anabranch.topology.graph import Field


def fields_of(schema: StructType) -> tuple[Field, ...]:
    """The columns of a DataFrame, by name and type."""
    return tuple(Field(field.name, field.dataType.simpleString()) for field in schema.fields)


def struct_of(fields: Sequence[Field]) -> StructType:
    """Columns as Spark's schema."""
    return StructType([StructField(each.name, DataType.fromDDL(each.type)) for each in fields])


def arrow_of(fields: Sequence[Field]) -> pa.Schema:
    """Columns as Arrow's schema, as Spark would make it."""
    return arrow_schema(struct_of(fields))


def spark_schema(node: Node) -> tuple[StructType, pa.Schema]:
    """The columns of results, for Spark and for Arrow."""
    return struct_of(node.plan.written_fields), result_schema(node.plan)


def late_schema(node: Node) -> tuple[StructType, pa.Schema]:
    """The columns of late rows, for Spark and for Arrow."""
    return struct_of(node.late_fields), arrow_of(node.late_fields)
