"""Ids of parts and components: values that read like names, but are not names."""

from __future__ import annotations

from anabranch.plan.ids import APPLIES, ComponentId, PartId
from anabranch.topology.graph import ALL_APPLIES


def test_a_part_reads_like_its_name_in_text_messages_and_formats() -> None:
    part = PartId("w", "5 minutes")
    assert (str(part), str(PartId("w"))) == ("w: 5 minutes", "w")
    assert f"{part!r} {part:>13}" == "'w: 5 minutes'  w: 5 minutes"


def test_ids_with_the_same_text_may_differ() -> None:
    assert str(PartId("w: right")) == str(PartId("w", "right"))
    assert PartId("w: right") != PartId("w", "right")
    assert ComponentId(("a + b",)) != ComponentId(("a", "b"))
    assert len({PartId("w"), PartId("w"), PartId("w", "right")}) == 2


def test_a_component_reads_as_its_operators_and_all_applies_have_a_name_of_their_own() -> None:
    assert str(ComponentId(("a", "b"))) == "a + b"
    assert str(APPLIES) == ALL_APPLIES
    assert ComponentId((ALL_APPLIES,)) != APPLIES


def test_parts_are_ordered_by_operator_and_part() -> None:
    parts = [PartId("b"), PartId("a", "x"), PartId("a")]
    assert sorted(parts) == [PartId("a"), PartId("a", "x"), PartId("b")]
