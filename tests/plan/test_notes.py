"""What a checkpoint notes of each kind is enough to read its state again."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.plan.notes import OperatorNote, note_of
from tests.plan.every_kind import nodes


@pytest.mark.parametrize("kind", ["windows", "sessions", "join", "process"])
def test_a_note_comes_back_from_json_as_the_kind_that_it_is_of(kind: str) -> None:
    node = nodes()[kind]
    note = note_of(node)
    again = msgspec.json.decode(msgspec.json.encode(note), type=OperatorNote)
    assert again == note
    assert (again.contents.kind, type(again.contents)) == (kind, type(note.contents))
    assert again.fingerprint == node.fingerprint()
    assert (again.pane_us, again.after_step) == (node.plan.panes.width_us, 0)
    assert again.contents.key_fields() == node.plan.keys


@pytest.mark.parametrize("kind", ["windows", "sessions", "join"])
def test_the_plan_from_a_note_merges_the_same_columns_over_the_same_panes(kind: str) -> None:
    node = nodes()[kind]
    note = note_of(node)
    plan = note.contents.plan(node.name, note)
    assert type(plan) is type(node.plan)
    assert (plan.part, plan.keys, plan.panes) == (node.name, node.plan.keys, node.plan.panes)
    assert plan.columns == node.plan.columns
