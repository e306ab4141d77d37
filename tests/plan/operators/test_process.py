"""A user's class as a node: the rows that it is given, and which state may become which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.errors import TopologyError
from anabranch.plan.notes import note_of
from anabranch.plan.operators.base import Travel
from anabranch.plan.operators.process import ProcessContents, ProcessPlan, process_plan
from anabranch.plan.panes import MARKED_SQL
from anabranch.topology import Field
from anabranch.topology.graph import Clock
from anabranch.topology.process import logic_of
from tests.plan.every_kind import COUNTED, LEFT, Counting, nodes

CLOCK = Clock("at", "timestamp")


def planned(*more: Field, columns: tuple[str, ...] | None = None, **given: Any) -> ProcessPlan:
    fields = (*LEFT, *more)
    logic = replace(logic_of(Counting, "event_time", LEFT[:1], fields), columns=columns)
    return process_plan("p", LEFT[:1], logic, fields, CLOCK, **given)


def test_rows_travel_whole_or_combined_per_key() -> None:
    whole, combined = planned(), planned(combined=COUNTED)
    assert (whole.travel, combined.travel) == (Travel.ROW_BY_ROW, Travel.PER_KEY)
    assert [each.name for each in whole.payload] == ["at", "v"]
    assert combined.payload == ()
    assert [each.name for each in combined.fields] == ["k", "n", "total"]
    assert type(combined.kept[-1].partial).__name__ == "LastTime"
    assert (whole.panes.width_us, combined.pane_sql()) == (
        1,
        f"if({MARKED_SQL}, t, 0L)",
    )


def test_columns_that_cannot_travel_are_refused_unless_the_class_does_not_read_them() -> None:
    tags = Field("tags", "map<string,int>")
    with pytest.raises(TopologyError, match=r"'p' cannot be given column 'tags' .* columns = "):
        planned(tags)
    assert [each.name for each in planned(tags, columns=("v",)).fields] == ["k", "v"]


def test_results_have_the_keys_and_what_the_class_declares() -> None:
    assert planned().result_fields == (LEFT[0], Field("rows", "bigint"))


def test_state_may_get_fields_with_defaults_and_nothing_else() -> None:
    node = nodes()["process"]
    fresh = note_of(node)
    assert isinstance(fresh.contents, ProcessContents)
    state = {**fresh.contents.state, "fields": []}
    older = replace(
        fresh,
        fingerprint={**fresh.fingerprint, "state": "Seen()"},
        contents=ProcessContents(keys=fresh.contents.keys, state=state, vectorised=False),
    )
    found = node.evolved(older, fresh, None)
    assert (found.note, found.refused) == (fresh, ())
    assert found.changed == ("state has state.rows new",)

    columns = replace(older, contents=replace_vectorised(older.contents))
    [refused] = node.evolved(columns, fresh, None).refused
    assert refused.startswith("state: the checkpoint has it as columns")


def replace_vectorised(contents: Any) -> ProcessContents:
    return ProcessContents(keys=contents.keys, state=contents.state, vectorised=True)
