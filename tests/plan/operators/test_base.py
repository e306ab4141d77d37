"""What all kinds have in common: keys, schemas, and when a row is late."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from anabranch.plan.operators.base import EVERYTHING, PartialInput, key_schema, result_schema
from anabranch.plan.panes import MARKED_SQL
from anabranch.topology import Field
from tests.plan.every_kind import nodes, plan


def test_an_input_reads_as_what_the_user_wrote() -> None:
    texts = [PartialInput(expression=e, where=w) for e, w in ((None, None), ("v", "v > 0"))]
    assert list(map(str, texts)) == ["*", "v where v > 0"]


def test_keys_are_numbered_columns_and_a_global_aggregate_has_one_that_nobody_named() -> None:
    node = nodes()["windows"]
    assert key_schema(node.plan) == pa.schema([("k0", pa.int64())])
    everything = replace(node, plan=replace(node.plan, keys=(EVERYTHING,)))
    assert key_schema(everything.plan) == pa.schema([("k0", pa.int32())])
    assert (node.by, everything.by) == ((Field("k", "bigint"),), ())
    assert (node.attributes, everything.attributes) == ({"k: bigint"}, {""})


@pytest.mark.parametrize("kind", ["windows", "sessions", "join", "process"])
def test_every_kind_has_a_schema_of_results_with_the_columns_that_it_writes(kind: str) -> None:
    given = nodes()[kind].plan
    assert result_schema(given).names == [each.name for each in given.written_fields]


def test_without_a_watermark_only_rows_without_a_time_or_a_window_are_late() -> None:
    given = nodes()["windows"].plan
    end = given.panes.last_end_sql()
    assert given.late_sql(None) == f"(t is null or {MARKED_SQL} or {end} is null)"
    assert f"{end} <= get(array(77L), if(t is null, 1, 0))" in given.late_sql(77)
    assert given.outside_sql() == f"{end} is null"


def test_every_part_holds_state_except_the_right_side_of_a_join() -> None:
    holding = [str(node.name) for node in plan().nodes if node.plan.holds_state]
    assert holding == ["w", "w: session 5 seconds", "j", "p"]
